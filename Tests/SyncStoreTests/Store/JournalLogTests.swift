import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("The log of a journal")
struct JournalLogTests {
  let host = SimulatedHost(compacting: .onRequest)

  @Test("read backwards, in pages of any size, is the log read forwards", arguments: [1, 3, 1000])
  func backwards(page: Int) throws {
    let store = try Store.create(on: host, configuration: CompactionTests.small)
    #expect(try store.log(limit: 10).isEmpty)
    for number in 0..<120 { try store.put(Key("\(number % 7)"), [UInt8](repeating: 1, count: 2000)) }
    try store.put("last", "value")
    // Compaction leaves wide gaps between the positions of what is live.
    for isCompacted in [false, true] {
      if isCompacted { #expect(try store.compact() > 0) }
      var entries: [LogEntry] = []
      while true {
        let more = try store.log(before: entries.last?.position ?? .max, limit: page)
        guard !more.isEmpty else { break }
        entries += more
      }
      #expect(try entries.reversed() == store.log(from: 0, limit: .max), "compacted: \(isCompacted)")
      #expect(entries.first?.key == "last")
    }
  }

  @Test("backwards ends where it is told, and gives nothing for no limit")
  func bounds() throws {
    let store = try Store.create(on: host)
    for key in ["a", "b", "c"] as [Key] { try store.put(key, "value") }
    let entries = try store.log(from: 0, limit: 10)
    #expect(try store.log(before: entries[2].position, limit: 1).map(\.key) == ["b"])
    #expect(try store.log(before: entries[0].position, limit: 5).isEmpty)
    #expect(try store.log(before: 0, limit: 5).isEmpty && store.log(limit: 0).isEmpty)
    #expect(try store.log(limit: .max).map(\.key) == ["c", "b", "a"])
  }
}

@Suite("An estimate of what trim would reclaim")
struct TrimEstimateTests {
  @Test("is what compaction then gains, nearly, and changes nothing")
  func journal() throws {
    let store = try Store.create(
      on: SimulatedHost(compacting: .onRequest), configuration: CompactionTests.small)
    #expect(try store.trimEstimate() == TrimEstimate())
    for number in 0..<120 { try store.put(Key("\(number % 7)"), [UInt8](repeating: 1, count: 2000)) }
    let segments = try store.status().segments
    let estimate = try store.trimEstimate()
    #expect(estimate.journalBytes > 100_000 && estimate.dueValues == 0)
    #expect(try store.status().segments == segments)
    let gained = try store.compact()
    #expect(gained / 2 < estimate.journalBytes && estimate.journalBytes / 2 < gained, "\(gained)")
    #expect(try store.trimEstimate().journalBytes < estimate.journalBytes / 10)
  }

  @Test("counts large values above the limits, and leaves them and the right to evict")
  func values() throws {
    let store = try Store.create(on: SimulatedHost(encrypted: false))
    for number in 0..<5 { try store.put(Key("\(number)"), pattern(50_000, seed: UInt64(number))) }
    let estimate = try store.trimEstimate(to: EvictionTests.limits(bytes: 120_000))
    #expect(estimate.dueValues == 3 && estimate.dueBytes == 150_000, "\(estimate)")
    #expect(try store.trimEstimate(to: EvictionTests.limits(count: 5)).dueValues == 0)
    for number in 0..<5 { #expect(try EvictionTests.holds(store, number)) }
    let pass = try #require(try store.beginEviction(EvictionTests.limits(count: 0)))
    #expect(
      #expect(throws: StoreError.self) { try store.trimEstimate(to: EvictionTests.limits(count: 0)) }?.code
        == .busy)
    pass.end()
  }
}
