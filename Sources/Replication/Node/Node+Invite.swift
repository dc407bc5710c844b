public import SyncStore

extension Node {
  /// Makes an invitation that one device can redeem once, and gives its token. Blocks; works in any process that has the
  /// store open, also beside a node that runs in another one.
  ///
  /// - Parameters:
  ///   - lifetime: seconds until it ends, 1 to 30 days.
  ///   - right: what the new member may do.
  ///   - addresses: where the inviting node listens, at most 8; by default where it last listened.
  /// - Throws: `.invalidInvitation` if a parameter is out of bounds, no address is known, or too many are open; `.notAllowed` if this
  ///   copy is revoked or read-only: the others would not hear of the new member.
  public static func invite(
    to store: Store, lifetime: UInt64 = 600, right: Member.Right = .readWrite, addresses: [Endpoint] = []
  ) throws(ReplicationError) -> String {
    func refusal(_ why: String) -> ReplicationError {
      ReplicationError(.invalidInvitation, "cannot invite: \(why)")
    }
    guard (1...2_592_000).contains(lifetime) else { throw refusal("give it 1 second to 30 days") }
    guard let right = right.inSession else { throw refusal("nobody is invited to be revoked") }
    try Membership(store).checkMayDecide("invite")
    let addresses = try addresses.isEmpty ? lastAddresses(of: store) : addresses
    guard !addresses.isEmpty else {
      throw refusal("no address is known: let a node listen (`Node.start`), or give one")
    }
    guard addresses.count <= WireLimits.invitationAddresses else {
      throw refusal("at most \(WireLimits.invitationAddresses) addresses fit")
    }
    let identity = try StoreKeys(store).identity()
    let invitation = Invitation(
      addresses: addresses.map(\.description), inviter: identity.id,
      secret: SecureRandom.bytes(Invitation.secretBytes), expires: store.environment.now() + lifetime * 1000,
      right: right, storeName: store.name)
    try InvitationBook(store: store).add(invitation.standing)
    return invitation.text
  }

  /// Where the node of the store last listened; for a wildcard, the addresses of this machine.
  private static func lastAddresses(of store: Store) throws(ReplicationError) -> [Endpoint] {
    let text = try ofStore { () throws(StoreError) in try store.local(listenKey) }
    guard let text, let endpoint = Endpoint(String(decoding: text, as: UTF8.self)) else { return [] }
    guard ["0.0.0.0", "::"].contains(endpoint.host) else { return [endpoint] }
    let hosts = SocketAddress.ofThisMachine().prefix(WireLimits.invitationAddresses)
    return (hosts.isEmpty ? ["127.0.0.1"] : Array(hosts)).map { Endpoint(host: $0, port: endpoint.port) }
  }
}
