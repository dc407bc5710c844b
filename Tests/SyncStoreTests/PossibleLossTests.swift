import SyncTestSupport
import Testing

@testable import SyncStore

/// A copy that assumes a rollback withholds its last writes until a full state confirms them (rule R9).
@Suite("A copy in doubt")
struct PossibleLossTests {
  private let author: Store
  private let doubting: Store

  /// A write was replaced by another copy's, and that one is unconfirmed.
  init() throws {
    author = try Store.create(on: SimulatedHost(seed: 1, machine: "author"))
    doubting = try Store.create(on: SimulatedHost(seed: 2, machine: "doubting"), id: author.id)
    try author.put("k", "old")
    try doubting.receive(from: author)
    try doubting.put("k", "new")
    try doubting.becomeNewActor()
  }

  private func another() throws -> Store {
    try Store.create(on: SimulatedHost(seed: 3, machine: "another"), id: author.id)
  }

  @Test("has another one in doubt drop no older value of what it holds something newer of (F57, F61)")
  func bothInDoubt() throws {
    let other = try another()
    try other.receive(from: author)
    try other.becomeNewActor()
    try other.receive(from: doubting)
    #expect(try other.text("k") == "new")
    try doubting.receive(from: other)
    for store in [other, doubting] {
      #expect(try store.replicaSummary().health == .healthy && store.text("k") == "new")
    }
    try author.receive(from: other)
    try other.receive(from: author)
    #expect(try author.text("k") == "new" && author.digest() == other.digest())
  }

  @Test(
    "gives a round in which nothing is covered of which neither the value nor a greater one has come (R6)")
  func ordinaryRound() throws {
    let other = try another()
    try other.receive(from: doubting)
    #expect(try other.text("k") == "new")
    // It has what the vector says, so the author has nothing more for it.
    try other.receive(from: author)
    #expect(try other.text("k") == "new")
    // And not again at the next round.
    let position = doubting.journalPosition
    try other.receive(from: doubting)
    #expect(doubting.journalPosition == position)
  }

  @Test("says in a burst, too, what its vector covers (R6)")
  func burst() throws {
    let other = try another()
    let receiver = RoundReceiver(cursor: nil, covered: try other.versionVector())
    let burst = try doubting.openLiveUpdate(for: receiver, behind: 0)
    let batch = try #require(try burst.round?.next(maximumBytes: 1 << 20))
    #expect(batch.records.list.contains { $0.record.key == Array("k".utf8) })
  }

  @Test("issues nothing again that the receiver covers: it may know it dead (R8)")
  func known() throws {
    let dot = try #require(try doubting.explain("k")?.winner.dot)
    var covered = try author.versionVector()
    covered[dot.actor] = dot.sequence
    let round = try doubting.openRound(since: nil, covered: covered)
    #expect(try round.next(maximumBytes: 1 << 20)?.records.list.isEmpty ?? true)
    #expect(try doubting.explain("k")?.winner.dot == dot)
  }
}
