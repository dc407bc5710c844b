/// A stored item of a type that does not use its own `Codable` form.
public enum ValueItem: Hashable, Sendable {
  /// Any bytes.
  case bytes([UInt8])
  /// A point in time that a double of seconds since 1970 represents exactly.
  case time(secondsSince1970: Double)
  /// Any other point in time: whole seconds since 1970, rounded down, and additional nanoseconds below 10^9.
  case instant(secondsSince1970: Int64, nanoseconds: UInt32)
  /// A UUID: its 16 bytes as two big-endian numbers.
  case uuid(UInt64, UInt64)
}

/// A type stored as one item of the value format, not in its own `Codable` form. The library
/// `SyncStoreFoundation` makes `Data`, `Date` and `UUID` such types.
public protocol ValueItemConvertible {
  /// The item to store.
  var valueItem: ValueItem { get }
  /// The value of a stored item; nil if it is of another type.
  init?(valueItem: ValueItem)
}
