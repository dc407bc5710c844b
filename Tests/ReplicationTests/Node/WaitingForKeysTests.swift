import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// Transcripts of a live session of a selective copy that expands to all keys, with another copy that lacks a
/// write which the first one covers.
@Suite("Waiting for missing keys in a live session") struct WaitingForKeysTests {
  private static let features = SessionFeature.live | SessionFeature.waitsForKeys
  private static let held = Samples.scope(["a/"])
  private static let second = RoundMark(bytes: Samples.bytes(16, from: 0x41))!

  private static func summary(_ actor: ActorID, isNarrow: Bool = false) -> ReplicaSummary {
    var summary = ReplicaSummary(
      store: Samples.store, actor: actor, sequence: 10, vector: VersionVector([actor: 10]),
      floor: VersionVector(), horizon: .zero, position: 10)
    if isNarrow { (summary.scope, summary.scopeExpansion) = (held, ScopeExpansion(to: nil)) }
    return summary
  }

  private static func hello(_ summary: ReplicaSummary, _ features: UInt64, cursor: Cursor? = nil) -> Message {
    .hello(
      Hello(
        compatibleFeatures: features,
        summary: summary, wallMilliseconds: Samples.wall, digest: Samples.digest, directions: .both,
        cursor: cursor))
  }

  private static func replica(_ summary: ReplicaSummary) -> SessionEvent {
    .replica(Replica(summary: summary, digest: Samples.digest, wallMilliseconds: Samples.wall))
  }

  private static func close(_ actor: ActorID, _ mark: RoundMark, _ position: UInt64) -> RoundClose {
    RoundClose(
      sender: actor, mark: mark, position: position, vector: VersionVector([actor: position]),
      floor: VersionVector(), horizon: .zero)
  }

  private static let state = DigestedState(
    position: 10, vector: VersionVector([Samples.right: 10, Samples.left: 10]), digest: Samples.digest,
    at: Samples.wall)

  /// The session's actions for a sequence of events, and its output at the last one.
  private struct Dialogue: ~Copyable {
    var session: Session

    mutating func say(_ message: Message) -> [SessionAction] {
      session.handle(.received(message.frame.bytes))
    }

    /// An empty round of the other side is applied, and the held state is judged.
    mutating func takeRound(
      _ kind: RoundBegin.Kind, _ position: UInt64, of actor: ActorID, finished: SessionEvent = .roundFinished
    ) -> [SessionAction] {
      _ = say(.roundBegin(RoundBegin(mark: Samples.mark, kind: kind, position: position, records: 0)))
      _ = say(
        .roundClose(
          RoundEnd(
            mark: Samples.mark, position: position, batches: 0, vector: VersionVector([actor: 10]),
            floor: VersionVector(), horizon: .zero)))
      _ = session.handle(finished)
      return session.handle(.stateDigested(WaitingForKeysTests.state))
    }
  }

  private static func message(_ message: Message) -> SessionAction { .send(message.frame.bytes) }

  @Test(
    "A client that did not get them goes live, and one whose server does not support that restarts",
    arguments: [true, false])
  func client(isKnown: Bool) {
    let session = Session(
      role: .client(.sync), peerName: "right", peerRight: .readWrite, mode: .live)
    var dialogue = Dialogue(session: session)
    _ = dialogue.session.start()
    _ = dialogue.session.handle(Self.replica(Self.summary(Samples.left, isNarrow: true)))
    _ = dialogue.say(Self.hello(Self.summary(Samples.right), isKnown ? Self.features : SessionFeature.live))
    _ = dialogue.session.handle(.cursor(nil))
    _ = dialogue.session.handle(.roundOpened(records: 0, close: Self.close(Samples.left, Self.second, 10)))
    _ = dialogue.takeRound(.increment, 10, of: Samples.right)
    let want = ScopeWant(keys: MissingScope(wanted: nil, held: Self.held), cursor: nil)
    #expect(
      dialogue.say(.receipt(Receipt(received: 10, state: Self.state, missingBlobs: 0))) == [
        Self.message(.scopeWant(want))
      ])
    let last = dialogue.takeRound(.scopeExpansion, 15, of: Samples.right, finished: .keysStillMissing)
    guard isKnown else {
      #expect(last.contains(Self.message(.goodbye)))
      guard case .close(.reconnect)? = last.last else {
        Issue.record("the session goes on: \(last)")
        return
      }
      return
    }
    #expect(last.last == .digestState(at: Samples.wall))
    #expect(
      dialogue.session.handle(.stateDigested(Self.state)) == [
        Self.message(.live), .followJournal(after: 10), .setTimer(.scopeExpansion, seconds: 300),
      ])
    // From here on the rounds are ordinary.
    _ = dialogue.say(
      .liveUpdate(
        LiveUpdate(
          mark: Self.second, position: 16, records: 1, vector: VersionVector([Samples.right: 16]),
          floor: VersionVector(), horizon: .zero)))
    #expect(
      dialogue.say(.batch(index: 0, encrypted: [7])) == [
        .applyBatch(sender: Samples.right, mark: Self.second, index: 0, encrypted: [7], isFull: false)
      ])
  }

  @Test(
    "A server that gave them goes live after what it sent before, with the client's scope")
  func server() {
    let session = Session(role: .server, peerName: "left", peerRight: .readWrite, mode: .live)
    var dialogue = Dialogue(session: session)
    _ = dialogue.session.start()
    _ = dialogue.say(Self.hello(Self.summary(Samples.left, isNarrow: true), Self.features))
    _ = dialogue.session.handle(Self.replica(Self.summary(Samples.right)))
    _ = dialogue.say(.want(nil))
    _ = dialogue.session.handle(.roundOpened(records: 0, close: Self.close(Samples.right, Samples.mark, 10)))
    _ = dialogue.takeRound(.increment, 10, of: Samples.left)
    _ = dialogue.say(.receipt(Receipt(received: 10, state: Self.state, missingBlobs: 0)))
    #expect(dialogue.session.figures.acknowledged == 10)
    let keys = MissingScope(wanted: nil, held: Self.held)
    #expect(
      dialogue.say(.scopeWant(ScopeWant(keys: keys, cursor: nil))) == [
        .openRound(for: RoundReceiver(cursor: nil, covered: VersionVector(), lacking: keys))
      ])
    _ = dialogue.session.handle(.roundOpened(records: 0, close: Self.close(Samples.right, Self.second, 15)))
    _ = dialogue.say(.receipt(Receipt(received: 15, state: Self.state, missingBlobs: 0)))
    #expect(dialogue.session.figures.acknowledged == 10)
    #expect(dialogue.say(.live) == [.followJournal(after: 10)])
    // Writes between the two rounds under keys that the client holds are in neither.
    #expect(
      dialogue.session.handle(.journalGrown) == [
        .openLiveUpdate(
          since: Cursor(position: 10, mark: Samples.mark, closed: true), after: 10,
          covered: VersionVector([Samples.left: 10, Samples.right: 10]), scope: Self.held)
      ])
  }

  @Test(
    "A server that has them now ends the session instead of its receipt, one that lacks them sends it")
  func serverThatAsks() {
    for isHeld in [true, false] {
      let session = Session(role: .server, peerName: "left", peerRight: .readWrite, mode: .live)
      var dialogue = Dialogue(session: session)
      _ = dialogue.session.start()
      _ = dialogue.say(Self.hello(Self.summary(Samples.left), Self.features | SessionFeature.scopeExpansion))
      _ = dialogue.session.handle(Self.replica(Self.summary(Samples.right, isNarrow: true)))
      _ = dialogue.say(.want(nil))
      _ = dialogue.session.handle(
        .roundOpened(records: 0, close: Self.close(Samples.right, Self.second, 10)))
      _ = dialogue.takeRound(.increment, 10, of: Samples.left)
      _ = dialogue.say(.receipt(Receipt(received: 10, state: Self.state, missingBlobs: 0)))
      let last = dialogue.takeRound(
        .scopeExpansion, 15, of: Samples.left, finished: isHeld ? .roundFinished : .keysStillMissing)
      if isHeld {
        guard case .close(.reconnect)? = last.last else {
          Issue.record("the session goes on: \(last)")
          continue
        }
      } else {
        #expect(last == [Self.message(.receipt(Receipt(received: 15, state: Self.state, missingBlobs: 0)))])
        #expect(dialogue.say(.live) == [.followJournal(after: 10), .setTimer(.scopeExpansion, seconds: 300)])
      }
    }
  }
}
