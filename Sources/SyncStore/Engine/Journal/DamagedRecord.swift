/// Finds the key of a damaged record, so that the damage costs that key alone (rule R2, F28). The value
/// itself is never recovered from it.
enum DamagedRecord {
  /// Records up to this many bytes are searched for a single bad byte.
  private static let searchedBytes = 4 << 10
  /// A disk loses bytes in units of this size, or of a multiple of it.
  private static let sector = 512

  /// The key of the one record that filled `range`; nil if it cannot be determined.
  ///
  /// If one bit or one byte was changed in the fixed part or the key, restoring it makes the checksum match,
  /// which shows the original bytes. Otherwise length and key are believed only where the loss of a whole
  /// sector cannot have changed them: in sectors that also hold bytes of whole neighbours. A wrong guess
  /// would give a key an older value.
  static func key(in range: Range<Int>, of segment: Segment) -> [UInt8]? {
    guard range.count >= RecordLayout.fixedLength, range.count <= Limits.transactionBytes else { return nil }
    if let cipher = segment.cipher { return encryptedKey(in: range, of: segment, cipher) }
    var bytes = segment.mapping.bytes(range)
    let seed = segment.seed(at: range.lowerBound)
    let front = min(bytes.count, RecordLayout.fixedLength + 64 + Limits.keyBytes)
    if bytes.count <= 64 << 10,
      let found = search(&bytes, 0..<front, by: (0..<8).map { 1 << UInt8($0) }, seed: seed)
    {
      return found
    }
    if bytes.count <= searchedBytes, let found = search(&bytes, 0..<front, by: Array(1...255), seed: seed) {
      return found
    }
    guard let length = length(bytes), let end = keyRange(of: bytes, length: length)?.upperBound,
      isBracketed(range, front: end)
    else { return nil }
    return key(of: bytes, length: length)
  }

  /// Encrypted records up to these sizes are searched: every byte counts there, not only those of the key.
  private static let encryptedBitsBytes = 8 << 10
  private static let encryptedBytes = 1 << 10

  /// The key of an encrypted record: readable only once every bit is restored.
  private static func encryptedKey(in range: Range<Int>, of segment: Segment, _ cipher: SegmentCipher)
    -> [UInt8]?
  {
    guard range.count <= encryptedBitsBytes else { return nil }
    let copy = Mapping.heap(range.count)
    copy.store(range, of: segment.mapping, at: 0)
    let bits: [UInt8] = (0..<8).map { 1 << UInt8($0) }
    return repairedKey(copy, by: bits, range: range, segment: segment, cipher: cipher)
      ?? (range.count <= encryptedBytes
        ? repairedKey(copy, by: Array(1...255), range: range, segment: segment, cipher: cipher) : nil)
  }

  /// The key that becomes readable when one of the bytes of `copy`, which belongs at `range`, is changed by
  /// one of `changes`.
  private static func repairedKey(
    _ copy: Mapping, by changes: [UInt8], range: Range<Int>, segment: Segment, cipher: SegmentCipher
  ) -> [UInt8]? {
    let seed = segment.seed(at: range.lowerBound)
    for place in 0..<copy.count {
      let found = copy.load(place, as: UInt8.self)
      defer { copy.store(found, at: place) }
      for change in changes {
        copy.store(found ^ change, at: place)
        let length = copy.recordLength()
        guard RecordLayout.aligned(length) == copy.count, length >= RecordLayout.fixedLength else { continue }
        let checksum = copy.withBytes(RecordLayout.length..<length) { XXH3.hash64($0, seed: seed) }
        guard UInt32(truncatingIfNeeded: checksum) == copy.recordChecksum()
        else { continue }
        // Like that of an actor, the definition of an epoch holds no key's value.
        if copy.recordKinds().isOf(.epoch) { return [] }
        // The checksum alone may match by chance.
        if let plain = cipher.decrypt(copy, at: 0, place: range.lowerBound, definitions: segment.mapping) {
          return key(of: plain.bytes(0..<plain.count), length: plain.recordLength())
        }
      }
    }
    return nil
  }

  /// The key that becomes readable when one of the bytes in `places` is changed by one of `changes`.
  private static func search(
    _ bytes: inout [UInt8], _ places: Range<Int>, by changes: [UInt8], seed: UInt64
  ) -> [UInt8]? {
    for place in places {
      for change in changes {
        bytes[place] ^= change
        if let length = length(bytes), holds(bytes, length: length, seed: seed) {
          return key(of: bytes, length: length)
        }
        bytes[place] ^= change
      }
    }
    return nil
  }

  /// True if every sector that holds some of the first `front` bytes of `range` also holds bytes outside
  /// `range`.
  private static func isBracketed(_ range: Range<Int>, front: Int) -> Bool {
    let sectors = range.lowerBound / sector...(range.lowerBound + front - 1) / sector
    return sectors.allSatisfy { $0 * sector < range.lowerBound || ($0 + 1) * sector > range.upperBound }
  }

  /// The stated length, if it fills the bytes.
  private static func length(_ bytes: [UInt8]) -> Int? {
    let length = bytes.recordLength()
    return RecordLayout.aligned(length) == bytes.count && length >= RecordLayout.fixedLength ? length : nil
  }

  private static func holds(_ bytes: [UInt8], length: Int, seed: UInt64) -> Bool {
    let checksum = XXH3.hash64(Array(bytes[RecordLayout.length..<length]), seed: seed)
    return UInt32(truncatingIfNeeded: checksum) == bytes.recordChecksum()
  }

  private static func key(of bytes: [UInt8], length: Int) -> [UInt8]? {
    keyRange(of: bytes, length: length).map { Array(bytes[$0]) }
  }

  private static func keyRange(of bytes: [UInt8], length: Int) -> Range<Int>? {
    let kinds = bytes.recordKinds()
    guard kinds.kind != nil, kinds.flags.isSubset(of: .known) else { return nil }
    return bytes.recordKeyRange(length: length)
  }
}
