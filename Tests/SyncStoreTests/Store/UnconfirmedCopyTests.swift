import SyncTestSupport
import Testing

@testable import SyncStore

/// A copy that assumes a rollback withholds its last writes until a full state confirms them (rule R9).
@Suite("An unconfirmed copy")
struct UnconfirmedCopyTests {
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

  @Test("does not make another unconfirmed copy drop an older value of a key that it holds newer (F57, F61)")
  func bothUnconfirmed() throws {
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
    "gives a round that covers only dots whose value, or a greater one, has been sent (R6)")
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

  @Test("sends in a live update, too, what its vector covers (R6)")
  func liveUpdate() throws {
    let other = try another()
    let receiver = RoundReceiver(cursor: nil, covered: try other.versionVector())
    let burst = try doubting.openLiveUpdate(for: receiver, after: 0)
    let batch = try #require(try burst.round?.next(maximumBytes: 1 << 20))
    #expect(batch.records.list.contains { $0.record.key == Array("k".utf8) })
  }

  @Test("reissues no record that the receiver covers: the receiver may know it dead (R8)")
  func known() throws {
    let dot = try #require(try doubting.explain("k")?.winner.dot)
    var covered = try author.versionVector()
    covered[dot.actor] = dot.sequence
    let round = try doubting.openRound(since: nil, covered: covered)
    #expect(try round.next(maximumBytes: 1 << 20)?.records.list.isEmpty ?? true)
    #expect(try doubting.explain("k")?.winner.dot == dot)
  }
}
