private import Glibc
package import SyncStore

/// A machine for one test: simulated storage, a clock that the test sets, a seeded generator.
package final class SimulatedHost: Sendable {
  /// Its disk.
  package let storage: SimulatedStorage
  /// Who compacts the stores on it.
  package let compacting: Environment.CompactionMode
  /// Are the stores on it encrypted?
  package let sealed: Bool
  private let actors: (@Sendable () -> ActorID)?
  private let state: Locked<State>

  private struct State {
    var time: UInt64
    var random: SplitMix64
    var boots = 1
    var processes = 1
    var machine: String
  }

  /// A machine whose clock stands at `time` milliseconds since 1970. `actors` names the incarnations of its stores.
  package init(
    seed: UInt64 = 1, time: UInt64 = 1_700_000_000_000, machine: String = "one",
    storage: SimulatedStorage = SimulatedStorage(), compacting: Environment.CompactionMode = .byNextWriter,
    sealed: Bool = SimulatedHost.sealsByDefault, actors: (@Sendable () -> ActorID)? = nil
  ) {
    self.storage = storage
    self.compacting = compacting
    self.sealed = sealed
    self.actors = actors
    state = Locked(State(time: time, random: SplitMix64(seed: seed), machine: machine))
  }

  private init(cloneOf other: SimulatedHost, _ state: State, _ storage: SimulatedStorage) {
    (self.storage, compacting, sealed, actors) = (storage, other.compacting, other.sealed, other.actors)
    self.state = Locked(state)
  }

  /// A second machine that goes on from where this one is: the same name, boot, clock and disk, and the same numbers from the
  /// generator, unless the kernel of the clone draws others (`reseeded`). Its processes have to open the stores again.
  package func cloned(reseeded: UInt64? = nil) throws(StoreError) -> SimulatedHost {
    var state = self.state.withLock { $0 }
    if let reseeded { state.random = SplitMix64(seed: reseeded) }
    return SimulatedHost(cloneOf: self, state, try storage.cloned())
  }

  /// `SYNC_TEST_SEALED=1` runs every test that does not say otherwise on encrypted stores.
  package static let sealsByDefault = unsafe getenv("SYNC_TEST_SEALED") != nil

  /// The passphrase of all encrypted stores on simulated machines.
  package static let passphrase = Passphrase("a simulated person's")

  /// The configuration for a store on it.
  package func configured(_ configuration: Configuration = Configuration()) -> Configuration {
    guard sealed else { return configuration }
    var configuration = configuration
    configuration.passphrase = configuration.passphrase ?? Self.passphrase
    configuration.passphraseCost = Scrypt.Parameters(logN: 1, r: 1, p: 1)
    return configuration
  }

  /// What its clock shows, in milliseconds since 1970.
  package var time: UInt64 {
    get { state.withLock { $0.time } }
    set { state.withLock { $0.time = newValue } }
  }

  /// What a store on it is given.
  package var environment: Environment { environment(over: storage) }

  /// The same machine over another storage, such as one that fails the N-th call.
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

  /// What a store in a second process on it is given.
  package var otherProcess: Environment {
    var environment = environment
    environment.process += 1_000
    return environment
  }

  /// What a store in the process of that number on it is given.
  package func environmentOf(process: Int) -> Environment {
    var environment = environment
    environment.process += process
    return environment
  }

  /// Power is lost and comes back: of what was not synced, a part chosen by `seed` survives. Some seeds take only the disk away
  /// and bring it back: to a store that is the same, but for the boot.
  package func losePower(seed: UInt64) {
    storage.crash(seed: seed)
    if seed % 3 == 0 { startProcesses() } else { boot() }
  }

  /// The disk is pulled out and put back in: what `losePower` is, in one boot.
  package func pullDisk(
    keeping pages: (_ path: String, _ page: Int) -> PageFate, sizes: (_ path: String) -> Bool = { _ in true }
  ) {
    storage.crash(keeping: pages, sizes: sizes)
    startProcesses()
  }

  /// Power is lost and comes back: of what was not synced, that survives which `pages`, `sizes` and `entries` say.
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

  /// Every process is killed; the machine goes on.
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

  /// Opens the same directory as another process of the host does, beside the first.
  package static func openBeside(
    on host: SimulatedHost, configuration: Configuration = Configuration()
  ) throws(StoreError) -> Store {
    try open(at: "/store", configuration: host.configured(configuration), environment: host.otherProcess)
  }

  /// The same over storage whose calls fail as planned.
  package static func open(
    on host: SimulatedHost, configuration: Configuration = Configuration(), failing plan: FaultPlan
  ) throws(StoreError) -> Store {
    try open(
      at: "/store", configuration: host.configured(configuration),
      environment: host.environment(over: FaultingStorage(host.storage, plan: plan)))
  }

  /// The value of a key as text; nil if it has none.
  package func text(_ key: Key) throws(StoreError) -> String? {
    try get(key).map { String(decoding: $0.bytes, as: UTF8.self) }
  }

  /// Sets a key to text.
  package func put(_ key: Key, _ text: String, durability: Durability? = nil) throws(StoreError) {
    try put(key, Array(text.utf8), type: .string, durability: durability)
  }
}
