internal import SyncStore

/// A device that joins through a relay: leaves its request there, and waits for the answer.
struct RelayJoiner: RelayUser {
  private let invitation: Invitation
  private let ticket: RelayTicket
  private let identity: DeviceIdentity
  private let access: RelayAccess
  private let relay: RelayDescription
  let objects: any ObjectStore
  var name: String { relay.location }

  /// Milliseconds between two looks for the answer: the first, and the longest.
  private static let pauses: ClosedRange<UInt64> = 500...10_000

  /// The answer.
  struct Answer: Sendable {
    var accept: JoinAccept
    /// The member that answered.
    var device: DeviceID
  }

  /// A joiner. Nothing is read yet.
  ///
  /// - Throws: `.network` if the relay's location is none that can be opened.
  init(
    _ invitation: Invitation, _ ticket: RelayTicket, through access: RelayAccess, as identity: DeviceIdentity
  ) throws(ReplicationError) {
    (self.invitation, self.ticket, self.identity) = (invitation, ticket, identity)
    self.access = access
    relay = try Self.description(ticket.name, ticket, through: access)
    objects = try access.opens(relay)
  }

  private static func description(
    _ name: String, _ ticket: RelayTicket, through access: RelayAccess
  ) throws(ReplicationError) -> RelayDescription {
    var relay = try RelayDescription(name: name, location: access.location ?? ticket.location)
    if relay.directory == nil {
      relay.endpoint = ticket.endpoint.isEmpty ? nil : ticket.endpoint
      relay.region = ticket.region.isEmpty ? nil : ticket.region
    }
    (relay.credentialsFile, relay.certificatesFile) = (access.credentialsFile, access.certificatesFile)
    return relay
  }

  /// The relay as the new copy knows it, under a name that is not `taken`.
  func description(avoiding taken: String) throws(ReplicationError) -> RelayDescription {
    guard relay.name == taken else { return relay }
    return try Self.description(String(relay.name.prefix(40)) + "-relay", ticket, through: access)
  }

  /// Asks to join, unless that was done before, and waits for the answer of a member.
  ///
  /// - Throws: `.timeout` if there is none yet: the request stays; `.invalidInvitation` if it is refused,
  ///   used by another device, expired, or not in the relay; `.otherStore` if the place is another relay's;
  ///   `.network`, `.notAllowed`.
  func redeem(called name: String, timeout: UInt64) async throws(ReplicationError) -> Answer {
    try await checkPlace()
    if let answer = try await answer() { return answer }
    try await request(called: name)
    let deadline = MonotonicClock.milliseconds() + min(timeout, 31 * 86_400) * 1000
    var pause = Self.pauses.lowerBound
    while MonotonicClock.milliseconds() < deadline {
      let left = deadline - min(deadline, MonotonicClock.milliseconds())
      do { try await Task.sleep(for: .milliseconds(min(pause, left))) } catch { break }
      if let answer = try await answer() { return answer }
      pause = min(2 * pause, Self.pauses.upperBound)
    }
    throw ReplicationError(
      .timeout,
      "\(relay.location): the request waits there, and no member has answered it yet: one does when it next looks into the relay: run this again later"
    )
  }

  /// Deletes what the relay holds of the invitation.
  func finish() async throws(ReplicationError) {
    let id = invitation.id
    try await delete([RelayName.invitation(id), RelayName.joinRequest(id), RelayName.joinAnswer(id)])
  }

  // MARK: Steps

  private func checkPlace() async throws(ReplicationError) {
    guard let bytes = try await content(of: RelayFormat.name, limit: RelayFormat.maximumBytes) else {
      throw ReplicationError(
        .network,
        "\(relay.location): no relay is there: mount it, or say where it is from here"
      )
    }
    guard try RelayFormat.relay(in: bytes) == ticket.relay else {
      throw ReplicationError(
        .otherStore, "\(relay.location): another relay is there: say where the right one is from here")
    }
  }

  private func answer() async throws(ReplicationError) -> Answer? {
    let name = RelayName.joinAnswer(invitation.id)
    guard let bytes = try await content(of: name, limit: RelayJoinAnswer.maximumBytes) else { return nil }
    let answer = try RelayJoinAnswer(bytes, for: identity, invitation.secret, in: ticket.relay)
    guard let accept = answer.accept else {
      throw invalid("it has expired, or was withdrawn")
    }
    // Only a member knows the group key. Another holder of the token could invite to a store of its own.
    let ring = try GroupKeyRing(text: String(decoding: accept.groupKeys, as: UTF8.self))
    guard let key = ring.key(of: ticket.epoch),
      RelayTicket.fingerprint(of: key, secret: invitation.secret) == ticket.fingerprint
    else {
      throw ReplicationError(
        .notAMember, "\(relay.location): the answer there is from no member: ask for a new invitation")
    }
    return Answer(accept: accept, device: answer.answerer)
  }

  /// Leaves the request, if the invitation is there, and tells the members of it.
  private func request(called name: String) async throws(ReplicationError) {
    let id = invitation.id
    guard try await exists(RelayName.invitation(id)) else {
      throw invalid("it is not in the relay: it was used or withdrawn, or has not arrived there")
    }
    let request = try RelayJoinRequest(of: identity, called: name)
    let bytes = try request.encrypted(
      invitation.secret, in: ticket.relay, by: identity, nonce: SecureRandom.bytes(AES256GCM.nonceBytes))
    let place = RelayName.joinRequest(id)
    _ = try await put(place, bytes, if: .absent)
    // Read back: it may be from an earlier call, or from another device. Anything else was not made with the
    // token, and is replaced.
    let present = try await content(of: place, limit: RelayJoinRequest.maximumBytes)
    if let present, let known = try? RelayJoinRequest(present, invitation.secret, in: ticket.relay) {
      guard known.device == identity.id else { throw invalid("another device has used it") }
    } else {
      _ = try await put(place, bytes, if: .always)
    }
    _ = try await put(RelayName.bell, SecureRandom.bytes(16), if: .always)
  }

  private func invalid(_ why: String) -> ReplicationError {
    ReplicationError(.invalidInvitation, "cannot join with this invitation: \(why): ask for a new one")
  }

  // MARK: Objects

  private func content(of object: String, limit: Int) async throws(ReplicationError) -> [UInt8]? {
    guard case .found(let content) = try await get(object, limit: limit) else { return nil }
    return content.bytes
  }
}
