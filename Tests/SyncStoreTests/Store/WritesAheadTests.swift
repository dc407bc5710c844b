import SyncTestSupport
import Testing

@testable import SyncStore

/// A clock ran ahead for a while: records it stamped are detected before they are sent, while they can still
/// be restamped.
@Suite("Writes stamped by a clock that ran ahead")
struct WritesAheadTests {
  private static let hour: UInt64 = 3_600_000
  private let tests = RestampTests()

  @Test("are counted until they are restamped, with the time from which others would apply them")
  func counted() throws {
    let (a, b) = try tests.copies()
    #expect(try a.unsentWritesAhead() == nil && !a.isClockAhead)
    tests.host.time += Self.hour
    try a.put("shared", "ahead")
    let stamp = tests.host.time
    tests.host.time -= Self.hour
    // Writes with the right clock are stamped after it.
    try a.put("also", "ahead")
    let ahead = try #require(try a.unsentWritesAhead())
    #expect(try a.isClockAhead)
    #expect(ahead.writes == 2 && ahead.until == stamp - Limits.clockDriftMilliseconds)
    try a.restampUnsent()
    #expect(try a.unsentWritesAhead() == nil && !a.isClockAhead)
    try a.synchronize(with: b)
    #expect(try b.text("also") == "ahead")
  }

  @Test("are not withheld once any of them may have been sent: it is too late then")
  func left() throws {
    let (a, b) = try tests.copies()
    tests.host.time += Self.hour
    try a.put("shared", "ahead")
    // A round starts while the clock runs ahead, as with a peer whose clock does so, too.
    _ = try a.openRound(
      for: RoundReceiver(cursor: b.cursor(for: a.actor), covered: b.versionVector(), scope: nil), on: nil)
    tests.host.time -= Self.hour
    #expect(try a.isClockAhead && a.unsentWritesAhead() == nil)
    #expect(throws: StoreError.self) { try a.restampUnsent() }
  }

  @Test("are listed where they are parked, and no longer once their time has come")
  func waiting() throws {
    let (a, b) = try tests.copies()
    tests.host.time += Self.hour
    try a.put("new", "ahead")
    tests.host.time -= Self.hour
    try a.synchronize(with: b)
    #expect(try b.get("new") == nil)
    let waiting = try b.parkedWrites(limit: 10)
    #expect(waiting.map { $0.key?.bytes } == [Array("new".utf8)])
    #expect(try b.parkedWrites(of: "new", limit: 10) == waiting)
    #expect(try b.parkedWrites(of: "shared", limit: 10).isEmpty)
    tests.other.time = Store.applicationTime(of: try #require(waiting.first).stamp)
    try b.put("later", "x")
    #expect(try b.text("new") == "ahead" && b.parkedWrites(limit: 10).isEmpty)
  }

  @Test("are none if the clock has never been set")
  func neverSet() throws {
    let (a, _) = try tests.copies()
    tests.host.time = 1_000
    try a.put("early", "x")
    #expect(try a.unsentWritesAhead() == nil)
  }
}
