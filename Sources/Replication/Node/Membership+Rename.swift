import SyncStore

extension Membership {
  /// Renames a member on every copy that receives the change, or a peer that only this copy has named.
  ///
  /// A peer of this copy that is called `name` is looked for first, as everywhere: if it is the member of
  /// that name, both get the new one; if it stands for another member, or for none, only the peer does. Other
  /// copies keep the names that they gave with `add(_:)` or by joining; they reach the member by either name.
  ///
  /// The name is a replicated record of its own, so that a rename cannot undo a right that another copy gives
  /// or takes at the same time.
  ///
  /// - Parameters:
  ///   - name: the present name.
  ///   - newName: 1 to `Limits.nameBytes` bytes without blanks or slashes.
  /// - Returns: false if it has that name already; nothing is written then.
  /// - Throws: `.notAMember` if no member or peer is called `name`; `.notAllowed` if another one is called
  ///   `newName`, if that is no name, or if this copy may not change members; `.store` if it cannot be
  ///   written.
  @discardableResult
  public func rename(_ name: String, to newName: String) throws(ReplicationError) -> Bool {
    let what = "rename \(name) to \(newName)"
    guard StoreIdentity.isName(newName) else {
      throw ReplicationError(
        .notAllowed,
        "cannot \(what): that is no name: use 1 to \(Limits.nameBytes) bytes without blanks or slashes")
    }
    let own = try own()
    let outcome = try mappingStoreErrors { () throws(StoreError) in
      let denial = try store.writeDenial
      return try store.changeReservedKeys { keys throws(StoreError) in
        try Self.rename(name, to: newName, right: denial == .revoked ? .revoked : own?.right, &keys)
      }
    }
    switch outcome {
    case .renamed: return true
    case .unchanged: return false
    case .unknown:
      throw ReplicationError(
        .notAMember, "cannot \(what): no member or peer has that name: see `Membership.members` and `peers`")
    case .taken:
      throw ReplicationError(.notAllowed, "cannot \(what): another one is called so: choose another name")
    case .mayNot(let right): throw Self.refusal(what, right: right)
    }
  }

  private enum RenameOutcome {
    case renamed, unchanged, unknown, taken
    case mayNot(Member.Right)
  }

  /// One atomic change of the peer's local record and the member's replicated name.
  private static func rename(
    _ name: String, to newName: String, right: Member.Right?, _ keys: inout ReservedKeyTransaction
  ) throws(StoreError) -> RenameOutcome {
    let members = members(in: try keys.reserved(prefix: ReservedKey.membershipPrefix))
    let peer = keys.local(peerKey(name)).flatMap { try? Peer(name: name, bytes: $0) }
    let named = members.filter { $0.name == name }
    var member = named.first { $0.right != .revoked } ?? named.last
    if let pinned = peer?.device, pinned != member?.device { member = nil }
    guard peer != nil || member != nil else { return .unknown }
    guard name != newName else { return .unchanged }
    let device = member?.device ?? peer?.device
    if keys.local(peerKey(newName)) != nil
      || members.contains(where: { $0.name == newName && $0.device != device })
    {
      return .taken
    }
    if let member {
      if let right, right != .readWrite { return .mayNot(right) }
      try keys.putReserved(ReservedKey.memberName(member.device), MemberNameRecord.bytes(of: newName))
    }
    if var peer {
      // A peer that was meant by its name alone keeps its member.
      peer.device = device
      try keys.setLocal(peerKey(name), nil)
      try keys.setLocal(peerKey(newName), peer.bytes)
    }
    return .renamed
  }
}
