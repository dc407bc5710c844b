private import CXXHash

/// XXH3 (Yann Collet, xxHash 0.8): fast hashes for checksums, the index and the state digest. Not
/// cryptographic.
///
/// This is one of the few files that use `unsafe`: the C library takes a pointer and a count.
package enum XXH3 {
  /// The 64-bit hash of `bytes` under `seed`.
  @inline(__always)
  package static func hash64(_ bytes: RawSpan, seed: UInt64) -> UInt64 {
    unsafe bytes.withUnsafeBytes { unsafe XXH3_64bits_withSeed($0.baseAddress, $0.count, seed) }
  }

  /// The 64-bit hash of `bytes` under `seed`.
  @inline(__always)
  package static func hash64(_ bytes: Span<UInt8>, seed: UInt64) -> UInt64 {
    unsafe bytes.withUnsafeBytes { unsafe XXH3_64bits_withSeed($0.baseAddress, $0.count, seed) }
  }

  /// The 64-bit hash of `bytes` under `seed`.
  package static func hash64(_ bytes: [UInt8], seed: UInt64) -> UInt64 { hash64(bytes.span, seed: seed) }

  /// The 128-bit hash of `bytes`, seed 0.
  package static func hash128(_ bytes: RawSpan) -> (high: UInt64, low: UInt64) {
    let hash = unsafe bytes.withUnsafeBytes { unsafe XXH3_128bits($0.baseAddress, $0.count) }
    return (hash.high64, hash.low64)
  }

  /// The 128-bit hash of `bytes`, seed 0.
  package static func hash128(_ bytes: Span<UInt8>) -> (high: UInt64, low: UInt64) {
    let hash = unsafe bytes.withUnsafeBytes { unsafe XXH3_128bits($0.baseAddress, $0.count) }
    return (hash.high64, hash.low64)
  }

  /// The 128-bit hash of `bytes`, seed 0.
  package static func hash128(_ bytes: [UInt8]) -> (high: UInt64, low: UInt64) { hash128(bytes.span) }
}
