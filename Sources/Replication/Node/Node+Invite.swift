public import SyncStore

extension Node {
  /// Makes an invitation that exactly one device can redeem, and returns its token. Blocks; works in any
  /// process that has the store open, also while a node runs in another one.
  ///
  /// - Parameters:
  ///   - lifetime: seconds until it expires, 1 to 30 days.
  ///   - right: the right of the new member.
  ///   - addresses: where the inviting node can be reached, at most 8; by default where a node of this store,
  ///     in whatever process, listens now.
  /// - Throws: `.invalidInvitation` if a parameter is out of bounds, no address is given and no node of the
  ///   store listens, or `Limits.invitations` are open; `.notAllowed` if this copy is revoked or read-only:
  ///   the other copies would not receive the new member's record.
  public static func invite(
    to store: Store, lifetime: UInt64 = 600, right: Member.Right = .readWrite, addresses: [Endpoint] = []
  ) throws(ReplicationError) -> String {
    let right = try checked(lifetime, right, in: store)
    let addresses = try addresses.isEmpty ? ownAddresses(of: store) : addresses
    guard !addresses.isEmpty else {
      throw invitationRefusal(
        "no address is given and no node of this store is listening: start one (`Node.start`), or give an address"
      )
    }
    guard addresses.count <= WireLimits.invitationAddresses else {
      throw invitationRefusal("at most \(WireLimits.invitationAddresses) addresses fit")
    }
    let identity = try StoreKeys(store).identity()
    let invitation = Invitation(
      addresses: addresses.map(\.description), inviter: identity.id,
      secret: SecureRandom.bytes(Invitation.secretBytes), expires: store.environment.now() + lifetime * 1000,
      right: right, storeName: store.name)
    try InvitationStore(store: store).add(invitation.pending)
    return invitation.text
  }

  private static func invitationRefusal(_ why: String) -> ReplicationError {
    ReplicationError(.invalidInvitation, "cannot invite: \(why)")
  }

  /// Checks what an invitation is to give, and whether this copy may invite.
  static func checked(
    _ lifetime: UInt64, _ right: Member.Right, in store: Store
  ) throws(ReplicationError) -> MemberRight {
    guard (1...2_592_000).contains(lifetime) else {
      throw invitationRefusal("give it 1 second to 30 days")
    }
    guard let right = right.inSession else {
      throw invitationRefusal("an invitation cannot give the right \"revoked\"")
    }
    try Membership(store).checkMayDecide("invite")
    return right
  }

  /// The address of a running node of the store; for a wildcard, the addresses of this machine.
  private static func ownAddresses(of store: Store) throws(ReplicationError) -> [Endpoint] {
    let text = try mappingStoreErrors { () throws(StoreError) in
      try store.isListenedTo() ? try store.local(listenKey) : nil
    }
    guard let text, let endpoint = Endpoint(String(decoding: text, as: UTF8.self)) else { return [] }
    guard ["0.0.0.0", "::"].contains(endpoint.host) else { return [endpoint] }
    let hosts = SocketAddress.ofThisMachine().prefix(WireLimits.invitationAddresses)
    return (hosts.isEmpty ? ["127.0.0.1"] : Array(hosts)).map { Endpoint(host: $0, port: endpoint.port) }
  }

  /// Milliseconds to retry claiming the listen lock: a process that checks whether a node listens holds it
  /// for a moment.
  private static let claimMilliseconds = 500

  /// Records where this node listens, for invitations that other processes make. If another running node of
  /// the store has done so already, its address stays, and this node serves nevertheless.
  func recordAddress(_ address: Endpoint) async throws(ReplicationError) {
    let (store, listening) = (store, listening)
    let deadline = MonotonicClock.milliseconds() + UInt64(Self.claimMilliseconds)
    repeat {
      let isNoted = try await context.workers.run { () throws(ReplicationError) in
        try mappingStoreErrors { () throws(StoreError) in
          guard let claim = try store.claimListening() else { return false }
          try store.setLocal(Self.listenKey, Array(address.description.utf8))
          listening.withLock { $0 = claim }
          return true
        }
      }
      if isNoted { return }
      try? await Task.sleep(for: .milliseconds(10))
    } while MonotonicClock.milliseconds() < deadline
    context.log.emit(
      .warning, "another node of this store listens already: invitations name its address, and not \(address)"
    )
  }
}
