/// A hybrid logical timestamp: 48 bits of milliseconds since 1970, 16 bits of counter.
///
/// The scheme is the one of Kulkarni, Demirbas et al., "Logical Physical Clocks" (2014).
public struct Stamp: Hashable, Comparable, Sendable, CustomStringConvertible {
  /// Milliseconds in the upper 48 bits, the counter in the lower 16.
  public let rawValue: UInt64

  /// The stamp with these 64 bits.
  public init(rawValue: UInt64) { self.rawValue = rawValue }

  /// The stamp at `milliseconds` since 1970 (taken modulo 2^48).
  public init(milliseconds: UInt64, counter: UInt16 = 0) {
    rawValue = milliseconds << 16 | UInt64(counter)
  }

  /// Precedes every write.
  public static let zero = Stamp(rawValue: 0)
  /// Greater than any stamp a clock gives; a record that bears it is refused (F51).
  public static let maximum = Stamp(rawValue: .max)

  /// Milliseconds since 1970.
  public var milliseconds: UInt64 { rawValue >> 16 }
  /// Distinguishes the writes of one millisecond.
  public var counter: UInt16 { UInt16(truncatingIfNeeded: rawValue) }
  /// `milliseconds.counter`.
  public var description: String { "\(milliseconds).\(counter)" }

  /// Compares the raw values: earlier first.
  public static func < (left: Stamp, right: Stamp) -> Bool { left.rawValue < right.rawValue }
}

/// A hybrid logical clock. A value: the wall clock is passed in, never read.
///
/// Invariant: every stamp it gives is greater than all it has given and seen before, whatever the wall clock
/// does.
public struct HybridClock: Hashable, Sendable {
  /// The greatest stamp given or seen.
  public private(set) var last: Stamp

  /// A clock that has given and seen nothing above `last`.
  public init(last: Stamp = .zero) { self.last = last }

  /// The stamp of a write made now. A full counter carries into the milliseconds and never wraps (F52). Nil
  /// when the clock is at its end, which no clock within the drift limit reaches.
  public mutating func tick(wall milliseconds: UInt64) -> Stamp? {
    guard last.rawValue < Stamp.maximum.rawValue - 1 else { return nil }
    let wall = Stamp(milliseconds: min(milliseconds, Self.lastMillisecond))
    last = max(Stamp(rawValue: last.rawValue + 1), wall)
    return last
  }

  /// Merges a stamp made elsewhere.
  public mutating func observe(_ stamp: Stamp) { last = max(last, stamp) }

  private static let lastMillisecond: UInt64 = (1 << 48) - 2
}
