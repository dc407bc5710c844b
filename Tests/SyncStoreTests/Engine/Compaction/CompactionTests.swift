import Glibc
import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("A compaction")
struct CompactionTests {
  static let small = Configuration(durability: .relaxed, segmentBytes: 64 << 10)
  static let shared = Configuration(mode: .shared, durability: .relaxed, segmentBytes: 64 << 10)
  let host = SimulatedHost(compacting: .onRequest)

  /// State that must be equal before and after.
  struct Picture: Equatable {
    var values: [String: [UInt8]] = [:]
    var digest: StateDigest
    var vector: VersionVector
    var conflicts: [LogEntry]
    var log: [LogEntry]
    var locals: [String]
    var actor: ActorID

    init(_ store: Store) throws {
      for entry in try store.list() { values[entry.key.description] = try store.get(entry.key)?.bytes }
      digest = try store.digest()
      vector = try store.versionVector()
      conflicts = try store.conflicts()
      log = try store.log(from: 0, limit: .max).filter(\.isCurrent)
      // A compaction records the vector.
      locals = try store.locals(prefix: []).filter { $0.key != StateKey.vector }
        .map { "\($0.key) \($0.value)" }
      actor = try store.actor
    }
  }

  @Test(
    "relies on nothing that a copied directory would lack: that is cut at the last durable checkpoint (F55)"
  )
  func copiedAfterwards() throws {
    let store = try Store.create(on: host, configuration: Self.small)
    for number in 0..<30 { try store.put(Key("\(number)"), [UInt8](repeating: 1, count: 3000)) }
    try store.sync()
    // All of the first segments is superseded by later records, and nothing follows those.
    try store.transaction { transaction in
      for number in 0..<30 { try transaction.put(Key("\(number)"), "again") }
    }
    try store.compact()
    try host.storage.copyTree(from: "/store", to: "/copy")
    let copy = try Store.open("/copy", on: host, configuration: Self.small)
    #expect(try copy.actor != store.actor)
    for number in 0..<30 { #expect(try copy.text(Key("\(number)")) == "again") }
    #expect(try copy.versionVector().covers(store.versionVector()))
  }

  /// As above, with a member that has seen nothing yet: no delete may be purged.
  static func churnUnpurged(
    _ store: Store, keys: UInt64 = 40, writes: Int = 400, seed: UInt64 = 1, bytes: UInt64 = 3000
  ) throws {
    let member = try #require(DeviceID(bytes: [UInt8](repeating: 9, count: 32)))
    try store.putReserved(ReservedKey.frontier(member), ReplicaState.encode(VersionVector()))
    try churn(store, keys: keys, writes: writes, seed: seed, bytes: bytes)
  }

  /// Overwrites `keys` keys repeatedly in `writes` writes, including deletes and transactions.
  static func churn(
    _ store: Store, keys: UInt64 = 40, writes: Int = 400, seed: UInt64 = 1, bytes: UInt64 = 3000
  ) throws {
    var random = SplitMix64(seed: seed)
    for number in 0..<writes {
      let key = try Key("key \(random.next() % keys)")
      let value = [UInt8](repeating: UInt8(number % 251), count: Int(random.next() % bytes))
      switch random.next() % 8 {
      case 0: try store.delete(key)
      case 1:
        try store.transaction { transaction in
          try transaction.put(key, value)
          try transaction.put(Key("with \(random.next() % 10)"), value)
        }
      case 2: try store.setLocal(Array("local \(random.next() % 3)".utf8), random.next() % 2 == 0 ? nil : [1])
      default: try store.put(key, value)
      }
    }
  }

  @Test(
    "keeps every value, position, conflict and digest, and frees the rest of the space",
    arguments: 0..<8 as Range<UInt64>)
  func equality(seed: UInt64) throws {
    let store = try Store.create(on: host, configuration: Self.small)
    let other = try Store.create(
      on: SimulatedHost(seed: 77, machine: "other"), id: store.id, configuration: Self.small)
    try Self.churnUnpurged(store, seed: seed)
    try Self.churnUnpurged(other, writes: 60, seed: seed + 100)
    try store.synchronize(with: other)
    try Self.churnUnpurged(store, seed: seed + 200)
    let before = try Picture(store)
    #expect(!before.conflicts.isEmpty)
    let bytes = try store.status().journalBytes
    let gained = try store.compact()
    #expect(gained > 0)
    // The compaction's own records may have started a segment.
    let added = try store.status().journalBytes + gained - bytes
    #expect(added == 0 || added == 64 << 10, "\(bytes), \(gained)")
    #expect(try Picture(store) == before, "seed \(seed)")
    #expect(try store.verify().isClean)
    #expect(try store.compact() == 0)
    try store.close()
    let again = try Store.open(on: host, configuration: Self.small)
    #expect(try Picture(again) == before, "seed \(seed)")
    try Self.churnUnpurged(again, seed: seed + 300)
    try again.synchronize(with: other)
    #expect(try again.digest() == other.digest())
    try again.compact()
    #expect(try again.verify().isClean)
    #expect(try again.digest() == other.digest())
  }

  @Test("keeps the disk below twice the live data plus three segments", arguments: [64 << 10, 1 << 20])
  func bound(segmentBytes: Int) throws {
    let host = SimulatedHost(compacting: .byNextWriter)
    let store = try Store.create(
      on: host, configuration: Configuration(durability: .relaxed, segmentBytes: segmentBytes))
    let keys = UInt64(segmentBytes / 1000)
    var random = SplitMix64(seed: 3)
    for number in 0..<(60 * segmentBytes / 3000) {
      try store.put(Key("key \(random.next() % keys)"), [UInt8](repeating: UInt8(number % 251), count: 3000))
      let (used, live) = try store.reading { engine throws(StoreError) in
        (engine.journal.fileBytes, engine.deadAndLive.live)
      }
      guard used > 2 * live + 3 * segmentBytes else { continue }
      Issue.record("after \(number): \(used) bytes on disk, \(live) of them live")
      break
    }
    let files = try host.storage.list("/store/journal").filter { $0.hasSuffix(".segment") }
    #expect(files.count == (try store.status().segments), "\(files)")
    #expect(files.contains { SegmentName($0).map { $0.compaction > 0 } ?? false })
  }

  @Test(
    "interrupted at any call loses nothing, by a kill or a loss of power (F7)",
    arguments: [false, true])
  func interrupted(sealed: Bool) throws {
    var number = 1
    while true {
      let host = SimulatedHost(seed: UInt64(number), compacting: .onRequest, encrypted: sealed)
      let store = try Store.create(on: host, configuration: Self.small)
      try Self.churnUnpurged(store, writes: 120)
      let before = try Picture(store)
      try store.close()
      let plan = FaultPlan()
      let dying = try Store.open(on: host, configuration: Self.small, failing: plan)
      let opening = plan.calls
      plan.fail(number: number, forever: true)
      let isDone = (try? dying.compact()) != nil
      // Failures that it can work around are tolerated; the loop ends at the first call number that is not
      // reached.
      let isOver = plan.calls - opening < number
      if isOver { #expect(isDone) }
      if number % 2 == 0 { host.killProcesses() } else { host.losePower(seed: UInt64(number)) }
      let again = try Store.open(on: host, configuration: Self.small)
      let after = try Picture(again)
      #expect(after.values == before.values && after.digest == before.digest, "call \(number)")
      #expect(after.log.map(\.position) == before.log.map(\.position), "call \(number)")
      #expect(try again.verify().isClean, "call \(number)")
      // Work that the killed process had not reached.
      try again.compact()
      let files = try host.storage.list("/store/journal").filter { $0.hasSuffix(".segment") }
      #expect(files.count == (try again.status().segments), "call \(number): \(files)")
      #expect(try Picture(again).values == before.values, "call \(number)")
      if isOver { break }
      number += 1
    }
    #expect(number > 25)
  }

  @Test("on a full disk works with the space reserve, as long as it lasts (F25)")
  func fullDisk() throws {
    let store = try Store.create(on: host, configuration: Self.small)
    try Self.churnUnpurged(store, writes: 120)
    let before = try Picture(store)
    host.storage.free = 0
    _ = try host.storage.remove("/store/journal/reserve.compacted")
    host.storage.free = 0
    #expect(#expect(throws: StoreError.self) { try store.compact() }?.code == .diskFull)
    #expect(try Picture(store) == before)
    host.storage.free = 300 << 10
    try store.reserve.restore()
    host.storage.free = 0
    #expect(try store.compact() > 0)
    #expect(try Picture(store) == before)
  }

  @Test("continues if a replaced segment cannot be removed")
  func unremovable() throws {
    let plan = FaultPlan()
    try Store.create(on: host, configuration: Self.small).close()
    let store = try Store.open(on: host, configuration: Self.small, failing: plan)
    try Self.churn(store, writes: 120)
    plan.fail(.remove, on: ".segment", forever: true)
    #expect(throws: StoreError.self) { try store.compact() }
    try Self.churn(store, writes: 120, seed: 2)
    let before = try Picture(store)
    // It frees less than it could, and reports it again, but takes its turn each time.
    let segments = try store.status().segments
    _ = try? store.compact()
    #expect(try store.status().segments < segments)
    plan.clear()
    try store.compact()
    #expect(try Picture(store).values == before.values)
    let files = try host.storage.list("/store/journal").filter { $0.hasSuffix(".segment") }
    #expect(files.count == (try store.status().segments))
  }

  @Test("does not change an open round or a cursor")
  func round() throws {
    let other = try Store.create(on: SimulatedHost(seed: 5, machine: "other"), configuration: Self.small)
    let store = try Store.create(on: host, id: other.id, configuration: Self.small)
    try Self.churnUnpurged(store, writes: 150)
    try other.receive(from: store)
    try Self.churnUnpurged(store, writes: 150, seed: 2)
    let mine = try other.replicaSummary()
    let actor = try store.actor
    let round = try store.openRound(since: try other.cursor(for: actor), covered: mine.vector)
    let count = round.count
    #expect(count > 10)
    let first = try #require(try round.next(maximumBytes: 2000))
    try Self.churnUnpurged(store, writes: 200, seed: 3)
    #expect(try store.compact() > 0)
    var records = first.records.count
    _ = try other.apply(first)
    while let batch = try round.next(maximumBytes: 2000) {
      records += batch.records.count
      _ = try other.apply(batch)
    }
    #expect(records == count)
    try other.finish(round.close)
    try other.receive(from: store)
    #expect(try other.digest() == store.digest())
    #expect(try other.versionVector() == store.versionVector())
    #expect(try store.actor == actor)
  }

  @Test("is followed by the store's other processes, however far behind they are")
  func processes() throws {
    let first = try Store.create(on: host, configuration: Self.shared)
    let second = try Store.openSecond(on: host, configuration: Self.shared)
    for turn in 0..<6 as Range<UInt64> {
      try Self.churnUnpurged(turn % 2 == 0 ? first : second, writes: 150, seed: turn)
      if turn != 3 { #expect(try first.digest() == second.digest()) }
      #expect(try (turn % 3 == 0 ? second : first).compact() > 0)
      #expect(try Picture(first) == Picture(second), "turn \(turn)")
    }
    #expect(try first.verify().isClean)
    #expect(try second.verify().isClean)
    try Self.churnUnpurged(first, writes: 50, seed: 9)
    try first.close()
    try second.close()
    #expect(try Store.open(on: host).verify().isClean)
  }

  @Test("never lets a sequence or position be reused, though a peer's record superseded its record")
  func sequences() throws {
    let store = try Store.create(on: host, configuration: Self.small)
    let far = SimulatedHost(seed: 5, time: host.time + 1000, machine: "other")
    let other = try Store.create(on: far, id: store.id, configuration: Self.small)
    try other.receive(from: store)
    try store.put("beaten", "mine")
    let last = try #require(try store.entry("beaten")).dot
    // The other copy has seen it, so its own write beats it without a conflict.
    try other.receive(from: store)
    try other.put("beaten", "theirs")
    try store.receive(from: other)
    for number in 0..<30 {
      let value = [UInt8](repeating: UInt8(number), count: 15_000)
      try other.put("filler", value)
      try store.receive(from: other)
    }
    let position = try store.status().position
    #expect(try store.compact() > 0)
    #expect(try !store.log(from: 0, limit: .max).contains { $0.dot == last })
    try store.close()
    let again = try Store.open(on: host, configuration: Self.small)
    try again.put("next", "x")
    #expect(try again.entry("next")?.dot.sequence == last.sequence + 1)
    #expect(try again.status().position == position + 1)
    try other.receive(from: again)
    #expect(try other.digest() == again.digest())
  }

  @Test(
    "first installs a copy that an interrupted compaction has renamed (F7)"
  )
  func namedOnly() throws {
    let plan = FaultPlan()
    try Store.create(on: host, configuration: Self.small).close()
    let store = try Store.open(on: host, configuration: Self.small, failing: plan)
    // Ten fill a segment.
    for number in 0..<60 { try store.put(Key("\(number)"), [UInt8](repeating: 1, count: 6000)) }
    for number in [10, 11, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25] { try store.put(Key("\(number)"), "x") }
    plan.fail(.open, on: "-1.segment", errno: EMFILE)
    #expect(throws: StoreError.self) { try store.compact() }
    // By now another run is worth more, which includes one of the two that were copied.
    for number in [26, 27, 28, 29, 30, 31, 32, 33, 34, 40, 41, 42, 43, 44] {
      try store.put(Key("\(number)"), "y")
    }
    let picture = try Picture(store)
    // After that run it ends.
    plan.fail(.rename, on: "-3.segment", forever: true)
    _ = try? store.compact()
    #expect(try Picture(store) == picture && store.core.engine.withLock { $0.journal.fileBytes } < 400_000)
    host.killProcesses()
    let again = try Store.open(on: host, configuration: Self.small)
    #expect(try Picture(again) == picture && again.verify().isClean)
  }

  @Test("leaves a damaged segment unchanged, and the others' records readable (R3)")
  func damaged() throws {
    let store = try Store.create(on: host, configuration: Self.small)
    try Self.churnUnpurged(store, writes: 200)
    let before = try Picture(store)
    let path = "/store/journal/0000000000000002.segment"
    let file = try host.storage.open(path, .readWrite)
    let byte = try file.read(1, at: 9000)[0]
    try file.write([byte ^ 4], at: 9000)
    while try store.compact() > 0 {}
    #expect(try host.storage.status(path) != nil)
    try file.write([byte], at: 9000)
    #expect(try Picture(store) == before)
  }

  @Test("keeps the tombstone of a local key as long as an older record of it exists")
  func localRemoval() throws {
    let store = try Store.create(on: host, configuration: Self.small)
    try store.setLocal(Array("old".utf8), [1])
    for number in 0..<30 { try store.put(Key("kept \(number)"), [UInt8](repeating: 1, count: 3000)) }
    try store.setLocal(Array("old".utf8), nil)
    for _ in 0..<60 { try store.put("churned", [UInt8](repeating: 2, count: 3000)) }
    #expect(try store.compact() > 0)
    try store.close()
    // The journal is read, not the index's records of it.
    for name in ["index", "ledger"] { _ = try host.storage.remove("/store/" + name) }
    let again = try Store.open(on: host, configuration: Self.small)
    #expect(try again.local(Array("old".utf8)) == nil)
    #expect(try again.status().keys == 31)
  }

  @Test("keeps parked records (F50)", arguments: [false, true])
  func parked(rebuilds: Bool) throws {
    var store = try Store.create(on: host, configuration: Self.small)
    let ahead = SimulatedHost(seed: 2, time: host.time + 600_000, machine: "ahead")
    let other = try Store.create(on: ahead, id: store.id)
    try other.put("key", "of tomorrow")
    try store.receive(from: other)
    #expect(try store.get("key") == nil)
    for _ in 0..<60 { try store.put("churned", [UInt8](repeating: 2, count: 3000)) }
    #expect(try store.compact() > 0)
    try store.close()
    if rebuilds { for name in ["index", "ledger"] { _ = try host.storage.remove("/store/" + name) } }
    store = try Store.open(on: host, configuration: Self.small)
    #expect(try store.get("key") == nil)
    host.time += 600_000
    try store.put("another", "write")
    #expect(try store.text("key") == "of tomorrow")
  }

  @Test("runs concurrently with readers and writers, on a real disk")
  func concurrent() async throws {
    let directory = TemporaryDirectory()
    let store = try Store.create(
      at: directory.path + "/s", configuration: Configuration(durability: .relaxed, segmentBytes: 1 << 20))
    try await withThrowingTaskGroup(of: Void.self) { group in
      for thread in 0..<3 as Range<UInt64> {
        group.addTask {
          var random = SplitMix64(seed: thread)
          for number in 0..<1500 {
            let key = try Key("\(thread) \(random.next() % 50)")
            let value = [UInt8](repeating: UInt8(number % 251), count: 2000)
            try store.put(key, value)
            #expect(try store.get(key)?.bytes == value)
          }
        }
      }
      try await group.waitForAll()
    }
    let values = try Picture(store).values
    try store.close()
    let again = try Store.open(at: directory.path + "/s")
    #expect(try Picture(again).values == values)
    #expect(try again.verify().isClean)
    #expect(try again.status().journalBytes < 8 << 20)
  }
}
