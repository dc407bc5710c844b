internal import SyncStore

/// Invitations that any member answers in the relay, with no two members online at once (decision 0057).
extension RelayClient {
  /// Writes an invitation of this copy.
  func offer(_ pending: PendingInvitation) async throws(ReplicationError) {
    guard let format = try await format(creates: true) else { return }
    let keys = try await keys(format)
    let name = RelayName.invitation(pending.id)
    let invitation = try RelayInvitation(pending, by: identity, in: format.relay)
    _ = try await put(name, try keys.encrypt(invitation.bytes, as: name), if: .always)
  }

  /// Deletes an invitation, and a request that was not answered.
  func withdraw(_ id: [UInt8]) async throws(ReplicationError) {
    try await delete([RelayName.invitation(id), RelayName.joinRequest(id)])
  }

  /// The relay and the newest group key, as an invitation states them.
  func ticket(
    for relay: RelayDescription, secret: [UInt8]
  ) async throws(ReplicationError) -> RelayTicket? {
    guard let format = try await format(creates: true) else { return nil }
    let ring = try await ring()
    guard let epoch = ring.epochs.last, let key = ring.key(of: epoch) else { return nil }
    return RelayTicket(
      name: relay.name, location: relay.location, endpoint: relay.endpoint ?? "", region: relay.region ?? "",
      relay: format.relay, epoch: epoch, fingerprint: RelayTicket.fingerprint(of: key, secret: secret))
  }

  /// Answers the requests to join that the last listing has shown: makes the devices members, publishes
  /// that, and writes the answers.
  func answerRequests(_ format: RelayFormat, _ report: inout RelayReport) async throws(ReplicationError) {
    let requests = memory.withLock { exchange(&$0.joinRequests, with: []) }
    guard !requests.isEmpty else { return }
    do throws(ReplicationError) {
      let keys = try await keys(format)
      var answers: [(id: [UInt8], bytes: [UInt8])] = []
      for id in requests.sorted(by: { $0.lexicographicallyPrecedes($1) }) {
        guard let bytes = try await answer(id, keys, &report) else { continue }
        answers.append((id, bytes))
      }
      guard !answers.isEmpty else { return }
      // The new members' records first: the others accept their entries then.
      try await push(format, [], &report)
      for answer in answers {
        // Of several members that answer, the first is the one.
        _ = try await put(RelayName.joinAnswer(answer.id), answer.bytes, if: .absent)
        try await delete([RelayName.joinRequest(answer.id)])
      }
    } catch {
      // The next look must not find that nothing is new.
      let copy = try await storeWork { store throws(StoreError) in try store.relayReplica() }
      try await update(format.relay, as: copy.actor) { $0.quietBell = "" }
      throw error
    }
  }

  /// The answer to one request; nil if there is none to give: the request is not genuine, or was answered.
  private func answer(
    _ id: [UInt8], _ keys: Keys, _ report: inout RelayReport
  ) async throws(ReplicationError) -> [UInt8]? {
    let (place, request) = (RelayName.invitation(id), RelayName.joinRequest(id))
    guard case .found(let offered) = try await get(place, limit: RelayInvitation.maximumBytes) else {
      return nil
    }
    if try await exists(RelayName.joinAnswer(id)) {
      try await delete([request])
      return nil
    }
    guard case .found(let asked) = try await get(request, limit: RelayJoinRequest.maximumBytes) else {
      return nil
    }
    do throws(ReplicationError) {
      let payload = try keys.decrypt(offered.bytes, as: place)
      let invitation = try Self.decoding(place) { () throws(DecodingFailure) in
        try RelayInvitation(bytes: payload)
      }
      let inviter = DeviceIdentity.id(ofPublicKey: invitation.inviter)
      guard Invitation.id(of: invitation.secret) == id, invitation.isGenuine(in: keys.format.relay),
        keys.standing(of: inviter) == .writer
      else {
        throw ReplicationError(.notAllowed, "\(place): no member who may invite has made it: it is ignored")
      }
      let joiner = try RelayJoinRequest(asked.bytes, invitation.secret, in: keys.format.relay)
      let answer = try await admit(joiner, with: invitation, isOwn: inviter == identity.id)
      return try answer?.encrypted(
        for: joiner, invitation.secret, in: keys.format.relay, random: SecureRandom.bytes(32))
    } catch {
      guard error.store == nil else { throw error }
      report.setAside(request, error.message)
      return nil
    }
  }

  /// Makes a device a member. Of refusals only those of the inviter are told: another member may not know the
  /// time as well, and leaves it to the others.
  private func admit(
    _ joiner: RelayJoinRequest, with invitation: RelayInvitation, isOwn: Bool
  ) async throws(ReplicationError) -> RelayJoinAnswer? {
    let (store, own) = (store, identity.id)
    let accept = try await workers.run { () throws(ReplicationError) in
      let book = InvitationStore(store: store, book: isOwn ? .own : .answered)
      let pending = invitation.pending
      if !isOwn, try book.lookUp(pending.id) == nil { try book.add(pending) }
      return try book.accept(pending, by: joiner.device, called: joiner.wish, as: own)
    }
    return accept == nil && !isOwn ? nil : RelayJoinAnswer(accept, by: own)
  }
}
