/// SplitMix64 (Steele, Lea, Flood 2014): a deterministic generator, identical on every platform.
package struct SplitMix64: RandomNumberGenerator, Sendable {
  private var state: UInt64

  /// A generator with this seed; a failing test prints the seed.
  package init(seed: UInt64) { state = seed }

  /// The next 64 bits.
  package mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var mixed = state
    mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
    return mixed ^ (mixed >> 31)
  }

  /// The next `count` bytes.
  package mutating func bytes(_ count: Int) -> [UInt8] {
    var words: [UInt64] = []
    words.reserveCapacity(count / 8 + 1)
    while words.count * 8 < count { words.append(next().littleEndian) }
    return unsafe words.withUnsafeBytes { unsafe [UInt8]($0.prefix(count)) }
  }

  /// True with a probability of `percent`.
  package mutating func chance(_ percent: UInt64) -> Bool { next() % 100 < percent }
}
