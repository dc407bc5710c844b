import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// A revoked permission stays revoked, whatever its former holder has kept or started.
@Suite(.timeLimit(.minutes(Patience.minutes(2)))) struct RevocationTests {
  private static let device = DeviceID(bytes: (0..<32).map { UInt8($0) })!
  private static let network = "192.0.2.7"

  /// An inviting copy, its pairing desk, and an invitation of it.
  private static func inviter(
    _ right: MemberRight = .readWrite
  ) throws -> (copy: TestCopy, desk: InvitationService, invitation: PendingInvitation) {
    let copy = try TestCopy.first()
    let invitation = PendingInvitation(
      secret: SecureRandom.bytes(Invitation.secretBytes), expires: .max, right: right)
    try InvitationStore(store: copy.store).add(invitation)
    return (
      copy, InvitationService(store: copy.store, identity: try StoreKeys(copy.store).identity()), invitation
    )
  }

  private static func redeem(_ invitation: PendingInvitation, at desk: InvitationService) -> JoinAccept? {
    let answer = desk.answer(.redeem(invitation, joiner: device, name: "boat"), from: network)
    guard case .redeemed(let accept) = answer else { return nil }
    return accept
  }

  @Test(arguments: [false, true])
  func `F81 a revoked device does not become a member again with the token that it redeemed`(isKept: Bool)
    throws
  {
    let (copy, desk, invitation) = try Self.inviter()
    #expect(Self.redeem(invitation, at: desk) != nil)
    let membership = Membership(copy.store)
    let epoch = try membership.revokeAndRenewKeys("boat")
    #expect(try InvitationStore(store: copy.store).lookUp(invitation.id) == nil)
    if isKept {
      // As on an inviter that learns of the revocation from another copy.
      var redeemed = invitation
      redeemed.redeemer = Self.device
      try copy.store.setLocal(Array("invite/\(Hex.string(of: invitation.id))".utf8), redeemed.bytes)
    }
    #expect(Self.redeem(invitation, at: desk) == nil)
    #expect(try membership.member(Self.device)?.right == .revoked)
    #expect(try StoreKeys(copy.store).groupKeys().current == epoch)
  }

  @Test func `F81 nor with another invitation, until a member grants it a right again`() throws {
    let (copy, desk, invitation) = try Self.inviter()
    #expect(Self.redeem(invitation, at: desk) != nil)
    try Membership(copy.store).revoke("boat")
    let second = PendingInvitation(
      secret: SecureRandom.bytes(Invitation.secretBytes), expires: .max, right: .readWrite)
    try InvitationStore(store: copy.store).add(second)
    #expect(Self.redeem(second, at: desk) == nil)
    #expect(try Membership(copy.store).member(Self.device)?.right == .revoked)
  }

  @Test
  func `F81 a repeated or second invitation changes neither right nor name, and writes no member record`()
    throws
  {
    let (copy, desk, invitation) = try Self.inviter(.readOnly)
    let first = try #require(Self.redeem(invitation, at: desk))
    let position = copy.store.journalPosition
    let again = try #require(Self.redeem(invitation, at: desk))
    #expect(again == first && again.right == .readOnly)
    #expect(copy.store.journalPosition == position)
    let second = PendingInvitation(
      secret: SecureRandom.bytes(Invitation.secretBytes), expires: .max, right: .readWrite)
    try InvitationStore(store: copy.store).add(second)
    #expect(Self.redeem(second, at: desk)?.right == .readOnly)
    #expect(try Membership(copy.store).member(Self.device)?.right == .readOnly)
  }

  @Test func `F81 a revocation concurrent with a redemption takes effect wholly before or after it`()
    async throws
  {
    for _ in 0..<20 {
      let (copy, desk, invitation) = try Self.inviter()
      _ = Self.redeem(invitation, at: desk)
      let old = try StoreKeys(copy.store).groupKeys()
      async let revoked = Membership(copy.store).revokeAndRenewKeys("boat")
      async let again = Self.redeem(invitation, at: desk)
      let (epoch, accept) = (try await revoked, await again)
      #expect(try Membership(copy.store).member(Self.device)?.right == .revoked)
      guard let accept else { continue }
      let given = try GroupKeyRing(text: String(decoding: accept.groupKeys, as: UTF8.self))
      #expect(given == old && given.key(of: epoch) == nil)
    }
  }

  @Test func `F81 joining over the network does not readmit the same device key`() async throws {
    let server = try TestCopy.first()
    _ = try await server.listen()
    let token = try Node.invite(to: server.store)
    let directory = TemporaryDirectory()
    let storage = server.store.environment.storage
    let joined = try await Node.join(token, at: directory.path + "/a", name: "boat")
    let pem = try StoreKeys(joined.store).identity().pem
    try joined.store.close()
    try Membership(server.store).revokeAndRenewKeys("boat")
    // Another invitation, so that strangers are listened to at all.
    _ = try Node.invite(to: server.store)
    _ = try storage.createDirectory(directory.path + "/b")
    _ = try storage.createDirectory(directory.path + "/b/keys")
    try storage.replace(directory.path + "/b/keys/device.pem", with: Array(pem.utf8))
    await #expect { _ = try await Node.join(token, at: directory.path + "/b", name: "boat") } throws: {
      ($0 as? ReplicationError)?.code == .invalidInvitation
    }
    #expect(try Membership(server.store).members().map(\.right) == [.revoked, .readWrite])
    await server.node.stop()
  }

  // MARK: Sessions begun earlier

  /// The store's side of a session with a member admitted with this permission.
  private static func session(
    _ copy: TestCopy, _ right: MemberRight = .readWrite, as kept: Member.Right = .readWrite
  ) throws -> SessionStore {
    try Membership(copy.store).put(
      Member(device: device, name: "boat", right: kept, addresses: [], joined: 0))
    return SessionStore(copy.store, remotePeer: copy.node.context.remotePeer(device, right: right))
  }

  @Test func `F81 a device whose right was revoked after its handshake receives no data and no key`() throws {
    let copy = try TestCopy.first()
    let session = try Self.session(copy)
    guard case .replica? = session.answer(.loadReplica(peer: nil, at: nil), peer: nil) else {
      Issue.record("a member is not served")
      return
    }
    let epoch = try Membership(copy.store).revokeAndRenewKeys("boat")
    for action in [SessionAction.loadReplica(peer: nil, at: nil), .readGroupKeys([1, epoch])] {
      guard case .failed(.notAMember, _, _)? = session.answer(action, peer: nil) else {
        Issue.record("\(action) was answered")
        return
      }
    }
  }

  @Test func `F81 a change of right after the handshake restarts the session`() throws {
    let copy = try TestCopy.first()
    let session = try Self.session(copy, .readWrite, as: .readOnly)
    guard case .stale? = session.answer(.loadReplica(peer: nil, at: nil), peer: nil) else {
      Issue.record("the earlier right counts still")
      return
    }
  }

  @Test func `F81 a session ends with a typed error when its peer is no longer a member`() {
    let session = SessionProbe(role: .server, peerName: "boat", peerRight: .readWrite)
    _ = session.start()
    _ = session.handle(
      .message(.hello(SessionTests.hello(Samples.left, .both))))
    let actions = session.handle(.failed(.notAMember, "revoked"))
    guard case .refuse(let refusal)? = actions.first?.message else {
      Issue.record("\(actions)")
      return
    }
    #expect(refusal.code == .notAMember && actions.last?.failure == .notAMember)
  }

  @Test func `F81 rights are checked again when a session begins, even if the journal has not grown`()
    async throws
  {
    let (server, client, _) = try await pair()
    let core = server.node.core
    try await server.node.onLoop { () throws(ReplicationError) in
      core.value.rights.reviewedPosition = .max - 7
    }
    _ = try await client.node.synchronize(with: "first")
    // The review's current result must be used, not its earlier one.
    try await server.node.onLoop { () throws(ReplicationError) in
      #expect(core.value.rights.reviewedPosition != .max - 7)
    }
    await server.node.stop()
  }

  // MARK: Records that cannot be read

  @Test(arguments: [[], [0], [1, 0], Array("nonsense".utf8)] as [[UInt8]])
  func `F81 a pinned peer is not admitted where its member record cannot be read`(bytes: [UInt8])
    throws
  {
    let copy = try TestCopy.first()
    let membership = Membership(copy.store)
    var peer = Peer(name: "pinned", addresses: ["h:1"])
    peer.device = Self.device
    try membership.add(peer)
    let first = PeerAuthorizer(store: copy.store)
    #expect(
      first.authorizes(Self.device, applicationProtocol: WireLimits.sessionProtocol)
        && first.member?.name == "pinned")
    try copy.store.putReserved(ReservedKey.member(Self.device), bytes)
    // It is not dialled. If it connects itself, the connection is accepted only for the refusal, which names
    // the reason (`NodeCore`): there is no member for a session.
    let target = DialTarget(device: Self.device, name: "pinned")
    #expect(
      !PeerAuthorizer(store: copy.store, target: target).authorizes(
        Self.device, applicationProtocol: WireLimits.sessionProtocol))
    let gate = PeerAuthorizer(store: copy.store)
    _ = gate.authorizes(Self.device, applicationProtocol: WireLimits.sessionProtocol)
    #expect(gate.member == nil && gate.revokedMember == "unreadable-00010203")
    let member = try #require(try membership.member(Self.device))
    #expect(member.right == .revoked && member.name == "unreadable-00010203")
    #expect(try membership.members().contains(member))
    // It has a way out.
    try membership.revoke(member.name)
    try membership.put(
      Member(device: Self.device, name: "pinned", right: .readOnly, addresses: [], joined: 0))
    let next = PeerAuthorizer(store: copy.store)
    #expect(
      next.authorizes(Self.device, applicationProtocol: WireLimits.sessionProtocol)
        && next.member?.right == .readOnly)
  }
}
