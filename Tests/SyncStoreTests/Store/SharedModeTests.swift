import Glibc
import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("A store in shared mode")
struct SharedModeTests {
  static let shared = Configuration(mode: .shared, segmentBytes: 1 << 20)
  let host = SimulatedHost()

  func processes() throws -> (Store, Store) {
    let first = try Store.create(on: host, configuration: Self.shared)
    return (first, try beside())
  }

  /// The store as opened by another process.
  private func beside() throws -> Store {
    try Store.openSecond(on: host, configuration: Self.shared)
  }

  /// A process stops using the shared index.
  private static func giveUpIndex(of store: Store) {
    store.core.engine.withLock { engine in
      engine.index.failure = StoreError(.inputOutput, "for the test")
      engine.rebuildIndex()
    }
  }

  @Test("shows each process the other's writes, at once, across segments")
  func visible() throws {
    let (first, second) = try processes()
    let value = [UInt8](repeating: 9, count: 9000)
    for number in 0..<300 {
      try (number % 2 == 0 ? first : second).put(Key("\(number)"), value, durability: .relaxed)
      #expect(try (number % 2 == 0 ? second : first).get(Key("\(number)"))?.bytes == value)
    }
    #expect(try first.digest() == second.digest())
    #expect(try first.status().segments > 1)
    try first.close()
    try second.put("after", "x")
    try second.close()
    let again = try Store.open(on: host)
    #expect(try again.status().keys == 301)
    #expect(try again.verify().isClean)
  }

  @Test(
    "lets a process append to a segment that it has read before the segment had an index slot",
    arguments: [true, false])
  func readBeforeIndexed(isTransaction: Bool) throws {
    let (first, second) = try processes()
    try first.put("before", "x")
    #expect(try second.text("before") == "x")
    // The state after another process has started a segment and is about to index it.
    second.core.engine.withLock { $0.journal.forgetSlots() }
    if isTransaction {
      try second.transaction { transaction in
        for number in 0..<3 { try transaction.put(Key("behind \(number)"), Array("y".utf8)) }
      }
    } else {
      try second.put("behind 0", "y")
    }
    #expect(second.core.engine.withLock { $0.index.isShared && !$0.journal.lacksSlots })
    for store in [first, second] {
      #expect(try store.text("before") == "x")
      #expect(try store.text("behind 0") == "y")
    }
    #expect(try first.digest() == second.digest())
    #expect(try second.verify().isClean)
  }

  @Test("compacts segments that a process has read before they had index slots")
  func compactedBeforeIndexed() throws {
    let host = SimulatedHost(compacting: .onRequest)
    let first = try Store.create(on: host, configuration: Self.shared)
    let second = try Store.openSecond(on: host, configuration: Self.shared)
    for number in 0..<300 { try first.put(Key("\(number % 7)"), [UInt8](repeating: 9, count: 9000)) }
    #expect(try second.get("6") != nil)
    second.core.engine.withLock { $0.journal.forgetSlots() }
    #expect(try second.compact() > 1 << 20)
    for store in [first, second] {
      #expect(try store.get("6")?.bytes.count == 9000)
      #expect(try store.verify().isClean)
    }
    #expect(try first.digest() == second.digest())
  }

  @Test("gives every write its own sequence, in any process")
  func sequences() throws {
    let (first, second) = try processes()
    for number in 0..<20 { try (number % 3 == 0 ? first : second).put(Key("\(number)"), "x") }
    let dots = try first.log(from: 0, limit: 100).map(\.dot)
    #expect(Set(dots).count == 20)
    #expect(dots.map(\.sequence).sorted() == Array(1...20))
  }

  @Test("excludes exclusive openings, and is excluded by one (F95)")
  func exclusion() throws {
    let (first, second) = try processes()
    var third = host.environment
    third.process += 2_000
    let environment = third
    #expect(
      #expect(throws: StoreError.self) {
        try Store.open(at: "/store", configuration: host.configured(), environment: environment)
      }?.code == .busy)
    try first.close()
    try second.close()
    let alone = try Store.open(on: host)
    #expect(
      #expect(throws: StoreError.self) {
        try Store.open(at: "/store", configuration: host.configured(Self.shared), environment: environment)
      }?.code == .busy)
    try alone.close()
  }

  @Test("can be read by a read-only process next to a writer")
  func reader() throws {
    let (first, _) = try processes()
    var third = host.environment
    third.process += 2_000
    let reader = try Store.open(
      at: "/store", configuration: host.configured(Configuration(mode: .readOnly)), environment: third)
    try first.put("k", "v", expiration: .at(host.time + 1000))
    #expect(try reader.text("k") == "v")
    #expect(#expect(throws: StoreError.self) { try reader.put("k", "w") }?.code == .readOnly)
    // The state after the other one has started a segment and is about to index it.
    reader.core.engine.withLock { $0.journal.forgetSlots() }
    #expect(try reader.digest() == first.digest())
    #expect(try reader.list().count == 1)
  }

  @Test(
    "does not use an index that one process has invalidated, whatever failed at that",
    arguments: [true, false])
  func givenUp(readsFirst: Bool) throws {
    let plan = FaultPlan()
    try Store.create(on: host, configuration: Self.shared).close()
    let first = try Store.open(on: host, configuration: Self.shared, failing: plan)
    let second = try beside()
    try first.put("k", "old")
    #expect(try second.text("k") == "old")
    plan.fail(.map, on: "/index", forever: true, errno: ENOMEM)
    Self.giveUpIndex(of: first)
    try first.put("k", "new")
    if readsFirst { #expect(try second.text("k") == "new") }
    try second.put("k", "newer")
    #expect(try first.text("k") == "newer" && first.digest() == second.digest())
  }

  @Test(
    "is recovered after a writer's death, too, by a process whose index was damaged or invalidated (F2)",
    arguments: [true, false])
  func repairedWithoutIndex(isDamaged: Bool) throws {
    let (first, second) = try processes()
    try first.put("k", "old")
    #expect(try second.text("k") == "old")
    Self.giveUpIndex(of: first)
    try first.put("k", "new")
    if isDamaged {
      second.core.engine.withLock { engine in
        engine.index.hashIndex.write(12345, to: engine.index.hashIndex.header, IndexLayout.Header.intent)
      }
    }
    // As a process that finds the mutex of a dead one.
    try second.writes.lockWriters()
    try second.writes.recoverDeadWriterOrPoison()
    second.control.unlock()
    try second.put("l", "x")
    for store in [first, second] { #expect(try store.text("k") == "new" && store.text("l") == "x") }
  }

  @Test("is poisoned for every process once a sync failed in one (F30)")
  func poison() throws {
    let (first, second) = try processes()
    host.storage.failSync(of: "/store/journal/0000000000000001.segment")
    #expect(throws: StoreError.self) { try first.put("a", "1") }
    #expect(#expect(throws: StoreError.self) { try second.put("b", "1") }?.code == .poisoned)
  }

  @Test(
    "F25 F31 lets the first process with space copy large values left by a failed sync, and blocks none",
    arguments: [false, true])
  func left(others: Bool) throws {
    let large = [UInt8](repeating: 9, count: 30_000)
    var (first, second) = try processes()
    let pack = try FullDiskTests.leaveUnsynced("large", large, of: first, on: host)

    host.storage.free = 2 << 20
    // A read-only opening copies nothing.
    let reader = try BlobStore.open(
      directory: "/store/blobs", storage: host.storage, access: .readOnly,
      environment: BlobEnvironment(now: { 1_000_000 }))
    #expect(try reader.packs.totals().count == 1)
    first = try Store.open(on: host, configuration: Self.shared)
    #expect(try first.get("large")?.bytes == large)
    second = try beside()
    for store in [second, first, second] {
      #expect(
        #expect(throws: StoreError.self) { try store.put("small", [1], durability: .full) }?.code == .diskFull
      )
      #expect(try store.get("large")?.bytes == large)
    }
    host.storage.free = nil
    for store in others ? [second, first] : [first, second] {
      try store.put("small", [2], durability: .full)
      try store.put("larger", large + [others ? 1 : 0])
    }
    #expect(try host.storage.status(pack) == nil)
    host.losePower(keeping: { _, _ in .lost }, sizes: { _ in false }, entries: { _ in false })
    let store = try Store.open(on: host)
    #expect(try store.get("large")?.bytes == large && store.get("small")?.bytes == [2])
    #expect(try store.get("larger")?.bytes == large + [others ? 1 : 0])
    #expect(try store.verify().isClean)
  }
}
