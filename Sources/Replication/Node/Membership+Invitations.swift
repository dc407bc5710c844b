public import SyncStore

/// An invitation of this copy that has not expired.
public struct OpenInvitation: Hashable, Sendable {
  /// Its id: 16 lower-case hexadecimal digits, which reveal nothing of its secret.
  public let id: String
  /// When it expires, in milliseconds since 1970.
  public let expires: UInt64
  /// The right of the new member.
  public let right: Member.Right
  /// The device that has redeemed it; nil while it can be redeemed. That device may redeem it again, in case
  /// the answer was lost, and gains no other right by it.
  public let redeemer: DeviceID?
  /// The name on this copy of the relay in which any member may answer it; nil if this copy must.
  public let relay: String?
}

extension Membership {
  /// The invitations of this copy that have not expired, in order of expiry. Those of other copies are not
  /// known here.
  ///
  /// - Throws: `.store` if the store cannot be read.
  public func invitations() throws(ReplicationError) -> [OpenInvitation] {
    try InvitationStore(store: store).unexpired().map { pending in
      OpenInvitation(
        id: Hex.string(of: pending.id), expires: pending.expires, right: Member.Right(pending.right),
        redeemer: pending.redeemer, relay: pending.relay)
    }.sorted { ($0.expires, $0.id) < ($1.expires, $1.id) }
  }

  /// Withdraws an invitation of this copy, durably: it cannot be redeemed afterwards. A device that has
  /// redeemed it stays a member. One that waits in a relay has to be deleted there as well: `Node.withdraw`.
  ///
  /// - Parameter id: as in `OpenInvitation.id`.
  /// - Returns: false if no invitation has this id, or it has expired.
  /// - Throws: `.store` if it cannot be written.
  public func withdrawInvitation(_ id: String) throws(ReplicationError) -> Bool {
    guard let bytes = Hex.bytes(of: id[...]), bytes.count == Invitation.idBytes else { return false }
    return try InvitationStore(store: store).withdraw(bytes)
  }

  /// Revokes a member's right on every copy that receives the change, and drops the invitations of this copy
  /// that the member has redeemed, in one step.
  ///
  /// For a member that is revoked already, it completes an earlier attempt that may have failed midway.
  ///
  /// - Throws: `.notAMember` if no member has that name; `.notAllowed` if the member is this copy itself,
  ///   which could not be undone, or if this copy is revoked or read-only, so that no other copy would
  ///   receive the change; `.store` if it cannot be written.
  public func revoke(_ name: String) throws(ReplicationError) {
    let own = try own()
    let verdict = try mappingStoreErrors { () throws(StoreError) in
      let isRevoked = try store.writeDenial == .revoked
      return try store.changeReservedKeys { keys throws(StoreError) in
        try Self.revoke(name, by: own, isRevoked: isRevoked, &keys)
      }
    }
    switch verdict {
    case .done: return
    case .unknown:
      throw ReplicationError(
        .notAMember, "cannot revoke \(name): no member has that name: see `Membership.peers`")
    case .mayNot(let right): throw Self.refusal("revoke \(name)", right: right)
    case .isOwn:
      throw ReplicationError(
        .notAllowed,
        "cannot revoke \(name): it is this copy itself, and could not be undone: do it on another one")
    }
  }

  private enum RevocationVerdict { case done, unknown, mayNot(Member.Right), isOwn }

  /// One atomic change: a redemption by the same device is ordered before it, or finds the device revoked.
  private static func revoke(
    _ name: String, by own: Member?, isRevoked: Bool, _ keys: inout ReservedKeyTransaction
  ) throws(StoreError) -> RevocationVerdict {
    let found = members(in: try keys.reserved(prefix: ReservedKey.membershipPrefix)).filter {
      $0.name == name
    }
    guard var member = found.first(where: { $0.right != .revoked }) ?? found.last else { return .unknown }
    let right = isRevoked ? .revoked : own?.right ?? .readWrite
    if right != .readWrite { return .mayNot(right) }
    guard member.device != own?.device else { return .isOwn }
    if member.right != .revoked {
      member.right = .revoked
      try keys.putReserved(ReservedKey.member(member.device), member.bytes)
    }
    // Purging no longer waits for what the member has seen.
    let frontier = ReservedKey.frontier(member.device)
    if try keys.reserved(frontier) != nil { try keys.putReserved(frontier, nil) }
    try InvitationStore.drop(redeemedBy: member.device, &keys)
    return .done
  }
}
