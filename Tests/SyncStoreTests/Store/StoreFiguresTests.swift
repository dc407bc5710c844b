import SyncTestSupport
import Testing

@testable import SyncStore

/// The counters and figures of a store, for metrics.
@Suite("A store's figures")
struct StoreFiguresTests {
  private let host = SimulatedHost(compacting: .onRequest)

  @Test("count what the program itself has written, looked up and made durable")
  func counters() throws {
    let store = try Store.create(on: host, configuration: Configuration(durability: .full))
    let before = store.counters
    #expect(before.puts == 0 && before.deletes == 0)
    try store.put("a", "1")
    try store.put("b", "2")
    try store.put("c", "3", expiration: .after(.seconds(60)))
    try store.delete("a")
    try store.transaction { transaction in
      try transaction.put("d", [UInt8]("4".utf8))
      try transaction.delete("b")
      try transaction.delete("never there")
    }
    let after = store.counters
    #expect(after.puts == 4 && after.deletes == 2)
    #expect(after.syncs.count - before.syncs.count == UInt64(store.syncCount) - before.syncs.count)
    #expect(after.syncs.count >= before.syncs.count + 5 && after.syncs.seconds >= before.syncs.seconds)
    #expect(after.syncRequests >= before.syncRequests + 5)
    for _ in 0..<10 { _ = try store.text("d") }
    // Other tests look up keys as well.
    #expect(store.counters.lookups >= after.lookups + 10)
  }

  @Test("do not count what peers have sent, nor the store's own records")
  func received() throws {
    let store = try Store.create(on: host)
    let other = try Store.create(on: SimulatedHost(), id: store.id)
    for number in 0..<20 { try other.put(Key("k\(number)"), "v") }
    try store.receive(from: other)
    #expect(try store.status().keys == 20)
    #expect(store.counters.puts == 0)
  }

  @Test("are those of a pass over all keys, without one")
  func figures() throws {
    let store = try Store.create(on: host, configuration: Configuration(segmentBytes: 64 << 10))
    for number in 0..<300 { try store.put(Key("k\(number % 100)"), [UInt8](repeating: 1, count: 1000)) }
    try store.delete("k1")
    let (figures, status) = (try store.figures(), try store.status())
    #expect(figures.indexedKeys == status.keys + status.tombstones)
    #expect(figures.segments == status.segments && figures.journalBytes == status.journalBytes)
    #expect(figures.position == status.position && figures.position > 300)
    #expect(figures.closedDeadBytes > 100_000 && figures.closedLiveBytes > 0)
    #expect(figures.reserveBytes == figures.wantedReserveBytes && figures.freeBytes > 0)
    #expect(figures.isIndexOnDisk && !figures.isPoisoned && figures.damagedPlaces == 0)
    #expect(try store.compact() > 0)
    let compacted = try store.figures()
    #expect(store.counters.compactions > 0 && compacted.closedDeadBytes < 50_000)
    let files = try store.fileUsage()
    #expect(files.first { $0.kind == .segment }?.files == compacted.segments)
    #expect(files.first { $0.kind == .reserve }?.bytes ?? 0 >= figures.reserveBytes)
  }

  @Test("show a disk that is full by the space that the reserve lacks")
  func full() throws {
    let store = try Store.create(on: host, configuration: Configuration(segmentBytes: 64 << 10))
    host.storage.free = 0
    _ = try host.storage.remove("/store/journal/reserve")
    let figures = try store.figures()
    #expect(figures.reserveBytes < figures.wantedReserveBytes)
  }

  @Test("a duration counts in the first class that holds it")
  func histogram() {
    var histogram = DurationHistogram()
    for seconds in [0.0005, 0.0006, 0.3, 1000] { histogram.add(seconds: seconds) }
    #expect(histogram.count == 4 && histogram.seconds == 1000.3011)
    #expect(histogram.counts[0] == 1 && histogram.counts[1] == 1 && histogram.counts.last == 1)
    #expect(histogram.counts[DurationHistogram.bounds.firstIndex(of: 0.5) ?? 0] == 1)
  }
}
