private import SyncStore

/// One connection between two copies, as a value: events in, actions out. It has no socket, clock or thread.
///
/// The client speaks first and drives the session: it sends its hello, requests the other side's round
/// (`want`), opens its own, and says goodbye when everything it wanted is durable at its destination. The
/// server answers. Both may send and receive at once. `schemas/wire.md` has the order of the messages.
///
/// Invariants:
/// - nothing of the store is sent before both hellos have been found compatible (`Handshake`);
/// - the client is done only on the other side's receipt when it sends, and on its own when it receives;
/// - after `close` no action is requested and no event is handled.
package struct Session: ~Copyable {
  /// The side of the connection.
  package enum Role: Hashable, Sendable {
    /// The side that dialled, and the directions it wants.
    case client(SessionDirection)
    /// The side that was dialled.
    case server
  }

  private enum Phase {
    case unborn
    /// Client: the own state is being loaded.
    case preparing(SessionDirection)
    /// Client: the hello was sent.
    case greeting(SessionDirection, own: Hello, Replica)
    /// Server: waiting for the client's hello.
    case listening
    /// Server: the own state is being loaded.
    case answering
    /// The hellos are exchanged and compatible.
    case running
    case closed
  }

  private let role: Role
  private let peerRight: MemberRight
  private let mode: SessionMode
  private let capabilities: SessionCapabilities
  private let pingSeconds: Int
  private var phase = Phase.unborn
  private var decoder = FrameDecoder(stage: .handshake)
  private var port: SessionPort
  private var liveness: Liveness
  private var exchange: Exchange?
  private var isPaused = false
  /// The other side's hello, once it has arrived.
  package private(set) var peer: Hello?
  /// Whether the other side has revoked this copy's membership. A stranger does not get as far as a session.
  package private(set) var wasRevoked = false

  /// Creates a session with a peer whose identity TLS has proven.
  ///
  /// - Parameters:
  ///   - role: The side of the connection.
  ///   - peerName: The peer's name in the own store's member record.
  ///   - peerRight: The peer's right in the own store's member record.
  ///   - mode: How long the session lasts, and whether it transfers records.
  ///   - capabilities: Optional features that this side offers.
  ///   - pingSeconds: Seconds of silence after which a ping is sent.
  package init(
    role: Role, peerName: String, peerRight: MemberRight, mode: SessionMode = .once,
    capabilities: SessionCapabilities = [], pingSeconds: Int = Limits.pingSeconds
  ) {
    self.pingSeconds = max(1, pingSeconds)
    liveness = Liveness(pingSeconds: max(1, pingSeconds))
    (self.role, self.peerRight, self.mode, self.capabilities) = (role, peerRight, mode, capabilities)
    port = SessionPort(peerName: peerName)
  }

  /// The peer's name in the own store's member record.
  var peerName: String { port.peerName }
  /// Bytes and records transferred so far.
  package var figures: SessionFigures { port.figures }
  /// Bytes held: queued for the other side, or received and not yet stored.
  package var heldBytes: Int { port.queued + (exchange?.unstoredBytes ?? 0) + decryptedBytes }
  /// Memory of batches that are decrypted and not yet applied, as set by the driver.
  package var decryptedBytes = 0
  /// Whether the other side may make this copy a new actor. False if peers have done so too often lately.
  package var mayBecomeNewActor = true
  /// Whether all sessions together exceed the node's memory limit. Then this one transfers one batch at a
  /// time.
  package var isCrowded: Bool {
    get { port.isCrowded }
    set { port.isCrowded = newValue }
  }
  /// Batches that the other side has reported durable.
  package var acknowledgedBatches: Int { exchange?.sending?.acknowledgedBatches ?? 0 }
  /// Whether the session has caught up and stays open.
  package var isLive: Bool { exchange?.live.isOn ?? false }
  /// Whether the session is live or control-only, with nothing in flight.
  package var isAtRest: Bool { (isLive || exchange?.progress == .controlOnly) && exchange?.isAtRest ?? false }
  /// Whether `wanted` can fetch anything.
  package var canFetch: Bool { isOpen && exchange?.receiving != nil }
  /// Whether `asked` can yield a valid answer. A read-only member sends nothing and does not count as a
  /// holder.
  package var canAsk: Bool { isOpen && peerRight == .readWrite && exchange?.knowsHoldings ?? false }
  private var isOpen: Bool { isLive || exchange?.progress == .controlOnly }
  /// Whether the other side does not keep all blobs that it receives.
  package var peerLeavesOut: Bool { (peer?.compatibleFeatures ?? 0) & SessionFeature.leavesOut != 0 }

  /// Takes the results of requests outside the plan since the last call.
  package mutating func drainNotifications() -> [SessionNotification] {
    defer { port.notifications = [] }
    return port.notifications
  }

  /// Starts the session. Call once, after the TLS handshake.
  package mutating func start() -> [SessionAction] {
    switch role {
    case .client(let direction):
      phase = .preparing(direction)
      port.actions.append(.loadReplica(peer: nil, at: nil))
    case .server:
      phase = .listening
      awaitHello()
    }
    return takeActions()
  }

  /// The other side's time for its hello starts only now: delays of the own store before its own hello are
  /// not its fault.
  private mutating func awaitHello() {
    port.actions.append(.setTimer(.handshake, seconds: WireLimits.helloSeconds))
  }

  /// Handles one event. After `close` was returned, events are ignored.
  package mutating func handle(_ event: SessionEvent) -> [SessionAction] {
    if case .closed = phase { return [] }
    do throws(SessionEnd) {
      try dispatch(event)
      try exchange?.pump(&port)
      try boundQueues()
    } catch {
      end(error)
    }
    return takeActions()
  }

  private mutating func takeActions() -> [SessionAction] {
    defer { port.actions = [] }
    return port.actions
  }

  private mutating func end(_ end: SessionEnd) {
    let end = believed(end)
    phase = .closed
    exchange = nil
    let side: UInt8 = role == .server ? 1 : 0
    if let reason = end.newActor { port.actions.append(.becomeNewActor(reason: reason, side: side)) }
    if let refusal = end.refusal { port.send(.refuse(refusal)) }
    port.actions.append(.close(end.outcome))
  }

  /// Checks a demand for a new actor, which costs an entry in every vector forever and rests on the other
  /// side's word alone. It is accepted only from members that may write, and not too often.
  private func believed(_ end: SessionEnd) -> SessionEnd {
    guard let reason = end.newActor, peerRight == .readOnly || !mayBecomeNewActor else { return end }
    let text =
      peerRight == .readOnly
      ? "\(port.peerName) may only read, and is not believed that this copy must become a new actor (\(reason)): let this copy"
        + " synchronize with a member that may write, and \(port.peerName) join anew"
      : "members have made this copy a new actor \(WireLimits.renewals) times within an hour (now \(port.peerName): \(reason)): find out"
        + " which one is put back again and again, and revoke it"
    let refusal = Refusal(
      .unavailable, "a new actor is not taken at this word now: synchronize with another member")
    return SessionEnd(
      refusal: end.refusal.map { $0.code == .sameActor ? $0 : refusal }, outcome: .failed(.unavailable, text))
  }

  private mutating func dispatch(_ event: SessionEvent) throws(SessionEnd) {
    switch event {
    case .received(let bytes): try receive(bytes)
    case .sent(let count):
      port.queued -= count
      liveness.sent += count
    case .timer(.handshake):
      switch phase {
      case .greeting, .listening: throw .refused(.timeout, "\(port.peerName) did not say hello in time")
      case .unborn, .preparing, .answering, .running, .closed: return
      }
    case .timer(.ping): try tick()
    case .probe: if exchange != nil { port.send(.ping(liveness.ticks)) }
    case .timer(.comparison): exchange?.compareAtRest(&port)
    case .timer(.scopeExpansion): try exchange?.retryKeyRequest(&port)
    case .disconnected: throw disconnection
    case .wanted(let needs): try exchange?.want(needs, &port)
    case .asked(let wanted): try exchange?.ask(wanted, &port)
    case .wantedParts(let wanted): exchange?.want(wanted, &port)
    case .stop:
      if case .client = role, isAtRest {
        port.send(.goodbye)
        throw SessionEnd(outcome: .done)
      }
      throw stopping
    case .refuse(let refusal):
      let outcome: SessionOutcome =
        refusal.code == .tryAgain
        ? .reconnect(refusal.text) : .failed(refusal.code.error, "\(port.peerName): \(refusal.text)")
      throw SessionEnd(refusal: refusal, outcome: outcome)
    case .replica(let replica): try loaded(replica)
    case .rolledBack(let text): throw .rolledBack(text)
    case .failed(let code, let message, let cause): throw .failed(code, message: message, cause: cause)
    case .stale(let text): throw .tryAgain(text)
    case .cursor, .roundOpened, .batchEncrypted, .roundExhausted, .batchApplied, .roundFinished,
      .keysStillMissing,
      .blobRead, .blobUnavailable, .blobStored, .blobRejected, .blobsStored, .recipeMade, .recipeUnavailable,
      .recipeMatched, .stateDigested, .journalGrown, .liveUpdateOpened, .liveUpdateEmpty, .groupKeys,
      .bucketsDigested, .keysStated, .keysCompared,
      .fingerprinted, .recordsExchanged, .repaired, .holdingsStated, .blobRangeDecrypted:
      try exchange?.answered(event, &port)
    }
  }

  // MARK: Incoming messages

  private mutating func receive(_ bytes: [UInt8]) throws(SessionEnd) {
    port.figures.receivedBytes += bytes.count
    liveness.bytes += bytes.count
    decoder.append(bytes)
    while let message = try nextMessage() {
      port.recordReceived(message)
      try accept(message)
    }
  }

  private mutating func nextMessage() throws(SessionEnd) -> Message? {
    do throws(DecodingFailure) {
      while let frame = try decoder.next() {
        liveness.frames += 1
        if let message = try Message.decode(consume frame) { return message }
      }
      return nil
    } catch {
      throw .violation(error.description)
    }
  }

  private mutating func accept(_ message: Message) throws(SessionEnd) {
    switch message {
    case .ping(let number):
      // A side that does not read what is queued for it needs no further pong.
      if port.queued <= Limits.controlFrameBytes { port.send(.pong(number)) }
    case .pong: break
    case .refuse(let refusal): throw refused(refusal)
    case .hello(let hello): try accept(hello)
    case .foreignHello(let versions): throw noCommonVersion(versions)
    case .goodbye:
      let isOver = isLive || exchange?.isQuietServer ?? false
      throw isOver ? SessionEnd(outcome: .done) : interruption("ended the session before all was done")
    default:
      guard exchange != nil else { throw .violation("a message before the hello") }
      try exchange?.accept(message, &port)
    }
  }

  private mutating func accept(_ hello: Hello) throws(SessionEnd) {
    switch phase {
    case .listening:
      peer = hello
      phase = .answering
      port.actions.append(.loadReplica(peer: hello.summary.actor, at: hello.wallMilliseconds))
    case .greeting(let direction, let own, let replica):
      peer = hello
      try check(own: own, peer: hello)
      guard hello.directions == own.directions.mirrored else {
        throw .refused(.unavailable, "\(port.peerName) does not do what was asked")
      }
      begin(
        Exchange(
          client: direction, own: own, peer: hello,
          missing: mode.movesRecords ? replica.missingBlobs : [], mode: mode, &port)
      )
    case .unborn, .preparing, .answering, .running, .closed: throw .violation("a second hello")
    }
  }

  private mutating func loaded(_ replica: Replica) throws(SessionEnd) {
    switch phase {
    case .preparing(let direction):
      let own = Hello(
        compatibleFeatures: features(replica) | (replica.leavesOut ? SessionFeature.leavesOut : 0)
          | (direction.sends && mode.movesRecords && replica.summary.scope == nil
            ? SessionFeature.scopeExpansion : 0),
        summary: replica.summary,
        wallMilliseconds: replica.wallMilliseconds, digest: replica.digest,
        directions: direction.directions, epochs: replica.epochs)
      phase = .greeting(direction, own: own, replica)
      port.send(.hello(own))
      awaitHello()
    case .answering:
      guard let peer else { return }
      let own = Hello(
        compatibleFeatures: features(replica) & (peer.compatibleFeatures | SessionFeature.groupKeys)
          | (replica.missingBlobs.allSatisfy(\.isSpare) ? SessionFeature.isComplete : 0)
          | (replica.leavesOut ? SessionFeature.leavesOut : 0)
          | (Exchange.requestsKeys(replica.summary, of: peer) ? SessionFeature.scopeExpansion : 0),
        summary: replica.summary, wallMilliseconds: replica.wallMilliseconds, digest: replica.digest,
        directions: peer.directions.mirrored, cursor: replica.cursor, epochs: replica.epochs)
      do throws(SessionEnd) {
        try check(own: own, peer: peer)
      } catch {
        // A client that was rolled back can detect it only from this side's vector.
        if error.refusal?.code == .tryAgain, error.newActor == nil { port.send(.hello(own)) }
        throw error
      }
      port.send(.hello(own))
      begin(Exchange(serverOf: peer, own: own, missing: replica.missingBlobs, &port))
    case .unborn, .greeting, .listening, .running, .closed: return
    }
  }

  private func features(_ replica: Replica) -> UInt64 {
    SessionFeature.moreBatches | SessionFeature.comparison | capabilities.rawValue
      | (mode == .live ? SessionFeature.live | SessionFeature.waitsForKeys : 0)
      | (replica.epochs.isEmpty ? 0 : SessionFeature.groupKeys)
      // Records of a read-only member are not accepted, and it reissues nothing.
      | (replica.repairs && peerRight == .readWrite ? SessionFeature.repair : 0)
  }

  private func check(own: Hello, peer: Hello) throws(SessionEnd) {
    let objection = Handshake.objection(own: own, peer: peer, peerName: port.peerName, peerRight: peerRight)
    if let objection { throw objection }
  }

  private mutating func begin(_ exchange: consuming Exchange) {
    phase = .running
    // The exchange has a copy of the vector, which is large where there are many members.
    peer?.summary.vector = VersionVector()
    decoder.stage = .session
    self.exchange = exchange
    port.actions.append(.cancelTimer(.handshake))
    port.actions.append(.setTimer(.ping, seconds: pingSeconds))
  }

  // MARK: Ticks and queue limits

  private mutating func tick() throws(SessionEnd) {
    guard liveness.tick(isPaused: isPaused, queued: port.queued) else {
      throw .refused(
        .timeout, "\(port.peerName) sent nothing, or read nothing, for \(liveness.idleSeconds) s")
    }
    if liveness.isSilent { port.send(.ping(liveness.ticks)) }
    port.actions.append(.setTimer(.ping, seconds: pingSeconds))
  }

  private mutating func boundQueues() throws(SessionEnd) {
    guard port.queued <= Limits.connectionBytes else {
      let text = "\(port.peerName) does not read what it is sent"
      throw SessionEnd(outcome: .failed(.timeout, text))
    }
    let unstored = exchange?.unstoredBytes ?? 0
    let limit = port.isCrowded ? WireLimits.crowdedBytes : WireLimits.unstoredBytes
    let openedLimit = port.isCrowded ? WireLimits.crowdedBytes : WireLimits.decryptedBytes
    if !isPaused, unstored > limit || decryptedBytes > openedLimit {
      isPaused = true
      port.actions.append(.pauseReading)
    } else if isPaused, unstored <= limit / 2, decryptedBytes <= openedLimit / 2 {
      isPaused = false
      port.actions.append(.resumeReading)
    }
  }

  // MARK: Session ends

  private func noCommonVersion(_ theirs: ClosedRange<UInt16>) -> SessionEnd {
    let ours = WireLimits.protocolVersions
    return .refused(
      .incompatible,
      "no common version of the protocol (\(ours.lowerBound) to \(ours.upperBound), "
        + "\(theirs.lowerBound) to \(theirs.upperBound)): update the older program")
  }

  private mutating func refused(_ refusal: Refusal) -> SessionEnd {
    if refusal.code == .notAMember { wasRevoked = true }
    let text = "\(port.peerName) refused: \(refusal.text.printable)"
    switch refusal.code {
    case .tryAgain: return SessionEnd(outcome: .reconnect(text))
    case .sameActor: return SessionEnd(outcome: .reconnect(text), newActor: text)
    default: return SessionEnd(outcome: .failed(refusal.code.error, text))
    }
  }

  private func interruption(_ what: String) -> SessionEnd {
    SessionEnd(outcome: .failed(.network, "\(port.peerName) \(what): what arrived is kept; run it again"))
  }

  private var disconnection: SessionEnd {
    switch phase {
    case .running where exchange?.isQuietServer ?? false: SessionEnd(outcome: .done)
    default: interruption("broke the connection")
    }
  }

  private var stopping: SessionEnd {
    let text = "this side shuts down"
    let isOver = isAtRest || exchange?.isQuietServer ?? false
    return SessionEnd(
      refusal: Refusal(.unavailable, "it shuts down: try again later"),
      outcome: isOver ? .done : .failed(.unavailable, text))
  }
}
