/// A number for each value that a byte can have: no index is out of its bounds, and none is looked at for that.
struct ByteTable: Sendable {
  private let numbers: [UInt64]

  /// The number of each byte.
  init(_ number: (UInt8) -> UInt64) { numbers = (0...255 as ClosedRange<UInt8>).map(number) }

  @inline(__always)
  subscript(byte: UInt8) -> UInt64 { unsafe numbers.span[unchecked: Int(byte)] }
}
