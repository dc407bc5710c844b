import Replication
import SyncStore
import SyncTestSupport
import Testing

@Suite struct PairingTests {
  private static let now = Samples.wall

  private static func request(_ proof: PairingProof = Samples.proof, secret: [UInt8]? = nil) -> JoinRequest {
    JoinRequest(
      invitation: Samples.invitation.id, deviceName: "starboard",
      mac: proof.ofJoiner(secret: secret ?? Samples.invitation.secret, deviceName: "starboard"))
  }

  private static func end(of actions: [PairingAction]) -> ReplicationError.Code? {
    if case .close(.failed(let code, _))? = actions.last { code } else { nil }
  }

  /// The inviter's reaction to `request` when it finds `standing`.
  private static func answer(
    to request: JoinRequest, standing: PendingInvitation? = Samples.invitation.pending, at now: UInt64 = now
  ) -> [PairingAction] {
    let inviter = InviterProbe(proof: Samples.proof)
    _ = inviter.start()
    let asked = inviter.handle(.received(Message.joinRequest(request).frame.bytes))
    #expect(asked == [.lookUp(request.invitation)])
    return inviter.handle(.found(standing, at: now))
  }

  @Test("A token round-trips, with blanks around it")
  func token() throws {
    let text = Samples.invitation.text
    #expect(try Invitation(text: text) == Samples.invitation)
    #expect(try Invitation(text: " \n" + text + "\n") == Samples.invitation)
    #expect(!text.contains { $0.isWhitespace })
  }

  @Test("A token with any character changed, lost or added is refused")
  func damagedToken() {
    let text = Array(Samples.invitation.text)
    for index in text.indices {
      var changed = text
      changed[index] = changed[index] == "x" ? "y" : "x"
      #expect(throws: ReplicationError.self) { try Invitation(text: String(changed)) }
      var lost = text
      lost.remove(at: index)
      #expect(throws: ReplicationError.self) { try Invitation(text: String(lost)) }
    }
    for wrong in ["", "syncstore1:", "syncstore1:AA", String(text) + "A", String(text) + "=", "hello"] {
      #expect(throws: ReplicationError.self) { try Invitation(text: wrong) }
    }
  }

  @Test("An invitation's record round-trips, before and after it was redeemed")
  func pendingInvitation() {
    var standing = Samples.invitation.pending
    #expect(PendingInvitation(bytes: standing.bytes) == standing)
    standing.redeemer = Samples.proof.joiner
    #expect(PendingInvitation(bytes: standing.bytes) == standing)
    #expect(standing.id == Samples.invitation.id)
    #expect(PendingInvitation(bytes: Array(standing.bytes.dropLast())) == nil)
    #expect(PendingInvitation(bytes: []) == nil)
  }

  @Test("A joiner with a good invitation becomes a member")
  func join() {
    let joiner = JoinerProbe(invitation: Samples.invitation, proof: Samples.proof, name: "starboard")
    let inviter = InviterProbe(proof: Samples.proof)
    #expect(inviter.start() == [.setTimer(seconds: Limits.handshakeSeconds)])
    let request = Message.joinRequest(Self.request()).frame.bytes
    #expect(joiner.start() == [.setTimer(seconds: Limits.handshakeSeconds), .send(request)])
    #expect(inviter.handle(.received(request)) == [.lookUp(Samples.invitation.id)])
    let standing = Samples.invitation.pending
    #expect(
      inviter.handle(.found(standing, at: Self.now)) == [
        .redeem(standing, joiner: Samples.proof.joiner, name: "starboard")
      ])
    var accept = Samples.accept
    accept.mac = Samples.proof.ofInviter(secret: standing.secret, accept: accept)
    let answer = Message.joinAccept(accept).frame.bytes
    #expect(inviter.handle(.redeemed(Samples.accept)) == [.send(answer), .close(.done)])
    #expect(joiner.handle(.received(answer)) == [.joined(accept), .close(.done)])
    #expect(joiner.handle(.disconnected) == [])
  }

  @Test("F87 an unknown, used, expired or guessed invitation is refused with the same message")
  func refused() {
    var used = Samples.invitation.pending
    used.redeemer = DeviceID(bytes: Samples.bytes(32, from: 1))!
    let answers = [
      Self.answer(to: Self.request(), standing: nil),
      Self.answer(to: Self.request(), standing: used),
      Self.answer(to: Self.request(), at: Samples.invitation.expires),
      Self.answer(to: Self.request(secret: Samples.bytes(16, from: 0))),
    ]
    let wrongProof = PairingAction.countWrongProof(Samples.invitation.id)
    #expect(answers.map { $0.contains(wrongProof) } == [false, false, false, true])
    for answer in answers.map({ $0.filter { $0 != wrongProof } }) {
      #expect(answer == answers[0])
      #expect(Self.end(of: answer) == .invalidInvitation)
    }
  }

  @Test("F87 the device that redeemed an invitation may ask again if the answer was lost")
  func again() {
    var used = Samples.invitation.pending
    used.redeemer = Samples.proof.joiner
    #expect(
      Self.answer(to: Self.request(), standing: used) == [
        .redeem(used, joiner: Samples.proof.joiner, name: "starboard")
      ])
  }

  @Test("F87 of two devices that redeem at once, one is refused")
  func race() {
    let inviter = InviterProbe(proof: Samples.proof)
    _ = inviter.handle(.received(Message.joinRequest(Self.request()).frame.bytes))
    _ = inviter.handle(.found(Samples.invitation.pending, at: Self.now))
    #expect(Self.end(of: inviter.handle(.alreadyRedeemed)) == .invalidInvitation)
  }

  @Test("F87 a network with too many wrong guesses is told to wait")
  func throttle() {
    let inviter = InviterProbe(proof: Samples.proof)
    _ = inviter.handle(.received(Message.joinRequest(Self.request()).frame.bytes))
    #expect(Self.end(of: inviter.handle(.throttled)) == .unavailable)
  }

  @Test("F77 a relayed request fails, because the relay's two connections have different exporters")
  func relayedRequest() {
    var relayed = Samples.proof
    relayed.exporter[0] ^= 1
    #expect(Self.end(of: Self.answer(to: Self.request(relayed))) == .invalidInvitation)
    var other = Samples.proof
    other.joiner = DeviceID(bytes: Samples.bytes(32, from: 1))!
    #expect(Self.end(of: Self.answer(to: Self.request(other))) == .invalidInvitation)
  }

  @Test("F77 an answer that was relayed, or changed in any byte, is refused by the joiner")
  func changedAnswer() {
    var accept = Samples.accept
    accept.mac = Samples.proof.ofInviter(secret: Samples.invitation.secret, accept: accept)
    let frame = Message.joinAccept(accept).frame
    for index in frame.payload.indices {
      var changed = frame
      changed.payload[index] ^= 1
      let joiner = JoinerProbe(invitation: Samples.invitation, proof: Samples.proof, name: "starboard")
      _ = joiner.start()
      #expect(Self.end(of: joiner.handle(.received(changed.bytes))) != nil, "byte \(index)")
    }
    var relayed = Samples.proof
    relayed.exporter[31] ^= 1
    accept.mac = relayed.ofInviter(secret: Samples.invitation.secret, accept: accept)
    let joiner = JoinerProbe(invitation: Samples.invitation, proof: Samples.proof, name: "starboard")
    _ = joiner.start()
    #expect(
      Self.end(of: joiner.handle(.received(Message.joinAccept(accept).frame.bytes))) == .invalidInvitation)
  }

  @Test("F75 a joiner sends nothing to a device that did not invite it")
  func wrongInviter() {
    var proof = Samples.proof
    proof.inviter = DeviceID(bytes: Samples.bytes(32, from: 2))!
    let joiner = JoinerProbe(invitation: Samples.invitation, proof: proof, name: "starboard")
    #expect(Self.end(of: joiner.start()) == .notAMember)
  }

  @Test("F88 a stranger that sends nothing, too much or something else is disconnected")
  func stranger() {
    let silent = InviterProbe(proof: Samples.proof)
    #expect(Self.end(of: silent.handle(.timer)) == .timeout)
    let long = InviterProbe(proof: Samples.proof)
    #expect(Self.end(of: long.handle(.received([0, 0, 1, 0, 0x10]))) == .protocolViolation)
    let twice = InviterProbe(proof: Samples.proof)
    let request = Message.joinRequest(Self.request()).frame.bytes
    _ = twice.handle(.received(request))
    #expect(Self.end(of: twice.handle(.received(request))) == .protocolViolation)
    let other = InviterProbe(proof: Samples.proof)
    #expect(Self.end(of: other.handle(.received(Message.want(nil).frame.bytes))) == .protocolViolation)
  }
}

/// A joiner for use in expectations.
private final class JoinerProbe {
  private var joiner: Joiner

  init(invitation: Invitation, proof: PairingProof, name: String) {
    joiner = Joiner(invitation: invitation, proof: proof, name: name)
  }

  func start() -> [PairingAction] { joiner.start() }
  func handle(_ event: PairingEvent) -> [PairingAction] { joiner.handle(event) }
}

/// An inviter for use in expectations.
private final class InviterProbe {
  private var inviter: Inviter

  init(proof: PairingProof) { inviter = Inviter(proof: proof) }

  func start() -> [PairingAction] { inviter.start() }
  func handle(_ event: PairingEvent) -> [PairingAction] { inviter.handle(event) }
}
