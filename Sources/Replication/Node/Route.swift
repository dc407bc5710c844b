internal import SyncStore

/// Resolves the name of a peer to a target and its addresses.
enum Route {
  /// A copy to be kept in step.
  struct Known: Sendable {
    var name: String
    var target: DialTarget
    var endpoints: [Endpoint]
  }

  /// The result of `all`.
  struct All: Sendable {
    var known: [Known]
    /// The right of this device.
    var right: Member.Right
    /// Every member device, including revoked ones.
    var members: Set<DeviceID>
  }

  /// All peers and all members with an address, except the own device and revoked ones, each device once; and
  /// the right of this device.
  static func all(in store: Store, own: DeviceID) throws(ReplicationError) -> All {
    let membership = Membership(store)
    let (members, peers) = (try membership.members(), try membership.peers())
    let byDevice = Dictionary(uniqueKeysWithValues: members.map { ($0.device, $0) })
    let byName = StringDictionary(first: members.map { ($0.name, $0) })
    var known: [Known] = []
    var seen: Set<DeviceID> = [own]
    for peer in peers {
      let member = peer.device.map { byDevice[$0] } ?? byName[peer.name]
      let device = peer.device ?? member?.device
      guard member?.right != .revoked, device.map({ seen.insert($0).inserted }) ?? true else { continue }
      let addresses = peer.addresses + (member?.addresses ?? [])
      known.append(
        Known(
          name: peer.name, target: DialTarget(device: device, name: peer.name),
          endpoints: addresses.compactMap { Endpoint($0) }))
    }
    for member in members where member.right != .revoked && !member.addresses.isEmpty {
      guard seen.insert(member.device).inserted else { continue }
      known.append(
        Known(
          name: member.name, target: DialTarget(device: member.device, name: member.name),
          endpoints: member.addresses.compactMap { Endpoint($0) }))
    }
    return All(known: known, right: byDevice[own]?.right ?? .readWrite, members: Set(byDevice.keys))
  }

  /// The target and its addresses, the most likely first. A peer named here takes precedence over a member,
  /// and a member over an address.
  static func resolve(_ text: String, in store: Store) throws(ReplicationError) -> (DialTarget, [Endpoint]) {
    let membership = Membership(store)
    let peer = try membership.peer(named: text)
    // A lookup by key is direct; one by name reads all members.
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
        .notAMember, "no member or peer is called \(text): see `Membership.peers`, or give host:port")
    }
    return (DialTarget(device: nil, name: text), [endpoint])
  }
}
