package import SyncStore

/// Both sides' proofs that they know an invitation's secret, bound to their TLS connection.
///
/// A relay between two connections has two exporters, and its proofs match neither (F77).
package struct PairingProof: Hashable, Sendable {
  /// The TLS exporter's 32 bytes under the label `PairingProof.exporterLabel`, no context.
  package var exporter: [UInt8]
  /// The inviter's identity, proven by TLS.
  package var inviter: DeviceID
  /// The joiner's identity, proven by TLS.
  package var joiner: DeviceID

  /// All fields.
  package init(exporter: [UInt8], inviter: DeviceID, joiner: DeviceID) {
    (self.exporter, self.inviter, self.joiner) = (exporter, inviter, joiner)
  }

  /// The label of the exporter (RFC 8446 §7.5).
  package static let exporterLabel = "EXPORTER-syncstore-join"
  /// Bytes of the exporter's value.
  package static let exporterBytes = 32

  /// The joiner's proof: HMAC-SHA256.
  package func ofJoiner(secret: [UInt8], deviceName: String) -> [UInt8] {
    code("syncstore join request v1", secret: secret, said: Array(deviceName.utf8))
  }

  /// The inviter's proof: HMAC-SHA256 over all fields of its answer.
  package func ofInviter(secret: [UInt8], accept: JoinAccept) -> [UInt8] {
    code("syncstore join accept v1", secret: secret, said: accept.proven)
  }

  private func code(_ label: String, secret: [UInt8], said: [UInt8]) -> [UInt8] {
    HMACSHA256.code(
      for: Array(label.utf8) + exporter + inviter.bytes + joiner.bytes + said, key: secret)
  }
}

/// Events for one side of a pairing.
package enum PairingEvent: Hashable, Sendable {
  /// Bytes arrived from the other side.
  case received([UInt8])
  /// The timer fired.
  case timer
  /// The connection was lost.
  case disconnected
  /// Answers `lookUp`: the record under that id, if any, and the wall clock in milliseconds since 1970.
  case found(PendingInvitation?, at: UInt64)
  /// Answers `lookUp`: the invitation exists, but there were too many wrong proofs lately (`JoinThrottle`).
  case throttled
  /// Answers `redeem`: the joiner is durably a member. The proof is filled in later.
  case redeemed(JoinAccept)
  /// Answers `redeem`: another device has redeemed it, or the joiner was revoked.
  case alreadyRedeemed
  /// Answers `lookUp` or `redeem`: the own store failed.
  case failed(ReplicationError.Code, String, because: StoreError.Code? = nil)
}

/// Actions that one side of a pairing requests.
package enum PairingAction: Hashable, Sendable {
  /// Send these bytes to the other side.
  case send([UInt8])
  /// Fire the timer once, this many seconds from now.
  case setTimer(seconds: Int)
  /// Look up the invitation with this id. If there is one, ask `JoinThrottle`.
  case lookUp([UInt8])
  /// Count a wrong proof for the invitation with this id (`JoinThrottle`). No answer.
  case countWrongProof([UInt8])
  /// Atomically and durably: unless another device redeemed the invitation, record `joiner` as its redeemer
  /// and make it a member under this name, made unique.
  ///
  /// An existing member keeps its name and right; a revoked one is refused.
  case redeem(PendingInvitation, joiner: DeviceID, name: String)
  /// The joiner is a member: create the copy.
  case joined(JoinAccept)
  /// The pairing is over: send what is queued and close the connection. No further event is expected.
  case close(PairingOutcome)
}

/// The result of a pairing.
package enum PairingOutcome: Hashable, Sendable {
  /// The joiner is a member.
  case done
  /// The joiner is not a member.
  case failed(ReplicationError.Code, String)
}

/// The joining side of a pairing.
package struct Joiner: ~Copyable {
  private let invitation: Invitation
  private let proof: PairingProof
  private let name: String
  private var decoder = FrameDecoder(stage: .pairing)
  private var isOver = false

  /// Creates a joiner that requests the name `name`, on a connection after its TLS handshake.
  package init(invitation: Invitation, proof: PairingProof, name: String) {
    (self.invitation, self.proof, self.name) = (invitation, proof, name)
  }

  /// Starts the pairing.
  package mutating func start() -> [PairingAction] {
    guard proof.inviter == invitation.inviter else {
      return end(.notAMember, "the device at this address is not the one that invited: check the address")
    }
    let request = JoinRequest(
      invitation: invitation.id, deviceName: name,
      mac: proof.ofJoiner(secret: invitation.secret, deviceName: name))
    return [.setTimer(seconds: Limits.handshakeSeconds), .send(Message.joinRequest(request).frame.bytes)]
  }

  /// Handles one event; none may follow `close`.
  package mutating func handle(_ event: PairingEvent) -> [PairingAction] {
    if isOver { return [] }
    switch event {
    case .received(let bytes): return received(bytes)
    case .timer: return end(.timeout, "the inviter does not answer: try again")
    case .disconnected: return end(.network, "the inviter broke the connection: try again")
    case .found, .throttled, .redeemed, .alreadyRedeemed, .failed: return []
    }
  }

  private mutating func received(_ bytes: [UInt8]) -> [PairingAction] {
    decoder.append(bytes)
    do throws(DecodingFailure) {
      while let frame = try decoder.next() {
        switch try Message.decode(frame) {
        case .joinAccept(let accept): return accepted(accept)
        case .refuse(let refusal):
          return end(refusal.code.error, "the inviter refused: \(refusal.text.printable)")
        case nil: continue
        default: return end(.protocolViolation, "the inviter sent something else than an answer")
        }
      }
      return []
    } catch {
      return end(.protocolViolation, "the inviter's answer cannot be read: \(error)")
    }
  }

  private mutating func accepted(_ accept: JoinAccept) -> [PairingAction] {
    let expected = proof.ofInviter(secret: invitation.secret, accept: accept)
    guard constantTimeEquals(accept.mac, expected) else {
      return end(.invalidInvitation, "the inviter does not know the invitation's secret: invite again")
    }
    isOver = true
    return [.joined(accept), .close(.done)]
  }

  private mutating func end(_ code: ReplicationError.Code, _ text: String) -> [PairingAction] {
    isOver = true
    return [.close(.failed(code, text))]
  }
}

/// The inviting side of a pairing.
///
/// Invariant: a stranger learns nothing by trying. Unknown, used, expired and unproven invitations are
/// refused with the same message.
package struct Inviter: ~Copyable {
  private enum State {
    case waiting
    case lookingUp(JoinRequest)
    case redeeming(PendingInvitation)
    case over
  }

  private let proof: PairingProof
  private var state = State.waiting
  private var decoder = FrameDecoder(stage: .pairing)

  /// Creates an inviter on a connection after its TLS handshake.
  package init(proof: PairingProof) { self.proof = proof }

  /// Starts the pairing.
  package mutating func start() -> [PairingAction] { [.setTimer(seconds: Limits.handshakeSeconds)] }

  /// Handles one event; none may follow `close`.
  package mutating func handle(_ event: PairingEvent) -> [PairingAction] {
    switch (event, state) {
    case (_, .over): return []
    case (.received(let bytes), _): return received(bytes)
    case (.timer, _): return end(.timeout, "no request came in time")
    case (.disconnected, _):
      state = .over
      return [.close(.failed(.network, "the joiner broke the connection"))]
    case (.found(let invitation, let now), .lookingUp(let request)):
      return found(invitation, at: now, request)
    case (.throttled, .lookingUp): return end(.unavailable, "too many attempts to join: wait a minute")
    case (.redeemed(let accept), .redeeming(let invitation)): return redeemed(accept, invitation: invitation)
    case (.alreadyRedeemed, .redeeming): return invalid()
    case (.failed(let code, let message, let cause), _):
      state = .over
      let refusal = Refusal(ownStore: cause)
      return [.send(Message.refuse(refusal).frame.bytes), .close(.failed(code, message))]
    case (.found, _), (.throttled, _), (.redeemed, _), (.alreadyRedeemed, _): return []
    }
  }

  private mutating func received(_ bytes: [UInt8]) -> [PairingAction] {
    decoder.append(bytes)
    do throws(DecodingFailure) {
      while let frame = try decoder.next() {
        guard let message = try Message.decode(frame) else { continue }
        guard case .joinRequest(let request) = message, case .waiting = state else {
          return end(.protocolViolation, "something else than one request to join came")
        }
        state = .lookingUp(request)
        return [.lookUp(request.invitation)]
      }
      return []
    } catch {
      return end(.protocolViolation, "a request to join cannot be read: \(error)")
    }
  }

  private mutating func found(
    _ invitation: PendingInvitation?, at now: UInt64, _ request: JoinRequest
  ) -> [PairingAction] {
    guard let invitation, now < invitation.expires,
      invitation.redeemer == nil || invitation.redeemer == proof.joiner
    else { return invalid() }
    let expected = proof.ofJoiner(secret: invitation.secret, deviceName: request.deviceName)
    guard constantTimeEquals(request.mac, expected) else {
      return [.countWrongProof(invitation.id)] + invalid()
    }
    state = .redeeming(invitation)
    return [.redeem(invitation, joiner: proof.joiner, name: request.deviceName)]
  }

  private mutating func redeemed(_ accept: JoinAccept, invitation: PendingInvitation) -> [PairingAction] {
    state = .over
    var answer = accept
    answer.mac = proof.ofInviter(secret: invitation.secret, accept: accept)
    return [.send(Message.joinAccept(answer).frame.bytes), .close(.done)]
  }

  private mutating func invalid() -> [PairingAction] {
    end(.invalidInvitation, "the invitation is unknown, used, expired or wrong: ask for a new one")
  }

  private mutating func end(_ code: Refusal.Code, _ text: String) -> [PairingAction] {
    state = .over
    return [.send(Message.refuse(Refusal(code, text)).frame.bytes), .close(.failed(code.error, text))]
  }
}

/// Rate limit for guesses at invitations (F87). A value without a clock.
///
/// Only wrong proofs for existing invitations count: requests with made-up ids cost a look-up, but do not
/// keep others from joining. A network with `Limits.joinAttemptsPerMinute` wrong proofs within a minute is
/// refused before its proof is checked. Once an invitation has received `Limits.wrongProofsPerInvitation`
/// wrong proofs from all networks, each network that sent one is refused for it. A right proof from a network
/// without wrong ones is never refused.
package struct JoinThrottle: Hashable, Sendable {
  private struct WrongProof: Hashable, Sendable {
    var invitation: [UInt8]
    var network: String
    var time: UInt64
  }

  /// Maximum number of wrong proofs remembered; the oldest are dropped first.
  private static let mostRemembered = 4096
  private static let windowMilliseconds: UInt64 = 60_000

  /// Wrong proofs of the last minute, in order.
  private var wrong: [WrongProof] = []

  /// No attempts yet.
  package init() {}

  /// Whether a proof from this network for an existing invitation may be checked. `milliseconds` is from any
  /// monotonic clock.
  package func admits(_ invitation: [UInt8], from network: String, at milliseconds: UInt64) -> Bool {
    var (ofNetwork, ofInvitation, isKnown) = (0, 0, false)
    for proof in wrong where milliseconds < proof.time + Self.windowMilliseconds {
      if proof.network == network { ofNetwork += 1 }
      guard proof.invitation == invitation else { continue }
      ofInvitation += 1
      if proof.network == network { isKnown = true }
    }
    return ofNetwork < Limits.joinAttemptsPerMinute
      && (ofInvitation < Limits.wrongProofsPerInvitation || !isKnown)
  }

  /// Records a wrong proof.
  package mutating func failed(_ invitation: [UInt8], from network: String, at milliseconds: UInt64) {
    wrong.removeAll { $0.time + Self.windowMilliseconds <= milliseconds }
    if wrong.count >= Self.mostRemembered { wrong.removeFirst(wrong.count - Self.mostRemembered + 1) }
    wrong.append(WrongProof(invitation: invitation, network: network, time: milliseconds))
  }
}
