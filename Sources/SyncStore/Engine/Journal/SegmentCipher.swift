internal import Synchronization

/// Encrypts and decrypts the records of one segment: AES-256-GCM, record by record, under keys that belong to
/// the segment and to one opening of the store (`schemas/journal.md`, "Encrypted segments").
///
/// Invariants: a key encrypts the records of one opening in one segment; the nonce contains the offset of the
/// record and a hash of the whole plaintext, so that no nonce is used for two different plaintexts, even if
/// the store was copied, rolled back or cloned.
final class SegmentCipher: Sendable {
  /// The generation of the master key.
  let generation: UInt32
  /// Identifies it in this process: the threads' cipher contexts are keyed by it, with the offset of an
  /// epoch's definition.
  private let name: Atomic<UInt64>
  private var id: UInt64 { name.load(ordering: .relaxed) }
  private let master: Secret
  private let salt: UInt64
  private let info: [UInt8]
  /// Derived keys, by the offset of the epoch's definition.
  private let keys = LockedField<[UInt32: Secret]>([:])
  /// Identifies the epoch of this opening; empty for one that only reads.
  private let epoch: [UInt8]
  /// Cache of recently decrypted records, if there is one.
  private let decryptedRecords: DecryptedRecordCache?

  private static let last = Atomic<UInt64>(0)
  /// An identifier for keys, unique in this process; its last 33 bits are 0.
  static func newName() -> UInt64 { last.add(1, ordering: .relaxed).newValue << 33 }

  /// The key of an epoch, for encrypting under it.
  struct EpochKey: Sendable {
    /// Offset of the epoch's definition.
    var place: UInt32
    /// All derived key material.
    fileprivate var key: Secret
  }

  /// The cipher of the segment with this header.
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

  /// Defines the epoch of this opening at `place`, twice: one bad byte must not take all that is encrypted
  /// under it. The next record begins `EncryptedRecordLayout.definitions` bytes after `place`.
  ///
  /// For a copy that is built elsewhere first, `mapping` begins at the offset `origin` of the segment.
  func define(
    at place: Int, in mapping: Mapping, from origin: Int = 0, durable: Int, position: UInt32
  ) -> EpochKey {
    precondition(epoch.count == EncryptedRecordLayout.epochBytes, "a reader encrypts nothing")
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

  /// Drops a definition that did not get into the file: another process may define its own epoch there.
  func forget(_ writer: EpochKey) {
    keys.withLock { $0[writer.place] = nil }
    name.store(Self.newName(), ordering: .relaxed)
  }

  /// The key of the epoch defined at `place`; nil if both copies of the definition are lost.
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
      mapping.recordLength(at: start) == EncryptedRecordLayout.definitionLength,
      mapping.recordKinds(at: start).isOf(.epoch),
      mapping.load(start + EncryptedRecordLayout.epoch, as: UInt32.self) == place
    else { return nil }
    let checksum = mapping.withBytes((start + RecordLayout.length)..<end) {
      XXH3.hash64($0, seed: salt &+ UInt64(start))
    }
    guard UInt32(truncatingIfNeeded: checksum) == mapping.recordChecksum(at: start) else { return nil }
    let epoch = start + RecordLayout.fixedLength
    return mapping.bytes(epoch..<(epoch + EncryptedRecordLayout.epochBytes))
  }

  // MARK: Records

  /// A buffer for the plaintext of a record of at most `count` bytes.
  static func room(_ count: Int) -> Mapping { ThreadCiphers.current.plaintextBuffer(count) }

  /// Encrypts the record of `length` bytes at the beginning of `plain`, for the offset `offset` of the
  /// segment. Stores it at `start` of `target`, complete but for its checksum. Returns its encrypted length.
  @discardableResult
  func encrypt(
    _ plain: Mapping, length: Int, place offset: Int, writer: EpochKey, into target: Mapping, at start: Int
  ) -> Int {
    let ciphers = ThreadCiphers.current
    let id = id | UInt64(writer.place) << 1
    let encryptedLength = length + EncryptedRecordLayout.overhead
    let continues = plain.recordKinds().flags.intersection(.continues).rawValue
    let small = plain.load(RecordLayout.kind, as: UInt64.self)
    let isDefinition = UInt8(truncatingIfNeeded: small) == RecordLayout.Kind.epoch.rawValue
    let clear = isDefinition ? length : RecordLayout.fixedLength
    let stamp = plain.recordStamp().rawValue
    target.store(UInt32(encryptedLength), at: start + RecordLayout.length)
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
    // Moves the small fields before the variable part, so that one contiguous run is encrypted.
    plain.store(small, at: EncryptedRecordLayout.inner)
    let tag = ciphers.encrypt(
      id, nonce: ThreadCiphers.Nonce(place: UInt32(truncatingIfNeeded: offset), tweak: tweak),
      ranges: ThreadCiphers.MessageRanges(
        header: (start + RecordLayout.length)..<(start + clear),
        body: EncryptedRecordLayout.inner..<(isDefinition ? RecordLayout.fixedLength : length)),
      of: plain, into: target, at: start + clear + EncryptedRecordLayout.tweakBytes, writer.key)
    plain.store(stamp, at: RecordLayout.stamp)
    // The next read in this thread needs no decryption.
    ciphers.cachePlaintext(plain, id: id, place: offset, tag: tag)
    return encryptedLength
  }

  /// Decrypts the record at `offset`, whose checksum matches and whose length field is that of the decrypted
  /// record; nil if it is no encrypted record or was encrypted with another key. With `keeps`, it is cached
  /// if this store caches decrypted records.
  func decrypt(_ mapping: Mapping, at offset: Int, keeps: Bool = false) -> Mapping? {
    decrypt(mapping, at: offset, place: offset, definitions: mapping, keeps: keeps)
  }

  /// Decrypts a copy, at `offset` of some memory, of the record at `place` of the segment, which is mapped in
  /// `definitions`.
  func decrypt(
    _ mapping: Mapping, at offset: Int, place: Int, definitions: Mapping, keeps: Bool = false
  ) -> Mapping? {
    guard offset + EncryptedRecordLayout.least <= mapping.count else { return nil }
    let (kinds, length) = (mapping.recordKinds(at: offset), mapping.recordLength(at: offset))
    let isDefinition = kinds.isOf(.epoch)
    guard
      isDefinition
        ? length == EncryptedRecordLayout.definitionLength : kinds.code == EncryptedRecordLayout.kind,
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
    // Copied before it is authenticated: bytes may change between two reads when a page is lost.
    plain.store(offset..<clear, of: mapping, at: 0)
    let stamp = plain.load(RecordLayout.stamp, as: UInt64.self)
    let isAuthentic = ciphers.decrypt(
      id, nonce: ThreadCiphers.Nonce(place: UInt32(truncatingIfNeeded: place), tweak: mapping.load(clear)),
      ranges: ThreadCiphers.MessageRanges(
        header: RecordLayout.length..<(clear - offset),
        body: (clear + EncryptedRecordLayout.tweakBytes)..<end),
      of: mapping, into: plain, at: EncryptedRecordLayout.inner
    ) { key(epoch, in: definitions) }
    guard isAuthentic, plain.recordLength() == length else { return nil }
    let small = plain.load(EncryptedRecordLayout.inner, as: UInt64.self)
    plain.store(stamp, at: RecordLayout.stamp)
    plain.store(small, at: RecordLayout.kind)
    plain.store(UInt32(length - EncryptedRecordLayout.overhead), at: RecordLayout.length)
    ciphers.cachePlaintext(plain, id: id, place: place, tag: tag)
    if keeps, !isDefinition { decryptedRecords?.insert(plain, name) }
    return plain
  }
}

/// Offsets of an encrypted record's fields. `schemas/journal.md` is the byte map; this is its counterpart in
/// code.
enum EncryptedRecordLayout {
  /// Value of the kind field of an encrypted record.
  static let kind: UInt8 = 9
  /// Field with the offset of the epoch's first definition in this segment.
  static let epoch = 16
  /// Bytes of the part of the nonce that depends on the plaintext; it follows the cleartext. Then comes the
  /// ciphertext: the eight bytes of the small fields, then all after the fixed part; then the tag.
  static let tweakBytes = 8
  /// Bytes that encryption adds to a record: tweak, small fields, tag.
  static let overhead = tweakBytes + 8 + 16
  /// Bytes of the shortest encrypted record.
  static let least = RecordLayout.fixedLength + overhead
  /// Offset of the bytes to encrypt in the plaintext buffer.
  static let inner = RecordLayout.fixedLength - 8
  /// Random bytes that identify an epoch.
  static let epochBytes = 32
  /// Bytes of one epoch definition, and of both copies.
  static let definitionLength = RecordLayout.fixedLength + epochBytes + overhead
  static let definitions = 2 * definitionLength
  /// Bytes derived for an epoch in a segment: the key of AES-256-GCM, one for AES-256, the secret of XXH3.
  static let keyMaterial = 32 + 32 + 192
}
