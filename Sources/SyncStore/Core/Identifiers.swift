/// A 128-bit identifier. Compared as its 16 bytes in order, so that every implementation agrees on "greater".
package protocol Identifier128: Hashable, Comparable, Sendable, CustomStringConvertible {
  /// The first 8 bytes, big-endian.
  var high: UInt64 { get }
  /// The last 8 bytes, big-endian.
  var low: UInt64 { get }
  /// The identifier with these 16 bytes.
  init(high: UInt64, low: UInt64)
}

extension Identifier128 {
  /// The 32 lower-case hex digits.
  public var description: String { Hex.string(of: bytes) }

  /// The 16 bytes, first byte first.
  package var bytes: [UInt8] {
    (0..<16).map { UInt8(truncatingIfNeeded: ($0 < 8 ? high : low) >> UInt64(56 - 8 * ($0 & 7))) }
  }

  /// Nil unless there are exactly 16 bytes.
  package init?(bytes: some Collection<UInt8>) {
    guard bytes.count == 16 else { return nil }
    self.init(
      high: bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) },
      low: bytes.dropFirst(8).reduce(0) { $0 << 8 | UInt64($1) })
  }

  /// Nil unless the text is exactly 32 hex digits.
  public init?(_ text: some StringProtocol) {
    guard let bytes = Hex.bytes(of: text) else { return nil }
    self.init(bytes: bytes)
  }

  /// Compares the 16 bytes in order.
  public static func < (left: Self, right: Self) -> Bool {
    (left.high, left.low) < (right.high, right.low)
  }
}

/// One incarnation of a device's copy of a store (rule R9). Random; never used again once it is replaced.
public struct ActorID: Identifier128 {
  /// The first 8 bytes, big-endian.
  package let high: UInt64
  /// The last 8 bytes, big-endian.
  package let low: UInt64
  /// The identifier with these 16 bytes.
  package init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }
}

/// Identifies the data set that all copies of a store share. Random, created once by `init`.
public struct StoreID: Identifier128 {
  /// The first 8 bytes, big-endian.
  package let high: UInt64
  /// The last 8 bytes, big-endian.
  package let low: UInt64
  /// The identifier with these 16 bytes.
  package init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }
}

/// Identifies a round (rule R9). Random; durable at the sender before any record of the round leaves it.
public struct RoundMark: Identifier128 {
  /// The first 8 bytes, big-endian.
  package let high: UInt64
  /// The last 8 bytes, big-endian.
  package let low: UInt64
  /// The identifier with these 16 bytes.
  package init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }
}

/// Identifies a relay: a bucket or a directory through which members exchange what they write. Random, made
/// with the relay.
public struct RelayID: Identifier128 {
  /// The first 8 bytes, big-endian.
  package let high: UInt64
  /// The last 8 bytes, big-endian.
  package let low: UInt64
  /// The identifier with these 16 bytes.
  package init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }
}

/// Identifies a stream: what one incarnation of one copy publishes in a relay. Random.
public struct StreamID: Identifier128 {
  /// The first 8 bytes, big-endian.
  package let high: UInt64
  /// The last 8 bytes, big-endian.
  package let low: UInt64
  /// The identifier with these 16 bytes.
  package init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }
}

/// One installation: the SHA-256 of its TLS public key (DER, SubjectPublicKeyInfo).
public struct DeviceID: Hashable, Comparable, Sendable, CustomStringConvertible {
  /// The 32 bytes of the hash.
  package let bytes: [UInt8]

  /// Nil unless there are exactly 32 bytes.
  package init?(bytes: some Collection<UInt8>) {
    guard bytes.count == 32 else { return nil }
    self.bytes = Array(bytes)
  }

  /// Nil unless the text is exactly 64 hex digits.
  public init?(_ text: some StringProtocol) {
    guard let bytes = Hex.bytes(of: text) else { return nil }
    self.init(bytes: bytes)
  }

  /// The 64 lower-case hex digits.
  public var description: String { Hex.string(of: bytes) }

  /// Compares the bytes in order.
  public static func < (left: DeviceID, right: DeviceID) -> Bool {
    left.bytes.lexicographicallyPrecedes(right.bytes)
  }
}

/// Lower-case hexadecimal text.
package enum Hex {
  /// Two lower-case digits for each byte.
  package static func string(of bytes: some Sequence<UInt8>) -> String {
    var text: [UInt8] = []
    for byte in bytes {
      text.append(digits[Int(byte >> 4)])
      text.append(digits[Int(byte & 15)])
    }
    return String(decoding: text, as: UTF8.self)
  }

  /// The digits of a number, without leading zeros.
  static func digits(of number: UInt64) -> [UInt8] {
    var (text, rest): ([UInt8], UInt64) = ([], number)
    repeat {
      text.append(digits[Int(rest & 15)])
      rest >>= 4
    } while rest > 0
    return text.reversed()
  }

  /// Nil if the text holds anything but pairs of hex digits. Upper case is read, never written.
  package static func bytes(of text: some StringProtocol) -> [UInt8]? {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(text.utf8.count / 2)
    var high: UInt8?
    for digit in text.utf8 {
      guard let nibble = nibble(digit) else { return nil }
      if let first = high {
        bytes.append(first << 4 | nibble)
        high = nil
      } else {
        high = nibble
      }
    }
    return high == nil ? bytes : nil
  }

  private static func nibble(_ digit: UInt8) -> UInt8? {
    switch digit {
    case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
    case UInt8(ascii: "a")...UInt8(ascii: "f"): digit - UInt8(ascii: "a") + 10
    case UInt8(ascii: "A")...UInt8(ascii: "F"): digit - UInt8(ascii: "A") + 10
    default: nil
    }
  }

  private static let digits = Array("0123456789abcdef".utf8)
}
