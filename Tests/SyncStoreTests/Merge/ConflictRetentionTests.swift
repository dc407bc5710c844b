import SyncTestSupport
import Testing

@testable import SyncStore

/// Beaten values are kept for a limited time, and in limited number.
@Suite("Losing values of conflicts")
struct ConflictRetentionTests {
  private static let day: UInt64 = 86_400_000
  private static let configuration = Configuration(durability: .relaxed, segmentBytes: 64 << 10)

  @Test("are kept for 30 days after they lost, however old they were then")
  func age() throws {
    let (host, absent) = (SimulatedHost(seed: 1), SimulatedHost(seed: 2))
    let store = try Store.create(on: host, configuration: Self.configuration)
    let other = try Store.create(on: absent, id: store.id, configuration: Self.configuration)
    func pass(_ days: UInt64) {
      host.time += days * Self.day
      absent.time += days * Self.day
    }
    try other.put("first", [1])
    try other.put("second", [2])
    // No other copy hears of that for two months.
    pass(60)
    try store.put("first", [10])
    try store.put("second", [20])
    try store.receive(from: other)
    #expect(try store.conflicts().count == 2)
    for number in 0..<100 { try store.put("fill", [UInt8](repeating: 1, count: 1000 + number)) }
    pass(29)
    try other.put("third", [3])
    pass(0)
    try store.put("third", [30])
    try store.receive(from: other)
    try store.compact()
    #expect(try Set(store.conflicts().map(\.key?.description)) == ["first", "second", "third"])
    pass(2)
    for number in 0..<100 { try store.put("fill", [UInt8](repeating: 2, count: 1000 + number)) }
    try store.compact()
    #expect(try store.conflicts().map(\.key?.description) == ["third"])
    try store.close()
    #expect(try Store.open(on: host, configuration: Self.configuration).conflicts().count == 1)
  }

  /// Two copies that know nothing of each other, one of which has a thousand large values.
  private func beaten(
    later: UInt64, bytes: Int = 20_000
  ) throws -> (large: Store, small: Store, host: SimulatedHost) {
    let (host, ahead) = (SimulatedHost(seed: 1), SimulatedHost(seed: 2))
    let configuration = Configuration(durability: .relaxed, blobThreshold: 1 << 20)
    let large = try Store.create(on: host, configuration: configuration)
    let small = try Store.create(on: ahead, id: large.id, configuration: configuration)
    for number in 0..<1000 { try large.put(Key("\(number)"), [UInt8](repeating: 1, count: bytes)) }
    ahead.time += later
    for number in 0..<1000 { try small.put(Key("\(number)"), [2]) }
    return (large, small, host)
  }

  @Test("do not cause the small values that beat them to be refused, however many arrive at once")
  func manyAtOnce() throws {
    let (large, small, _) = try beaten(later: 10)
    try large.receive(from: small)
    #expect(try large.get("7")?.bytes == [2] && large.conflicts().count == 1000)
    try small.receive(from: large)
    #expect(try large.digest() == small.digest())
  }

  @Test(
    "of one batch are kept up to the limit of a compaction; those beaten by parked records, all until then")
  func tooMany() throws {
    let (large, small, _) = try beaten(later: 10, bytes: 100_000)
    try large.receive(from: small)
    #expect((600..<700).contains(try large.conflicts().count))
    #expect(try large.get("999")?.bytes == [2])
    let (other, ahead, host) = try beaten(later: 600_000, bytes: 100_000)
    try other.receive(from: ahead)
    host.time += 600_000
    try other.put("poke", "x")
    #expect(try other.status().parked == 0 && other.conflicts().count == 1000)
  }

  @Test("of many parked records do not stop writes once those are applied (F50)")
  func manyParked() throws {
    let (large, small, host) = try beaten(later: 600_000)
    try large.receive(from: small)
    #expect(try large.status().parked == 1000)
    host.time += 600_000
    try large.put("poke", "x")
    #expect(try large.status().parked == 0 && large.conflicts().count == 1000)
    #expect(try large.get("7")?.bytes == [2])
  }

  @Test("are kept, the newest, up to a number of bytes; of any age if no time was recorded")
  func bounds() {
    var retention = ConflictRetention()
    let beaten: [(position: UInt64, bytes: Int)] = [(5, 100), (20, 100), (30, 100)]
    #expect(retention.kept(of: beaten, at: 100 * Self.day, bytes: 1000) == [0, 1, 2])
    #expect(retention.kept(of: beaten, at: 100 * Self.day, bytes: 250) == [1, 2])
    #expect(retention.kept(of: beaten, at: 100 * Self.day, bytes: 99) == [])
    // The third has a clock that was set back, and is corrected a moment later.
    let times = [100 * Self.day, 100 * Self.day + 5, 3 * Self.day, 110 * Self.day]
    var noted: [Bool] = []
    for (time, position) in zip(times, [10, 12, 13, 25]) {
      noted.append(retention.recordConflict(at: time, after: UInt64(position)))
    }
    #expect(noted == [true, false, false, true])
    #expect(retention.kept(of: beaten, at: 130 * Self.day, bytes: 1000) == [1, 2])
    #expect(retention.kept(of: beaten, at: 135 * Self.day, bytes: 1000) == [2])
    #expect(retention.kept(of: beaten, at: 200 * Self.day, bytes: 1000) == [])
    #expect((try? ConflictRetention(bytes: retention.bytes)) == retention)
    _ = retention.recordConflict(at: 141 * Self.day, after: 40)
    #expect(retention.days.map(\.number) == [141])
  }
}
