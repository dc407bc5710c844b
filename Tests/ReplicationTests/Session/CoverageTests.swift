import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

@Suite("A closed round and other sessions")
struct CoverageTests {
  @Test("are notified once, and only if the round extended this copy's coverage")
  func growth() throws {
    let sender = try Store.create(on: SimulatedHost(seed: 1, machine: "left"))
    let store = try Store.create(on: SimulatedHost(seed: 2, machine: "right"), id: sender.id)
    let session = SessionStore(store)
    func receive() throws {
      let actor = try sender.actor
      let round = try sender.openRound(since: store.cursor(for: actor), covered: store.versionVector())
      while let batch = try round.next(maximumBytes: 1000) { _ = try store.apply(batch) }
      #expect(session.answer(.finishRound(round.close), peer: actor) == .roundFinished)
    }
    try sender.put("key", [1])
    try receive()
    #expect(session.takeCoverageGrew())
    #expect(!session.takeCoverageGrew())
    // Thousands of members that return to a hub have mostly written nothing.
    try receive()
    #expect(!session.takeCoverageGrew())
    try sender.delete("key")
    try receive()
    #expect(session.takeCoverageGrew())
  }

  @Test("are not sent a vector with more actors than allowed; the error says what to do (F82)")
  func tooMany() throws {
    let store = try Store.create(on: SimulatedHost(seed: 3))
    try Node.prepare(store, name: "first")
    let actors = (0..<Limits.actors - 3).map { (ActorID(high: 1, low: UInt64($0)), UInt64(1)) }
    try store.finish(
      RoundClose(
        sender: Samples.right, mark: Samples.mark, position: 1,
        vector: VersionVector(Dictionary(uniqueKeysWithValues: actors)), floor: VersionVector(),
        horizon: .zero))
    // Each fork may have sent its writes.
    for life in 0..<3 {
      try store.put(Key("life"), [UInt8(life)])
      _ = try store.openRound(since: nil, covered: VersionVector())
      guard case .replica? = SessionStore(store).answer(.loadReplica(peer: nil, at: nil), peer: nil) else {
        Issue.record("it has a place for life \(life)")
        return
      }
      try store.becomeNewActor()
    }
    try store.put("life", [3])
    let event = SessionStore(store).answer(.loadReplica(peer: nil, at: nil), peer: nil)
    guard case .failed(.store, let why, _)? = event else {
      Issue.record("it says \(String(describing: event))")
      return
    }
    #expect(why.contains("importAll"))
  }
}
