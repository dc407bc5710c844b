import Replication
import SyncStore
import SyncTestSupport
import Testing

/// Transcripts of one live session.
@Suite struct LiveSessionTests {
  private static let mark = RoundMark(bytes: Samples.bytes(16, from: 0x41))!

  private static func summary(_ actor: ActorID) -> ReplicaSummary {
    ReplicaSummary(
      store: Samples.store, actor: actor, sequence: 10, vector: VersionVector([actor: 10]),
      floor: VersionVector(), horizon: .zero, position: 10)
  }

  private static func close(
    _ actor: ActorID, _ mark: RoundMark = mark, position: UInt64 = 10, vector: VersionVector? = nil,
    floor: VersionVector = VersionVector()
  ) -> RoundClose {
    RoundClose(
      sender: actor, mark: mark, position: position, vector: vector ?? VersionVector([actor: position]),
      floor: floor, horizon: .zero)
  }

  /// A client that syncs, has caught up, and whose server stays open if it `grants` that.
  private static func client(grants: Bool = true) -> (session: Dialogue, last: [SessionAction]) {
    let session = Dialogue(
      Session(role: .client(.sync), peerName: "right", peerRight: .readWrite, mode: .live))
    _ = session.start()
    _ = session.handle(
      .replica(
        Replica(summary: summary(Samples.left), digest: Samples.digest, wallMilliseconds: Samples.wall)))
    let hello = Hello(
      compatibleFeatures: grants ? SessionFeature.live : 0, summary: summary(Samples.right),
      wallMilliseconds: Samples.wall, digest: Samples.digest, directions: .both)
    _ = session.say(.hello(hello))
    _ = session.handle(.cursor(nil))
    _ = session.handle(.roundOpened(records: 0, close: close(Samples.left)))
    _ = session.say(.roundBegin(RoundBegin(mark: Samples.mark, position: 10, records: 0)))
    _ = session.say(
      .roundClose(
        RoundEnd(
          mark: Samples.mark, position: 10, batches: 0, vector: VersionVector([Samples.right: 10]),
          floor: VersionVector(), horizon: .zero)))
    _ = session.handle(.roundFinished)
    let state = DigestedState(
      position: 10, vector: VersionVector([Samples.right: 10, Samples.left: 10]), digest: Samples.digest,
      at: Samples.wall)
    _ = session.handle(.stateDigested(state))
    _ = session.say(.receipt(Receipt(received: 10, state: state, missingBlobs: 0)))
    return (session, session.handle(.stateDigested(state)))
  }

  private static let opening = LiveUpdateOpening(
    records: 1, close: close(Samples.left, Samples.mark, position: 11),
    first: LiveUpdateOpening.Batch(encrypted: [7], position: 11, records: 1), isWhole: true)

  @Test("When all is transferred the client announces that it stays, and waits for its journal to grow")
  func goesLive() {
    let (session, last) = Self.client()
    #expect(last == [.message(.live), .followJournal(after: 10)])
    #expect(session.isLive && session.isAtRest)
    let (other, end) = Self.client(grants: false)
    #expect(end == [.message(.goodbye), .close(.done)] && !other.isLive)
  }

  @Test("A burst of writes is one round, sent in one message, and the next starts after it")
  func gives() {
    let (session, _) = Self.client()
    let cursor = Cursor(position: 10, mark: Self.mark, closed: true)
    let covered = VersionVector([Samples.left: 10, Samples.right: 10])
    #expect(session.handle(.journalGrown) == [.openLiveUpdate(since: cursor, after: 10, covered: covered)])
    #expect(!session.isAtRest)
    #expect(
      session.handle(.liveUpdateOpened(Self.opening)) == [
        .message(
          .liveUpdate(
            LiveUpdate(
              mark: Samples.mark, position: 11, records: 1, vector: VersionVector([Samples.left: 11]),
              floor: VersionVector(), horizon: .zero))),
        .message(.batch(index: 0, encrypted: [7])), .message(.liveUpdateEnd(batches: 1)),
      ])
    // Growth during that time waits for the other side's acknowledgement.
    #expect(session.handle(.journalGrown) == [])
    #expect(session.say(.batchReceived(position: 11)) == [])
    let next = Cursor(position: 11, mark: Samples.mark, closed: true)
    #expect(
      session.say(.liveUpdateReceived(position: 11, missingBlobs: 0)) == [
        .followJournal(after: 11),
        .openLiveUpdate(
          since: next, after: 11, covered: VersionVector([Samples.left: 11, Samples.right: 10])),
      ])
    #expect(session.handle(.liveUpdateEmpty(position: 15)) == [.followJournal(after: 15)])
    #expect(session.figures.acknowledged == 11)
    // Scanned records are not scanned again, although the other side's cursor has not moved.
    #expect(
      session.handle(.journalGrown) == [
        .openLiveUpdate(
          since: next, after: 15, covered: VersionVector([Samples.left: 11, Samples.right: 10]))
      ])
  }

  private static let burst = LiveUpdate(
    mark: Samples.mark, position: 11, records: 1, vector: VersionVector([Samples.right: 11]),
    floor: VersionVector(), horizon: .zero)

  @Test("A round that arrives whole is applied and closed in one step")
  func takes() {
    let (session, _) = Self.client()
    let bytes =
      Message.liveUpdate(Self.burst).frame.bytes + Message.batch(index: 0, encrypted: [9]).frame.bytes
      + Message.liveUpdateEnd(batches: 1).frame.bytes
    #expect(
      session.handle(.received(bytes)) == [
        .applyLast(
          sender: Samples.right, mark: Samples.mark, index: 0, encrypted: [9],
          close: Self.close(Samples.right, Samples.mark, position: 11))
      ])
    let wanted = BlobNeed(hash: Samples.hash, size: 300_000)
    // The acknowledgement is sent at once; blobs are transferred concurrently with what follows.
    #expect(
      session.handle(.batchApplied(position: 11, records: 1, missing: [wanted])) == [
        .message(.batchReceived(position: 11)), .message(.blobWant([wanted])),
        .message(.liveUpdateReceived(position: 11, missingBlobs: 1)),
      ])
    // Records from the other side are not sent back to it.
    _ = session.handle(.journalGrown)
    #expect(
      session.trace.last
        == .openLiveUpdate(
          since: Cursor(position: 10, mark: Self.mark, closed: true), after: 10,
          covered: VersionVector([Samples.left: 10, Samples.right: 11])))
  }

  @Test("A round in pieces is applied batch by batch, and closed at its end")
  func takesInPieces() {
    let (session, _) = Self.client()
    #expect(session.say(.liveUpdate(Self.burst)) == [])
    #expect(
      session.say(.batch(index: 0, encrypted: [9])) == [
        .applyBatch(sender: Samples.right, mark: Samples.mark, index: 0, encrypted: [9], isFull: false)
      ])
    #expect(
      session.handle(.batchApplied(position: 11, records: 1, missing: [])) == [
        .message(.batchReceived(position: 11))
      ])
    let close = Self.close(Samples.right, Samples.mark, position: 11)
    #expect(session.say(.liveUpdateEnd(batches: 1)) == [.finishRound(close)])
    #expect(
      session.handle(.roundFinished) == [.message(.liveUpdateReceived(position: 11, missingBlobs: 0))])
  }

  @Test("A message out of place in a live session ends it")
  func violations() {
    for message in [
      Message.liveUpdateEnd(batches: 1), .liveUpdateReceived(position: 11, missingBlobs: 0), .live,
      .batch(index: 0, encrypted: [1]), .groupKeys([1]),
    ] {
      let (session, _) = Self.client()
      #expect(session.say(message).last?.failure == .protocolViolation, "\(message)")
    }
    let (session, _) = Self.client(grants: false)
    #expect(session.say(.liveUpdate(Self.burst)).isEmpty)
    let (inside, _) = Self.client()
    _ = inside.say(.liveUpdate(Self.burst))
    let end = RoundEnd(
      mark: Samples.mark, position: 11, batches: 0, vector: VersionVector(), floor: VersionVector(),
      horizon: .zero)
    #expect(inside.say(.roundClose(end)).last?.failure == .protocolViolation)
  }

  @Test(
    "F63 a round whose sender has purged records unknown to the peer is not sent: the next hellos decide"
  )
  func floors() {
    let (session, _) = Self.client()
    _ = session.handle(.journalGrown)
    var opening = Self.opening
    opening.close.floor = VersionVector([Samples.right: 11])
    let actions = session.handle(.liveUpdateOpened(opening))
    guard case .refuse(let refusal) = actions.first?.message, refusal.code == .tryAgain,
      case .close(.reconnect) = actions.last
    else {
      Issue.record("\(actions)")
      return
    }
  }

  @Test("F62 a session superseded by another one restarts")
  func overtaken() {
    let (session, _) = Self.client()
    let actions = session.handle(.stale("another session has gone on"))
    guard case .refuse(let refusal) = actions.first?.message, refusal.code == .tryAgain,
      case .close(.reconnect) = actions.last
    else {
      Issue.record("\(actions)")
      return
    }
  }

  @Test("Missing group keys are sent before anything encrypted, and only if both sides can")
  func groupKeys() {
    let check = EpochCheck(epoch: 1, check: Samples.bytes(8, from: 1))
    let newer = EpochCheck(epoch: 1 << 22, check: Samples.bytes(8, from: 2))
    for isKnown in [true, false] {
      let session = Dialogue(Session(role: .client(.push), peerName: "right", peerRight: .readWrite))
      _ = session.start()
      _ = session.handle(
        .replica(
          Replica(
            summary: Self.summary(Samples.left), digest: Samples.digest, wallMilliseconds: Samples.wall,
            epochs: [check, newer])))
      let hello = Hello(
        compatibleFeatures: SessionFeature.groupKeys, summary: Self.summary(Samples.right),
        wallMilliseconds: Samples.wall, digest: Samples.digest, directions: .receives,
        epochs: isKnown ? [check, newer] : [check])
      let actions = session.say(.hello(hello))
      #expect(actions.contains(.readGroupKeys([1 << 22])) == !isKnown)
      guard !isKnown else { continue }
      #expect(session.handle(.groupKeys([1, 2])) == [.message(.groupKeys([1, 2]))])
      #expect(session.say(.groupKeys([3])) == [.mergeGroupKeys([3])])
    }
  }
}

/// A session under test.
private final class Dialogue {
  private var session: Session
  private(set) var trace: [SessionAction] = []

  init(_ session: consuming Session) { self.session = session }

  var isLive: Bool { session.isLive }
  var isAtRest: Bool { session.isAtRest }
  var figures: SessionFigures { session.figures }
  func start() -> [SessionAction] { session.start() }

  func handle(_ event: SessionEvent) -> [SessionAction] {
    let actions = session.handle(event)
    trace += actions
    return actions
  }

  /// Delivers a message from the other side.
  func say(_ message: Message) -> [SessionAction] { handle(.received(message.frame.bytes)) }
}
