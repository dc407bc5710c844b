import Replication
import SyncStore
import SyncTestSupport

/// Members that meet only in a relay, over days of virtual time, without faults. Counts what each day costs.
final class RelayFleetRun {
  /// Requests and bytes of one member.
  struct Cost {
    var requests: [ObjectOperation: Int] = [:]
    var sentBytes = 0, receivedBytes = 0
    /// Reads by the kind of object: the first letter of its name.
    var reads: [Character: Int] = [:]

    static func + (one: Cost, other: Cost) -> Cost {
      var sum = one
      sum.requests.merge(other.requests, uniquingKeysWith: +)
      sum.reads.merge(other.reads, uniquingKeysWith: +)
      sum.sentBytes += other.sentBytes
      sum.receivedBytes += other.receivedBytes
      return sum
    }

    /// All requests.
    var total: Int { requests.values.reduce(0, +) }
  }

  /// What a day has cost all members, and what is in the relay at its end.
  struct Day {
    var cost = Cost()
    var checkpoints = 0, objects = 0, storedBytes = 0, records = 0
  }

  private struct Member {
    let host: SimulatedHost
    let store: Store
    let device: DeviceID
    let objects: CountedObjects
    let client: RelayClient
  }

  /// Synchronizations of a member in a day.
  static let turns = 6
  /// Records that a member writes in a day, of its own keys.
  static let writes = 4, keys = 20
  private static let hour: UInt64 = 3_600_000
  private static let valueBytes = 100

  private let objects: VirtualObjectStore
  private let ring: GroupKeyRing
  private var members: [Member] = []
  private var random: SplitMix64
  private var now: UInt64 = 1_760_000_000_000
  /// By day, from the first.
  private(set) var days: [Day] = []

  init(members count: Int, seed: UInt64 = 1) throws {
    random = SplitMix64(seed: seed)
    objects = VirtualObjectStore(seed: seed, time: now)
    ring = GroupKeyRing(key: random.bytes(GroupKeyRing.keyBytes))
    for _ in 0..<count { members.append(try newMember()) }
    for one in members { try admitAll(to: one) }
  }

  private func newMember() throws -> Member {
    let number = members.count
    let host = SimulatedHost(
      seed: random.next(), time: now, machine: "machine \(number)", encrypted: false)
    let store = try Store.create(
      on: host, id: members.first?.store.id, configuration: Simulation.configuration)
    let keys = StoreKeys(store)
    try keys.replaceGroupKeys(with: ring)
    let device = try keys.makeIdentity().id
    let counted = CountedObjects(objects)
    return Member(
      host: host, store: store, device: device, objects: counted,
      client: try RelayClient(store: store, objects: counted, name: "relay"))
  }

  /// Tells a member who the others are.
  private func admitAll(to one: Member) throws {
    for (number, other) in members.enumerated() {
      try Membership(one.store).put(
        Replication.Member(
          device: other.device, name: "m\(number)", right: .readWrite, addresses: [], joined: 0))
    }
  }

  /// A day: each member writes, synchronizes every few hours, and purges and collects once.
  func runDay() async throws {
    var day = Day()
    for turn in 0..<Self.turns {
      for number in members.indices.shuffled(using: &random) {
        now += 24 * Self.hour / UInt64(Self.turns * members.count)
        try await use(members[number], number, turn: turn, &day)
      }
    }
    for member in members { day.cost = day.cost + member.objects.takeCost() }
    day.objects = objects.names.count
    day.storedBytes = try await objects.list("").reduce(0) { $0 + Int($1.size) }
    days.append(day)
  }

  private func use(_ member: Member, _ number: Int, turn: Int, _ day: inout Day) async throws {
    (member.host.time, objects.time) = (now, now)
    if turn < Self.writes {
      let key = try Key("member \(number)/\(random.below(Self.keys))")
      if random.chance(10), try member.store.get(key) != nil {
        _ = try member.store.delete(key)
      } else {
        try member.store.put(key, random.bytes(Self.valueBytes))
      }
      day.records += 1
    }
    let report = try await member.client.sync()
    guard report.setAside.isEmpty, report.remarks.isEmpty, report.waitingEntries == 0 else {
      throw Broken(description: "member \(number) on day \(days.count + 1): \(report)")
    }
    day.checkpoints += report.checkpoints
    try member.store.acknowledgeIfDue(as: member.device)
    guard turn == Self.turns - 1 else { return }
    _ = try member.store.purge()
    _ = try await member.client.collect(isDryRun: false)
  }

  /// The cost of a member without any records, which reads everything at the end. It covers all that the
  /// others hold.
  func join() async throws -> Cost {
    let member = try newMember()
    try admitAll(to: member)
    (member.host.time, objects.time) = (now, now)
    _ = try await member.client.pull()
    for (number, one) in members.enumerated() {
      for item in 0..<Self.keys {
        // The last entry of a member may not have been read by the others yet; it is in the relay.
        let key = try Key("member \(number)/\(item)")
        guard try member.store.get(key)?.bytes == one.store.get(key)?.bytes else {
          throw Broken(description: "the newcomer has another value of \(key)")
        }
      }
    }
    return member.objects.takeCost()
  }

  /// Why a run is not as it should be.
  struct Broken: Error, CustomStringConvertible { let description: String }
}

/// The objects of a relay as one member uses them.
final class CountedObjects: ObjectStore {
  private let objects: VirtualObjectStore
  private let state = Locked((figures: ObjectStoreFigures(), reads: [Character: Int]()))

  init(_ objects: VirtualObjectStore) { self.objects = objects }

  var location: String { objects.location }
  var clock: UInt64? { objects.clock }
  var figures: ObjectStoreFigures { state.withLock { $0.figures } }

  /// Requests since the last call.
  func takeCost() -> RelayFleetRun.Cost {
    state.withLock { state in
      defer { state = (ObjectStoreFigures(), [:]) }
      var cost = RelayFleetRun.Cost()
      for operation in ObjectOperation.allCases { cost.requests[operation] = Int(state.figures[operation]) }
      (cost.sentBytes, cost.receivedBytes) = (
        Int(state.figures.sentBytes), Int(state.figures.receivedBytes)
      )
      cost.reads = state.reads
      return cost
    }
  }

  func get(
    _ name: String, range: Range<UInt64>?, unless known: ObjectVersion?, limit: Int
  ) async throws(ObjectStoreError) -> ObjectReading {
    let reading = try await objects.get(name, range: range, unless: known, limit: limit)
    let (status, bytes) =
      switch reading {
      case .found(let content): (200, content.bytes.count)
      case .unchanged: (304, 0)
      case .absent: (404, 0)
      }
    state.withLock { state in
      state.figures.count(.get, status: status, received: bytes)
      if let kind = name.first { state.reads[kind, default: 0] += 1 }
    }
    return reading
  }

  func put(
    _ name: String, _ bytes: [UInt8], if condition: PutCondition
  ) async throws(ObjectStoreError) -> PutOutcome {
    let outcome = try await objects.put(name, bytes, if: condition)
    state.withLock { $0.figures.count(.put, status: outcome == .refused ? 412 : 200, sent: bytes.count) }
    return outcome
  }

  func list(_ prefix: String) async throws(ObjectStoreError) -> [ObjectEntry] {
    let entries = try await objects.list(prefix)
    state.withLock { $0.figures.count(.list, status: 200) }
    return entries
  }

  func delete(_ names: [String]) async throws(ObjectStoreError) {
    try await objects.delete(names)
    state.withLock { state in for _ in names { state.figures.count(.delete, status: 204) } }
  }
}
