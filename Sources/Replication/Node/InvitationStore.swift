internal import SyncStore

/// What a pairing asks of the inviter's store. All of it blocks and runs on workers.
///
/// Invariants:
/// - an invitation is redeemed by one device and no other, however many try at once, in whatever process: the first to write its name into
///   the invitation's record has it (F87);
/// - what decides who redeems, and what makes the member, is one atomic change with what revokes one (`Membership.revoke`): a device that
///   was revoked is not made a member again, and one that is a member already keeps the right that it has.
struct InvitationStore: Sendable {
  private static let prefix = Array("invite/".utf8)

  /// What came of an attempt to redeem.
  enum Redemption: Sendable {
    /// The device is a member: as this one, with the name that this copy has among the members.
    case member(Member, inviter: String)
    /// Another device has redeemed it, it has ended or was withdrawn, or the device was revoked.
    case refused
  }

  let store: Store

  private static func key(_ id: [UInt8]) -> [UInt8] { prefix + Array(Hex.string(of: id).utf8) }

  private static func all(
    _ records: [(key: [UInt8], value: [UInt8])]
  ) -> [(key: [UInt8], invitation: PendingInvitation)] {
    records.compactMap { record in PendingInvitation(bytes: record.value).map { (record.key, $0) } }
  }

  /// The invitations that have not ended, redeemed ones too.
  func unexpired() throws(ReplicationError) -> [PendingInvitation] {
    let now = store.environment.now()
    let records = try mappingStoreErrors { () throws(StoreError) in try store.locals(prefix: Self.prefix) }
    return Self.all(records).map(\.invitation).filter { $0.expires > now }
  }

  /// Could this device redeem anything at the moment? Strangers are not even listened to if not. One that was redeemed is open to its
  /// redeemer alone, should the answer have been lost.
  func isAnyOpen(to device: DeviceID) throws(ReplicationError) -> Bool {
    try unexpired().contains { $0.redeemer == nil || $0.redeemer == device }
  }

  /// Keeps an invitation, durably, and forgets those that have ended or whose redeemer was revoked. `.invalidInvitation` if there are too
  /// many.
  func add(_ invitation: PendingInvitation) throws(ReplicationError) {
    let now = store.environment.now()
    let open = try mappingStoreErrors { () throws(StoreError) in
      try store.changeReservedKeys { keys throws(StoreError) -> Int in
        var open = 0
        for (key, standing) in Self.all(keys.locals(prefix: Self.prefix)) {
          var isKept = standing.expires > now
          if let redeemer = standing.redeemer {
            let record = try keys.reserved(ReservedKey.member(redeemer))
            isKept = isKept && record.map { Member(device: redeemer, record: $0).right != .revoked } ?? true
          } else if isKept {
            open += 1
          }
          if !isKept { try keys.setLocal(key, nil) }
        }
        if open < Limits.invitations { try keys.setLocal(Self.key(invitation.id), invitation.bytes) }
        return open
      }
    }
    guard open < Limits.invitations else {
      throw ReplicationError(
        .invalidInvitation,
        "cannot invite: \(open) invitations are open, the most there can be: withdraw some (`Membership.withdrawInvitation`), or wait until "
          + "they end")
    }
  }

  /// The invitation with this id; nil if there is none.
  func lookUp(_ id: [UInt8]) throws(ReplicationError) -> PendingInvitation? {
    try mappingStoreErrors { () throws(StoreError) in try store.local(Self.key(id)) }
      .flatMap { PendingInvitation(bytes: $0) }
  }

  /// Forgets an invitation, durably. False if there is none that has not ended.
  func withdraw(_ id: [UInt8]) throws(ReplicationError) -> Bool {
    let now = store.environment.now()
    let before = try mappingStoreErrors { () throws(StoreError) in
      try store.updateLocal(Self.key(id)) { _ in nil }
    }
    return before.flatMap { PendingInvitation(bytes: $0) }.map { $0.expires > now } ?? false
  }

  /// Forgets what a device has redeemed, which could ask again otherwise.
  static func drop(redeemedBy device: DeviceID, _ keys: inout ReservedKeyTransaction) throws(StoreError) {
    for (key, standing) in all(keys.locals(prefix: prefix)) where standing.redeemer == device {
      try keys.setLocal(key, nil)
    }
  }

  /// In one durable step: notes that `device` redeems the invitation, and makes it a member that is called `wish`, made unique. A device
  /// that is a member already stays as it is, in name and right: nothing is written of it, which could win over what other copies say of it.
  func redeem(
    _ invitation: PendingInvitation, by device: DeviceID, called wish: String, inviter: DeviceID
  ) throws(ReplicationError) -> Redemption {
    let now = store.environment.now()
    let storeName = store.name
    return try mappingStoreErrors { () throws(StoreError) in
      try store.changeReservedKeys { keys throws(StoreError) -> Redemption in
        let key = Self.key(invitation.id)
        guard let bytes = keys.local(key), var standing = PendingInvitation(bytes: bytes),
          standing.expires > now, standing.redeemer == nil || standing.redeemer == device
        else { return .refused }
        let members = Membership.members(in: try keys.reserved(prefix: ReservedKey.memberPrefix))
        let known = members.first { $0.device == device }
        guard known?.right != .revoked else { return .refused }
        // An inviter without write rights cannot replicate the new member's record.
        guard members.first(where: { $0.device == inviter })?.right ?? .readWrite == .readWrite else {
          return .refused
        }
        if standing.redeemer == nil {
          standing.redeemer = device
          try keys.setLocal(key, standing.bytes)
        }
        let member =
          known
          ?? Member(
            device: device, name: Membership.freeName(wish, for: device, among: members),
            right: Member.Right(standing.right), addresses: [], joined: now)
        if known == nil { try keys.putReserved(ReservedKey.member(device), member.bytes) }
        return .member(member, inviter: members.first { $0.device == inviter }?.name ?? storeName)
      }
    }
  }
}
