/// What a type is stored as whose own `Codable` is not what it is to be stored as.
public enum ValueItem: Hashable, Sendable {
  /// Any bytes.
  case bytes([UInt8])
  /// A point in time that a double of seconds since 1970 says exactly.
  case time(secondsSince1970: Double)
  /// Any other point in time: whole seconds since 1970, rounded down, and nanoseconds behind them, below 10^9.
  case instant(secondsSince1970: Int64, nanoseconds: UInt32)
  /// A UUID: its 16 bytes as two numbers, the highest byte first.
  case uuid(UInt64, UInt64)
}

/// A type that is stored as one item of the value format, not as its own `Codable` has it. The library
/// `SyncStoreFoundation` makes `Data`, `Date` and `UUID` such types.
public protocol ValueItemConvertible {
  /// What it is stored as.
  var valueItem: ValueItem { get }
  /// The value that is stored so; nil if it is of another type.
  init?(valueItem: ValueItem)
}
