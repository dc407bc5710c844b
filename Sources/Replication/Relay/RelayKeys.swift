package import SyncStore

/// A group key for one member, encrypted so that it alone can read it: an object under `k/`.
///
/// X25519 (RFC 7748) with a key pair made for the object, HKDF-SHA256, AES-256-GCM; signed by the member that
/// writes it. schemas/relay.md has the bytes.
package struct WrappedGroupKey: Hashable, Sendable {
  private static let version: UInt8 = 1
  private static let purpose = Array("syncstore relay key v1".utf8)
  /// Size of an object.
  package static let size = 1 + 4 + 3 * 32 + AES256GCM.tagBytes + DeviceIdentity.signatureBytes

  /// The epoch of the key.
  package let epoch: UInt32
  /// The public key of the device that has written the object.
  package let sender: [UInt8]
  private let ephemeral: [UInt8]
  private let encrypted: [UInt8]
  private let signature: [UInt8]

  /// Encrypts the key of an epoch for a member. `random` is 32 random bytes.
  ///
  /// - Parameters:
  ///   - recipient: the public key for wrapping that the member's head states.
  ///   - place: the relay and the name of the object, which are authenticated.
  package init(
    _ key: [UInt8], epoch: UInt32, for recipient: [UInt8], at place: Place, by identity: DeviceIdentity,
    random: [UInt8]
  ) throws(ReplicationError) {
    let pair = try WrappingKey(privateKey: random)
    let shared = try pair.shared(with: recipient)
    (self.epoch, sender, ephemeral) = (epoch, identity.publicKey, pair.publicKey)
    var encrypted: [UInt8] = []
    AES256GCM.encrypt(
      key, key: Self.key(shared, of: ephemeral, for: recipient), nonce: Self.nonce,
      authenticating: Self.header(epoch, by: sender, with: ephemeral, at: place), appendingTo: &encrypted)
    self.encrypted = encrypted
    signature = try identity.signature(
      of: Self.header(epoch, by: sender, with: ephemeral, at: place) + encrypted)
  }

  /// The relay and the name of the object.
  package struct Place: Hashable, Sendable {
    /// The relay.
    package var relay: RelayID
    /// The name.
    package var name: String

    /// Both fields.
    package init(relay: RelayID, name: String) { (self.relay, self.name) = (relay, name) }
  }

  /// Each key is used once.
  private static let nonce = [UInt8](repeating: 0, count: AES256GCM.nonceBytes)

  private static func key(_ shared: [UInt8], of ephemeral: [UInt8], for recipient: [UInt8]) -> [UInt8] {
    HKDFSHA256.derive(AES256GCM.keyBytes, secret: shared, salt: ephemeral + recipient, info: purpose)
  }

  private static func header(
    _ epoch: UInt32, by sender: [UInt8], with ephemeral: [UInt8], at place: Place
  ) -> [UInt8] {
    var writer = ByteWriter()
    writer.write(raw: purpose)
    writer.write(raw: place.relay.bytes)
    writer.write(text: place.name)
    writer.write(version)
    writer.write(epoch)
    writer.write(raw: sender)
    writer.write(raw: ephemeral)
    return writer.bytes
  }

  /// The bytes of the object.
  package var bytes: [UInt8] {
    var writer = ByteWriter(capacity: Self.size)
    writer.write(Self.version)
    writer.write(epoch)
    writer.write(raw: sender)
    writer.write(raw: ephemeral)
    writer.write(raw: encrypted)
    writer.write(raw: signature)
    return writer.bytes
  }

  /// Decodes the bytes of an object. Nothing is checked yet.
  package init(bytes: [UInt8]) throws(DecodingFailure) {
    var reader = ByteReader(bytes)
    try reader.readVersion(Self.version, of: "a group key")
    epoch = try reader.read(UInt32.self)
    sender = Array(try reader.read(raw: 32))
    ephemeral = Array(try reader.read(raw: 32))
    encrypted = Array(try reader.read(raw: GroupKeyRing.keyBytes + AES256GCM.tagBytes))
    signature = Array(try reader.read(raw: DeviceIdentity.signatureBytes))
    try reader.end()
  }

  /// The group key, decrypted by the member that it is for.
  ///
  /// - Throws: `.protocolViolation` if it was changed, is for another member, or stands at another place.
  package func key(for recipient: DeviceIdentity, at place: Place) throws(ReplicationError) -> [UInt8] {
    let pair = try recipient.wrappingKey()
    let header = Self.header(epoch, by: sender, with: ephemeral, at: place)
    guard DeviceIdentity.verifies(signature, of: header + encrypted, publicKey: sender) else {
      throw ReplicationError(
        .protocolViolation, "\(place.name): the signature of the group key is wrong: it was changed or forged"
      )
    }
    let shared = try pair.shared(with: ephemeral)
    do {
      return try AES256GCM.decrypt(
        encrypted[...], key: Self.key(shared, of: ephemeral, for: pair.publicKey), nonce: Self.nonce,
        authenticating: header)
    } catch {
      throw ReplicationError(
        .protocolViolation, "\(place.name): the group key is for another member: it is ignored")
    }
  }
}

extension RelayFormat {
  /// The name of the object with the key of an epoch for a device.
  package func keyName(_ epoch: UInt32, for device: DeviceID) -> String {
    var writer = ByteWriter()
    writer.write(raw: Array("syncstore relay key name v1".utf8))
    writer.write(epoch)
    writer.write(raw: device.bytes)
    return RelayName.keys + Hex.string(of: HMACSHA256.code(for: writer.bytes, key: namingKey).prefix(20))
  }
}

/// Group keys that a member lacks, carried by the relay.
extension RelayClient {
  /// Writes the group keys for members whose heads state a key for wrapping, unless they are there. Nothing
  /// as long as there is but one epoch: every member got that when it joined.
  func shareKeys(in view: RelayView, with keys: Keys) async throws(ReplicationError) {
    let epochs = keys.ring.epochs
    guard epochs.count > 1 else { return }
    let heads = view.streams.values.map(\.head).filter { head in
      // Not as it was when the heads were read: the entry that revokes a member may have come since.
      keys.standing(of: head.device).isMember && head.device != identity.id
    }
    let wanted = heads.flatMap { head in epochs.map { (keys.format.keyName($0, for: head.device), $0, head) }
    }
    var there = memory.withLock { $0.keysThere }
    guard wanted.contains(where: { !there.contains($0.0) }) else { return }
    for entry in try await list(RelayName.keys) { there.insert(entry.name) }
    for (name, epoch, head) in wanted where !there.contains(name) {
      guard let key = keys.ring.key(of: epoch) else { continue }
      let place = WrappedGroupKey.Place(relay: keys.format.relay, name: name)
      // A wrapping key that is none must not keep the others from theirs.
      let wrapped = try? WrappedGroupKey(
        key, epoch: epoch, for: head.wrappingKey, at: place, by: identity, random: SecureRandom.bytes(32))
      if let wrapped { _ = try await put(name, wrapped.bytes, if: .always) }
      there.insert(name)
    }
    memory.withLock { [there] in $0.keysThere = there }
  }

  /// Reads the keys of epochs that this copy does not know. True if there were some.
  func learnKeys(
    of epochs: Set<UInt32>, with keys: Keys, _ report: inout RelayReport
  ) async throws(ReplicationError) -> Bool {
    var ring = keys.ring
    for epoch in epochs.sorted() {
      let name = keys.format.keyName(epoch, for: identity.id)
      guard case .found(let content) = try await get(name, limit: 2 * WrappedGroupKey.size) else { continue }
      do throws(ReplicationError) {
        let wrapped = try Self.decoding(name) { () throws(DecodingFailure) in
          try WrappedGroupKey(bytes: content.bytes)
        }
        guard wrapped.epoch == epoch,
          keys.standing(of: DeviceIdentity.id(ofPublicKey: wrapped.sender)) == .writer
        else {
          throw ReplicationError(
            .notAllowed, "\(name): the group key is from a device that is no member: it is ignored")
        }
        let place = WrappedGroupKey.Place(relay: keys.format.relay, name: name)
        try ring.insert(try wrapped.key(for: identity, at: place), epoch: epoch)
      } catch { report.setAside(name, error.message) }
    }
    guard ring != keys.ring else { return false }
    let (store, learned) = (store, ring)
    try await workers.run { () throws(ReplicationError) in try StoreKeys(store).merge(learned) }
    return true
  }
}
