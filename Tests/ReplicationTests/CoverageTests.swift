import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

@Suite("What a round that was closed is to other sessions")
struct CoverageTests {
  @Test("something new only if this copy covers more for it, and only once")
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
    #expect(session.takeCoversMore())
    #expect(!session.takeCoversMore())
    // Thousands of members that come back to a hub have mostly written nothing.
    try receive()
    #expect(!session.takeCoversMore())
    try sender.delete("key")
    try receive()
    #expect(session.takeCoversMore())
  }
}
