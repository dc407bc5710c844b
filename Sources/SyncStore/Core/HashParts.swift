/// The bits of a key's hash that the index uses.
///
/// Bits 0–21 select the entry of the directory, as many as its depth. A slot's tag has bits 9–24 and its
/// extra bits 0–8: all bits that a split can ever need are stored next to the ref, so that no split reads the
/// journal (on average 300 cache misses, one put in 150, and keys that can be encrypted or damaged). The tag
/// overlaps with the bits that a page shares only when the directory is deeper than 9; at 10 million keys 9
/// to 10 bits still distinguish keys of one bucket: one lookup in a hundred reads a second key. The upper
/// half selects the bucket.
struct HashParts {
  /// Buckets of a page of the index.
  static let bucketCount = 50

  let hash: UInt64

  @inline(__always) init(_ hash: UInt64) { self.hash = hash }

  /// The entry of a directory of this depth.
  @inline(__always)
  func entry(depth: Int) -> UInt32 {
    UInt32(truncatingIfNeeded: hash) & (1 &<< UInt32(truncatingIfNeeded: depth) &- 1)
  }

  /// The home bucket of the key.
  @inline(__always)
  var bucket: Int { Int(((hash >> 32) &* UInt64(Self.bucketCount)) >> 32) }

  /// The tag in its slot.
  @inline(__always)
  var tag: UInt64 { hash >> 9 & 0xFFFF }

  /// The bits stored next to its slot.
  @inline(__always)
  var splitBits: UInt16 { UInt16(hash & 0x1FF) }

  /// The bits of the hash that a slot stores, 31 in all: the tag and its extra bits (0–24), and the bucket
  /// (25–30).
  var fingerprint: UInt32 { Self.fingerprint(tag: tag, splitBits: splitBits, bucket: bucket) }

  static func fingerprint(tag: UInt64, splitBits: UInt16, bucket: Int) -> UInt32 {
    UInt32(bucket) << 25 | UInt32(tag) << 9 | UInt32(splitBits)
  }
}
