import Replication
import SyncStore
import SyncTestSupport

/// A whole network of copies in one thread on virtual time: real stores, sessions and blobs over simulated
/// disks, clocks and connections. The seed determines everything.
///
/// The oracle is told of every write before it is requested, and checks each copy after any event that may
/// have changed it; at the end all faults stop, and all copies must agree with each other and with the
/// oracle.
final class Simulation {
  struct Options {
    var seed: UInt64
    /// Initial number of machines; drawn if nil.
    var copies: Int?
    /// Hours of virtual time.
    var hours = 1
    /// Whether machines may be rolled back in place, which no check at opening can detect.
    var rollsBack = false
    /// Enables features added after some histories were recorded, which must stay unchanged: a wire that
    /// loses, duplicates and reorders, deadlines after the end, failing syncs of any file.
    var isExtended = true
    /// Enables a feature added later still: temporarily read-only members.
    var hasRights = true
    /// Seconds of silence before a ping. Each ping draws random numbers, so histories recorded with 60 replay
    /// only with 60.
    var pingSeconds = Limits.pingSeconds
    /// Whether the machines use a relay.
    var hasRelay = false
    /// Whether each copy is checked whole after each event that changed it.
    var checksAlways = false
  }

  /// One machine with one store.
  final class Machine {
    let number: Int
    let host: SimulatedHost
    var path: String
    var store: Store
    /// Clock offset in milliseconds.
    var skew: Int64 = 0
    /// Observations of its journal so far.
    var seen = Oracle.Seen()
    /// Own writes up to this dot were acknowledged as durable. The actor also changes within a session that
    /// detects a clone using the same one.
    var durable: Dot?
    /// The same for all its actors, since the last rollback.
    var promised: [ActorID: UInt64] = [:]
    /// Disk failures before its store was opened.
    var failuresBefore = 0
    var backups: [Backup] = []
    /// The machines it dials.
    var neighbours: [Int] = []
    /// Unreachable until then.
    var awayUntil: UInt64 = 0
    /// Not a member until then.
    var revokedUntil: UInt64 = 0
    var wasRevoked = false
    /// Read-only until then.
    var restrictedUntil: UInt64 = 0
    /// What was durable before a pull from a relay that failed. Nil if all is that it covers.
    var received: Received?
    /// End of its journal at the last whole check.
    var checkedTo: UInt64 = 0
    /// Whether its program speaks the first version of the protocol.
    var isOld = false
    /// Its member identity: the key is part of the directory, also of a copied one.
    var device: DeviceID

    init(_ number: Int, _ host: SimulatedHost, _ path: String, _ store: Store) {
      (self.number, self.host, self.path, self.store) = (number, host, path, store)
      device = Simulation.device(number)
    }

    var name: String { "copy \(number)" }
  }

  /// What a machine covered, and its actor, before it read something that need not be durable.
  struct Received {
    var vector: VersionVector
    var actor: ActorID

    /// The part of a later vector that is durable. Writes of its own under an actor that it gave up are not.
    func bound(_ later: VersionVector) -> VersionVector {
      var part: [ActorID: UInt64] = [:]
      for other in later.actors where other != actor {
        let sequence = min(later[other], vector[other])
        if sequence > 0 { part[other] = sequence }
      }
      return VersionVector(part)
    }
  }

  /// The files of a store at an earlier time.
  struct Backup {
    let path: String
    let files: [String: [UInt8]]
    /// The copy's last dot at that time. Writes it lost later because they were not durable do not count:
    /// their dots were reused.
    var last: Dot
  }

  enum Event {
    case write(Int)
    case dial(Int)
    case relay(Int)
    case fault
    case cut(link: Int)
    /// A machine loses power, or its process is killed.
    case crash(Int)
    /// The disk of a machine has room again.
    case relief(Int)
    case work(link: Int, isClient: Bool, SessionSide.Lane)
    case deliver(link: Int, fromClient: Bool)
    case timer(link: Int, isClient: Bool, SessionTimer, setting: Int)
    case disconnected(link: Int, isClient: Bool)
  }

  struct Counts {
    var events = 0, writes = 0, sessions = 0, finished = 0, cuts = 0, crashes = 0, kills = 0
    /// Errors returned by a store: disk full, and failed syncs.
    var fullDisks = 0, failedSyncs = 0
    var clones = 0, restores = 0, rollbacks = 0, compactions = 0, clockJumps = 0, checks = 0
    var rebirths = 0, refused = 0, records = 0, blobs = 0, revocations = 0, purged = 0, live = 0, old = 0
    var late = 0, lost = 0, doubled = 0, reordered = 0
    /// Completed full states, and those of them for a member that had missed purged deletes.
    var fullStates = 0, returns = 0
    /// Those of them for members that had been revoked, and network partitions.
    var revokedReturns = 0, partitions = 0
    /// Temporarily read-only members, and completed sessions with them.
    var restrictions = 0, restricted = 0
    /// Operations of any kind.
    var operations: Int { events + writes }
  }

  static let mostMachines = 6
  static let configuration = Configuration(blobThreshold: 2048, segmentBytes: 64 << 10)

  let options: Options
  var random: SplitMix64
  /// Generator for features added after some histories were recorded.
  var additions: SplitMix64
  /// Generator for those added later still.
  var rights: SplitMix64
  var wire: Wire
  var relay: SimulatedRelay?
  var now: UInt64 = 1_760_000_000_000
  /// The highest time any machine has ever shown.
  var latest: UInt64 = 0
  var machines: [Machine] = []
  /// Machines with a session that ended since their last check.
  var ended: Set<Int> = []
  var links: [Int: Link] = [:]
  var nextLink = 0
  /// Partition: until then these machines reach only each other.
  var partitioned: (group: Set<Int>, until: UInt64)?
  var queue = EventQueue<Event>()
  var oracle = Oracle()
  var counts = Counts()
  /// Rollbacks to writes that were lost since and whose dots were reused.
  var revivals = 0
  /// Large values found to be lost with a rolled-back machine.
  var lostValues = 0
  let keys: [Key]
  private let ring = GroupKeyRing(key: [UInt8](repeating: 7, count: GroupKeyRing.keyBytes))
  let end: UInt64

  init(_ options: Options) throws {
    self.options = options
    random = SplitMix64(seed: options.seed)
    wire = Wire(seed: options.seed, isOn: options.isExtended)
    additions = SplitMix64(seed: options.seed ^ 0x4D4F_5245)
    rights = SplitMix64(seed: options.seed ^ 0x5249_4748)
    end = now + UInt64(options.hours) * 3_600_000
    keys = try (0..<[2, 5, 20][random.below(3)]).map { try Key("key/\($0)") }
    for _ in 0..<(options.copies ?? 2 + random.below(3)) { try addMachine() }
    if options.hasRelay {
      relay = SimulatedRelay(seed: options.seed, time: now)
      for machine in machines { try admit(machine) }
    }
    connect()
    if random.chance(40) { for machine in machines { machine.isOld = random.chance(40) } }
    for machine in machines { begin(machine.number) }
    queue.schedule(.fault, at: now + below(600_000))
  }

  func below(_ bound: Int) -> UInt64 { UInt64(random.below(bound)) }

  private func addMachine() throws {
    let host = newHost()
    let store = try Store.create(on: host, id: machines.first?.store.id, configuration: Self.configuration)
    try StoreKeys(store).replaceGroupKeys(with: ring)
    machines.append(Machine(machines.count, host, "/store", store))
  }

  func newHost() -> SimulatedHost {
    SimulatedHost(
      seed: random.next(), time: now, machine: "machine \(machines.count)", encrypted: random.chance(20))
  }

  /// Topology of connections: full mesh, ring, star or chain.
  private func connect() {
    let count = machines.count
    let kind = random.below(4)
    for machine in machines {
      let number = machine.number
      switch kind {
      case 0: machine.neighbours = (0..<count).filter { $0 != number }
      case 1: machine.neighbours = [(number + 1) % count]
      case 2: machine.neighbours = number == 0 ? [] : [0]
      default: machine.neighbours = number + 1 < count ? [number + 1] : []
      }
    }
  }

  /// Starts a machine.
  func begin(_ number: Int) {
    queue.schedule(.write(number), at: now + below(60_000))
    queue.schedule(.dial(number), at: now + below(60_000))
    if relay != nil { queue.schedule(.relay(number), at: now + below(60_000)) }
  }

  // MARK: The run

  func run() throws {
    while let next = queue.nextTime, next <= end, let (time, event) = queue.next() {
      now = max(now, time)
      counts.events += 1
      try take(event)
      try checkEnded()
      if options.checksAlways { try checkChanged() }
    }
    try heal()
  }

  private func take(_ event: Event) throws {
    switch event {
    case .write(let number):
      try write(machines[number])
      queue.schedule(event, at: now + 1000 + below(240_000))
    case .relay(let number):
      if let relay { try self.relay(machines[number], relay) }
      queue.schedule(event, at: now + 1000 + below(300_000))
    case .dial(let number):
      if relay?.isOnly != true { try dial(machines[number]) }
      queue.schedule(event, at: now + 1000 + below(300_000))
    case .fault:
      try strike()
      if let relay { strike(relay) }
      queue.schedule(.fault, at: now + 10_000 + below(600_000))
    case .cut(let link): cut(link)
    case .crash(let number): try crash(machines[number])
    case .relief(let number): machines[number].host.storage.free = nil
    case .work(let link, let isClient, let lane): try work(link, isClient, lane)
    case .deliver(let link, let fromClient): try deliver(link, fromClient)
    case .timer(let link, let isClient, let timer, let setting): timerFired(link, isClient, timer, setting)
    case .disconnected(let link, let isClient): disconnected(link, isClient)
    }
  }

  /// The machine's clock shows the time plus its offset.
  func wake(_ machine: Machine) {
    machine.host.time = UInt64(Int64(now) + machine.skew)
    latest = max(latest, machine.host.time)
  }
}
