extension [UInt8] {
  /// Makes it the value of that number: values of one length differ in their first eight bytes.
  mutating func number(_ index: Int) {
    for byte in 0..<8 { self[byte] = UInt8(truncatingIfNeeded: index >> (8 * byte)) }
  }
}

extension RawSpan {
  /// The sum of one byte per page: touches all pages.
  var pageSum: Int {
    var sum = 0
    for offset in stride(from: 0, to: byteCount, by: 4096) {
      sum &+= unsafe Int(unsafeLoad(fromByteOffset: offset, as: UInt8.self))
    }
    return sum
  }
}
