/// Finds out whose value a damaged record held, so that damage costs that key alone (rule R2, F28). The value itself is
/// never taken from it.
enum DamagedRecord {
  /// The key of the one record that filled `range`; nil if that cannot be told.
  ///
  /// If one bit was flipped in the fixed part or the key, turning it back makes the checksum hold again, which shows what
  /// stood there. If no such bit is found, the damage lies behind the key, and length and key stand as they were.
  static func key(in range: Range<Int>, of segment: Segment) -> [UInt8]? {
    guard range.count >= RecordLayout.fixedLength, range.count <= Limits.transactionBytes else { return nil }
    var bytes = segment.mapping.bytes(range)
    let seed = segment.seed(at: range.lowerBound)
    let front = min(bytes.count, RecordLayout.fixedLength + 64 + Limits.keyBytes)
    if bytes.count <= 64 << 10 {
      for bit in 0..<(front * 8) {
        bytes[bit / 8] ^= 1 << UInt8(bit % 8)
        if let length = length(bytes), holds(bytes, length: length, seed: seed) {
          return key(of: bytes, length: length)
        }
        bytes[bit / 8] ^= 1 << UInt8(bit % 8)
      }
    }
    guard let length = length(bytes) else { return nil }
    return key(of: bytes, length: length)
  }

  /// The stated length, if it fills the bytes.
  private static func length(_ bytes: [UInt8]) -> Int? {
    let length = Int(number(bytes, RecordLayout.length, 4))
    return RecordLayout.aligned(length) == bytes.count && length >= RecordLayout.fixedLength ? length : nil
  }

  private static func holds(_ bytes: [UInt8], length: Int, seed: UInt64) -> Bool {
    let checksum = XXH3.hash64(Array(bytes[RecordLayout.length..<length]), seed: seed)
    return UInt64(UInt32(truncatingIfNeeded: checksum)) == number(bytes, RecordLayout.checksum, 4)
  }

  private static func key(of bytes: [UInt8], length: Int) -> [UInt8]? {
    let flags = RecordLayout.Flags(rawValue: bytes[RecordLayout.flags])
    guard RecordLayout.Kind(rawValue: bytes[RecordLayout.kind]) != nil, flags.isSubset(of: .known) else {
      return nil
    }
    var start = RecordLayout.fixedLength
    if flags.contains(.base) { start += RecordLayout.dotLength }
    if flags.contains(.deadline) { start += 8 }
    if flags.contains(.open), start + 2 <= length {
      start += 2 + Int(number(bytes, start, 2)) * RecordLayout.dotLength
    }
    let count = Int(number(bytes, RecordLayout.keyLength, 2))
    return start + count <= length ? Array(bytes[start..<(start + count)]) : nil
  }

  private static func number(_ bytes: [UInt8], _ offset: Int, _ count: Int) -> UInt64 {
    bytes[offset..<(offset + count)].reversed().reduce(0) { $0 << 8 | UInt64($1) }
  }
}
