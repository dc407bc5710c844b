import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// Devices that join through a relay, while at most one machine is on at a time.
@Suite(.timeLimit(.minutes(Patience.minutes(2)))) struct RelayJoinTests {
  /// A fleet whose copies have named the relay.
  private func fleet() async throws -> RelayFleet {
    let fleet = try await RelayFleet()
    for copy in [fleet.first, fleet.second] {
      try Membership(copy.store).add(RelayDescription(name: "stick", location: "dir:" + fleet.place.path))
    }
    return fleet
  }

  private func invite(
    _ copy: TestCopy, lifetime: UInt64 = 600, right: Member.Right = .readWrite
  ) async throws -> String {
    try await Node(store: copy.store).invite(throughRelay: "stick", lifetime: lifetime, right: right)
  }

  /// Asks to join, and does not wait.
  private func join(
    _ token: String, in directory: TemporaryDirectory, _ access: RelayAccess = RelayAccess()
  ) async throws -> Joined {
    try await Node.join(
      token, at: directory.path + "/store", name: "third", configuration: TestCopy.configuration, timeout: 0,
      through: access)
  }

  /// The code of the error with which joining fails.
  private func refusal(
    _ token: String, in directory: TemporaryDirectory, _ access: RelayAccess = RelayAccess()
  ) async -> ReplicationError.Code? {
    do {
      _ = try await join(token, in: directory, access)
      return nil
    } catch { return (error as? ReplicationError)?.code }
  }

  @Test("the request waits in the relay until a member looks, which need not be the inviter (rule L4)")
  func joins() async throws {
    let fleet = try await fleet()
    try fleet.first.put("a", "one")
    let token = try await invite(fleet.first)
    let directory = TemporaryDirectory()
    #expect(await refusal(token, in: directory) == .timeout)
    #expect(await refusal(token, in: directory) == .timeout, "asking again changes nothing")
    _ = try await fleet.client(fleet.first).publish()
    #expect(await refusal(token, in: directory) == .timeout, "to publish is not to look")
    _ = try await fleet.client(fleet.second).sync()
    let joined = try await join(token, in: directory)
    #expect(joined.inviterName == "second" && joined.memberName == "third" && joined.relayName == "stick")
    _ = try await Node(store: joined.store).synchronize(with: "stick", direction: .both)
    let third = try TestCopy(directory, joined.store)
    #expect(try third.get("a") == "one")
    _ = try await fleet.client(fleet.first).sync()
    #expect(try Membership(fleet.first.store).member(named: "third")?.right == .readWrite)
    #expect(try fleet.first.digest() == third.digest())
    try third.put("b", "two")
    _ = try await fleet.carry(third, fleet.first)
    #expect(try fleet.first.get("b") == "two")
    #expect(try await fleet.objects("j/") == [])
    #expect(try await fleet.objects("h/join-") == [])
  }

  @Test func `the inviter answers as well, and a member that may only read gets no more`() async throws {
    let fleet = try await fleet()
    try fleet.first.put("a", "one")
    let token = try await invite(fleet.first, right: .readOnly)
    let directory = TemporaryDirectory()
    #expect(await refusal(token, in: directory) == .timeout)
    _ = try await fleet.client(fleet.first).push()
    let joined = try await join(token, in: directory)
    #expect(joined.inviterName == "first" && joined.right == .readOnly)
    _ = try await Node(store: joined.store).synchronize(with: "stick", direction: .pull)
    #expect(try joined.store.get(Key("a")) != nil)
    #expect(throws: StoreError.self) { try joined.store.put(Key("b"), [1]) }
  }

  @Test func `an invitation is for one device, also if two members answer`() async throws {
    let fleet = try await fleet()
    let token = try await invite(fleet.first)
    let (winner, loser) = (TemporaryDirectory(), TemporaryDirectory())
    #expect(await refusal(token, in: winner) == .timeout)
    #expect(await refusal(token, in: loser) == .invalidInvitation)
    _ = try await fleet.client(fleet.second).sync()
    _ = try await fleet.client(fleet.first).sync()
    #expect(await refusal(token, in: loser) == .invalidInvitation)
    let joined = try await join(token, in: winner)
    #expect(await refusal(token, in: loser) == .invalidInvitation, "the invitation is gone")
    #expect(try Membership(fleet.first.store).members().count == 3)
    try joined.store.close()
  }

  @Test func `a device that is asked for again by a relay that was put back is refused`() async throws {
    let fleet = try await fleet()
    let token = try await invite(fleet.first)
    let objects = try DirectoryStore(at: fleet.place.path)
    let id = try Invitation(text: token).id
    guard case .found(let offer) = try await objects.get(RelayName.invitation(id)) else {
      Issue.record("there is no invitation")
      return
    }
    let directory = TemporaryDirectory()
    #expect(await refusal(token, in: directory) == .timeout)
    _ = try await fleet.client(fleet.second).sync()
    _ = try await join(token, in: directory)
    _ = try await objects.put(RelayName.invitation(id), offer.bytes, if: .always)
    let other = TemporaryDirectory()
    #expect(await refusal(token, in: other) == .timeout)
    _ = try await fleet.client(fleet.second).sync()
    #expect(await refusal(token, in: other) == .timeout)
    #expect(try Membership(fleet.second.store).members().count == 3)
  }

  @Test func `what was withdrawn is not answered, nor what has expired`() async throws {
    let fleet = try await fleet()
    let (token, expired) = (try await invite(fleet.first), try await invite(fleet.first, lifetime: 1))
    let directory = TemporaryDirectory()
    #expect(await refusal(token, in: directory) == .timeout)
    let invitation = try #require(
      try Membership(fleet.first.store).invitations().max { $0.expires < $1.expires })
    #expect(invitation.relay == "stick")
    #expect(try await Node(store: fleet.first.store).withdraw(invitation: invitation.id))
    _ = try await fleet.client(fleet.second).sync()
    #expect(await refusal(token, in: directory) == .invalidInvitation)
    let late = TemporaryDirectory()
    #expect(await refusal(expired, in: late) == .timeout)
    try await Task.sleep(for: .milliseconds(1100))
    _ = try await fleet.client(fleet.second).sync()
    #expect(await refusal(expired, in: late) == .timeout, "another member does not judge")
    _ = try await fleet.client(fleet.first).sync()
    #expect(await refusal(expired, in: late) == .invalidInvitation)
    #expect(try Membership(fleet.first.store).members().count == 2)
  }

  @Test func `an invitation of a device that was revoked is not answered`() async throws {
    let fleet = try await fleet()
    let token = try await invite(fleet.second)
    _ = try await fleet.client(fleet.second).push()
    let directory = TemporaryDirectory()
    #expect(await refusal(token, in: directory) == .timeout)
    try Membership(fleet.first.store).revoke("second")
    let report = try await fleet.client(fleet.first).sync()
    #expect(report.setAside.contains { $0.object.hasPrefix("h/join-") })
    #expect(await refusal(token, in: directory) == .timeout)
  }

  @Test func `a holder of the token cannot invite to a store of its own`() async throws {
    let fleet = try await fleet()
    let token = try await invite(fleet.first)
    let invitation = try Invitation(text: token)
    let ticket = try #require(invitation.relay)
    let directory = TemporaryDirectory()
    #expect(await refusal(token, in: directory) == .timeout)
    let thief = try TestCopy.first("thief")
    let objects = try DirectoryStore(at: fleet.place.path)
    guard case .found(let asked) = try await objects.get(RelayName.joinRequest(invitation.id)) else {
      Issue.record("there is no request")
      return
    }
    let request = try RelayJoinRequest(asked.bytes, invitation.secret, in: ticket.relay)
    let forged = JoinAccept(
      mac: [], store: thief.store.id, storeName: "shop", inviterName: "first", memberName: "third",
      right: .readWrite, groupKeys: Array(try StoreKeys(thief.store).groupKeys().text.utf8))
    let answer = RelayJoinAnswer(forged, by: try StoreKeys(thief.store).identity().id)
    _ = try await objects.put(
      RelayName.joinAnswer(invitation.id),
      answer.encrypted(for: request, invitation.secret, in: ticket.relay, random: SecureRandom.bytes(32)),
      if: .always)
    #expect(await refusal(token, in: directory) == .notAMember)
  }

  @Test func `a request that was damaged is made again, and one that is forged is set aside`() async throws {
    let fleet = try await fleet()
    let token = try await invite(fleet.first)
    let id = try Invitation(text: token).id
    let objects = try DirectoryStore(at: fleet.place.path)
    _ = try await objects.put(RelayName.joinRequest(id), [1, 2, 3], if: .always)
    let report = try await fleet.client(fleet.first).sync()
    #expect(report.setAside.map(\.object) == [RelayName.joinRequest(id)])
    let directory = TemporaryDirectory()
    #expect(await refusal(token, in: directory) == .timeout)
    _ = try await fleet.client(fleet.first).sync()
    _ = try await join(token, in: directory)
  }

  @Test func `the relay may be elsewhere for the new member, and another relay is refused`() async throws {
    let fleet = try await fleet()
    let token = try await invite(fleet.first)
    let other = TemporaryDirectory()
    let elsewhere = fleet.place.path + "/."
    let directory = TemporaryDirectory()
    #expect(await refusal(token, in: directory, RelayAccess(location: "dir:" + other.path)) == .network)
    _ = try await DirectoryStore(at: other.path).put(
      "format",
      RelayFormat(random: SecureRandom.bytes(48)).encrypted(
        store: fleet.first.store.id, keys: StoreKeys(fleet.first.store).groupKeys(),
        randomness: SecureRandom.bytes(BatchCodec.randomnessBytes)), if: .always)
    #expect(await refusal(token, in: directory, RelayAccess(location: "dir:" + other.path)) == .otherStore)
    let access = RelayAccess(location: "dir:" + elsewhere)
    #expect(await refusal(token, in: directory, access) == .timeout)
    _ = try await fleet.client(fleet.second).push()
    let joined = try await join(token, in: directory, access)
    #expect(try Membership(joined.store).relay(named: "stick")?.location == "dir:" + elsewhere)
  }

  @Test func `objects of an invitation are what their makers made, or nothing`() throws {
    let secret = [UInt8](repeating: 7, count: Invitation.secretBytes)
    guard let relay = RelayID(bytes: [UInt8](repeating: 3, count: 16)) else { return }
    let identity = try DeviceIdentity.generate()
    let request = try RelayJoinRequest(of: identity, called: "third")
    let bytes = try request.encrypted(secret, in: relay, by: identity, nonce: SecureRandom.bytes(12))
    #expect(try RelayJoinRequest(bytes, secret, in: relay) == request)
    let answer = RelayJoinAnswer(nil, by: identity.id)
    let answered = try answer.encrypted(for: request, secret, in: relay, random: SecureRandom.bytes(32))
    #expect(try RelayJoinAnswer(answered, for: identity, secret, in: relay) == answer)
    for index in bytes.indices {
      var changed = bytes
      changed[index] ^= 1
      #expect(throws: ReplicationError.self) { try RelayJoinRequest(changed, secret, in: relay) }
      #expect(throws: ReplicationError.self) {
        try RelayJoinRequest(Array(bytes[..<index]), secret, in: relay)
      }
    }
    for index in answered.indices {
      var changed = answered
      changed[index] ^= 1
      #expect(throws: ReplicationError.self) {
        try RelayJoinAnswer(changed, for: identity, secret, in: relay)
      }
      #expect(throws: ReplicationError.self) {
        try RelayJoinAnswer(Array(answered[..<index]), for: identity, secret, in: relay)
      }
    }
    let stranger = try DeviceIdentity.generate()
    #expect(throws: ReplicationError.self) {
      try RelayJoinAnswer(answered, for: stranger, secret, in: relay)
    }
  }
}
