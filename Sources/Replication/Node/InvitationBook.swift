internal import SyncStore

/// What a pairing asks of the inviter's store. All of it blocks and runs on workers.
///
/// Invariant: an invitation is redeemed by one device and no other, however many try at once, in whatever process: the
/// first to write its name into the invitation's record has it (F87).
struct InvitationBook: Sendable {
  private static let prefix = Array("invite/".utf8)

  let store: Store

  private static func key(_ id: [UInt8]) -> [UInt8] { prefix + Array(Hex.string(of: id).utf8) }

  /// The invitations that are kept, and whether they have ended by now.
  private func all() throws(StoreError) -> [(key: [UInt8], invitation: StandingInvitation)] {
    try store.locals(prefix: Self.prefix).compactMap { record in
      StandingInvitation(bytes: record.value).map { (record.key, $0) }
    }
  }

  /// Could anybody redeem anything at the moment? Strangers are not even listened to if not.
  func isAnyOpen() throws(ReplicationError) -> Bool {
    let now = store.environment.now()
    return try ofStore { () throws(StoreError) in try all().contains { $0.invitation.expires > now } }
  }

  /// Keeps an invitation, durably, and forgets those that have ended. `.invalidInvitation` if there are too many.
  func add(_ invitation: StandingInvitation) throws(ReplicationError) {
    let now = store.environment.now()
    let open = try ofStore { () throws(StoreError) in
      let all = try all()
      for ended in all where ended.invitation.expires <= now { try store.setLocal(ended.key, nil) }
      return all.count { $0.invitation.expires > now && $0.invitation.redeemer == nil }
    }
    guard open < Limits.invitations else {
      throw ReplicationError(
        .invalidInvitation,
        "cannot invite: \(open) invitations are open, the most there can be: wait until they end")
    }
    try ofStore { () throws(StoreError) in try store.setLocal(Self.key(invitation.id), invitation.bytes) }
  }

  /// The invitation with this id; nil if there is none.
  func find(_ id: [UInt8]) throws(ReplicationError) -> StandingInvitation? {
    try ofStore { () throws(StoreError) in try store.local(Self.key(id)) }
      .flatMap { StandingInvitation(bytes: $0) }
  }

  /// Notes, durably, that `device` redeems the invitation. False if another has, or it is gone.
  func redeem(_ invitation: StandingInvitation, by device: DeviceID) throws(ReplicationError) -> Bool {
    let now = store.environment.now()
    var isRedeemed = false
    _ = try ofStore { () throws(StoreError) in
      try store.updateLocal(Self.key(invitation.id)) { bytes in
        guard let bytes, var standing = StandingInvitation(bytes: bytes), standing.expires > now,
          standing.redeemer == nil || standing.redeemer == device
        else { return bytes }
        isRedeemed = true
        standing.redeemer = device
        return standing.bytes
      }
    }
    return isRedeemed
  }
}
