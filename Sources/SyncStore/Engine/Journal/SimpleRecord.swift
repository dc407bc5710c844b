/// A record of the common form: a value or a tombstone without open dots; with `orBlob`, also a blob
/// reference. Its content may be trusted only after its checksum was verified. The caller keeps the segment
/// mapped.
struct SimpleRecord {
  let bytes: MappedBytes
  /// Checksum seed; nil for a decrypted record, which decryption has authenticated.
  let seed: UInt64?
  /// Offsets of key and value.
  let key: Int
  let value: Int
  private let kinds: RecordKinds
  /// The number of its author in its segment.
  let actorNumber: UInt16

  /// Nil if the record is of another form or does not lie within `bytes`, which extend to the end of the
  /// segment.
  @inline(__always)
  init?(_ bytes: MappedBytes, seed: UInt64?, orBlob: Bool = false) {
    guard bytes.count >= RecordLayout.fixedLength else { return nil }
    let (length, keyLength): (Int, Int)
    (length, kinds) = (bytes.recordLength(), bytes.recordKinds())
    (actorNumber, keyLength) = bytes.recordActorAndKey()
    let flags = kinds.flags
    guard length <= bytes.count, !flags.contains(.open),
      kinds.isOf(.value) || kinds.isOf(.tombstone) || orBlob && kinds.isOf(.blob)
    else { return nil }
    key = RecordLayout.fixedLength &+ flags.bytesBeforeKey
    value = key &+ keyLength
    guard value <= length else { return nil }
    self.bytes = bytes.prefix(length)
    self.seed = seed
  }

  @inline(__always)
  var flags: RecordLayout.Flags { kinds.flags }

  @inline(__always)
  var isTombstone: Bool { kinds.isOf(.tombstone) }

  /// The reference in the record of a blob; nil for another record.
  var blob: BlobReference? {
    guard kinds.isOf(.blob), bytes.count - value >= RecordLayout.blobLength,
      let hash = BlobHash(bytes: bytes.bytes(value..<value + 32))
    else { return nil }
    return BlobReference(
      hash: hash, size: bytes.load(value + 32),
      metadata: bytes.bytes(value + RecordLayout.blobLength..<bytes.count))
  }

  var type: ValueType { kinds.type }

  @inline(__always)
  func isOf(_ key: Span<UInt8>) -> Bool {
    value &- self.key == key.count && bytes.equals(self.key, key)
  }

  /// The key in place.
  @inline(__always)
  func withKey<Result>(_ body: (Span<UInt8>) -> Result) -> Result { bytes.withSpan(key..<value, body) }

  /// True if it names a base or a deadline.
  @inline(__always)
  var hasFields: Bool { key != RecordLayout.fixedLength }

  /// True if the checksum matches.
  @inline(__always)
  var isWhole: Bool { seed.map { bytes.checksumHolds(seed: $0) } ?? true }

  /// When it expires, in milliseconds since 1970.
  @inline(__always)
  var deadline: UInt64? {
    flags.contains(.deadline) ? bytes.load(key &- 8) : nil
  }

  /// A copy of the value.
  @inline(__always)
  var valueBytes: [UInt8] { bytes.bytes(value..<bytes.count) }

  /// The value in place.
  @inline(__always)
  func withValue<Result>(_ body: (RawSpan) -> Result) -> Result {
    bytes.withBytes(value..<bytes.count, body)
  }
}

/// The segments that the index refers to, by slot. Finds records without reference counting, except in
/// encrypted segments. They stay mapped as long as this lives.
final class SlotSegments: Sendable {
  /// Mappings of the segments that are not encrypted.
  private let bytes: MappingTable
  private let salts: [UInt64]
  /// The encrypted segments; empty if there are none.
  private let encrypted: [EncryptedSegment?]

  private struct EncryptedSegment {
    let mapping: Mapping
    let cipher: SegmentCipher

    init?(_ segment: Segment) {
      guard let cipher = segment.cipher else { return nil }
      (mapping, self.cipher) = (segment.mapping, cipher)
    }
  }

  init(_ table: SegmentTable) {
    var (plain, isAnyEncrypted) = ([MappingTable.Numbered](), false)
    table.forEachSlot { slot, segment in
      if segment.cipher == nil {
        plain.append(MappingTable.Numbered(number: slot, mapping: segment.mapping))
      } else {
        isAnyEncrypted = true
      }
    }
    bytes = MappingTable(count: table.slots.count, plain)
    salts = table.bySlot(0) { $0.header.salt }
    encrypted = isAnyEncrypted ? table.bySlot(nil) { EncryptedSegment($0) } : []
  }

  /// True if any segment is encrypted.
  @inline(__always)
  var isEncrypted: Bool { !encrypted.isEmpty }

  /// The record at a record ref; nil if its segment is encrypted or not mapped, or the record is not of the
  /// common form. Prefetches the cache lines after the first.
  @inline(__always)
  func record(atRef place: UInt64, orBlob: Bool = false) -> SimpleRecord? {
    let (slot, offset) = (SegmentTable.slot(ofRef: place), SegmentTable.offset(ofRef: place))
    let rest = bytes.rest(of: slot, from: offset)
    guard rest.count > 0 else { return nil }
    rest.prefetch()
    return SimpleRecord(rest, seed: salts[slot] &+ UInt64(truncatingIfNeeded: offset), orBlob: orBlob)
  }

  /// The record at a record ref, decrypted if necessary: it is valid as long as the caller keeps `opened`.
  func record(atRef place: UInt64, opened: inout Mapping?, orBlob: Bool = false) -> SimpleRecord? {
    let (slot, offset) = (SegmentTable.slot(ofRef: place), SegmentTable.offset(ofRef: place))
    guard slot < encrypted.count, let segment = encrypted[slot] else {
      return record(atRef: place, orBlob: orBlob)
    }
    let all = MappedBytes(segment.mapping)
    guard offset &+ RecordLayout.fixedLength <= all.count else { return nil }
    let rest = all.extracting(offset..<all.count)
    rest.prefetch()
    let length = rest.recordLength()
    guard length >= RecordLayout.fixedLength, length <= rest.count,
      rest.prefix(length).checksumHolds(seed: salts[slot] &+ UInt64(truncatingIfNeeded: offset)),
      let plain = segment.cipher.decrypt(segment.mapping, at: offset, keeps: true)
    else { return nil }
    opened = plain
    return SimpleRecord(MappedBytes(plain), seed: nil, orBlob: orBlob)
  }
}
