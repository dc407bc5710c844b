internal import SyncStore

/// Shared by the parts of a session: requested actions, bytes in flight, statistics.
struct SessionPort {
  /// The peer's name here, for messages to people.
  let peerName: String
  /// Actions requested since the last event.
  var actions: [SessionAction] = []
  /// Bytes passed to the transport that it has not yet passed on.
  var queued = 0
  /// Whether all sessions together exceed the node's memory limit.
  var isCrowded = false
  var figures = SessionFigures()
  /// Results of requests outside the plan.
  var notifications: [SessionNotification] = []
  /// Whether a message was sent that awaits an answer.
  private var awaitsReply = false
  /// Whether a round was requested: own rounds sent before the answer add no round trip.
  private var hasRequestedRound = false

  init(peerName: String) { self.peerName = peerName }

  /// Sends a message.
  mutating func send(_ message: Message) {
    for piece in message.pieces {
      queued += piece.count
      figures.sentBytes += piece.count
      actions.append(.send(piece))
    }
    switch message {
    case .want: (awaitsReply, hasRequestedRound) = (true, true)
    case .hello, .foreignHello, .blobWant, .joinRequest, .liveUpdate, .digestGroups, .bucketPrints,
      .differingRecords, .keysWant, .recipeWant, .partsWant, .holdingsWant:
      awaitsReply = true
    case .roundBegin where !hasRequestedRound: awaitsReply = true
    default: break
    }
  }

  /// Accounts for a received message.
  mutating func recordReceived(_ message: Message) {
    switch message {
    case .blobRange, .blobUnavailable, .recipe, .recipeUnavailable: figures.blobSteps += 1
    default: break
    }
    guard awaitsReply, message.isReply else { return }
    awaitsReply = false
    figures.roundTrips += 1
  }
}

extension Message {
  fileprivate var isReply: Bool {
    switch self {
    case .ping, .pong, .groupKeys, .stateClaim: false
    default: true
    }
  }
}

/// A premature end of the session: thrown inside it, never out of it.
struct SessionEnd: Error {
  /// The refusal sent to the other side, if any.
  var refusal: Refusal?
  /// The outcome reported to the own side.
  var outcome: SessionOutcome
  /// The reason why the own copy must first take a new actor, if it must.
  var newActor: String?

  /// The other side broke the protocol.
  static func violation(_ text: String) -> SessionEnd {
    SessionEnd(
      refusal: Refusal(.protocolViolation, text),
      outcome: .failed(
        .protocolViolation, "the other side broke the protocol: \(text): its program may be damaged"))
  }

  /// The own side failed, or could not decode what the other one sent.
  static func failed(
    _ code: ReplicationError.Code, message: String, cause: StoreError.Code?
  ) -> SessionEnd {
    let refusal =
      switch code {
      case .protocolViolation: Refusal(.protocolViolation, "what was sent could not be opened or read")
      case .notAMember: Refusal(.notAMember, "the refused side is no member here any more")
      case .clockSkew:
        Refusal(
          .clockSkew,
          "the clock of the refusing side was set or ran ahead, and it sends nothing before that is put right: "
            + "see its log")
      default: Refusal(ownStore: cause)
      }
    return SessionEnd(refusal: refusal, outcome: .failed(code, message))
  }

  /// The sides' knowledge of each other is outdated: both begin another session, and may know why.
  static func tryAgain(_ text: String) -> SessionEnd {
    SessionEnd(refusal: Refusal(.tryAgain, text), outcome: .reconnect(text))
  }

  /// The own side refuses, for a reason that both sides may know.
  static func refused(_ code: Refusal.Code, _ text: String) -> SessionEnd {
    SessionEnd(refusal: Refusal(code, text), outcome: .failed(code.error, text))
  }

  /// The own copy was rolled back (rule R9).
  static func rolledBack(_ text: String) -> SessionEnd {
    SessionEnd(
      refusal: Refusal(.tryAgain, "this copy was rolled back and has taken a new actor: connect again"),
      outcome: .reconnect("this copy was rolled back: \(text): it has taken a new actor"), newActor: text)
  }
}

extension Refusal {
  /// The refusal sent when the own store fails: the kind of failure, so that operators know whose disk it is,
  /// and no path.
  init(ownStore cause: StoreError.Code?) {
    let text =
      switch cause {
      case .diskFull: "the disk of the refusing side is full: make room there, then connect again"
      case .poisoned, .inputOutput, .readOnly:
        "the disk of the refusing side failed: see its log, and open its store again"
      case .damaged: "the store of the refusing side is damaged: run `Store.verify` there"
      default: "the store of the refusing side could not go on: see its log"
      }
    self.init(.unavailable, text)
  }
}

extension Refusal.Code {
  /// The reason as an error code of the library.
  package var error: ReplicationError.Code {
    switch self {
    case .notAMember: .notAMember
    case .notAllowed: .notAllowed
    case .invalidInvitation: .invalidInvitation
    case .clockSkew: .clockSkew
    case .otherStore: .otherStore
    case .incompatible: .incompatible
    case .protocolViolation: .protocolViolation
    case .unavailable, .tryAgain, .sameActor: .unavailable
    case .digestsDiffer: .digestsDiffer
    case .timeout: .timeout
    }
  }
}
