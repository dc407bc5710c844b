import SyncTestSupport
import Testing

@testable import SyncStore

/// A copy that adopts a purge stamps its later writes above the horizon.
@Suite("Tombstones purged by a clock that ran ahead (F50, R8)")
struct ClockAheadPurgeTests {
  private static let year: UInt64 = 365 * 86_400_000
  private let left = SimulatedHost(seed: 1, time: 1_800_000_000_000, machine: "left")
  private let right = SimulatedHost(seed: 2, time: 1_800_000_000_000, machine: "right")
  private let sender: Store
  private let receiver: Store

  init() throws {
    sender = try Store.create(on: left)
    receiver = try Store.create(on: right, id: sender.id)
    try sender.put("kept", "1")
    try sender.put("doomed", "2")
  }

  @Test("are not sent before they are restamped, and then advance no other clock")
  func restamped() throws {
    left.time += Self.year
    try sender.delete("doomed")
    #expect(try sender.purge() == 1)
    left.time -= Self.year
    #expect(code { try receiver.receive(from: sender) } == .clock)
    #expect(try receiver.clockLead() == 0)
    // Nothing was sent that would prevent this.
    try sender.restampUnsent()
    try receiver.receive(from: sender)
    #expect(try receiver.get("doomed") == nil && receiver.text("kept") == "1")
    #expect(try receiver.clockLead() <= Limits.clockDriftMilliseconds)
    try receiver.put("next", "3")
    try sender.receive(from: receiver)
    #expect(try sender.text("next") == "3")
    #expect(try sender.digest() == receiver.digest())
  }

  @Test("are refused from a peer that sends them all the same", arguments: [false, true])
  func refused(isHostile: Bool) throws {
    try sender.delete("doomed")
    #expect(try sender.purge() == 1)
    let round = try sender.openRound(since: nil, covered: VersionVector())
    while let batch = try round.next(maximumBytes: 1000) { _ = try receiver.apply(batch) }
    var close = round.close
    #expect(close.isFull)
    close.horizon = isHostile ? Stamp(rawValue: .max - 1) : Stamp(milliseconds: left.time + Self.year)
    #expect(code { try receiver.finish(close) } == .clock)
    #expect(try receiver.replicaSummary().horizon == .zero)
    try receiver.put("next", "3")
    #expect(try receiver.clockLead() <= Limits.clockDriftMilliseconds)
    try receiver.receive(from: sender)
    try sender.receive(from: receiver)
    #expect(try sender.text("next") == "3")
    #expect(try sender.digest() == receiver.digest())
  }
}
