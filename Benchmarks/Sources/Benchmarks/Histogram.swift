/// A histogram of durations with geometric buckets: a relative error of 1/32 in a fixed amount of memory.
struct Histogram {
  private static let fractionBits = 5
  private var buckets = [Int](repeating: 0, count: 64 << Self.fractionBits)
  private(set) var count = 0
  /// The exact maximum, in nanoseconds.
  private(set) var maximum: UInt64 = 0

  mutating func add(_ nanoseconds: UInt64) {
    buckets[Self.bucket(of: nanoseconds)] += 1
    count += 1
    maximum = max(maximum, nanoseconds)
  }

  /// The quantile for this share, in nanoseconds.
  func percentile(_ share: Double) -> Double {
    var left = Int((Double(count) * share).rounded(.up))
    for (bucket, amount) in buckets.enumerated() where amount > 0 {
      left -= amount
      if left <= 0 { return Double(min(Self.upperBound(of: bucket), maximum)) }
    }
    return Double(maximum)
  }

  private static func bucket(of value: UInt64) -> Int {
    let bits = UInt64.bitWidth - value.leadingZeroBitCount
    let shift = max(bits - fractionBits - 1, 0)
    return (shift << fractionBits) + Int(value >> UInt64(shift))
  }

  private static func upperBound(of bucket: Int) -> UInt64 {
    let shift = max((bucket >> fractionBits) - 1, 0)
    let value = UInt64(bucket - (shift << fractionBits))
    return ((value + 1) << UInt64(shift)) - 1
  }
}
