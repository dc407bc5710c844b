import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// A session's knowledge of its own copy can become stale.
@Suite("The store side of a session")
struct RenewedSessionTests {
  @Test(
    "ends it instead of closing a round, once the copy has become a new actor (R9)",
    arguments: [false, true])
  func renewed(isLive: Bool) throws {
    let store = try Store.create(on: SimulatedHost())
    let session = SessionStore(store)
    let peer = ActorID.random()
    _ = session.answer(.loadReplica(peer: peer, at: nil), peer: peer)
    if isLive { session.goLive() }
    func close(_ position: UInt64) -> SessionEvent? {
      session.answer(
        .finishRound(
          RoundClose(
            sender: peer, mark: RoundMark(high: 1, low: position), position: position,
            vector: VersionVector([peer: position]), floor: VersionVector(), horizon: .zero)), peer: peer)
    }
    #expect(close(1) == .roundFinished)
    try store.becomeNewActor()
    guard case .stale = close(2) else {
      Issue.record("it was closed")
      return
    }
    #expect(try store.cursor(for: peer) == nil)
  }

  @Test(
    "ends it when the marks of its rounds are gone: the copy is not mistaken for a rolled-back one (R9)"
  )
  func renewedGiver() throws {
    let (left, right) = (SimulatedHost(seed: 1, machine: "left"), SimulatedHost(seed: 2, machine: "right"))
    let giver = try Store.create(on: left)
    let taker = try Store.create(on: right, id: giver.id)
    try giver.put("k", [1])
    let first = try giver.openRound(since: nil, covered: taker.versionVector())
    while let batch = try first.next(maximumBytes: 1000) { _ = try taker.apply(batch) }
    try taker.finish(first.close)
    let (former, peer) = (try giver.actor, try taker.actor)
    let session = SessionStore(giver)
    _ = session.answer(.loadReplica(peer: peer, at: nil), peer: peer)
    try giver.becomeNewActor()
    let receiver = RoundReceiver(cursor: try taker.cursor(for: former), covered: try taker.versionVector())
    guard case .stale = session.answer(.openRound(for: receiver), peer: peer) else {
      Issue.record("it was given a round")
      return
    }
  }

  @Test("ends a live session instead of closing a round, once another one has received from the same copy")
  func overtaken() throws {
    let store = try Store.create(on: SimulatedHost())
    let peer = ActorID.random()
    let sessions = (0..<2).map { _ in SessionStore(store) }
    func close(_ session: SessionStore, _ position: UInt64) -> SessionEvent? {
      session.answer(
        .finishRound(
          RoundClose(
            sender: peer, mark: RoundMark(high: 1, low: position), position: position,
            vector: VersionVector([peer: position]), floor: VersionVector(), horizon: .zero)), peer: peer)
    }
    for session in sessions { _ = session.answer(.loadReplica(peer: peer, at: nil), peer: peer) }
    #expect(close(sessions[0], 1) == .roundFinished)
    sessions[0].goLive()
    #expect(close(sessions[1], 2) == .roundFinished)
    guard case .stale = close(sessions[0], 3) else {
      Issue.record("it was closed")
      return
    }
    #expect(try store.cursor(for: peer)?.position == 2)
  }
}
