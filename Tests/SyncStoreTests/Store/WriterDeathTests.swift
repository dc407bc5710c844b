import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// A process dies while it holds the writers' mutex, simulated by a thread that ends with it.
@Suite("After the death of a writer")
struct WriterDeathTests {
  let host = SimulatedHost()

  static func dies(_ store: Store, _ body: @escaping @Sendable (inout Engine) throws -> Void) {
    let thread = Thread {
      _ = store.control.lock()
      store.core.engine.withLock { try? body(&$0) }
    }
    thread.start()
    while !thread.isFinished { usleep(1000) }
  }

  static func entries(_ store: Store, _ engine: Engine, _ key: String) throws -> [JournalEntry] {
    var builder = engine.transactionBuilder(wall: store.environment.now(), limit: 1 << 20)
    for part in ["1", "2"] {
      try builder.issue(
        key: Array((key + part).utf8), content: .inline([1]), type: .bytes, deadline: nil, held: nil)
    }
    return builder.entries
  }

  /// Stores a transaction of two keys after the tail, and publishes nothing. Returns the location of its
  /// bytes.
  static func store(
    _ key: String, in store: Store, _ engine: Engine
  ) throws -> (segment: Segment, bytes: Range<Int>) {
    let tail = Location(packed: store.control.tail)
    let segment = try #require(engine.journal.segment(tail.segment))
    var encoder = RecordEncoder(
      segment: segment, start: tail.offset, durable: 0, position: engine.position)
    let entries = try Self.entries(store, engine, key)
    let limit = tail.offset + RecordEncoder.bound(entries)
    store.control.announceWrite(upTo: Location(segment: tail.segment, offset: limit).packed)
    encoder.encode(entries)
    return (segment, tail.offset..<encoder.end)
  }

  func processes() throws -> (Store, Store) {
    let shared = SharedModeTests.shared
    let first = try Store.create(on: host, configuration: shared)
    try first.put("before", "x")
    return (
      first,
      try Store.openSecond(on: host, configuration: shared)
    )
  }

  func expectWhole(_ stores: [Store], keys: Int) throws {
    for store in stores {
      #expect(try store.status().keys == keys)
      #expect(try store.digest() == stores[0].digest())
      #expect(try store.text("before") == "x")
    }
    host.killProcesses()
    let again = try Store.open(on: host)
    #expect(try again.status().keys == keys)
    #expect(try again.verify().isClean)
  }

  @Test(
    "the transactions it had stored completely are replayed, an incomplete one is blanked (F2, F13)",
    arguments: [0, 8, 150])
  func stored(missing: Int) throws {
    let (first, second) = try processes()
    Self.dies(first) { engine in
      let (segment, stored) = try Self.store("dead", in: first, engine)
      segment.mapping.clear(max(stored.lowerBound, stored.upperBound - missing)..<stored.upperBound)
    }
    try second.put("after", "x")
    #expect(try second.contains("dead1") == (missing == 0))
    #expect(try second.contains("dead2") == (missing == 0))
    try first.put("later", "x")
    try expectWhole([first, second], keys: missing == 0 ? 5 : 3)
  }

  @Test(
    "its incomplete transaction is no torn tail for a process that opens after a loss of power (F2, F15)",
    arguments: [false, true])
  func leftover(isAlone: Bool) throws {
    let first = try Store.create(on: host, configuration: isAlone ? Configuration() : SharedModeTests.shared)
    try first.put("before", "x")
    let actor = try first.actor
    Self.dies(first) { engine in
      let (segment, stored) = try Self.store(String(repeating: "a long key", count: 40), in: first, engine)
      segment.mapping.clear(stored.upperBound - 8..<stored.upperBound)
    }
    if isAlone { host.killProcesses() }
    let second =
      isAlone
      ? try Store.open(on: host)
      : try Store.openSecond(on: host, configuration: SharedModeTests.shared)
    try second.put("after", "x")
    host.losePower(keeping: { _, _ in .survives }, sizes: { _ in true })
    let again = try Store.open(on: host)
    #expect(try again.text("after") == "x" && again.status().keys == 2)
    #expect(try again.actor == actor)
    #expect(!(try host.storage.list(RotationTests.journal).contains { $0.hasPrefix("torn") }))
  }

  @Test("its incomplete transaction is ignored, even if a reader opens first (F2, F13)")
  func leftoverSeenByReader() throws {
    let first = try Store.create(on: host)
    try first.put("before", "x")
    Self.dies(first) { engine in
      let (segment, stored) = try Self.store("dead", in: first, engine)
      // The first of the two was not stored.
      segment.mapping.clear(stored.lowerBound..<stored.lowerBound + 8)
    }
    host.killProcesses()
    let readOnly = Configuration(mode: .readOnly)
    #expect(try Store.open(on: host, configuration: readOnly).contains("dead2") == false)
    host.killProcesses()
    // As long as the first of the two.
    try Store.open(on: host).put("live1", [1])
    host.losePower(keeping: { _, _ in .survives }, sizes: { _ in true })
    let again = try Store.open(on: host)
    #expect(try again.contains("live1") && again.contains("dead2") == false)
    #expect(try again.status().keys == 2 && again.verify().isClean)
  }

  @Test("a segment it had begun is continued, and its name made durable (F5, F13)")
  func begun() throws {
    let (first, second) = try processes()
    let plan = FaultPlan()
    plan.fail(.syncDirectory, forever: true)
    let failing = host.environment(over: FaultingStorage(host.storage, plan: plan))
    Self.dies(first) { engine in
      var journal = Journal(
        directory: RotationTests.journal, environment: failing, store: first.id, writable: true,
        largestSegment: 1 << 20, keys: engine.journal.keys)
      _ = try journal.load()
      try journal.begin(
        after: Location(packed: first.control.tail).offset, durable: 0, position: engine.position)
    }
    try second.put("after", "x")
    RotationTests.losePower(host)
    #expect(try Store.open(on: host).text("after") == "x")
  }
}
