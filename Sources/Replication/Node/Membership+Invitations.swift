public import SyncStore

/// An invitation that this copy has given out and that has not ended.
public struct OpenInvitation: Hashable, Sendable {
  /// What names it: 16 lower-case hexadecimal digits, which tell nothing of its secret.
  public let id: String
  /// When it ends, in milliseconds since 1970.
  public let expires: UInt64
  /// What the new member may do.
  public let right: Member.Right
  /// The device that has redeemed it; nil while any can. It may ask again, if the answer did not reach it, and gets no other right by it.
  public let redeemer: DeviceID?
}

extension Membership {
  /// The invitations of this copy that have not ended, those that end first first. Those of other copies are not known here.
  ///
  /// - Throws: `.store` if the store cannot be read.
  public func invitations() throws(ReplicationError) -> [OpenInvitation] {
    try InvitationStore(store: store).unexpired().map { standing in
      OpenInvitation(
        id: Hex.string(of: standing.id), expires: standing.expires, right: Member.Right(standing.right),
        redeemer: standing.redeemer)
    }.sorted { ($0.expires, $0.id) < ($1.expires, $1.id) }
  }

  /// Withdraws an invitation of this copy, durably: nobody can redeem it from then on. Who has redeemed it stays a member.
  ///
  /// - Parameter id: as `OpenInvitation.id` gives it.
  /// - Returns: false if there is none with this id, or it has ended.
  /// - Throws: `.store` if it cannot be written.
  public func withdrawInvitation(_ id: String) throws(ReplicationError) -> Bool {
    guard let bytes = Hex.bytes(of: id[...]), bytes.count == Invitation.idBytes else { return false }
    return try InvitationStore(store: store).withdraw(bytes)
  }

  /// Takes the member's right away, on every copy that hears of it, and drops the invitations of this copy that it has
  /// redeemed, in one step. Of one that is revoked already it does what may not have been
  /// done: it may have failed in the middle. `.notAMember` if there is none of that name; `.notAllowed` if it is this copy itself, which
  /// nobody could undo, or if this copy is revoked or read-only, so that nobody would hear of it.
  ///
  /// - Throws: `.notAMember` and `.notAllowed` as said; `.store` if it cannot be written.
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

  /// One step: a redemption by the same device comes wholly before it, or finds the device revoked.
  private static func revoke(
    _ name: String, by own: Member?, isRevoked: Bool, _ keys: inout ReservedKeyTransaction
  ) throws(StoreError) -> RevocationVerdict {
    let found = members(in: try keys.reserved(prefix: ReservedKey.memberPrefix)).filter { $0.name == name }
    guard var member = found.first(where: { $0.right != .revoked }) ?? found.last else { return .unknown }
    let right = isRevoked ? .revoked : own?.right ?? .readWrite
    if right != .readWrite { return .mayNot(right) }
    guard member.device != own?.device else { return .isOwn }
    if member.right != .revoked {
      member.right = .revoked
      try keys.putReserved(ReservedKey.member(member.device), member.bytes)
    }
    // No caller waits for what it has seen any more.
    let frontier = ReservedKey.frontier(member.device)
    if try keys.reserved(frontier) != nil { try keys.putReserved(frontier, nil) }
    try InvitationStore.drop(redeemedBy: member.device, &keys)
    return .done
  }
}
