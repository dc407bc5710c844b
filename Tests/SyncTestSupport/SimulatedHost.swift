private import Glibc
package import SyncStore

/// A machine for one test: simulated storage, a manual clock, a seeded generator.
package final class SimulatedHost: Sendable {
  /// Its disk.
  package let storage: SimulatedStorage
  /// How stores on it are compacted.
  package let compacting: Environment.CompactionMode
  /// Whether the stores on it are encrypted.
  package let isEncrypted: Bool
  private let actors: (@Sendable () -> ActorID)?
  private let state: Locked<State>

  private struct State {
    var time: UInt64
    var random: SplitMix64
    var boots = 1
    var processes = 1
    var machine: String
  }

  /// A machine whose clock shows `time` milliseconds since 1970. `actors` generates the actors of its stores.
  package init(
    seed: UInt64 = 1, time: UInt64 = 1_700_000_000_000, machine: String = "one",
    storage: SimulatedStorage = SimulatedStorage(), compacting: Environment.CompactionMode = .byNextWriter,
    encrypted: Bool = SimulatedHost.encryptsByDefault, actors: (@Sendable () -> ActorID)? = nil
  ) {
    self.storage = storage
    self.compacting = compacting
    isEncrypted = encrypted
    self.actors = actors
    state = Locked(State(time: time, random: SplitMix64(seed: seed), machine: machine))
  }

  private init(cloneOf other: SimulatedHost, _ state: State, _ storage: SimulatedStorage) {
    (self.storage, compacting, actors) = (storage, other.compacting, other.actors)
    isEncrypted = other.isEncrypted
    self.state = Locked(state)
  }

  /// A clone of this machine: same name, boot, clock, disk and random sequence, unless the clone's kernel
  /// reseeds (`reseeded`). Its processes must open the stores again.
  package func cloned(reseeded: UInt64? = nil) throws(StoreError) -> SimulatedHost {
    var state = self.state.withLock { $0 }
    if let reseeded { state.random = SplitMix64(seed: reseeded) }
    return SimulatedHost(cloneOf: self, state, try storage.cloned())
  }

  /// `SYNC_TEST_SEALED=1` uses encrypted stores in every test that does not specify it.
  package static let encryptsByDefault = unsafe getenv("SYNC_TEST_SEALED") != nil

  /// The passphrase of all encrypted stores on simulated machines.
  package static let passphrase = Passphrase("a simulated person's")

  /// The configuration for a store on it.
  package func configured(_ configuration: Configuration = Configuration()) -> Configuration {
    guard isEncrypted else { return configuration }
    var configuration = configuration
    configuration.passphrase = configuration.passphrase ?? Self.passphrase
    configuration.passphraseCost = Scrypt.Parameters(logN: 1, r: 1, p: 1)
    return configuration
  }

  /// Clock, in milliseconds since 1970.
  package var time: UInt64 {
    get { state.withLock { $0.time } }
    set { state.withLock { $0.time = newValue } }
  }

  /// Environment for a store on it.
  package var environment: Environment { environment(over: storage) }

  /// Environment over another storage, such as one that fails the N-th call.
  package func environment(over storage: any Storage) -> Environment {
    let (machine, boot, process) = state.withLock {
      ($0.machine, "boot \($0.boots) of \($0.machine)", $0.processes)
    }
    var environment = Environment(
      storage: storage, now: { [self] in time },
      random: { [self] count in
        state.withLock { state in
          return (0..<count).map { _ in UInt8.random(in: 0...255, using: &state.random) }
        }
      }, machine: machine, boot: boot, process: process)
    environment.compactionMode = compacting
    environment.preallocatesSegments = false
    environment.scanBatchPositions = 2
    environment.actors = actors
    return environment
  }

  /// Environment for a second process on it.
  package var otherProcess: Environment {
    var environment = environment
    environment.process += 1_000
    return environment
  }

  /// Environment for the process with that number.
  package func environmentOf(process: Int) -> Environment {
    var environment = environment
    environment.process += process
    return environment
  }

  /// Power loss and reboot: a part of the unsynced data, chosen by `seed`, survives. Some seeds pull out only
  /// the disk, so that the boot identifier stays the same; to a store both look alike otherwise.
  package func losePower(seed: UInt64) {
    storage.crash(seed: seed)
    if seed % 3 == 0 { startProcesses() } else { boot() }
  }

  /// Pulls the disk out and puts it back: `losePower` within one boot.
  package func pullDisk(
    keeping pages: (_ path: String, _ page: Int) -> PageFate, sizes: (_ path: String) -> Bool = { _ in true }
  ) {
    storage.crash(keeping: pages, sizes: sizes)
    startProcesses()
  }

  /// Power loss and reboot: of the unsynced data, what `pages`, `sizes` and `entries` choose survives.
  package func losePower(
    keeping pages: (_ path: String, _ page: Int) -> PageFate, sizes: (_ path: String) -> Bool,
    entries: (_ path: String) -> Bool = { _ in true }
  ) {
    storage.crash(keeping: pages, sizes: sizes, entries: entries)
    boot()
  }

  private func boot() {
    state.withLock { state in
      state.boots += 1
      state.processes += 1
    }
  }

  /// Kills every process; the machine keeps running.
  package func killProcesses() {
    storage.killProcesses()
    startProcesses()
  }

  private func startProcesses() { state.withLock { $0.processes += 1 } }
}

extension Store {
  /// A new store on a simulated machine.
  package static func create(
    _ path: String = "/store", on host: SimulatedHost, id: StoreID? = nil,
    configuration: Configuration = Configuration()
  ) throws(StoreError) -> Store {
    try create(
      at: path, name: nil, id: id, configuration: host.configured(configuration),
      environment: host.environment)
  }

  /// The store in a directory of a simulated machine.
  package static func open(
    _ path: String = "/store", on host: SimulatedHost, configuration: Configuration = Configuration()
  ) throws(StoreError) -> Store {
    try open(at: path, configuration: host.configured(configuration), environment: host.environment)
  }

  /// Opens the directory again as a second, concurrent process of the host.
  package static func openSecond(
    on host: SimulatedHost, configuration: Configuration = Configuration()
  ) throws(StoreError) -> Store {
    try open(at: "/store", configuration: host.configured(configuration), environment: host.otherProcess)
  }

  /// Opens it as a second process over storage with planned faults.
  package static func open(
    on host: SimulatedHost, configuration: Configuration = Configuration(), failing plan: FaultPlan
  ) throws(StoreError) -> Store {
    try open(
      at: "/store", configuration: host.configured(configuration),
      environment: host.environment(over: FaultingStorage(host.storage, plan: plan)))
  }

  /// The value of a key as text; nil if absent.
  package func text(_ key: Key) throws(StoreError) -> String? {
    try get(key).map { String(decoding: $0.bytes, as: UTF8.self) }
  }

  /// Sets a key to text.
  package func put(_ key: Key, _ text: String, durability: Durability? = nil) throws(StoreError) {
    try put(key, Array(text.utf8), type: .string, durability: durability)
  }
}
