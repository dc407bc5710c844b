import Foundation
import SyncStore

/// The 16 bytes of a key, inline: what a C program would pass.
typealias InlineKey = InlineArray<16, UInt8>

/// Shapes of keys.
enum KeyPattern {
  /// 16 hexadecimal digits without a common prefix.
  case scattered
  /// 12 common bytes, then 4 distinct ones.
  case sharedPrefix

  /// Key number `index`: distinct for distinct numbers below 2^32, in an unrelated order.
  func key(_ index: Int) -> InlineKey {
    switch self {
    case .scattered:
      let mixed = Self.mix(UInt64(index) &+ 0x9E37_79B9_7F4A_7C15)
      return InlineKey { Self.digits[Int(truncatingIfNeeded: mixed >> UInt64(60 - 4 * $0)) & 15] }
    case .sharedPrefix:
      // Odd factors permute: the low half alone is a bijection of 32 bits.
      let mixed = UInt32(truncatingIfNeeded: index) &* 2_654_435_769
      return InlineKey {
        $0 < 12 ? Self.prefix[$0] : UInt8(truncatingIfNeeded: mixed >> UInt32(8 * (15 - $0)))
      }
    }
  }

  private static let digits = Array("0123456789abcdef".utf8)
  private static let prefix = Array("orders/2025/".utf8)

  /// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64 bits.
  private static func mix(_ value: UInt64) -> UInt64 {
    var mixed = (value ^ (value >> 30)) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
    return mixed ^ (mixed >> 31)
  }
}

/// The keys of the workloads in an engine's own form, each list in the order of use.
struct Names<Name: Sendable>: Sendable {
  /// All keys, in the order of the first puts.
  let fill: [Name]
  /// The same keys in another order.
  let read: [Name]
  /// As many absent keys.
  let miss: [Name]

  func map<Other>(_ transform: (Name) throws -> Other) rethrows -> Names<Other> {
    Names<Other>(fill: try fill.map(transform), read: try read.map(transform), miss: try miss.map(transform))
  }
}

/// All keys of a run, made once outside the timed sections.
final class Corpus {
  /// The number of keys.
  let count: Int

  init(count: Int) { self.count = count }

  /// For engines with a C interface.
  private(set) lazy var inline: Names<InlineKey> = {
    var generator = Shuffler(state: 42)
    let fill = (0..<count).map { KeyPattern.scattered.key($0) }
    return Names(
      fill: fill, read: fill.shuffled(using: &generator),
      miss: (0..<count).map { KeyPattern.scattered.key($0 + (1 << 40)) })
  }()

  private var made: Names<Key>?

  /// For the store.
  func keys() throws -> Names<Key> {
    if let made { return made }
    let keys = try inline.map(Corpus.key)
    made = keys
    return keys
  }

  /// A key of the store.
  static func key(_ inline: InlineKey) throws -> Key {
    try Key(bytes: inline.indices.map { inline[$0] })
  }
}

/// Incompressible values of 100 bytes. A pass writes one value throughout, each pass a different one.
enum Payload {
  static let count = 100
  /// Bytes of a key and its value.
  static let recordBytes = 16 + count
  static let first = make(1)
  static let second = make(2)

  private static func make(_ seed: UInt64) -> [UInt8] {
    var generator = Shuffler(state: seed)
    return (0..<count).map { _ in UInt8.random(in: 1...255, using: &generator) }
  }
}

/// SplitMix64: the same order in every run.
struct Shuffler: RandomNumberGenerator {
  var state: UInt64

  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var mixed = (state ^ (state >> 30)) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
    return mixed ^ (mixed >> 31)
  }
}
