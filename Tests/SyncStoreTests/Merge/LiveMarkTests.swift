import SyncTestSupport
import Testing

@testable import SyncStore

/// Marks of live rounds: known as long as a peer's cursor may have them, and no longer.
@Suite("Marks of live rounds")
struct LiveMarkTests {
  private let store: Store

  init() throws { store = try Store.create(on: SimulatedHost(seed: 11)) }

  private func receiver(_ round: DeltaStream? = nil) -> RoundReceiver {
    let cursor = round.map { Cursor(position: $0.close.position, mark: $0.close.mark, closed: true) }
    return RoundReceiver(cursor: cursor, covered: round?.close.vector ?? VersionVector())
  }

  /// The round of a live session for a peer that has everything up to the end of `round`.
  private func burst(behind round: DeltaStream? = nil) throws -> DeltaStream {
    try #require(
      try store.openLiveUpdate(for: receiver(round), after: round?.close.position ?? 0).round)
  }

  private func put(_ text: String, marked: Bool = false) throws {
    // A writer that finds a waiting session makes the mark of the next round.
    if marked { store.deltas.live.setAwaited() }
    try store.put(Key(text), [1], durability: .full)
  }

  @Test("are not kept if another process wrote between the writer that made one and the session that looks")
  func unused() throws {
    let before = try store.roundMarkCount()
    var rounds: [DeltaStream] = []
    for number in 0..<100 {
      try put("first \(number)", marked: true)
      try put("second \(number)")
      rounds.append(try burst(behind: rounds.last))
      if rounds.count > 2 { store.releaseLiveMark(rounds[rounds.count - 3].close.mark) }
    }
    #expect(try store.roundMarkCount() - before < 10)
    // The peer's mark is known.
    #expect(try store.openRound(for: receiver(rounds[99])).count == 0)
  }

  @Test("stay for a session that opens a round while another one releases the same mark")
  func taken() throws {
    try put("k")
    let first = try burst()
    // The slower session has its round, of the same moment.
    let second = try store.deltas.makeRound(for: receiver(), after: 0, isLive: true).round
    #expect(second.close.mark == first.close.mark)
    store.releaseLiveMark(first.close.mark)
    try put("more")
    _ = try burst(behind: second)
    try put("still more")
    // Its peer has received it, and has the mark.
    #expect(try store.openLiveUpdate(for: receiver(second), after: second.close.position).round?.count == 2)
  }

  @Test("are in tables, of which a full one drops its oldest, but none that is in use")
  func tables() {
    var marks = RoundMarks()
    let mine = (0..<UInt64(RoundMarks.maxPerTable)).map { RoundMark(high: 7 << 56, low: $0) }
    for (index, mark) in mine.enumerated() {
      #expect(marks.oldest(inPlaceOf: mark, used: { _ in false }) == nil)
      marks[mark] = ReplicaState.Mark(position: UInt64(index), sequence: 0)
    }
    let (next, other) = (RoundMark(high: 7 << 56, low: .max), RoundMark(high: 8 << 56, low: 0))
    #expect(marks.oldest(inPlaceOf: other, used: { _ in false }) == nil)
    #expect(marks.oldest(inPlaceOf: mine[5], used: { _ in false }) == nil)
    #expect(marks.oldest(inPlaceOf: next, used: { _ in false }) == mine[0])
    #expect(marks.oldest(inPlaceOf: next, used: { mine[0..<3].contains($0) }) == mine[3])
    #expect(marks.oldest(inPlaceOf: next, used: { _ in true }) == mine[0])
    marks[mine[0]] = nil
    marks[mine[0]] = nil
    marks[next] = ReplicaState.Mark(position: 1000, sequence: 9)
    marks[other] = ReplicaState.Mark(position: 1001, sequence: 8)
    #expect(marks.count == mine.count + 1 && marks[mine[0]] == nil && marks[next]?.sequence == 9)
    #expect(Set(marks.keys) == Set(mine.dropFirst() + [next, other]))
    #expect(marks.values.map(\.sequence).max() == 9)
  }
}
