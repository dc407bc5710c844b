internal import Synchronization

/// What seals the records of one segment, and opens them: AES-256-GCM, record by record, under keys that belong to the
/// segment and to one opening of the store (`schemas/journal.md`, "Sealed segments").
///
/// Invariants: a key seals the records of one opening in one segment; the nonce has the offset of the record, and a hash
/// of all that is sealed, so that none serves twice for different bytes, whatever was copied, rolled back or cloned.
final class SegmentCipher: Sendable {
  /// The generation of the master key.
  let generation: UInt32
  /// Names it in this process: contexts of threads go by it, together with the place of an epoch.
  private let name: Atomic<UInt64>
  private var id: UInt64 { name.load(ordering: .relaxed) }
  private let master: Secret
  private let salt: UInt64
  private let info: [UInt8]
  /// Derived keys, by the places of the epochs' definitions.
  private let keys = LockedField<[UInt32: Secret]>([:])
  /// Names the epoch of this opening; none for one that only reads.
  private let epoch: [UInt8]
  /// What threads have read lately, if that is kept.
  private let decryptedRecords: DecryptedRecordCache?

  private static let last = Atomic<UInt64>(0)
  /// A name for keys that this process has for nothing else; its last 33 bits are 0.
  static func newName() -> UInt64 { last.add(1, ordering: .relaxed).newValue << 33 }

  /// The key of an epoch, as the one who seals under it has it.
  struct EpochKey: Sendable {
    /// Where the epoch is defined.
    var place: UInt32
    /// All that is derived.
    fileprivate var key: Secret
  }

  /// Of the segment with this header.
  init(header: SegmentHeader, master: Secret, epoch: [UInt8], opened: DecryptedRecordCache? = nil) {
    self.decryptedRecords = opened
    name = Atomic(Self.newName())
    (generation, self.master, self.epoch) = (header.generation, master, epoch)
    salt = header.salt
    var writer = ByteWriter()
    writer.write(raw: "syncstore journal v1".utf8)
    writer.write(raw: header.store.bytes)
    writer.write(header.number)
    writer.write(header.salt)
    writer.write(header.basePosition)
    info = writer.bytes
  }

  private func derive(_ epoch: [UInt8]) -> Secret {
    var secret = master.copy()
    var bytes = HKDFSHA256.derive(
      EncryptedRecordLayout.keyMaterial, secret: secret, salt: epoch, info: info)
    defer { Secret.zero(&secret) }
    return Secret(taking: &bytes)
  }

  // MARK: Epochs

  /// Defines the epoch of this opening at `place`, twice: one bad byte must not take all that is sealed under it. What
  /// follows begins `EncryptedRecordLayout.definitions` bytes behind `place`.
  ///
  /// In a copy that lies elsewhere until it takes its place, `mapping` begins at the offset `origin` of the segment.
  func define(
    at place: Int, in mapping: Mapping, from origin: Int = 0, durable: Int, position: UInt32
  ) -> EpochKey {
    precondition(epoch.count == EncryptedRecordLayout.epochBytes, "who only reads seals nothing")
    let writer = EpochKey(place: UInt32(place), key: derive(epoch))
    keys.withLock { $0[writer.place] = writer.key }
    for copy in 0..<2 {
      let offset = place + copy * EncryptedRecordLayout.definitionLength
      let start = offset - origin
      let plain = Self.room(RecordLayout.fixedLength + EncryptedRecordLayout.epochBytes)
      plain.clear(0..<RecordLayout.fixedLength)
      plain.store(
        UInt32(RecordLayout.fixedLength + EncryptedRecordLayout.epochBytes), at: RecordLayout.length)
      plain.store(UInt32(durable), at: RecordLayout.durable)
      plain.store(RecordLayout.Kind.epoch.rawValue, at: RecordLayout.kind)
      plain.store(position, at: RecordLayout.position)
      plain.store(epoch, at: RecordLayout.fixedLength)
      let length = encrypt(
        plain, length: RecordLayout.fixedLength + EncryptedRecordLayout.epochBytes, place: offset,
        writer: writer,
        into: mapping, at: start)
      let checksum = mapping.withBytes((start + RecordLayout.length)..<(start + length)) {
        XXH3.hash64($0, seed: salt &+ UInt64(offset))
      }
      mapping.store(UInt32(truncatingIfNeeded: checksum), at: start + RecordLayout.checksum)
    }
    return writer
  }

  /// The definition at this place did not get into the file: another process may put its own there.
  func forget(_ writer: EpochKey) {
    keys.withLock { $0[writer.place] = nil }
    name.store(Self.newName(), ordering: .relaxed)
  }

  /// The key of the epoch that is defined at `place`; nil if both copies of the definition are lost.
  private func key(_ place: UInt32, in mapping: Mapping) -> Secret? {
    keys.withLock { keys in
      if let key = keys[place] { return key }
      for copy in 0..<2 {
        let start = Int(place) + copy * EncryptedRecordLayout.definitionLength
        guard let epoch = definition(of: place, at: start, in: mapping) else { continue }
        let key = derive(epoch)
        keys[place] = key
        return key
      }
      return nil
    }
  }

  private func definition(of place: UInt32, at start: Int, in mapping: Mapping) -> [UInt8]? {
    let end = start + EncryptedRecordLayout.definitionLength
    guard start >= SegmentHeader.length, end <= mapping.count,
      mapping.load(start + RecordLayout.length, as: UInt32.self) == EncryptedRecordLayout.definitionLength,
      mapping.load(start + RecordLayout.kind) == RecordLayout.Kind.epoch.rawValue,
      mapping.load(start + EncryptedRecordLayout.epoch, as: UInt32.self) == place
    else { return nil }
    let checksum = mapping.withBytes((start + RecordLayout.length)..<end) {
      XXH3.hash64($0, seed: salt &+ UInt64(start))
    }
    guard UInt32(truncatingIfNeeded: checksum) == mapping.load(start, as: UInt32.self) else { return nil }
    let epoch = start + RecordLayout.fixedLength
    return mapping.bytes(epoch..<(epoch + EncryptedRecordLayout.epochBytes))
  }

  // MARK: Records

  /// Memory for the plain form of a record of at most `count` bytes, which is to be sealed.
  static func room(_ count: Int) -> Mapping { ThreadCiphers.current.plaintextBuffer(count) }

  /// Seals a record whose plain form, of `length` bytes, begins `plain`, for the place `offset` of the segment, and puts
  /// it at `start` of `target` with all but its checksum. Returns its length there.
  @discardableResult
  func encrypt(
    _ plain: Mapping, length: Int, place offset: Int, writer: EpochKey, into target: Mapping, at start: Int
  ) -> Int {
    let ciphers = ThreadCiphers.current
    let id = id | UInt64(writer.place) << 1
    let sealed = length + EncryptedRecordLayout.overhead
    let continues = plain.load(RecordLayout.flags, as: UInt8.self) & RecordLayout.Flags.continues.rawValue
    let small = plain.load(RecordLayout.kind, as: UInt64.self)
    let isDefinition = UInt8(truncatingIfNeeded: small) == RecordLayout.Kind.epoch.rawValue
    let clear = isDefinition ? length : RecordLayout.fixedLength
    let stamp = plain.load(RecordLayout.stamp, as: UInt64.self)
    target.store(UInt32(sealed), at: start + RecordLayout.length)
    target.store(plain.load(RecordLayout.durable, as: UInt32.self), at: start + RecordLayout.durable)
    target.store(
      UInt32(isDefinition ? RecordLayout.Kind.epoch.rawValue : EncryptedRecordLayout.kind) | UInt32(continues)
        << 8,
      at: start + RecordLayout.kind)
    target.store(writer.place, at: start + EncryptedRecordLayout.epoch)
    target.store(plain.load(RecordLayout.position, as: UInt32.self), at: start + RecordLayout.position)
    target.store(plain.load(RecordLayout.sequence, as: UInt64.self), at: start + RecordLayout.sequence)
    target.store(stamp, at: start + RecordLayout.stamp)
    target.store(RecordLayout.fixedLength..<clear, of: plain, at: start + RecordLayout.fixedLength)
    let tweak = ciphers.tweak(id, of: RecordLayout.length..<length, in: plain, writer.key)
    target.store(tweak, at: start + clear)
    // The small fields move before the variable part, so that one run of bytes is sealed.
    plain.store(small, at: EncryptedRecordLayout.inner)
    let tag = ciphers.encrypt(
      id, place: UInt32(truncatingIfNeeded: offset), tweak: tweak,
      header: (start + RecordLayout.length)..<(start + clear),
      plaintext: EncryptedRecordLayout.inner..<(isDefinition ? RecordLayout.fixedLength : length), of: plain,
      into: target, at: start + clear + EncryptedRecordLayout.tweakBytes, writer.key)
    plain.store(stamp, at: RecordLayout.stamp)
    // Whoever reads it next in this thread has it already.
    ciphers.cachePlaintext(plain, id: id, place: offset, tag: tag)
    return sealed
  }

  /// The plain form of the record at `offset`, whose checksum holds, with the length that it has there; nil if it is no
  /// sealed record, or was not sealed with this key. `keeps` it if this store keeps what is read.
  func decrypt(_ mapping: Mapping, at offset: Int, keeps: Bool = false) -> Mapping? {
    decrypt(mapping, at: offset, place: offset, definitions: mapping, keeps: keeps)
  }

  /// The same for a copy, at `offset` of some memory, of what belongs at `place` of the segment, which is mapped in
  /// `definitions`.
  func decrypt(
    _ mapping: Mapping, at offset: Int, place: Int, definitions: Mapping, keeps: Bool = false
  ) -> Mapping? {
    guard offset + EncryptedRecordLayout.least <= mapping.count else { return nil }
    let kind = mapping.load(offset + RecordLayout.kind, as: UInt8.self)
    let isDefinition = kind == RecordLayout.Kind.epoch.rawValue
    let length = Int(mapping.load(offset + RecordLayout.length, as: UInt32.self))
    guard
      isDefinition ? length == EncryptedRecordLayout.definitionLength : kind == EncryptedRecordLayout.kind,
      length >= EncryptedRecordLayout.least, offset + length <= mapping.count
    else { return nil }
    let clear = offset + RecordLayout.fixedLength + (isDefinition ? EncryptedRecordLayout.epochBytes : 0)
    let epoch = mapping.load(offset + EncryptedRecordLayout.epoch, as: UInt32.self)
    let end = offset + length
    let tag = (mapping.load(end - 16, as: UInt64.self), mapping.load(end - 8, as: UInt64.self))
    let ciphers = ThreadCiphers.current
    let id = id | UInt64(epoch) << 1
    if let plain = ciphers.cachedPlaintext(id: id, place: place, tag: tag) { return plain }
    let name = DecryptedRecordCache.Name(id: id, place: place, tag: tag)
    if keeps, let plain = decryptedRecords?.get(name) { return plain }
    let plain = ciphers.plaintextBuffer(length)
    // Copied before it is authenticated: bytes may change between two looks, when a page is lost.
    plain.store(offset..<clear, of: mapping, at: 0)
    let stamp = plain.load(RecordLayout.stamp, as: UInt64.self)
    let isAuthentic = ciphers.decrypt(
      id, place: UInt32(truncatingIfNeeded: place), tweak: mapping.load(clear),
      header: RecordLayout.length..<(clear - offset),
      encrypted: (clear + EncryptedRecordLayout.tweakBytes)..<end,
      of: mapping, into: plain, at: EncryptedRecordLayout.inner
    ) { key(epoch, in: definitions) }
    guard isAuthentic, plain.load(RecordLayout.length, as: UInt32.self) == UInt32(length) else { return nil }
    let small = plain.load(EncryptedRecordLayout.inner, as: UInt64.self)
    plain.store(stamp, at: RecordLayout.stamp)
    plain.store(small, at: RecordLayout.kind)
    plain.store(UInt32(length - EncryptedRecordLayout.overhead), at: RecordLayout.length)
    ciphers.cachePlaintext(plain, id: id, place: place, tag: tag)
    if keeps, !isDefinition { decryptedRecords?.insert(plain, name) }
    return plain
  }
}

/// Where the fields of a sealed record lie. `schemas/journal.md` is the byte map; this is its twin in code.
enum EncryptedRecordLayout {
  /// What stands where a plain record has its kind.
  static let kind: UInt8 = 9
  /// Where the epoch is defined: the offset of its first definition in this segment.
  static let epoch = 16
  /// Bytes of the part of the nonce that depends on what is sealed; it stands behind what is in the clear. Then comes the
  /// ciphertext: the eight bytes of the small fields, then all behind the fixed part; then the tag.
  static let tweakBytes = 8
  /// Bytes that a sealed record has more than a plain one: tweak, small fields, tag.
  static let overhead = tweakBytes + 8 + 16
  /// Bytes of the shortest one.
  static let least = RecordLayout.fixedLength + overhead
  /// Where the plain form of what is sealed begins while it is sealed.
  static let inner = RecordLayout.fixedLength - 8
  /// Random bytes that name an epoch.
  static let epochBytes = 32
  /// Bytes of the record that defines one, and of both.
  static let definitionLength = RecordLayout.fixedLength + epochBytes + overhead
  static let definitions = 2 * definitionLength
  /// Bytes derived for an epoch in a segment: the key of AES-256-GCM, one for AES-256, the secret of XXH3.
  static let keyMaterial = 32 + 32 + 192
}
