public import FoundationEssentials
public import SyncStore

/// `Data`, `Date` and `UUID` as stored values. A separate library, because programs without Foundation start
/// faster.

extension Data: ValueItemConvertible {
  /// The bytes.
  public var valueItem: ValueItem { .bytes(Array(self)) }
  /// The data of a byte item; nil for any other item.
  public init?(valueItem: ValueItem) {
    guard case .bytes(let bytes) = valueItem else { return nil }
    self.init(bytes)
  }
}

extension Date: ValueItemConvertible {
  /// Seconds since 1970, exactly; to the nanosecond for dates within 97 days of 2001-01-01 that a double
  /// cannot represent.
  public var valueItem: ValueItem {
    let seconds = timeIntervalSince1970
    if seconds - Self.timeIntervalBetween1970AndReferenceDate == timeIntervalSinceReferenceDate
      || !seconds.isFinite
      || abs(seconds) > Self.instants
    {
      return .time(secondsSince1970: seconds)
    }
    let whole = timeIntervalSinceReferenceDate.rounded(.down)
    let nanoseconds = ((timeIntervalSinceReferenceDate - whole) * 1e9).rounded()
    let carry = nanoseconds >= 1e9
    return .instant(
      secondsSince1970: Int64(whole + Self.timeIntervalBetween1970AndReferenceDate) + (carry ? 1 : 0),
      nanoseconds: carry ? 0 : UInt32(nanoseconds))
  }

  /// Above this many seconds a double has no fractions.
  private static let instants = 9e15

  /// The date of a time item; nil for any other item.
  public init?(valueItem: ValueItem) {
    switch valueItem {
    case .time(let seconds): self.init(timeIntervalSince1970: seconds)
    case .instant(let seconds, let nanoseconds):
      let whole = Double(seconds) - Self.timeIntervalBetween1970AndReferenceDate
      self.init(timeIntervalSinceReferenceDate: whole + Double(nanoseconds) / 1e9)
    default: return nil
    }
  }
}

extension UUID: ValueItemConvertible {
  /// The 16 bytes.
  public var valueItem: ValueItem {
    let bytes = [
      uuid.0, uuid.1, uuid.2, uuid.3, uuid.4, uuid.5, uuid.6, uuid.7, uuid.8, uuid.9, uuid.10, uuid.11,
      uuid.12,
      uuid.13, uuid.14, uuid.15,
    ]
    let halves = (bytes[..<8], bytes[8...])
    return .uuid(
      halves.0.reduce(0) { $0 << 8 | UInt64($1) }, halves.1.reduce(0) { $0 << 8 | UInt64($1) })
  }

  /// The UUID of a UUID item; nil for any other item.
  public init?(valueItem: ValueItem) {
    guard case .uuid(let high, let low) = valueItem else { return nil }
    func byte(_ index: UInt64) -> UInt8 {
      UInt8(truncatingIfNeeded: (index < 8 ? high : low) >> (56 - 8 * (index & 7)))
    }
    self.init(
      uuid: (
        byte(0), byte(1), byte(2), byte(3), byte(4), byte(5), byte(6), byte(7), byte(8), byte(9), byte(10),
        byte(11), byte(12), byte(13), byte(14), byte(15)
      ))
  }
}

extension UUID: KeyComponent {
  /// Appends the 36 characters, in lower case.
  public func appendKeyBytes(to key: inout [UInt8]) { key.append(contentsOf: uuidString.lowercased().utf8) }
}

extension Date: KeyComponent {
  /// Appends whole seconds since 1970 as an integer, a point, and nine digits of nanoseconds: dates less than
  /// a nanosecond apart are equal.
  public func appendKeyBytes(to key: inout [UInt8]) {
    let reference = timeIntervalSinceReferenceDate
    let whole = reference.rounded(.down)
    let offset = Self.timeIntervalBetween1970AndReferenceDate
    let limit = 9.2e18
    let seconds =
      whole.isNaN
      ? Int64.max
      : whole >= limit - offset ? Int64.max - 1 : whole <= -limit ? .min : Int64(whole) + Int64(offset)
    let nanoseconds =
      abs(whole) < limit ? min(Int64(((reference - whole) * 1e9).rounded(.down)), 999_999_999) : 0
    seconds.appendKeyBytes(to: &key)
    key.append(0x2E)
    let digits = String(nanoseconds)
    key.append(contentsOf: [UInt8](repeating: 0x30, count: 9 - digits.utf8.count))
    key.append(contentsOf: digits.utf8)
  }
}
