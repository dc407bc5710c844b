import Replication
import SyncStore
import SyncTestSupport
import Testing

/// Transcripts of one session: its input and its answers.
@Suite struct SessionTests {
  static let wall = Samples.wall
  static let endMark = RoundMark(bytes: Samples.bytes(16, from: 0x41))!
  static let wanted = BlobNeed(hash: Samples.hash, size: 300_000, offset: 100)

  static func summary(
    _ actor: ActorID, _ vector: VersionVector = VersionVector(), position: UInt64 = 10
  )
    -> ReplicaSummary
  {
    var vector = vector
    vector[actor] = 10
    return ReplicaSummary(
      store: Samples.store, actor: actor, sequence: 10, vector: vector, floor: VersionVector(),
      horizon: .zero,
      position: position)
  }

  static func replica(
    _ actor: ActorID, wall: UInt64 = wall, cursor: Cursor? = nil, missing: [BlobNeed] = []
  ) -> Replica {
    Replica(
      summary: summary(actor), digest: Samples.digest, wallMilliseconds: wall, cursor: cursor,
      missingBlobs: missing)
  }

  static func hello(_ actor: ActorID, _ directions: Hello.Directions, cursor: Cursor? = nil) -> Hello {
    Hello(
      summary: summary(actor), wallMilliseconds: wall, digest: Samples.digest, directions: directions,
      cursor: cursor)
  }

  static func close(_ sender: ActorID) -> RoundClose {
    RoundClose(
      sender: sender, mark: Samples.mark, position: 10, vector: summary(sender).vector,
      floor: VersionVector(),
      horizon: .zero)
  }

  static func end(batches: UInt32, _ sender: ActorID = Samples.right) -> Message {
    let close = close(sender)
    return .roundClose(
      RoundEnd(
        mark: close.mark, position: close.position, batches: batches, vector: close.vector,
        floor: close.floor,
        horizon: close.horizon))
  }

  static func begin(records: UInt64 = 3) -> Message {
    .roundBegin(RoundBegin(mark: Samples.mark, position: 10, records: records))
  }

  static func judged(_ actor: ActorID, digest: StateDigest = Samples.digest) -> DigestedState {
    DigestedState(position: 10, vector: summary(actor).vector, digest: digest, at: wall)
  }

  /// A server that has answered the hello of a syncing client.
  static func server(missing: [BlobNeed] = []) -> SessionProbe {
    let session = SessionProbe(role: .server, peerName: "left", peerRight: .readWrite)
    _ = session.start()
    _ = session.handle(.message(.hello(hello(Samples.left, .both))))
    _ = session.handle(.replica(replica(Samples.right, missing: missing)))
    return session
  }

  /// A client that has sent its hello, and its reaction to the server's hello.
  static func client(
    _ direction: SessionDirection, cursor: Cursor? = nil, features: UInt64 = 0
  ) -> SessionProbe {
    let session = SessionProbe(role: .client(direction), peerName: "right", peerRight: .readWrite)
    _ = session.start()
    _ = session.handle(.replica(replica(Samples.left)))
    var theirs = hello(
      Samples.right, direction.directions.mirrored,
      cursor: direction.sends ? cursor : nil)
    theirs.compatibleFeatures = features
    _ = session.handle(.message(.hello(theirs)))
    return session
  }

  @Test("A push: hello, round, receipt, goodbye, in two round trips")
  func push() {
    let session = SessionProbe(role: .client(.push), peerName: "right", peerRight: .readWrite)
    #expect(session.start() == [.loadReplica(peer: nil, at: nil)])
    var own = Self.hello(Samples.left, .sends)
    own.compatibleFeatures =
      SessionFeature.scopeExpansion | SessionFeature.moreBatches | SessionFeature.comparison
    #expect(
      session.handle(.replica(Self.replica(Samples.left))) == [
        .message(.hello(own)), .setTimer(.handshake, seconds: WireLimits.helloSeconds),
      ])
    let theirs = Self.hello(Samples.right, .receives, cursor: Samples.cursor)
    #expect(
      session.handle(.message(.hello(theirs))) == [
        .loadCursor(Samples.right), .cancelTimer(.handshake), .setTimer(.ping, seconds: Limits.pingSeconds),
      ])
    #expect(
      session.handle(.cursor(nil)) == [
        .openRound(
          for: RoundReceiver(
            cursor: Samples.cursor, covered: theirs.summary.vector, floor: theirs.summary.floor))
      ])
    #expect(
      session.handle(.roundOpened(records: 3, close: Self.close(Samples.left))) == [
        .message(Self.begin()), .nextBatch(mark: Samples.mark, index: 0),
      ])
    #expect(
      session.handle(.batchEncrypted([1, 2], position: 10, records: 3)) == [
        .message(.batch(index: 0, encrypted: [1, 2])), .nextBatch(mark: Samples.mark, index: 1),
      ])
    #expect(session.handle(.roundExhausted) == [.message(Self.end(batches: 1, Samples.left))])
    #expect(session.handle(.message(.batchReceived(position: 10))) == [])
    let receipt = Receipt(received: 10, state: Self.judged(Samples.right), missingBlobs: 0)
    #expect(session.handle(.message(.receipt(receipt))) == [.digestState(at: Self.wall)])
    #expect(session.handle(.stateDigested(Self.judged(Samples.left))) == [.message(.goodbye), .close(.done)])
    #expect(session.handle(.message(.ping(1))) == [])
    #expect(session.figures.roundTrips == 2)
    #expect(session.figures.sentRecords == 3)
    #expect(session.figures.receipt == receipt)
  }

  @Test("A pull: hello, want, round, receipt, goodbye")
  func pull() {
    let session = Self.client(.pull)
    #expect(session.handle(.cursor(Samples.cursor)) == [.message(.want(Samples.cursor))])
    #expect(session.handle(.message(Self.begin())) == [])
    #expect(
      session.handle(.message(.batch(index: 0, encrypted: [5]))) == [
        .applyBatch(sender: Samples.right, mark: Samples.mark, index: 0, encrypted: [5], isFull: false)
      ])
    #expect(session.handle(.message(Self.end(batches: 1))) == [])
    #expect(
      session.handle(.batchApplied(position: 10, records: 3, missing: [Self.wanted])) == [
        .message(.batchReceived(position: 10)), .message(.blobWant([Self.wanted])),
        .finishRound(Self.close(Samples.right)),
      ])
    #expect(session.handle(.roundFinished) == [])
    let range = BlobRange(hash: Samples.hash, offset: 100, isLast: true, encrypted: [6])
    #expect(session.handle(.message(.blobRange(range))) == [.storeBlobRanges([range], size: 300_000)])
    #expect(
      session.handle(.blobStored(hash: Samples.hash, held: 300_000, isComplete: true)) == [
        .digestState(at: nil)
      ])
    let state = Self.judged(Samples.left)
    #expect(
      session.handle(.stateDigested(state)) == [
        .message(.receipt(Receipt(received: 10, state: state, missingBlobs: 0))), .message(.goodbye),
        .close(.done),
      ])
    #expect(session.figures.receivedRecords == 3)
    #expect(session.figures.receivedBlobs == 1)
  }

  @Test("The server answers a hello with its own, evaluated at the client's time, and requests what it lacks")
  func server() {
    let session = SessionProbe(role: .server, peerName: "left", peerRight: .readWrite)
    #expect(session.start() == [.setTimer(.handshake, seconds: WireLimits.helloSeconds)])
    let theirs = Self.hello(Samples.left, .both)
    #expect(
      session.handle(.message(.hello(theirs))) == [.loadReplica(peer: Samples.left, at: Self.wall)])
    let own = Self.hello(Samples.right, .both, cursor: Samples.cursor)
    let replica = Self.replica(Samples.right, cursor: Samples.cursor, missing: [Self.wanted])
    #expect(
      session.handle(.replica(replica)) == [
        .message(.hello(own)), .message(.blobWant([Self.wanted])), .cancelTimer(.handshake),
        .setTimer(.ping, seconds: Limits.pingSeconds),
      ])
    #expect(
      session.handle(.message(.want(nil))) == [
        .openRound(
          for: RoundReceiver(cursor: nil, covered: theirs.summary.vector, floor: theirs.summary.floor))
      ])
    #expect(session.handle(.message(.blobUnavailable(Samples.hash))) == [])
  }

  @Test("F49 clocks too far apart are refused by both sides, with both times named")
  func clockSkew() {
    let session = SessionProbe(role: .server, peerName: "left", peerRight: .readWrite)
    _ = session.start()
    _ = session.handle(.message(.hello(Self.hello(Samples.left, .both))))
    let wall = Self.wall + Limits.clockDriftMilliseconds + 1
    let actions = session.handle(.replica(Self.replica(Samples.right, wall: wall)))
    guard case .refuse(let refusal)? = actions.first?.message else {
      Issue.record("\(actions)")
      return
    }
    #expect(refusal.code == .clockSkew)
    #expect(
      refusal.text.contains("2023-11-14T22:13:20.123Z") && refusal.text.contains("2023-11-14T22:14:20.124Z"))
    #expect(actions.last?.failure == .clockSkew)

    let client = SessionProbe(role: .client(.pull), peerName: "right", peerRight: .readWrite)
    _ = client.start()
    _ = client.handle(.replica(Self.replica(Samples.left)))
    #expect(client.handle(.message(.refuse(refusal))).last?.failure == .clockSkew)
  }

  @Test("F49 clocks just within the limit are accepted")
  func clocksWithin() {
    let session = SessionProbe(role: .server, peerName: "left", peerRight: .readWrite)
    _ = session.start()
    _ = session.handle(.message(.hello(Self.hello(Samples.left, .both))))
    let wall = Self.wall + Limits.clockDriftMilliseconds
    #expect(session.handle(.replica(Self.replica(Samples.right, wall: wall))).first?.message?.frame.type == 1)
  }

  @Test("A copy of another store is refused")
  func otherStore() {
    var hello = Self.hello(Samples.left, .both)
    hello.summary.store = StoreID(bytes: Samples.bytes(16, from: 0x11))!
    #expect(Self.refusal(of: hello)?.code == .otherStore)
  }

  @Test(
    "F100 without a common version, or with an unknown required feature, the reason is sent in the refusal")
  func incompatible() {
    let session = SessionProbe(role: .server, peerName: "left", peerRight: .readWrite)
    _ = session.start()
    let actions = session.handle(.message(.foreignHello(2...3)))
    #expect(actions.last?.failure == .incompatible)
    var hello = Self.hello(Samples.left, .both)
    hello.incompatibleFeatures = 1 << 63
    #expect(Self.refusal(of: hello)?.code == .incompatible)
  }

  @Test("F81 a read-only member that wants to send is refused, one that wants to receive is served")
  func rights() {
    let sends = Self.hello(Samples.left, .both)
    #expect(Self.refusal(of: sends, right: .readOnly)?.code == .notAllowed)
    let receives = Self.hello(Samples.left, .receives)
    #expect(Self.refusal(of: receives, right: .readOnly) == nil)
  }

  @Test("F81 anything not agreed in the hello is refused later, too")
  func unagreed() {
    for message in [Self.begin(), .batch(index: 0, encrypted: []), Self.end(batches: 0)] {
      let session = SessionProbe(role: .server, peerName: "left", peerRight: .readOnly)
      _ = session.start()
      _ = session.handle(.message(.hello(Self.hello(Samples.left, .receives))))
      _ = session.handle(.replica(Self.replica(Samples.right)))
      #expect(session.handle(.message(message)).last?.failure == .protocolViolation)
    }
  }

  @Test("A receiver that needs a full state is refused only by a sender that cannot give it (R8)")
  func floors() {
    var hello = Self.hello(Samples.left, .both)
    hello.summary.vector = VersionVector([Samples.left: 5])
    hello.summary.floor = VersionVector([Samples.left: 4])
    #expect(Self.refusal(of: hello) == nil)
    hello.summary.floor = VersionVector([Samples.left: 6])
    #expect(Self.refusal(of: hello)?.code == .unavailable)
    hello.summary.floor = VersionVector()
    hello.summary.health = .recovering
    #expect(Self.refusal(of: hello) == nil)
    hello.summary.floor = VersionVector([Samples.left: 4])
    #expect(Self.refusal(of: hello)?.code == .unavailable)
  }

  @Test(
    "If both need a full state the client gives first, but an unconfirmed copy waits for the other's (R8)",
    arguments: [ReplicaHealth.healthy, .unconfirmed], [ReplicaHealth.healthy, .unconfirmed])
  func bothNeedFullState(client: ReplicaHealth, server: ReplicaHealth) {
    var hello = (
      client: Self.hello(Samples.left, .both),
      server: Self.hello(Samples.right, .both)
    )
    var replica = (client: Self.replica(Samples.left), server: Self.replica(Samples.right))
    // Neither covers the other's purges.
    (replica.client.summary.floor, replica.client.summary.health) = (
      VersionVector([Samples.left: 1]), client
    )
    (replica.server.summary.floor, replica.server.summary.health) = (
      VersionVector([Samples.right: 1]), server
    )
    (replica.client.summary.vector, replica.server.summary.vector) = (
      VersionVector([Samples.left: 1]), VersionVector([Samples.right: 1])
    )
    (hello.client.summary, hello.server.summary) = (replica.client.summary, replica.server.summary)

    func opens(_ actions: [SessionAction]) -> Bool {
      actions.contains { action in
        if case .openRound = action { return true }
        return false
      }
    }
    let one = SessionProbe(role: .client(.sync), peerName: "right", peerRight: .readWrite)
    var actions = one.start() + one.handle(.replica(replica.client))
    actions += one.handle(.message(.hello(hello.server))) + one.handle(.cursor(nil))
    #expect(opens(actions) == !(client == .unconfirmed && server == .healthy))
    let other = SessionProbe(role: .server, peerName: "left", peerRight: .readWrite)
    actions = other.start() + other.handle(.message(.hello(hello.client)))
    actions += other.handle(.replica(replica.server)) + other.handle(.message(.want(nil)))
    #expect(opens(actions) == (client == .unconfirmed && server == .healthy))
  }

  @Test("F60 a peer that knows more writes of this actor makes the copy a new actor")
  func echo() {
    let session = SessionProbe(role: .server, peerName: "left", peerRight: .readWrite)
    _ = session.start()
    var hello = Self.hello(Samples.left, .both)
    hello.summary.vector[Samples.right] = 11
    _ = session.handle(.message(.hello(hello)))
    let actions = session.handle(.replica(Self.replica(Samples.right)))
    guard case .becomeNewActor? = actions.first,
      case .refuse(let refusal)? = actions.dropFirst().first?.message,
      case .close(.reconnect)? = actions.last
    else {
      Issue.record("\(actions)")
      return
    }
    #expect(refusal.code == .tryAgain)
  }

  @Test("F58 a copy that uses an actor given up by this side is told to begin a new one, and reconnects")
  func forkedActor() {
    let session = SessionProbe(role: .server, peerName: "left", peerRight: .readWrite)
    _ = session.start()
    _ = session.handle(.message(.hello(Self.hello(Samples.left, .both))))
    var replica = Self.replica(Samples.right)
    replica.summary.abandonedActors = [Samples.left]
    let actions = session.handle(.replica(replica))
    guard case .refuse(let refusal)? = actions.first?.message, case .close(.reconnect)? = actions.last else {
      Issue.record("\(actions)")
      return
    }
    #expect(refusal.code == .sameActor)

    let client = Self.client(.push)
    let refused = client.handle(.message(.refuse(refusal)))
    guard case .becomeNewActor? = refused.first, case .close(.reconnect)? = refused.last else {
      Issue.record("\(refused)")
      return
    }
  }

  @Test("F57 a cursor unknown to the store makes it a new actor, and the client reconnects")
  func unknownMark() {
    let session = Self.client(.push, cursor: Samples.cursor)
    _ = session.handle(.cursor(nil))
    let actions = session.handle(.rolledBack("unknown mark"))
    #expect(actions.first == .becomeNewActor(reason: "unknown mark", side: 0))
    guard case .close(.reconnect)? = actions.last else {
      Issue.record("\(actions)")
      return
    }
  }

  @Test(
    "F66 F67 a repeated batch, a gap, a batch outside a round, or too many at once are refused",
    arguments: [
      [.batch(index: 0, encrypted: [])],
      [begin(), .batch(index: 1, encrypted: [])],
      [begin(), .batch(index: 0, encrypted: []), .batch(index: 0, encrypted: [])],
      [begin(), begin()],
      [begin(), end(batches: 1)],
      [begin(), .batch(index: 0, encrypted: []), end(batches: 0)],
      [begin(), end(batches: 0), .batch(index: 0, encrypted: [])],
      [begin()] + (0...4).map { .batch(index: $0, encrypted: []) },
      [.batchReceived(position: 1)], [.want(nil), .want(nil)],
      [.receipt(Receipt(received: 0, state: judged(Samples.left), missingBlobs: 0))],
      [.blobRange(BlobRange(hash: Samples.hash, offset: 0, isLast: true, encrypted: []))],
      [.blobUnavailable(Samples.hash)],
      [.hello(hello(Samples.left, .both))],
      [
        .joinRequest(
          JoinRequest(invitation: Samples.bytes(8, from: 0), deviceName: "x", mac: Samples.bytes(32, from: 0))
        )
      ],
      [.blobWant(Array(repeating: wanted, count: 40)), .blobWant(Array(repeating: wanted, count: 40))],
    ] as [[Message]])
  func outOfOrder(messages: [Message]) {
    let session = Self.server()
    for message in messages.dropLast() { _ = session.handle(.message(message)) }
    #expect(session.handle(.message(messages.last!)).last?.failure == .protocolViolation)
  }

  @Test(
    "F67 a batch that exceeds its round is refused before it is confirmed",
    arguments: [0, 11] as [UInt64])
  func outsideRound(position: UInt64) {
    let session = Self.server()
    _ = session.handle(.message(Self.begin()))
    _ = session.handle(.message(.batch(index: 0, encrypted: [])))
    let actions = session.handle(.batchApplied(position: position, records: 1, missing: []))
    #expect(actions.last?.failure == .protocolViolation)
  }
}
