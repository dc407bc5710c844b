import Replication
import SyncStore
import SyncTestSupport

/// A whole network of copies in one thread on virtual time: real stores, sessions and blobs over simulated disks, clocks
/// and connections. Everything that happens follows from the seed.
///
/// The oracle is told of every write before it is asked for, and looks at each copy after what may have changed it; at the end all
/// faults stop, and all copies must agree with each other and with the oracle.
final class Simulation {
  struct Options {
    var seed: UInt64
    /// Machines at the beginning; drawn if nil.
    var copies: Int?
    /// Hours of virtual time.
    var hours = 1
    /// Machines may be put back in place, which no check at opening can see.
    var rollsBack = false
    /// What was added since some histories were kept, which are to stay what they were: a wire that loses, doubles and reorders,
    /// deadlines that lie behind the end, syncs of any file that fail.
    var isExtended = true
    /// The same of what came later: members that may only read for a while.
    var hasRights = true
    /// Seconds without a byte before a ping is sent. Each ping draws from the history's random numbers: those that were kept while it
    /// was 60 are what they were only with that.
    var pingSeconds = Limits.pingSeconds
    /// Is each copy looked at in whole after each event that has changed it?
    var checksAlways = false
  }

  /// One machine with one store.
  final class Machine {
    let number: Int
    let host: SimulatedHost
    var path: String
    var store: Store
    /// Milliseconds by which its clock is off.
    var skew: Int64 = 0
    /// The journal was looked at up to here.
    var seen = Oracle.Seen()
    /// Own writes of this actor up to this sequence were acknowledged as durable. It becomes another one in a session, too, where it
    /// turns out that a clone goes on under the same name.
    var durable: Dot?
    /// The same of all its actors, since it was last put back.
    var promised: [ActorID: UInt64] = [:]
    /// How often its disk had failed when its store was opened.
    var failuresBefore = 0
    var backups: [Backup] = []
    /// Whom it dials.
    var neighbours: [Int] = []
    /// Until then it cannot be reached.
    var awayUntil: UInt64 = 0
    /// Until then it is no member.
    var revokedUntil: UInt64 = 0
    var wasRevoked = false
    /// Until then it may only read.
    var restrictedUntil: UInt64 = 0
    /// Where its journal ended when it was looked at in whole.
    var checkedTo: UInt64 = 0
    /// Does its program speak the protocol as the first version did?
    var isOld = false
    /// As which member it speaks: the key is part of the directory, also of a copied one.
    var device: DeviceID

    init(_ number: Int, _ host: SimulatedHost, _ path: String, _ store: Store) {
      (self.number, self.host, self.path, self.store) = (number, host, path, store)
      device = Simulation.device(number)
    }

    var name: String { "copy \(number)" }
  }

  /// The files of a store as they once were.
  struct Backup {
    let path: String
    let files: [String: [UInt8]]
    /// What the copy had written by then. What it had not made durable and lost later is no longer meant: the names were given anew.
    var last: Dot
  }

  enum Event {
    case write(Int)
    case dial(Int)
    case fault
    case cut(link: Int)
    /// A machine loses its power, or its process is killed.
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
    /// Errors that a store has returned: no room, and something that could not be made durable.
    var fullDisks = 0, failedSyncs = 0
    var clones = 0, restores = 0, rollbacks = 0, compactions = 0, clockJumps = 0, checks = 0
    var rebirths = 0, refused = 0, records = 0, blobs = 0, revocations = 0, purged = 0, live = 0, old = 0
    var late = 0, lost = 0, doubled = 0, reordered = 0
    /// Full states taken to their end, and those of them that brought back who did not know of what had been purged.
    var fullStates = 0, returns = 0
    /// Those of them by members that had been revoked, and times when the network fell apart.
    var revokedReturns = 0, partitions = 0
    /// Members that may only read for a while, and sessions with them that came to their end.
    var restrictions = 0, restricted = 0
    /// Operations of any kind.
    var operations: Int { events + writes }
  }

  static let mostMachines = 6
  static let configuration = Configuration(blobThreshold: 2048, segmentBytes: 64 << 10)

  let options: Options
  var random: SplitMix64
  /// Draws what was added since some histories were kept.
  var additions: SplitMix64
  /// The same of what came later.
  var rights: SplitMix64
  var wire: Wire
  var now: UInt64 = 1_760_000_000_000
  /// The most that the clock of any machine has ever shown.
  var latest: UInt64 = 0
  var machines: [Machine] = []
  /// Machines at which a session has ended since they were looked at.
  var ended: Set<Int> = []
  var links: [Int: Link] = [:]
  var nextLink = 0
  /// Those who until then reach each other alone.
  var parted: (group: Set<Int>, until: UInt64)?
  var queue = EventQueue<Event>()
  var oracle = Oracle()
  var counts = Counts()
  /// How often a machine was put back to writes that it had lost since, and whose names it had given anew.
  var revivals = 0
  /// How often a large value was found to be lost with a machine that was put back.
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
      seed: random.next(), time: now, machine: "machine \(machines.count)", sealed: random.chance(20))
  }

  /// Who dials whom: everybody everybody, a ring, a star or a chain.
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

  /// A machine begins to work.
  func begin(_ number: Int) {
    queue.schedule(.write(number), at: now + below(60_000))
    queue.schedule(.dial(number), at: now + below(60_000))
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
    case .dial(let number):
      try dial(machines[number])
      queue.schedule(event, at: now + 1000 + below(300_000))
    case .fault:
      try strike()
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

  /// The machine's clock shows the time, as wrongly as it does.
  func wake(_ machine: Machine) {
    machine.host.time = UInt64(Int64(now) + machine.skew)
    latest = max(latest, machine.host.time)
  }
}
