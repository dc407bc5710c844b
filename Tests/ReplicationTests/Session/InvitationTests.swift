import Foundation
import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// Invitations as stored by their copy, and many redeemed at once.
@Suite(.timeLimit(.minutes(Patience.minutes(4)))) struct InvitationTests {
  private static let address = [Endpoint(host: "h", port: 1)]

  private static func code(_ body: () throws -> Void) -> ReplicationError.Code? {
    do { try body() } catch { return (error as? ReplicationError)?.code }
    return nil
  }

  @Test func `invitations are listed, and a withdrawn one cannot be redeemed`() async throws {
    let server = try TestCopy.first()
    _ = try await server.listen()
    let membership = Membership(server.store)
    #expect(try membership.invitations() == [])
    let tokens = [
      try Node.invite(to: server.store, lifetime: 900),
      try Node.invite(to: server.store, lifetime: 60, right: .readOnly),
    ]
    let listed = try membership.invitations()
    #expect(listed.map(\.right) == [.readOnly, .readWrite] && listed.allSatisfy { $0.redeemer == nil })
    let id = Hex.string(of: try Invitation(text: tokens[0]).id)
    #expect(listed.last?.id == id)
    #expect(try membership.withdrawInvitation(id))
    #expect(try !membership.withdrawInvitation(id))
    for wrong in ["", "zz", "0123456789abcdef", id + "00"] {
      #expect(try !membership.withdrawInvitation(wrong))
    }
    await #expect { _ = try await TestCopy.joined(tokens[0], "late") } throws: {
      ($0 as? ReplicationError)?.code == .invalidInvitation
    }
    let reader = try await TestCopy.joined(tokens[1], "reader")
    #expect(try membership.invitations().map(\.redeemer) == [reader.node.device])
    await server.node.stop()
  }

  @Test func `the maximum number of invitations blocks further ones until one is withdrawn or redeemed`()
    throws
  {
    let copy = try TestCopy.first()
    for _ in 0..<Limits.invitations { _ = try Node.invite(to: copy.store, addresses: Self.address) }
    #expect(Self.code { _ = try Node.invite(to: copy.store, addresses: Self.address) } == .invalidInvitation)
    let open = try Membership(copy.store).invitations()
    #expect(open.count == Limits.invitations)
    #expect(try Membership(copy.store).withdrawInvitation(open[0].id))
    _ = try Node.invite(to: copy.store, addresses: Self.address)
    #expect(Self.code { _ = try Node.invite(to: copy.store, addresses: Self.address) } == .invalidInvitation)
    let desk = InvitationService(store: copy.store, identity: try StoreKeys(copy.store).identity())
    let standing = try #require(try InvitationStore(store: copy.store).unexpired().first)
    guard
      case .redeemed = desk.answer(.redeem(standing, joiner: Samples.proof.joiner, name: "boat"), from: "n")
    else {
      Issue.record("it was not redeemed")
      return
    }
    _ = try Node.invite(to: copy.store, addresses: Self.address)
  }

  @Test func `F87 a redeemed invitation stays valid for its redeemer alone`() throws {
    let copy = try TestCopy.first()
    var standing = PendingInvitation(
      secret: SecureRandom.bytes(Invitation.secretBytes), expires: .max, right: .readWrite)
    let book = InvitationStore(store: copy.store)
    #expect(try !book.isAnyOpen(to: Samples.proof.joiner))
    try book.add(standing)
    #expect(try book.isAnyOpen(to: Samples.proof.joiner) && book.isAnyOpen(to: Samples.proof.inviter))
    standing.redeemer = Samples.proof.joiner
    try copy.store.setLocal(Array("invite/\(Hex.string(of: standing.id))".utf8), standing.bytes)
    #expect(try book.isAnyOpen(to: Samples.proof.joiner) && !book.isAnyOpen(to: Samples.proof.inviter))
  }

  // MARK: Guesses

  @Test func `F87 requests with forged ids do not keep others from joining`() async throws {
    let server = try TestCopy.first()
    _ = try await server.listen()
    let good = try Node.invite(to: server.store)
    var invitation = try Invitation(text: good)
    for _ in 0..<2 * Limits.joinAttemptsPerMinute {
      invitation.secret = SecureRandom.bytes(Invitation.secretBytes)
      await #expect { _ = try await TestCopy.joined(invitation.text, "guesser") } throws: {
        ($0 as? ReplicationError)?.code == .invalidInvitation
      }
    }
    _ = try await TestCopy.joined(good, "honest")
    await server.node.stop()
  }

  @Test func `F87 wrong proofs are counted by network, and by invitation for networks that gave one`() {
    var throttle = JoinThrottle()
    let (id, other) = (Samples.bytes(8, from: 1), Samples.bytes(8, from: 2))
    for _ in 0..<Limits.joinAttemptsPerMinute {
      #expect(throttle.admits(id, from: "a", at: 1000))
      throttle.failed(id, from: "a", at: 1000)
    }
    #expect(!throttle.admits(id, from: "a", at: 1000) && !throttle.admits(other, from: "a", at: 60_999))
    #expect(throttle.admits(id, from: "b", at: 1000))
    #expect(throttle.admits(id, from: "a", at: 61_000))
    for number in 0..<Limits.wrongProofsPerInvitation { throttle.failed(id, from: "n\(number)", at: 70_000) }
    #expect(!throttle.admits(id, from: "n0", at: 70_000))
    #expect(throttle.admits(id, from: "honest", at: 70_000) && throttle.admits(other, from: "n0", at: 70_000))
  }

  @Test func `F87 after too many wrong proofs for an invitation a network is refused, and only that network`()
    throws
  {
    let copy = try TestCopy.first()
    let desk = InvitationService(store: copy.store, identity: try StoreKeys(copy.store).identity())
    let standing = PendingInvitation(
      secret: SecureRandom.bytes(Invitation.secretBytes), expires: .max, right: .readWrite)
    try InvitationStore(store: copy.store).add(standing)
    for _ in 0..<Limits.joinAttemptsPerMinute { desk.count(wrongProofFor: standing.id, from: "192.0.2.1") }
    #expect(desk.answer(.lookUp(standing.id), from: "192.0.2.1") == .throttled)
    guard case .found(.some, _) = desk.answer(.lookUp(standing.id), from: "192.0.2.2") else {
      Issue.record("another network is refused")
      return
    }
    guard case .found(nil, _) = desk.answer(.lookUp(Samples.bytes(8, from: 9)), from: "192.0.2.1") else {
      Issue.record("an id that does not exist was told apart")
      return
    }
  }

  // MARK: Concurrent redemptions

  /// Number of concurrent joins (`make joiners` runs 100).
  private static let joiners = ProcessInfo.processInfo.environment["JOINERS"].flatMap { Int($0) } ?? 12

  @Test func `all devices that join at once are admitted, among strangers`() async throws {
    let server = try TestCopy.first()
    _ = try await server.listen()
    let tokens = try (0..<Self.joiners).map { _ in try Node.invite(to: server.store) }
    var forged = try Invitation(text: tokens[0])
    forged.secret = SecureRandom.bytes(Invitation.secretBytes)
    let stranger = forged.text
    let begin = ContinuousClock.now
    let joined = await withTaskGroup(of: Bool.self) { group in
      for (number, token) in tokens.enumerated() {
        group.addTask { (try? await TestCopy.joined(token, "m\(number)")) != nil }
        group.addTask {
          _ = try? await TestCopy.joined(stranger, "stranger")
          return false
        }
      }
      return await group.reduce(into: 0) { $0 += $1 ? 1 : 0 }
    }
    #expect(joined == Self.joiners)
    #expect(try Membership(server.store).members().count == Self.joiners + 1)
    if Self.joiners >= 100 { print("\(joined) joined within \(ContinuousClock.now - begin)") }
    await server.node.stop()
  }

  // MARK: Addresses of the inviter

  @Test func `an invitation names the node that listens at present; without one there is an error`()
    async throws
  {
    let copy = try TestCopy.first()
    #expect(Self.code { _ = try Node.invite(to: copy.store) } == .invalidInvitation)
    let address = try await copy.listen()
    #expect(try Invitation(text: Node.invite(to: copy.store)).addresses == [address.description])
    // Another node of the same store, for a moment.
    let second = try Node(store: copy.store)
    _ = try await second.start(listen: Endpoint(host: "127.0.0.1", port: 0))
    #expect(try Invitation(text: Node.invite(to: copy.store)).addresses == [address.description])
    await second.stop()
    #expect(try Invitation(text: Node.invite(to: copy.store)).addresses == [address.description])
    await copy.node.stop()
    #expect(Self.code { _ = try Node.invite(to: copy.store) } == .invalidInvitation)
    _ = try Node.invite(to: copy.store, addresses: Self.address)
    let third = try Node(store: copy.store)
    let next = try await third.start(listen: Endpoint(host: "127.0.0.1", port: 0))
    #expect(try Invitation(text: Node.invite(to: copy.store)).addresses == [next.description])
    await third.stop()
  }
}
