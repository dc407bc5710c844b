/// Iterates over the whole records of a segment, as stored, without reference counting. It stops at the first
/// invalid record: use `ResyncingRecordIterator` to continue after damage. The caller keeps the segment
/// alive.
struct RecordIterator {
  private let bytes: MappedBytes
  private let salt: UInt64
  private let limit: Int
  private let verifies: Bool
  /// Offset of the next record.
  private(set) var offset: Int

  /// Iterates from `offset` up to `limit`. With `verifies` false the checksums are known to match.
  init(_ segment: Segment, from offset: Int = SegmentHeader.length, limit: Int, verifies: Bool = true) {
    self.init(segment.mapping, salt: segment.header.salt, from: offset, limit: limit, verifies: verifies)
  }

  /// Iterates over a segment's content, given the salt in its header.
  init(
    _ mapping: Mapping, salt: UInt64, from offset: Int = SegmentHeader.length, limit: Int,
    verifies: Bool = true
  ) {
    bytes = MappedBytes(mapping)
    self.salt = salt
    (self.offset, self.limit, self.verifies) = (offset, min(limit, mapping.count), verifies)
  }

  /// The bytes of the next record; nil at the limit, and at bytes that are no record.
  @inline(__always)
  mutating func next() -> MappedBytes? {
    guard offset &+ RecordLayout.fixedLength <= limit else { return nil }
    let rest = bytes.extracting(offset..<limit)
    let length = rest.recordLength()
    guard length >= RecordLayout.fixedLength, length <= rest.count else { return nil }
    let record = rest.prefix(length)
    guard !verifies || record.checksumHolds(seed: salt &+ UInt64(truncatingIfNeeded: offset)) else {
      return nil
    }
    offset = min(offset &+ RecordLayout.aligned(length), limit)
    return record
  }
}

extension MappedBytes {
  /// Verifies the checksum of a record's bytes.
  @inline(__always)
  func checksumHolds(seed: UInt64) -> Bool {
    let sum = withBytes(RecordLayout.length..<count) { XXH3.hash64($0, seed: seed) }
    return UInt32(truncatingIfNeeded: sum) == recordChecksum()
  }
}

extension WritableBytes {
  /// Completes a record of `length` bytes: zero padding up to the next, and the checksum.
  @inline(__always)
  func close(length: Int, seed: UInt64) {
    clear(from: length)
    let sum = withBytes(RecordLayout.length..<length) { XXH3.hash64($0, seed: seed) }
    store(UInt32(truncatingIfNeeded: sum), at: RecordLayout.checksum)
  }
}
