/// A contiguous range of keys in byte order: by prefix, or between two bounds.
///
/// ```swift
/// KeyRange(prefix: "order/")            // all keys with this prefix
/// KeyRange("a"..<"m")                   // from "a" up to, not including, "m"
/// KeyRange("a"...)                      // from "a" on; likewise ..."m" and ..<"m"
/// ```
public struct KeyRange: Hashable, Sendable {
  /// Lower bound, included.
  let lower: [UInt8]
  /// Upper bound, excluded; nil if there is none.
  let upper: [UInt8]?

  /// All keys.
  public static let all = KeyRange(lower: [], upper: nil)

  init(lower: [UInt8], upper: [UInt8]?) {
    // Keys that begin with a zero byte are reserved.
    self.lower = lower.first ?? 0 > 0 ? lower : [1]
    self.upper = upper
  }

  /// The keys that begin with these bytes; all keys if there are none.
  public init(prefix: [UInt8]) {
    // Exclusive upper bound: the prefix without trailing 0xFF bytes, its last byte incremented.
    var successor = prefix
    while successor.last == 0xFF { successor.removeLast() }
    if let last = successor.last { successor[successor.count - 1] = last + 1 }
    self.init(lower: prefix, upper: successor.isEmpty ? nil : successor)
  }

  /// The keys that begin with this text's UTF-8 bytes; all keys if it is empty.
  public init(prefix: String) { self.init(prefix: Array(prefix.utf8)) }

  /// From the first key up to, not including, the second.
  public init(_ keys: Range<Key>) { self.init(lower: keys.lowerBound.bytes, upper: keys.upperBound.bytes) }

  /// From the first key up to the second, both included.
  public init(_ keys: ClosedRange<Key>) {
    self.init(lower: keys.lowerBound.bytes, upper: keys.upperBound.bytes + [0])
  }

  /// From a key on, without upper bound.
  public init(_ keys: PartialRangeFrom<Key>) { self.init(lower: keys.lowerBound.bytes, upper: nil) }

  /// Up to, not including, a key.
  public init(_ keys: PartialRangeUpTo<Key>) { self.init(lower: [], upper: keys.upperBound.bytes) }

  /// Up to a key, which is included.
  public init(_ keys: PartialRangeThrough<Key>) { self.init(lower: [], upper: keys.upperBound.bytes + [0]) }

  /// The keys in both ranges.
  public func intersection(_ other: KeyRange) -> KeyRange {
    let lower = self.lower.lexicographicallyPrecedes(other.lower) ? other.lower : self.lower
    guard let upper, let otherUpper = other.upper else {
      return KeyRange(lower: lower, upper: self.upper ?? other.upper)
    }
    return KeyRange(lower: lower, upper: upper.lexicographicallyPrecedes(otherUpper) ? upper : otherUpper)
  }

  /// The part of the range after a key, in the direction of a scan.
  public func after(_ key: Key, reversed: Bool = false) -> KeyRange {
    intersection(
      reversed ? KeyRange(lower: [], upper: key.bytes) : KeyRange(lower: key.bytes + [0], upper: nil))
  }

  /// Whether the range contains the key.
  public func contains(_ key: Key) -> Bool { contains(key.bytes) }

  func contains(_ key: [UInt8]) -> Bool {
    !key.lexicographicallyPrecedes(lower) && (upper.map { key.lexicographicallyPrecedes($0) } ?? true)
  }

  /// Whether the range can contain no key.
  public var isEmpty: Bool { upper.map { !lower.lexicographicallyPrecedes($0) } ?? false }
}

/// Whether a scan continues after an entry.
public enum ScanStep: Sendable {
  /// Continue.
  case next
  /// Stop here.
  case stop
}
