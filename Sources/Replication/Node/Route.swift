internal import SyncStore

/// Finds what a person means by the name of a peer.
enum Route {
  /// Who is to be reached, and where, the most likely address first. A peer that was named here comes before a member,
  /// and a member before an address.
  static func find(_ text: String, in store: Store) throws(ReplicationError) -> (DialTarget, [Endpoint]) {
    let membership = Membership(store)
    let peer = try membership.peer(named: text)
    // By its key a member is found at once, by its name only among all.
    let member: Member?
    if let device = peer?.device {
      member = try membership.member(device)
    } else {
      member = try membership.member(named: text)
    }
    if peer != nil || member != nil {
      let addresses = (peer?.addresses ?? []) + (member?.addresses ?? [])
      let device = peer?.device ?? member?.device
      return (DialTarget(device: device, name: text), addresses.compactMap { Endpoint($0) })
    }
    guard text.contains(":"), let endpoint = Endpoint(text), endpoint.port > 0 else {
      throw ReplicationError(
        .notAMember, "no member or peer is called \(text): see `peer list`, or give host:port")
    }
    return (DialTarget(device: nil, name: text), [endpoint])
  }
}
