#if canImport(Glibc)
  private import Glibc
#else
  private import Musl
#endif

/// Strings compared as UTF-8 bytes.
///
/// Swift compares, hashes and sorts strings by canonical equivalence: "é" as one scalar (C3 A9) equals "e"
/// with a combining accent (65 CC 81). To a store these are two keys, to a file system two files, and to a
/// peer two names. A dictionary keyed by `String` merges them, and gives one caller the value, the store or
/// the peer of the other.
extension String {
  /// Whether both strings have the same UTF-8 bytes.
  @usableFromInline package func hasSameBytes(as other: String) -> Bool {
    let isEqual = unsafe utf8.withContiguousStorageIfAvailable { own in
      unsafe other.utf8.withContiguousStorageIfAvailable { its in
        guard own.count == its.count else { return false }
        guard let first = own.baseAddress, let second = its.baseAddress else { return true }
        return unsafe memcmp(first, second, own.count) == 0
      }
    }
    return (isEqual ?? nil) ?? utf8.elementsEqual(other.utf8)
  }

  /// Feeds the UTF-8 bytes to the hasher, with an end mark, so that "a", "bc" and "ab", "c" differ.
  @usableFromInline package func hashBytes(into hasher: inout Hasher) {
    let isDone: Void? = unsafe utf8.withContiguousStorageIfAvailable {
      unsafe hasher.combine(bytes: UnsafeRawBufferPointer($0))
    }
    if isDone == nil { for byte in utf8 { hasher.combine(byte) } }
    hasher.combine(UInt8.max)
  }
}
