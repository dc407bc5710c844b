package import SyncStore

/// What an invitation says of the relay in which members answer it.
package struct RelayTicket: Hashable, Sendable {
  /// The relay's name on the inviter's copy.
  package var name: String
  /// `dir:` and an absolute path, or `s3://bucket/prefix`, as the inviter reaches it.
  package var location: String
  /// For a bucket: the URL of its server and its region; empty for none.
  package var endpoint: String, region: String
  /// The relay.
  package var relay: RelayID
  /// The epoch of the newest group key when the invitation was made.
  package var epoch: UInt32
  /// What proves to the joiner that the answer comes from a holder of that key: see `fingerprint(of:)`.
  package var fingerprint: [UInt8]

  /// All fields.
  package init(
    name: String, location: String, endpoint: String, region: String, relay: RelayID, epoch: UInt32,
    fingerprint: [UInt8]
  ) {
    (self.name, self.location, self.endpoint, self.region) = (name, location, endpoint, region)
    (self.relay, self.epoch, self.fingerprint) = (relay, epoch, fingerprint)
  }

  private static let fingerprintPurpose = Array("syncstore relay invitation v1".utf8)

  /// 16 bytes that follow from a group key and the secret of an invitation, and reveal neither.
  package static func fingerprint(of key: [UInt8], secret: [UInt8]) -> [UInt8] {
    Array(HMACSHA256.code(for: fingerprintPurpose + secret, key: key).prefix(RelayLimits.fingerprintBytes))
  }

  func write(to writer: inout ByteWriter) {
    for text in [name, location, endpoint, region] { writer.write(text: text) }
    writer.write(raw: relay.bytes)
    writer.write(epoch)
    writer.write(raw: fingerprint)
  }

  init(_ reader: inout ByteReader) throws(DecodingFailure) {
    name = try reader.readName()
    var texts: [String] = []
    for _ in 0..<3 {
      let text = try reader.readText(limit: RelayDescription.maximumBytes)
      guard text == text.printable else { throw DecodingFailure("the relay's location is not printable") }
      texts.append(text)
    }
    (location, endpoint, region) = (texts[0], texts[1], texts[2])
    guard let relay = RelayID(bytes: try reader.read(raw: 16)) else { throw DecodingFailure("relay") }
    self.relay = relay
    epoch = try reader.read(UInt32.self)
    fingerprint = Array(try reader.read(raw: RelayLimits.fingerprintBytes))
  }
}

/// The object `j/<id>`: an invitation that any member may answer. Encrypted under the group key, signed by
/// the inviter.
struct RelayInvitation: Hashable, Sendable {
  private static let version: UInt8 = 1
  private static let purpose = Array("syncstore relay invitation object v1".utf8)
  /// The most bytes of the object.
  static let maximumBytes = 4096

  var secret: [UInt8]
  /// Expiry in milliseconds since 1970, by the inviter's clock.
  var expires: UInt64
  var right: MemberRight
  /// The inviter's public key.
  let inviter: [UInt8]
  private var signature: [UInt8] = []

  /// An invitation of the device with this identity, for this relay.
  init(
    _ pending: PendingInvitation, by identity: DeviceIdentity, in relay: RelayID
  ) throws(ReplicationError) {
    (secret, expires, right) = (pending.secret, pending.expires, pending.right)
    inviter = identity.publicKey
    signature = try identity.signature(of: signedText(relay))
  }

  /// The bytes that are encrypted.
  var bytes: [UInt8] {
    var writer = ByteWriter(capacity: 160)
    writer.write(Self.version)
    writer.write(raw: secret)
    writer.write(expires)
    writer.write(right.rawValue)
    writer.write(raw: inviter)
    writer.write(raw: signature)
    return writer.bytes
  }

  private func signedText(_ relay: RelayID) -> [UInt8] {
    Self.purpose + relay.bytes + bytes.prefix(1 + Invitation.secretBytes + 8 + 1 + 32)
  }

  /// Decodes the decrypted bytes. `isGenuine` says whether the inviter made it.
  init(bytes: [UInt8]) throws(DecodingFailure) {
    var reader = ByteReader(bytes)
    try reader.readVersion(Self.version, of: "an invitation")
    secret = Array(try reader.read(raw: Invitation.secretBytes))
    expires = try reader.read(UInt64.self)
    right = try reader.readRight()
    inviter = Array(try reader.read(raw: 32))
    signature = Array(try reader.read(raw: DeviceIdentity.signatureBytes))
    try reader.end()
  }

  func isGenuine(in relay: RelayID) -> Bool {
    DeviceIdentity.verifies(signature, of: signedText(relay), publicKey: inviter)
  }

  var pending: PendingInvitation { PendingInvitation(secret: secret, expires: expires, right: right) }
}

/// The object `h/join-<id>`: a device asks to become a member. Encrypted under the secret of the invitation,
/// signed by the device.
struct RelayJoinRequest: Hashable, Sendable {
  private static let version: UInt8 = 1
  private static let purpose = Array("syncstore relay join request v1".utf8)
  /// The most bytes of the object.
  static let maximumBytes = 4096

  /// The device's public key, and the one with which the answer is encrypted.
  let publicKey: [UInt8], wrappingKey: [UInt8]
  /// The name that it would like to have.
  let wish: String

  var device: DeviceID { DeviceIdentity.id(ofPublicKey: publicKey) }

  init(of identity: DeviceIdentity, called wish: String) throws(ReplicationError) {
    (publicKey, wrappingKey, self.wish) = (identity.publicKey, try identity.wrappingKey().publicKey, wish)
  }

  private static func key(_ secret: [UInt8], _ relay: RelayID) -> [UInt8] {
    HKDFSHA256.derive(AES256GCM.keyBytes, secret: secret, salt: relay.bytes, info: purpose)
  }

  private static func header(_ secret: [UInt8], _ relay: RelayID) -> [UInt8] {
    purpose + relay.bytes + Invitation.id(of: secret) + [version]
  }

  private var fields: [UInt8] {
    var writer = ByteWriter(capacity: 192)
    writer.write(raw: publicKey)
    writer.write(raw: wrappingKey)
    writer.write(text: wish)
    return writer.bytes
  }

  /// The bytes of the object. `nonce` is `AES256GCM.nonceBytes` random bytes.
  func encrypted(
    _ secret: [UInt8], in relay: RelayID, by identity: DeviceIdentity, nonce: [UInt8]
  ) throws(ReplicationError) -> [UInt8] {
    let header = Self.header(secret, relay)
    let signature = try identity.signature(of: header + fields)
    return [Self.version] + nonce
      + AES256GCM.encrypt(
        fields + signature, key: Self.key(secret, relay), nonce: nonce, authenticating: header)
  }

  /// Decrypts the bytes of an object.
  ///
  /// - Throws: `.protocolViolation` if it was made with another secret, for another relay, or not by the
  ///   device that it names.
  init(_ object: [UInt8], _ secret: [UInt8], in relay: RelayID) throws(ReplicationError) {
    let header = Self.header(secret, relay)
    let begin = 1 + AES256GCM.nonceBytes
    guard object.first == Self.version, object.count > begin,
      let payload = try? AES256GCM.decrypt(
        object[begin...], key: Self.key(secret, relay), nonce: Array(object[1..<begin]),
        authenticating: header)
    else { throw Self.forged }
    let signed = Array(payload.dropLast(DeviceIdentity.signatureBytes))
    do throws(DecodingFailure) {
      var reader = ByteReader(signed)
      publicKey = Array(try reader.read(raw: 32))
      wrappingKey = Array(try reader.read(raw: WrappingKey.keyBytes))
      wish = try reader.readText(limit: Limits.nameBytes)
      try reader.end()
    } catch { throw Self.forged }
    guard
      DeviceIdentity.verifies(
        payload.suffix(DeviceIdentity.signatureBytes), of: header + signed, publicKey: publicKey)
    else { throw Self.forged }
  }

  private static var forged: ReplicationError {
    ReplicationError(
      .protocolViolation, "the request to join was not made with the invitation: it is ignored")
  }
}

/// The object `j/<id>.answer`: makes the device that asked a member, or refuses. Only that device can decrypt
/// it, with the secret of the invitation.
struct RelayJoinAnswer: Hashable, Sendable {
  private static let version: UInt8 = 1
  private static let purpose = Array("syncstore relay join answer v1".utf8)
  /// Each key is used once.
  private static let nonce = [UInt8](repeating: 0, count: AES256GCM.nonceBytes)
  /// The most bytes of the object.
  static let maximumBytes = WireLimits.joinAcceptBytes + 4096

  /// What the new member has to know; nil if it is refused. `inviterName` is that of the member that answers.
  var accept: JoinAccept?
  /// The device that answers.
  var answerer: DeviceID

  /// The bytes of the object.
  ///
  /// - Parameter random: 32 random bytes.
  /// - Throws: `.cryptography` if the request's key for wrapping is none.
  func encrypted(
    for request: RelayJoinRequest, _ secret: [UInt8], in relay: RelayID, random: [UInt8]
  ) throws(ReplicationError) -> [UInt8] {
    let pair = try WrappingKey(privateKey: random)
    let key = Self.key(
      try pair.shared(with: request.wrappingKey), secret, salt: pair.publicKey + request.wrappingKey)
    let header = Self.header(pair.publicKey, secret, in: relay)
    return [Self.version] + pair.publicKey
      + AES256GCM.encrypt(fields, key: key, nonce: Self.nonce, authenticating: header)
  }

  private static func key(_ shared: [UInt8], _ secret: [UInt8], salt: [UInt8]) -> [UInt8] {
    HKDFSHA256.derive(AES256GCM.keyBytes, secret: shared + secret, salt: salt, info: purpose)
  }

  private static func header(_ ephemeral: [UInt8], _ secret: [UInt8], in relay: RelayID) -> [UInt8] {
    purpose + relay.bytes + Invitation.id(of: secret) + [version] + ephemeral
  }

  private var fields: [UInt8] {
    var writer = ByteWriter(capacity: 512)
    writer.write(raw: answerer.bytes)
    guard let accept else { return writer.bytes }
    writer.write(raw: accept.store.bytes)
    for name in [accept.storeName, accept.inviterName, accept.memberName] { writer.write(text: name) }
    writer.write(accept.right.rawValue)
    writer.write(counted: accept.groupKeys)
    return writer.bytes
  }

  init(_ accept: JoinAccept?, by answerer: DeviceID) { (self.accept, self.answerer) = (accept, answerer) }

  /// Decrypts the bytes of an object, as the device that asked. `isProven(by:)` says whether a member made
  /// it.
  ///
  /// - Throws: `.invalidInvitation` if it is for another device; `.protocolViolation` if it is damaged.
  init(
    _ object: [UInt8], for identity: DeviceIdentity, _ secret: [UInt8], in relay: RelayID
  ) throws(ReplicationError) {
    let begin = 1 + WrappingKey.keyBytes
    guard object.first == Self.version, object.count > begin else { throw Self.damaged }
    let pair = try identity.wrappingKey()
    let ephemeral = Array(object[1..<begin])
    guard let shared = try? pair.shared(with: ephemeral),
      let payload = try? AES256GCM.decrypt(
        object[begin...], key: Self.key(shared, secret, salt: ephemeral + pair.publicKey), nonce: Self.nonce,
        authenticating: Self.header(ephemeral, secret, in: relay))
    else {
      throw ReplicationError(
        .invalidInvitation,
        "another device has used this invitation: ask for a new one, and see who the newest member is")
    }
    do throws(DecodingFailure) { self = try Self.decoded(payload) } catch { throw Self.damaged }
  }

  private static func decoded(_ payload: [UInt8]) throws(DecodingFailure) -> RelayJoinAnswer {
    var reader = ByteReader(payload)
    guard let answerer = DeviceID(bytes: try reader.read(raw: 32)) else { throw DecodingFailure("device") }
    guard reader.remaining > 0 else { return RelayJoinAnswer(nil, by: answerer) }
    guard let store = StoreID(bytes: try reader.read(raw: 16)) else { throw DecodingFailure("store") }
    let names = (try reader.readName(), try reader.readName(), try reader.readName())
    let right = try reader.readRight()
    let keys = try reader.readCounted(limit: GroupKeyRing.maximumTextBytes)
    try reader.end()
    let accept = JoinAccept(
      mac: [], store: store, storeName: names.0, inviterName: names.1, memberName: names.2, right: right,
      groupKeys: keys)
    return RelayJoinAnswer(accept, by: answerer)
  }

  private static var damaged: ReplicationError {
    ReplicationError(
      .protocolViolation, "the answer to the request to join is damaged: ask for a new invitation")
  }
}

extension RelayName {
  /// The prefix of requests to join. They are listed together with the heads: a member that looks for news
  /// needs no further request to notice one.
  static let joinRequests = "h/join-"
  /// The prefix of invitations and answers.
  static let invitations = "j/"

  static func invitation(_ id: [UInt8]) -> String { invitations + Hex.string(of: id) }
  static func joinAnswer(_ id: [UInt8]) -> String { invitation(id) + ".answer" }
  static func joinRequest(_ id: [UInt8]) -> String { joinRequests + Hex.string(of: id) }

  /// Objects of invitations that have ended by now, of objects by age in milliseconds.
  static func abandoned(_ ages: StringDictionary<UInt64>) -> [String] {
    ages.filter { $0.value > RelayLimits.invitationMilliseconds }.map(\.key)
      .filter { $0.hasPrefix(invitations) || $0.hasPrefix(joinRequests) }
  }

  /// The invitation that a request's name states; nil if it is no such name.
  static func invitation(ofRequest name: String) -> [UInt8]? {
    guard name.hasPrefix(joinRequests), let id = Hex.bytes(of: name.dropFirst(joinRequests.utf8.count)),
      id.count == Invitation.idBytes
    else { return nil }
    return id
  }
}
