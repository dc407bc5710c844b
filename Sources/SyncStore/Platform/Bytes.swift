private import Glibc

/// This is one of the few files that use `unsafe`: the standard library copies a buffer in one go, a span
/// byte by byte.
extension [UInt8] {
  /// A copy of the bytes.
  package init(copying span: Span<UInt8>) {
    self = unsafe span.withUnsafeBufferPointer { unsafe Array($0) }
  }

  /// A copy of the bytes.
  init(copying span: RawSpan) {
    self = unsafe span.withUnsafeBytes { unsafe Array($0) }
  }

  /// Appends a copy of the bytes.
  package mutating func append(copying span: Span<UInt8>) {
    unsafe span.withUnsafeBufferPointer { unsafe append(contentsOf: $0) }
  }

  /// Passes the bytes to `body`, in place.
  func withRawSpan<Result, Failure: Error>(_ body: (RawSpan) throws(Failure) -> Result) throws(Failure)
    -> Result
  {
    try body(unsafe span.bytes)
  }
}

extension OutputSpan<UInt8> {
  /// Appends a copy of the bytes, for which there must be room.
  @inlinable
  package mutating func append(copying span: Span<UInt8>) {
    precondition(span.count <= freeCapacity, "more bytes than there is room for")
    unsafe span.withUnsafeBufferPointer { source in
      unsafe withUnsafeMutableBufferPointer { buffer, count in
        guard let from = source.baseAddress, let target = buffer.baseAddress else { return }
        unsafe (target + count).update(from: from, count: source.count)
        count += source.count
      }
    }
  }

  /// Appends an unsigned LEB128 integer, which takes ten bytes at most.
  @inlinable
  package mutating func append(variable value: UInt64) {
    var rest = value
    while rest >= 0x80 {
      append(UInt8(truncatingIfNeeded: rest) | 0x80)
      rest >>= 7
    }
    append(UInt8(truncatingIfNeeded: rest))
  }
}

extension Span<UInt8> {
  /// The little-endian integer at `offset`.
  @inline(__always)
  func load<Integer: FixedWidthInteger & BitwiseCopyable>(
    _ offset: Int, as _: Integer.Type = Integer.self
  ) -> Integer { unsafe bytes.load(offset) }
}

extension RawSpan {
  /// The little-endian integer at `offset`.
  @inline(__always)
  func load<Integer: FixedWidthInteger & BitwiseCopyable>(
    _ offset: Int, as _: Integer.Type = Integer.self
  ) -> Integer {
    precondition(offset >= 0 && offset <= byteCount &- MemoryLayout<Integer>.size, "access outside of a span")
    return unsafe Integer(
      littleEndian: unsafeLoadUnaligned(fromUncheckedByteOffset: offset, as: Integer.self))
  }

  /// Compares the common prefix bytewise: negative, 0 or positive if it is less than, equal to or greater
  /// than that of `other`.
  func compare(_ other: Span<UInt8>) -> Int {
    let common = min(byteCount, other.count)
    guard common > 0 else { return 0 }
    return unsafe withUnsafeBytes { bytes in
      unsafe other.withUnsafeBytes { unsafe Int(memcmp(bytes.baseAddress!, $0.baseAddress!, common)) }
    }
  }
}
