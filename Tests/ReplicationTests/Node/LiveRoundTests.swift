import SyncTestSupport
import Testing

@testable import Replication
@testable import SyncStore

/// Cost of live rounds, and what must be durable before they leave.
@Suite("Rounds of live sessions", .timeLimit(.minutes(Patience.minutes(2))))
struct LiveRoundTests {
  /// A store with a group key, and the round that a live session opens for an empty receiver.
  private static func store(on host: SimulatedHost) throws -> (Store, SessionStore, SessionAction) {
    let store = try Store.create(on: host)
    try Node.prepare(store, name: "first")
    try store.put(Key("told"), Array("value".utf8), durability: .relaxed)
    let action = SessionAction.openLiveUpdate(since: nil, after: 0, covered: VersionVector(), scope: nil)
    return (store, SessionStore(store), action)
  }

  @Test(
    "are sent only when the records and the mark are durable, however they became so (rules R7, R9)",
    arguments: [true, false])
  func durability(isTold: Bool) throws {
    let host = SimulatedHost(seed: 3)
    let (store, session, action) = try Self.store(on: host)
    let told = Locked<SessionEvent?>(nil)
    if isTold {
      session.answer(action, peer: nil) { event in told.withLock { $0 = event } }
    } else {
      let event = session.answer(action, peer: nil)
      told.withLock { $0 = event }
    }
    guard case .liveUpdateOpened(let burst)? = told.withLock({ $0 }) else {
      Issue.record("no round was opened")
      return
    }
    #expect(burst.first != nil && burst.isWhole)
    let actor = try store.actor
    // Only synced data survives.
    host.losePower(keeping: { _, _ in .lost }, sizes: { _ in false }, entries: { _ in false })
    let again = try Store.open(on: host)
    #expect(try again.get(Key("told"))?.bytes == Array("value".utf8))
    #expect(try again.actor == actor)
    let cursor = Cursor(position: burst.close.position, mark: burst.close.mark, closed: true)
    #expect(try again.openRound(since: cursor, covered: burst.close.vector).count == 0)
  }

  @Test("are not sent after a failed sync (rule R4)")
  func failedSync() throws {
    let host = SimulatedHost(seed: 4)
    let (store, session, action) = try Self.store(on: host)
    try store.sync()
    try store.put(Key("more"), [1], durability: .relaxed)
    store.control.setPoisoned()
    let told = Locked<[SessionEvent?]>([])
    session.answer(action, peer: nil) { event in told.withLock { $0.append(event) } }
    guard case .failed(.store, _, _)?? = told.withLock({ $0.first }) else {
      Issue.record("a round was given: \(told.withLock { $0 })")
      return
    }
    #expect(told.withLock { $0.count } == 1)
  }

  @Test("that bring something do not make the receiver search for something to send back")
  func echo() async throws {
    let pool = WorkerPool(width: 8)
    let directory = TemporaryDirectory()
    let store = try Store.create(
      at: directory.path + "/store", name: "hub", configuration: TestCopy.configuration)
    try Node.prepare(store, name: "first")
    let hub = try Node(
      store: store, configuration: Node.Configuration(), loop: try EventLoop.shared(), workers: pool)
    _ = try await hub.start(listen: Endpoint(host: "127.0.0.1", port: 0))
    let client = try await TestCopy.joined(try Node.invite(to: store), "second")
    client.node.keepInStep()
    for await state in client.node.states(of: "first") where state.phase == .live { break }
    let count = 40
    let before = pool.figures.begun.prompt
    for number in 0..<count {
      try client.put("\(number)", "v")
      while try store.get(Key("\(number)")) == nil { try await Task.sleep(for: .milliseconds(1)) }
      try await Task.sleep(for: .milliseconds(2))
    }
    // One piece applies the received records; a check for records to send back would be a second one.
    let pieces = pool.figures.begun.prompt - before
    #expect(pieces >= count && pieces < count * 3 / 2, "\(pieces) pieces of work for \(count) rounds")
    await client.node.stop()
    await hub.stop()
  }

  /// The round that a session with `peer` sends after `last`, once something was written.
  private static func burst(
    _ session: SessionStore, to peer: ActorID, behind last: RoundClose?
  ) throws -> RoundClose {
    try session.store.put(Key("key"), [1], durability: .full)
    let cursor = last.map { Cursor(position: $0.position, mark: $0.mark, closed: true) }
    let action = SessionAction.openLiveUpdate(
      since: cursor, after: last?.position ?? 0, covered: last?.vector ?? VersionVector())
    guard case .liveUpdateOpened(let burst)? = session.answer(action, peer: peer) else {
      throw ReplicationError(.store, "no round was opened: \(String(describing: session.failure))")
    }
    return burst.close
  }

  @Test("leave no marks when they are closed, and the next one with the same peer starts after them")
  func marksOfEnded() throws {
    let store = try Store.create(on: SimulatedHost(seed: 5))
    try Node.prepare(store, name: "first")
    let away = try Self.burst(SessionStore(store), to: Samples.right, behind: nil)
    let before = try store.roundMarkCount()
    var last: RoundClose?
    for _ in 0..<30 {
      let session = SessionStore(store)
      for _ in 0..<3 { last = try Self.burst(session, to: Samples.left, behind: last) }
    }
    #expect(try store.roundMarkCount() - before < 8)
    // Both may reconnect, with the mark they received last.
    for close in [away, try #require(last)] {
      let cursor = Cursor(position: close.position, mark: close.mark, closed: true)
      _ = try store.openRound(since: cursor, covered: close.vector)
    }
  }
}
