internal import SyncStore

/// The inviter's store operations of a pairing. All calls block and run on workers.
///
/// Invariants:
/// - an invitation is redeemed by exactly one device, however many try at once in whatever process: the first
///   to write its name into the invitation's record wins (F87);
/// - the redemption and the new member's record are one change, atomic with respect to a revocation
///   (`Membership.revoke`): a revoked device does not become a member again, and an existing member keeps its
///   right.
struct InvitationStore: Sendable {
  /// Which invitations. The raw value is the prefix of their local records.
  enum Book: String, CaseIterable {
    /// Those of this copy.
    case own = "invite/"
    /// Those of other members that this copy has answered in a relay: each is for one device.
    case answered = "answered/"

    var prefix: [UInt8] { Array(rawValue.utf8) }
  }

  /// The outcome of a redemption.
  enum Redemption: Sendable {
    /// The device is this member; `inviter` is the name of this copy among the members.
    case member(Member, inviter: String)
    /// Another device has redeemed it, it has expired or was withdrawn, or the device was revoked.
    case refused
  }

  let store: Store
  var book = Book.own

  private func key(_ id: [UInt8]) -> [UInt8] { book.prefix + Array(Hex.string(of: id).utf8) }

  private static func all(
    _ records: [(key: [UInt8], value: [UInt8])]
  ) -> [(key: [UInt8], invitation: PendingInvitation)] {
    records.compactMap { record in PendingInvitation(bytes: record.value).map { (record.key, $0) } }
  }

  /// The invitations that have not expired, including redeemed ones.
  func unexpired() throws(ReplicationError) -> [PendingInvitation] {
    let now = store.environment.now()
    let records = try mappingStoreErrors { () throws(StoreError) in try store.locals(prefix: book.prefix) }
    return Self.all(records).map(\.invitation).filter { $0.expires > now }
  }

  /// Whether this device could redeem any invitation now; if not, the handshake rejects it. A redeemed
  /// invitation is open to its redeemer only, in case the answer was lost.
  func isAnyOpen(to device: DeviceID) throws(ReplicationError) -> Bool {
    try unexpired().contains { $0.redeemer == nil || $0.redeemer == device }
  }

  /// Stores an invitation durably, and drops those that have expired or whose redeemer was revoked.
  /// `.invalidInvitation` if there are too many.
  func add(_ invitation: PendingInvitation) throws(ReplicationError) {
    let now = store.environment.now()
    let open = try mappingStoreErrors { () throws(StoreError) in
      try store.changeReservedKeys { keys throws(StoreError) -> Int in
        var open = 0
        for (key, pending) in Self.all(keys.locals(prefix: book.prefix)) {
          var isKept = pending.expires > now
          if let redeemer = pending.redeemer {
            let record = try keys.reserved(ReservedKey.member(redeemer))
            isKept =
              isKept
              && record.map { Member(device: redeemer, record: $0, givenName: nil).right != .revoked } ?? true
          } else if isKept {
            open += 1
          }
          if !isKept { try keys.setLocal(key, nil) }
        }
        if open < Limits.invitations { try keys.setLocal(key(invitation.id), invitation.bytes) }
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
    try mappingStoreErrors { () throws(StoreError) in try store.local(key(id)) }
      .flatMap { PendingInvitation(bytes: $0) }
  }

  /// Drops an invitation durably. False if there is none that has not expired.
  func withdraw(_ id: [UInt8]) throws(ReplicationError) -> Bool {
    let now = store.environment.now()
    let before = try mappingStoreErrors { () throws(StoreError) in
      try store.updateLocal(key(id)) { _ in nil }
    }
    return before.flatMap { PendingInvitation(bytes: $0) }.map { $0.expires > now } ?? false
  }

  /// Drops the invitations that a device has redeemed: otherwise it could redeem them again.
  static func drop(redeemedBy device: DeviceID, _ keys: inout ReservedKeyTransaction) throws(StoreError) {
    for book in Book.allCases {
      for (key, pending) in all(keys.locals(prefix: book.prefix)) where pending.redeemer == device {
        try keys.setLocal(key, nil)
      }
    }
  }

  /// Makes `joiner` a member on behalf of the device `own`, durably, and returns what it has to know; nil if
  /// it is refused.
  func accept(
    _ invitation: PendingInvitation, by joiner: DeviceID, called wish: String, as own: DeviceID
  ) throws(ReplicationError) -> JoinAccept? {
    // Read before the decision to admit the joiner: a revocation begins an epoch, and a joiner admitted
    // before its revocation must not receive the key of that epoch.
    let ring = try StoreKeys(store).groupKeys()
    let redemption = try redeem(
      invitation, by: joiner, called: StoreIdentity.isName(wish) ? wish : "device", inviter: own)
    guard case .member(let member, let inviter) = redemption, let right = member.right.inSession else {
      return nil
    }
    return JoinAccept(
      mac: [], store: store.id, storeName: store.name, inviterName: inviter, memberName: member.name,
      right: right, groupKeys: Array(ring.text.utf8))
  }

  /// In one durable step: records that `device` redeems the invitation, and makes it a member called `wish`,
  /// made unique.
  ///
  /// An existing member keeps its name and right, and nothing is written: a new record could win over what
  /// other copies say of the member.
  func redeem(
    _ invitation: PendingInvitation, by device: DeviceID, called wish: String, inviter: DeviceID
  ) throws(ReplicationError) -> Redemption {
    let now = store.environment.now()
    let storeName = store.name
    return try mappingStoreErrors { () throws(StoreError) in
      try store.changeReservedKeys { keys throws(StoreError) -> Redemption in
        let record = key(invitation.id)
        guard let bytes = keys.local(record), var pending = PendingInvitation(bytes: bytes),
          pending.expires > now, pending.redeemer == nil || pending.redeemer == device
        else { return .refused }
        let members = Membership.members(in: try keys.reserved(prefix: ReservedKey.membershipPrefix))
        let known = members.first { $0.device == device }
        guard known?.right != .revoked else { return .refused }
        // An inviter without write rights cannot replicate the new member's record.
        guard members.first(where: { $0.device == inviter })?.right ?? .readWrite == .readWrite else {
          return .refused
        }
        if pending.redeemer == nil {
          pending.redeemer = device
          try keys.setLocal(record, pending.bytes)
        }
        let member =
          known
          ?? Member(
            device: device, name: Membership.freeName(wish, for: device, among: members),
            right: Member.Right(pending.right), addresses: [], joined: now)
        if known == nil { try keys.putReserved(ReservedKey.member(device), member.bytes) }
        return .member(member, inviter: members.first { $0.device == inviter }?.name ?? storeName)
      }
    }
  }
}
