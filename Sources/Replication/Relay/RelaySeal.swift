package import SyncStore

/// The first object of a relay: names it, and holds the key for the names of its blobs. Created once.
package struct RelayFormat: Hashable, Sendable {
  /// The name of the object.
  package static let name = "format"
  private static let magic = Array("SSRELAY1".utf8)
  private static let version: UInt8 = 1
  private static let keyBytes = 32
  /// The most bytes of the object.
  package static let maximumBytes = 4096

  /// The relay.
  package let relay: RelayID
  /// The key under which blobs are named: HMAC-SHA256 of their hash. A relay cannot tell from a name whether
  /// it holds a known content.
  package let namingKey: [UInt8]

  /// A new relay; `random` is 48 random bytes.
  package init(random: [UInt8]) {
    precondition(random.count == 16 + Self.keyBytes, "48 random bytes make a relay")
    guard let relay = RelayID(bytes: random.prefix(16)) else { preconditionFailure("16 bytes make an id") }
    (self.relay, namingKey) = (relay, Array(random.dropFirst(16)))
  }

  /// The bytes of the object for members of a store. `randomness` is `BatchCodec.randomnessBytes` random
  /// bytes.
  package func encrypted(
    store: StoreID, keys: GroupKeyRing, randomness: [UInt8]
  ) throws(ReplicationError) -> [UInt8] {
    var writer = ByteWriter()
    writer.write(raw: Self.magic)
    writer.write(raw: relay.bytes)
    writer.write(raw: store.bytes)
    let seal = RelaySeal(relay: relay, store: store)
    writer.write(
      raw: try seal.encrypt([Self.version] + namingKey, as: Self.name, keys: keys, randomness: randomness))
    return writer.bytes
  }

  /// Decrypts the bytes of the object.
  ///
  /// - Throws: `.otherStore` if the relay belongs to another store; `.protocolViolation` if it is no relay,
  ///   or was changed.
  package init(bytes: [UInt8], store: StoreID, keys: GroupKeyRing) throws(ReplicationError) {
    let head = Self.magic.count
    let relay = try Self.relay(in: bytes)
    guard let owner = StoreID(bytes: bytes[head + 16..<head + 32]) else { preconditionFailure("16 bytes") }
    guard owner == store else {
      throw ReplicationError(
        .otherStore,
        "the relay belongs to store \(owner), not to \(store): choose another place for this store")
    }
    self.relay = relay
    let payload = try RelaySeal(relay: relay, store: store)
      .decrypt(Array(bytes[(head + 32)...]), as: Self.name, keys: keys)
    guard payload.count == 1 + Self.keyBytes, payload[0] == Self.version else {
      throw ReplicationError(.incompatible, "the relay has a newer format: update this program")
    }
    namingKey = Array(payload.dropFirst())
  }

  /// The relay that the bytes of the object name, which is not encrypted.
  ///
  /// - Throws: `.protocolViolation` if it is no relay.
  static func relay(in bytes: [UInt8]) throws(ReplicationError) -> RelayID {
    let head = magic.count
    guard bytes.count > head + 32, bytes.starts(with: magic),
      let relay = RelayID(bytes: bytes[head..<head + 16])
    else {
      throw ReplicationError(
        .protocolViolation,
        "this is no relay: its object `format` is not one: choose an empty place, or delete the object")
    }
    return relay
  }

  /// The name of the object of a blob, or of a chunk of one.
  package func blobName(_ hash: BlobHash) -> String {
    let code = HMACSHA256.code(for: Array("syncstore relay blob v1".utf8) + hash.bytes, key: namingKey)
    return RelayName.blobs + Hex.string(of: code.prefix(20))
  }
}

/// Encrypts and authenticates the objects of a relay, as batches are (`BatchCodec`). The relay and the name
/// of the object are authenticated: none can be moved to another name or another relay.
package struct RelaySeal: Hashable, Sendable {
  /// The relay.
  package let relay: RelayID
  /// The store.
  package let store: StoreID

  /// The seal of a relay of a store.
  package init(relay: RelayID, store: StoreID) { (self.relay, self.store) = (relay, store) }

  private static let purpose = Array("syncstore relay object v1".utf8)

  /// Identifies the payload number `index` of an object.
  private func context(_ name: String, _ kind: BatchContext.Kind, index: UInt64) -> BatchContext {
    let hash = SHA256.hash(Self.purpose + relay.bytes + Array(name.utf8))
    guard let mark = RoundMark(bytes: hash.prefix(16)), let sender = ActorID(bytes: relay.bytes) else {
      preconditionFailure("16 bytes make a mark")
    }
    return BatchContext(kind: kind, store: store, sender: sender, mark: mark, index: index)
  }

  /// Encrypts a payload of an object.
  package func encrypt(
    _ payload: [UInt8], as name: String, kind: BatchContext.Kind = .relayObject, index: UInt64 = 0,
    keys: GroupKeyRing, randomness: [UInt8]
  ) throws(ReplicationError) -> [UInt8] {
    try BatchCodec.encrypt(payload, as: context(name, kind, index: index), keys: keys, randomness: randomness)
  }

  /// Decrypts a payload of an object.
  ///
  /// - Throws: `.cryptography` if its group key is unknown; `.protocolViolation` if it is not the one that
  ///   was encrypted for this place.
  package func decrypt(
    _ encrypted: [UInt8], as name: String, kind: BatchContext.Kind = .relayObject, index: UInt64 = 0,
    keys: GroupKeyRing
  ) throws(ReplicationError) -> [UInt8] {
    if let epoch = BatchCodec.epoch(of: encrypted), keys.key(of: epoch) == nil {
      throw ReplicationError(
        .cryptography,
        "\(name): the group key of epoch \(epoch) is not here yet: it comes once a member with it has read this copy's head: synchronize again later"
      )
    }
    do throws(ReplicationError) {
      return try BatchCodec.decrypt(encrypted, expecting: context(name, kind, index: index), keys: keys)
    } catch {
      throw ReplicationError(
        .protocolViolation,
        "\(name): it is not the object that was encrypted for this place: it was changed, cut or replaced")
    }
  }

  /// The first bytes of the SHA-256 of an object.
  package static func fingerprint(_ object: [UInt8]) -> [UInt8] {
    Array(SHA256.hash(object).prefix(RelayLimits.fingerprintBytes))
  }
}

/// The names of the objects of a relay.
enum RelayName {
  static let bell = "bell"
  static let heads = "h/"
  static let blobs = "b/"
  static let keys = "k/"

  static func head(_ stream: StreamID) -> String { "h/\(stream)" }

  /// The stream of a head's name; nil if it is none.
  static func stream(ofHead name: String) -> StreamID? {
    name.hasPrefix(heads) ? StreamID(name.dropFirst(heads.utf8.count)) : nil
  }

  static func run(_ stream: StreamID, _ numbers: ClosedRange<UInt64>) -> String {
    "e/\(stream)/\(numbers.lowerBound)-\(numbers.upperBound)"
  }

  /// Part of an entry. The mark keeps those of an entry that was never published apart.
  static func part(_ stream: StreamID, _ place: RelayProgress.Place, index: Int) -> String {
    "e/\(stream)/\(place.number).\(Hex.string(of: place.mark.bytes.prefix(4))).\(index)"
  }

  static func checkpoint(_ stream: StreamID, _ place: RelayProgress.Place) -> String {
    "c/\(stream)/\(place.number).\(Hex.string(of: place.mark.bytes.prefix(4)))"
  }

  static func checkpointPart(_ stream: StreamID, _ place: RelayProgress.Place, index: Int) -> String {
    checkpoint(stream, place) + ".\(index)"
  }
}
