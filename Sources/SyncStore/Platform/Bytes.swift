/// This is one of the few files that use `unsafe`: the standard library copies a buffer at once, a span byte by byte.
extension [UInt8] {
  /// A copy of the bytes.
  package init(copying span: Span<UInt8>) {
    self = unsafe span.withUnsafeBufferPointer { unsafe Array($0) }
  }

  /// Works on the bytes in place.
  func withRawSpan<Result>(_ body: (RawSpan) throws -> Result) rethrows -> Result {
    try body(unsafe span.bytes)
  }
}
