/// A lookup table with one number per byte value: no index can be out of bounds, so none is checked.
struct ByteTable: Sendable {
  private let numbers: [UInt64]

  /// Computes the number of each byte value.
  init(_ number: (UInt8) -> UInt64) { numbers = (0...255 as ClosedRange<UInt8>).map(number) }

  @inline(__always)
  subscript(byte: UInt8) -> UInt64 { unsafe numbers.span[unchecked: Int(byte)] }
}
