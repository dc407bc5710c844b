import SyncTestSupport
import Testing

@testable import SyncStore

/// Large values are evicted only while others hold them.
@Suite("Eviction of large values")
struct EvictionTests {
  static let size = 5000

  static func value(_ number: Int) -> [UInt8] { pattern(size, seed: UInt64(number)) }

  static func limits(count: UInt64 = .max, bytes: UInt64 = .max, copies: Int = 1) -> BlobLimits {
    var limits = BlobLimits()
    (limits.count, limits.bytes, limits.copies) = (count, bytes, copies)
    return limits
  }

  static func members(_ count: Int, values: Int = 1, sealed: Bool = false) throws -> TestMembers {
    try TestMembers(count, encrypted: sealed) { store in
      for number in 0..<values { try store.put(Key("\(number)"), value(number)) }
    }
  }

  static func holds(_ store: Store, _ number: Int) throws -> Bool {
    try store.blobs.has(try #require(try store.entry(Key("\(number)"))?.blob))
  }

  // MARK: The last copy

  /// One copy's eviction pass, step by step.
  private struct Evictor {
    let member: Int
    let others: [Int]
    var step = 0
    var turn: EvictionPass?
    var batch: [EvictionCandidate] = []
    var holders: [[[UInt8]]] = []
    var stepCount: Int { others.count + 3 }

    mutating func advance(_ members: TestMembers) throws {
      defer { step += 1 }
      switch step {
      case 0:
        turn = try members.stores[member].beginEviction(limits(count: 0))
        batch = try turn?.next() ?? []
        holders = batch.map { _ in [] }
      case 1...others.count:
        guard turn != nil else { return }
        let more = try members.holders(of: batch, by: [others[step - 1]])
        for index in holders.indices { holders[index] += more[index] }
      case others.count + 1: try turn?.evict(batch, heldBy: holders)
      default: turn?.end()
      }
    }
  }

  /// Every interleaving of the steps of several evictors.
  private static func orders(_ counts: [Int]) -> [[Int]] {
    if counts.allSatisfy({ $0 == 0 }) { return [[]] }
    return counts.indices.filter { counts[$0] > 0 }.flatMap { first in
      var rest = counts
      rest[first] -= 1
      return orders(rest).map { [first] + $0 }
    }
  }

  private static func run(_ order: [Int], of count: Int) throws -> Int {
    let members = try members(count)
    var evictors = (0..<count).map { member in
      Evictor(member: member, others: (0..<count).filter { $0 != member })
    }
    for next in order { try evictors[next].advance(members) }
    return try members.stores.count { try holds($0, 0) }
  }

  @Test("Two members that evict concurrently never both do, in whatever order their steps interleave")
  func lastCopy() throws {
    var left: Set<Int> = []
    let orders = Self.orders([4, 4])
    #expect(orders.count == 70)
    for order in orders {
      let holders = try Self.run(order, of: 2)
      #expect(holders >= 1, "nobody holds it after \(order)")
      left.insert(holders)
    }
    // One of them evicts where it may, and neither where both are active.
    #expect(left == [1, 2])
  }

  @Test("Three members that evict concurrently leave a copy, and in the end only one")
  func lastOfThree() throws {
    var random = SplitMix64(seed: 3)
    var left: Set<Int> = []
    for _ in 0..<150 {
      let order = [0, 1, 2].flatMap { [Int](repeating: $0, count: 5) }.shuffled(using: &random)
      let holders = try Self.run(order, of: 3)
      #expect(holders >= 1, "nobody holds it after \(order)")
      left.insert(holders)
    }
    #expect(left == [1, 2, 3])
    let members = try Self.members(3)
    for member in [0, 1, 2, 0, 1, 2] { try members.trim(member, to: Self.limits(count: 0)) }
    #expect(try members.stores.count { try Self.holds($0, 0) } == 1)
  }

  @Test("As many other members must hold a value as the limits require")
  func copies() throws {
    let members = try Self.members(3)
    #expect(try members.trim(0, to: Self.limits(count: 0, copies: 3)).tooFewHolders == 1)
    #expect(try Self.holds(members.stores[0], 0))
    #expect(try members.trim(0, to: Self.limits(count: 0, copies: 2)).evicted == 1)
    #expect(try members.trim(1, to: Self.limits(count: 0, copies: 2)).evicted == 0)
    #expect(try members.stores.count { try Self.holds($0, 0) } == 2)
    let blob = try #require(try members.stores[0].entry("0")?.blob)
    #expect(try members.stores[0].blobs.holders(of: blob.hash).count == 2)
  }

  @Test("A member that does not cover the referring write does not count: it would sweep the value")
  func coverage() throws {
    let members = try Self.members(2)
    // The second copy deletes its key, and does not know that another key refers to the same value.
    try members.stores[0].put("again", Self.value(0))
    try members.stores[1].delete("0")
    let report = try members.trim(0, to: Self.limits(count: 0))
    #expect(report.evicted == 0 && report.tooFewHolders == 1)
    try TestMembers.bring(members.stores[0], to: members.stores[1])
    #expect(try members.trim(0, to: Self.limits(count: 0)).evicted == 1)
    members.hosts[1].time += 7_200_000
    try members.stores[1].trim()
    #expect(try members.stores[1].get("again")?.bytes == Self.value(0))
  }

  @Test("A member with a rotten copy does not count, and fetches it again (F44)")
  func rotten() throws {
    let members = try Self.members(2)
    let blob = try #require(try members.stores[1].entry("0")?.blob)
    let packs = members.hosts[1].storage
    let name = try #require(try packs.list("/store/blobs/packs").first)
    let file = try packs.open("/store/blobs/packs/" + name, .readWrite)
    let content = try file.read(try file.status().size, at: 0)
    let needle = Array(Self.value(0).prefix(32))
    let place = try #require((0..<content.count - 32).first { Array(content[$0..<$0 + 32]) == needle })
    try file.write([content[place] ^ 1], at: place)
    #expect(try members.trim(0, to: Self.limits(count: 0)).evicted == 0)
    #expect(try members.stores[1].missingBlobs().map(\.hash) == [blob.hash])
    try TestMembers.bring(members.stores[0], to: members.stores[1])
    #expect(try members.trim(0, to: Self.limits(count: 0)).evicted == 1)
  }

  @Test("A member whose copy in a file has rotted since it was last verified does not count, either (F44)")
  func rottenFile() throws {
    let members = try TestMembers(2) { try $0.put("0", pattern(5 << 20)) }
    let blob = try #require(try members.stores[1].entry("0")?.blob)
    let path = "/store/blobs/" + BlobFiles.object(blob.hash)
    let file = try members.hosts[1].storage.open(path, .readWrite)
    try file.write([try file.read(1, at: 1 << 20)[0] ^ 1], at: 1 << 20)
    #expect(try members.trim(0, to: Self.limits(count: 0)).evicted == 0)
    #expect(try members.stores[1].missingBlobs().map(\.hash) == [blob.hash])
  }

  // MARK: Selection

  @Test(
    "The least recently used are evicted first, to the millisecond and to the limit",
    arguments: [false, true])
  func order(sealed: Bool) throws {
    let members = try Self.members(2, values: 10, sealed: sealed)
    let store = members.stores[0]
    for number in [3, 0, 7] {
      members.hosts[0].time += 1
      _ = try store.get(Key("\(number)"))
    }
    let report = try members.trim(0, to: Self.limits(count: 3))
    #expect(report.evicted == 7 && report.holds)
    #expect(try (0..<10).filter { try Self.holds(store, $0) } == [0, 3, 7])
    let absent = try store.absentValues()
    #expect(absent.evicted == 7 && absent.evictedBytes == 7 * UInt64(Self.size) && absent.awaited == 0)
    #expect(try members.trim(0, to: Self.limits(bytes: 12_000)).evicted == 1)
    #expect(try !Self.holds(store, 3))
    var age = BlobLimits()
    age.ageMilliseconds = 60_000
    members.hosts[0].time += 30_000
    #expect(try members.trim(0, to: age).evicted == 0)
    members.hosts[0].time += 40_000
    #expect(try members.trim(0, to: age).evicted == 2)
  }

  @Test("Values that are pinned, unsent or losing stay")
  func stays() throws {
    let members = try Self.members(2, values: 3)
    let store = members.stores[0]
    try store.pin(try #require(try store.entry("0")?.blob).hash, for: "a reader")
    try store.put("new", Self.value(50))
    // A concurrent write that was beaten is kept here, and refers to a separate value.
    try store.put("1", Self.value(60))
    members.hosts[1].time += 1000
    try members.stores[1].put("1", Self.value(61))
    try TestMembers.bring(members.stores[1], to: store)
    #expect(try store.conflicts().count == 1)
    let report = try members.trim(0, to: Self.limits(count: 0))
    let left = try ["0", "1", "2", "new"].map {
      try store.blobs.has(try #require(try store.entry(Key($0))?.blob))
    }
    #expect(left == [true, false, false, true] && !report.holds && report.tooFewHolders == 1)
    #expect(try store.blobs.has(try #require(try store.conflicts().first?.blob)))
  }

  @Test(
    "An eviction is recorded durably before it happens: a loss of power loses no record (F15)",
    arguments: 0..<6)
  func powerLoss(seed: UInt64) throws {
    let members = try Self.members(2, values: 4)
    try members.trim(0, to: Self.limits(count: 1))
    members.hosts[0].losePower(seed: seed)
    let store = try Store.open(on: members.hosts[0])
    #expect(try store.list(prefix: [], limit: 10).count == 4)
    let report = try store.verify()
    #expect(report.isClean && report.missingBlobs.isEmpty)
    #expect(report.absentBlobs + report.blobs == 4)
  }

  @Test("A value put again, or read, during its eviction stays")
  func usedDuringEviction() throws {
    let members = try Self.members(2, values: 3)
    let store = members.stores[0]
    let turn = try #require(try store.beginEviction(Self.limits(count: 0)))
    let batch = try turn.next()
    #expect(batch.count == 3)
    members.hosts[0].time += 1
    _ = try store.get("0")
    try store.put("other", Self.value(1))
    try turn.evict(batch, heldBy: members.holders(of: batch, by: [1]))
    let report = turn.end()
    #expect(report.evicted == 1 && report.used == 2)
    #expect(try (0..<3).map { try Self.holds(store, $0) } == [true, true, false])
    #expect(try store.absentValues().evicted == 1 && store.verify().isClean)
  }

  @Test("A value put again during its eviction stays, even if the clock was set back")
  func usedEarlier() throws {
    let members = try TestMembers(2) { try $0.put("0", pattern(5 << 20)) }
    let store = members.stores[0]
    let turn = try #require(try store.beginEviction(Self.limits(count: 0)))
    let batch = try turn.next()
    members.hosts[0].time -= 3_600_000
    try store.put("other", pattern(5 << 20))
    try turn.evict(batch, heldBy: members.holders(of: batch, by: [1]))
    #expect(turn.end().evicted == 0)
    #expect(try store.get("other")?.bytes.count == 5 << 20)
  }

  @Test(
    "A put fails if its value is evicted before the record is written: no member would keep it for that key"
  )
  func namedTooLate() throws {
    let members = try Self.members(2)
    let store = members.stores[0]
    let content = try store.content(of: Self.value(0))
    try members.trim(0, to: Self.limits(count: 0))
    #expect(try !Self.holds(store, 0))
    let error = #expect(throws: StoreError.self) {
      try store.write("late", content: content, type: .bytes, deadline: nil, durability: nil)
    }
    #expect(error?.code == .blobUnavailable)
    #expect(try store.get("late") == nil)
    try store.put("late", Self.value(0))
    #expect(try store.get("late")?.bytes == Self.value(0) && store.verify().isClean)
  }

  @Test("Reading an evicted value is an error that names the holders; the next session brings it")
  func unavailable() throws {
    let members = try Self.members(2)
    let store = members.stores[0]
    try members.trim(0, to: Self.limits(count: 0))
    #expect(try store.missingBlobs().isEmpty)
    let error = #expect(throws: StoreError.self) { try store.get("0") }
    #expect(error?.code == .blobUnavailable && error?.message.contains("has left this copy") == true)
    #expect(try store.missingBlobs().count == 1)
    try TestMembers.bring(members.stores[1], to: store)
    #expect(try store.get("0")?.bytes == Self.value(0) && store.absentValues() == AbsentValues())
  }

  // MARK: Policies

  @Test("A policy includes small values and those of some keys, and excludes the others")
  func policies() throws {
    let policy = BlobPolicy(eagerBytes: 2000, eagerPrefixes: [Array("photo/".utf8)])
    let members = try TestMembers(2, configuration: Configuration(blobThreshold: 1000)) { store in
      try store.put("small", pattern(1500))
      try store.put("large", Self.value(1))
      try store.put("photo/1", Self.value(2))
      try store.put("another", Self.value(3))
    }
    let lazy = try Store.create(
      on: SimulatedHost(encrypted: false), id: members.stores[0].id,
      configuration: {
        var configuration = Configuration(blobThreshold: 1000)
        configuration.blobPolicy = policy
        return configuration
      }())
    #expect(try lazy.blobPolicy == policy)
    try TestMembers.bring(members.stores[0], to: lazy)
    #expect(try lazy.get("small") != nil && lazy.get("photo/1") != nil)
    var absent = try lazy.absentValues()
    #expect(absent.leftOut == 2 && absent.leftOutBytes == 2 * UInt64(Self.size) && absent.awaited == 0)
    #expect(try lazy.verify().isClean && lazy.verify().absentBlobs == 2)
    #expect(try lazy.digest() == members.stores[0].digest())
    // A key selected by the policy refers to the same value: then it is evicted.
    try members.stores[0].put("photo/2", Self.value(1))
    try TestMembers.bring(members.stores[0], to: lazy)
    #expect(try lazy.get("large")?.bytes == Self.value(1))
    try lazy.setBlobPolicy(.eager)
    absent = try lazy.absentValues()
    #expect(absent.leftOut == 0 && absent.awaited == 1)
    #expect(
      #expect(throws: StoreError.self) {
        try lazy.setBlobPolicy(BlobPolicy(eagerBytes: 0, eagerPrefixes: .init(repeating: [], count: 300)))
      }?.code == .outOfBounds)
  }

  @Test("A sweep does not remove a value referred to by a concurrently received batch")
  func concurrentSweep() throws {
    let members = try Self.members(2, values: 2)
    let receiver = members.stores[1]
    let blob = try #require(try receiver.entry("0")?.blob)
    try receiver.delete("0")
    members.hosts[1].time += 7_200_000
    // What the sweep relied on: nothing refers to it.
    let referenced = Set(try receiver.referencesToBlobs().all.keys)
    #expect(!referenced.contains(blob.hash))
    try members.stores[0].put("again", Self.value(0))
    try receiver.receive(from: members.stores[0])
    _ = try receiver.blobs.sweepOrphans(
      referenced: referenced, graceSeconds: 3600, now: members.hosts[1].time)
    #expect(try receiver.get("again")?.bytes == Self.value(0) && receiver.missingBlobs().isEmpty)
  }
}
