public import SyncStore

/// A peer as only this copy knows it: a name and its addresses. Never replicated.
public struct Peer: Hashable, Sendable {
  /// Its name on this copy.
  public var name: String
  /// Where it listens, as `host:port`.
  public var addresses: [String]
  /// The key that it must present; nil if any member's key will do.
  public var device: DeviceID?
}

/// The members of a store and the peers of this copy. Read from the store at each call, because other
/// processes and copies change them. All calls block.
public struct Membership: Sendable {
  private static let peerPrefix = Array("peer/".utf8)

  /// The local key of a peer's record.
  static func peerKey(_ name: String) -> [UInt8] { peerPrefix + Array(name.utf8) }

  let store: Store

  /// The members of `store`.
  public init(_ store: Store) { self.store = store }

  /// All members by name, including revoked ones. A device whose record cannot be read is listed as revoked,
  /// under a name derived from its key: it is not admitted.
  ///
  /// - Throws: `.store` if the store cannot be read.
  public func members() throws(ReplicationError) -> [Member] {
    let records = try mappingStoreErrors { () throws(StoreError) in
      try store.reserved(prefix: ReservedKey.membershipPrefix)
    }
    return Self.members(in: records)
  }

  /// The members described by the records under `ReservedKey.membershipPrefix`, by name.
  static func members(in records: [(key: [UInt8], value: [UInt8])]) -> [Member] {
    var names: [DeviceID: String] = [:]
    for record in records where record.key.starts(with: ReservedKey.memberNamePrefix) {
      guard let device = DeviceID(bytes: record.key.dropFirst(ReservedKey.memberNamePrefix.count)) else {
        continue
      }
      names[device] = MemberNameRecord.name(in: record.value)
    }
    let members = records.compactMap { record -> Member? in
      guard record.key.starts(with: ReservedKey.memberPrefix),
        let device = DeviceID(bytes: record.key.dropFirst(ReservedKey.memberPrefix.count))
      else { return nil }
      return Member(device: device, record: record.value, givenName: names[device])
    }
    return members.sorted { ($0.name, $0.device) < ($1.name, $1.device) }
  }

  /// The member with this key; nil if there is none. One whose record cannot be read is returned as in
  /// `members`.
  ///
  /// - Throws: `.store` if the store cannot be read.
  public func member(_ device: DeviceID) throws(ReplicationError) -> Member? {
    try mappingStoreErrors { () throws(StoreError) in
      guard let record = try store.reserved(ReservedKey.member(device)) else { return nil }
      // Damage may have taken a record of this key, which cannot be told from there being none: the member is
      // known all the same, by the name of its own record.
      let given = try? store.reserved(ReservedKey.memberName(device))
      return Member(
        device: device, record: record, givenName: given.flatMap { MemberNameRecord.name(in: $0) })
    }
  }

  /// The identity under which a device is admitted: its member record or, before that has arrived, the peer
  /// that pins its key here, with read and write rights (the inviter, before the first pull). Nil for a
  /// stranger.
  func authorizedMember(_ device: DeviceID) throws(ReplicationError) -> Member? {
    if let member = try member(device) { return member }
    guard let peer = try peers().first(where: { $0.device == device }) else { return nil }
    return Member(device: device, name: peer.name, right: .readWrite, addresses: [], joined: 0)
  }

  /// The member with this name that is not revoked; nil if there is none.
  ///
  /// - Throws: `.store` if the store cannot be read.
  public func member(named name: String) throws(ReplicationError) -> Member? {
    try members().first { $0.name == name && $0.right != .revoked }
  }

  /// The member that this copy is; nil if it has no identity, or has not received its own record yet.
  package func own() throws(ReplicationError) -> Member? {
    guard let identity = try StoreKeys(store).identityIfAny() else { return nil }
    return try member(identity.id)
  }

  /// Throws `.notAllowed` if this copy may not change members, since the other copies would not receive the
  /// change.
  package func checkMayDecide(_ what: String) throws(ReplicationError) {
    let denial = try mappingStoreErrors { () throws(StoreError) in try store.writeDenial }
    let right = denial == .revoked ? .revoked : try own()?.right ?? .readWrite
    if right != .readWrite { throw Self.refusal(what, right: right) }
  }

  /// The error of a copy with this right, which is not read-write, that was told to do `what`.
  static func refusal(_ what: String, right: Member.Right) -> ReplicationError {
    let reason =
      right == .revoked
      ? "this copy was revoked" : "this copy is read-only: it receives, and may not send"
    return ReplicationError(
      .notAllowed,
      "cannot \(what): \(reason), and the others would not hear of it: do it on one that is read-write")
  }

  /// Changes a member's right on every copy that receives the change. Its sessions are restarted; while it is
  /// read-only, its own copy and all others refuse its writes.
  ///
  /// - Parameters:
  ///   - right: `readOnly` or `readWrite`; to revoke a member, use `revoke`.
  ///   - name: the member's name.
  /// - Returns: false if the member had the right already; nothing is written then.
  /// - Throws: `.notAMember` if no member has that name; `.notAllowed` if the member was revoked, which
  ///   cannot be undone, if it is this copy itself, or if this copy may not change members, since no other
  ///   copy would receive the change; `.store` if it cannot be written.
  @discardableResult
  public func setRight(_ right: Member.Right, of name: String) throws(ReplicationError) -> Bool {
    let what = "make \(name) \(right)"
    let found = try members().filter { $0.name == name }
    guard var member = found.first(where: { $0.right != .revoked }) ?? found.last else {
      throw ReplicationError(
        .notAMember, "cannot \(what): no member has that name: see `Membership.members`")
    }
    guard right != .revoked, member.right != .revoked else {
      let why =
        right == .revoked
        ? "it would have to be revoked: use `revoke`" : "it was revoked: invite it as a new copy"
      throw ReplicationError(.notAllowed, "cannot \(what): \(why)")
    }
    try checkMayDecide(what)
    guard try member.device != own()?.device else {
      throw ReplicationError(
        .notAllowed, "cannot \(what): it is this copy itself: do it on another one, which the others hear of")
    }
    guard member.right != right else { return false }
    member.right = right
    try put(member)
    return true
  }
  /// Revokes a member and begins a new epoch of the group key: it cannot decrypt what is encrypted from now
  /// on, even if it obtains the bytes.
  ///
  /// The other members receive the key when they next meet this copy, or one that has it. If it fails it can
  /// be called again, also for a member that is revoked by then: at worst one epoch more begins.
  ///
  /// - Returns: the new epoch.
  /// - Throws: `.notAMember` if no member has that name; `.notAllowed` as `revoke`.
  @discardableResult
  public func revokeAndRenewKeys(_ name: String) throws(ReplicationError) -> UInt32 {
    try revoke(name)
    let random = SecureRandom.bytes(4).reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
    var epoch: UInt32 = 0
    try StoreKeys(store).changeGroupKeys { ring throws(ReplicationError) in
      epoch = try ring.beginEpoch(SecureRandom.bytes(GroupKeyRing.keyBytes), random: random)
    }
    return epoch
  }

  /// The facts about a member's copy from the last session with it; nil if there was none. Known to this copy
  /// only, and kept across restarts. A live session updates it every few seconds while the peer acknowledges
  /// more records, and at its end.
  ///
  /// - Throws: `.store` if the store cannot be read.
  public func contact(of device: DeviceID) throws(ReplicationError) -> Contact? {
    try Contacts(store).contact(device)
  }

  /// Writes a member's record, durably.
  package func put(_ member: Member) throws(ReplicationError) {
    try mappingStoreErrors { () throws(StoreError) in
      try store.putReserved(ReservedKey.member(member.device), member.bytes)
    }
    if try StoreKeys(store).identityIfAny()?.id == member.device { try recordOwnRight(member.right) }
  }

  /// Stores the right of this copy's own member record, so that every process that has the store open refuses
  /// writes that no other copy would accept. A copy that was told of its revocation stays revoked: it may
  /// never receive the record.
  func recordOwnRight(_ right: Member.Right) throws(ReplicationError) {
    try mappingStoreErrors { () throws(StoreError) in
      guard store.isWritable, try store.writeDenial != .revoked else { return }
      try store.setWriteDenial(right.denial)
    }
  }

  /// `wish`, or `wish-2`, `wish-3` … if another device has that name.
  package func freeName(_ wish: String, for device: DeviceID) throws(ReplicationError) -> String {
    Self.freeName(wish, for: device, among: try members())
  }

  static func freeName(_ wish: String, for device: DeviceID, among members: [Member]) -> String {
    let taken = StringSet(members.filter { $0.device != device }.map(\.name))
    guard taken.contains(wish) else { return wish }
    var number = 2
    while true {
      let suffix = "-\(number)"
      var stem = wish
      while stem.utf8.count + suffix.utf8.count > Limits.nameBytes { stem.removeLast() }
      if !taken.contains(stem + suffix) { return stem + suffix }
      number += 1
    }
  }

  // MARK: Peers of this copy

  /// The peers that were named on this copy, by name.
  ///
  /// - Throws: `.store` if the store cannot be read.
  public func peers() throws(ReplicationError) -> [Peer] {
    let records = try mappingStoreErrors { () throws(StoreError) in try store.locals(prefix: Self.peerPrefix)
    }
    return records.compactMap { record in
      let name = String(decoding: record.key.dropFirst(Self.peerPrefix.count), as: UTF8.self)
      return try? Peer(name: name, bytes: record.value)
    }
  }

  /// The peer with this name on this copy; nil if there is none.
  ///
  /// - Throws: `.store` if the store cannot be read.
  public func peer(named name: String) throws(ReplicationError) -> Peer? {
    let value = try mappingStoreErrors { () throws(StoreError) in
      try store.local(Self.peerKey(name))
    }
    return value.flatMap { try? Peer(name: name, bytes: $0) }
  }

  /// Names a peer, durably, replacing one of the same name.
  ///
  /// - Throws: `.network` if the name or an address is not valid; `.notAllowed` if a relay is called so;
  ///   `.store` if it cannot be written.
  public func add(_ peer: Peer) throws(ReplicationError) {
    guard try relay(named: peer.name) == nil else {
      throw ReplicationError(
        .notAllowed, "cannot add \(peer.name): a relay is called so: choose another name, or remove the relay"
      )
    }
    guard StoreIdentity.isName(peer.name) else {
      throw ReplicationError(
        .network, "cannot add \"\(peer.name)\": use 1 to \(Limits.nameBytes) bytes without blanks or slashes")
    }
    guard (1...Member.maximumAddresses).contains(peer.addresses.count),
      peer.addresses.allSatisfy({ Endpoint($0).map { !$0.host.isEmpty && $0.port > 0 } ?? false })
    else {
      throw ReplicationError(.network, "cannot add \(peer.name): its address is none: give host:port")
    }
    try mappingStoreErrors { () throws(StoreError) in
      try store.setLocal(Self.peerKey(peer.name), peer.bytes)
    }
  }

  private static let introducerKey = Array("introducer".utf8)

  /// The member that has answered this copy's request to join, in a relay; nil if it joined otherwise.
  func introducer() throws(ReplicationError) -> DeviceID? {
    try mappingStoreErrors { () throws(StoreError) in try store.local(Self.introducerKey) }
      .flatMap { DeviceID(bytes: $0) }
  }

  /// Stores, durably, which member has answered the request to join: it counts as one before its record is
  /// read.
  func setIntroducer(_ device: DeviceID) throws(ReplicationError) {
    try mappingStoreErrors { () throws(StoreError) in try store.setLocal(Self.introducerKey, device.bytes) }
  }

  /// Removes a peer's name.
  ///
  /// - Returns: false if there was none.
  /// - Throws: `.store` if it cannot be written.
  public func remove(peer name: String) throws(ReplicationError) -> Bool {
    try mappingStoreErrors { () throws(StoreError) in
      let key = Self.peerKey(name)
      guard try store.local(key) != nil else { return false }
      try store.setLocal(key, nil)
      return true
    }
  }
}

extension Peer {
  /// A peer that is called `name` here.
  public init(name: String, addresses: [String]) { self.init(name: name, addresses: addresses, device: nil) }

  /// The value of its local record (`schemas/members.md`).
  var bytes: [UInt8] {
    var writer = ByteWriter()
    writer.write(UInt8(1))
    writer.write(counted: device?.bytes ?? [])
    writer.writeVariable(UInt64(addresses.count))
    for address in addresses { writer.write(text: address) }
    return writer.bytes
  }

  init(name: String, bytes: [UInt8]) throws(DecodingFailure) {
    var reader = ByteReader(bytes)
    guard try reader.read(UInt8.self) == 1 else { throw DecodingFailure("peer record of another version") }
    let device = try reader.readCounted(limit: 32)
    var addresses: [String] = []
    for _ in 0..<(try reader.readCount(limit: Member.maximumAddresses)) {
      addresses.append(try reader.readText(limit: WireLimits.addressBytes))
    }
    self.init(name: name, addresses: addresses, device: DeviceID(bytes: device))
  }
}
