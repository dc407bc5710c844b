/// The type of a value, stored with it so that a tool can show it. The encodings are in `schemas/values.md`.
public struct ValueType: RawRepresentable, Hashable, Sendable {
  /// The number in the formats.
  public let rawValue: UInt8

  /// The type with this number. Unknown numbers are kept and passed on (F103).
  public init(rawValue: UInt8) { self.rawValue = rawValue }

  /// Any bytes.
  public static let bytes = ValueType(rawValue: 0)
  /// UTF-8 text.
  public static let string = ValueType(rawValue: 1)
  /// One byte, 0 or 1.
  public static let bool = ValueType(rawValue: 2)
  /// 8 bytes, two's complement, little-endian.
  public static let int = ValueType(rawValue: 3)
  /// 8 bytes, IEEE 754, little-endian.
  public static let double = ValueType(rawValue: 4)
  /// A point in time: 8 bytes, a double of seconds since 1970, little-endian; or 12 bytes, see
  /// `schemas/values.md`.
  public static let date = ValueType(rawValue: 5)
  /// UTF-8 text that is JSON.
  public static let json = ValueType(rawValue: 6)
  /// An integer above those of `int`: 8 bytes, little-endian.
  public static let uint = ValueType(rawValue: 7)
  /// 4 bytes, IEEE 754, little-endian.
  public static let float = ValueType(rawValue: 8)
  /// A coded value, such as an object or an array: one item of CBOR.
  public static let cbor = ValueType(rawValue: 9)
  /// 16 bytes.
  public static let uuid = ValueType(rawValue: 10)
}

extension ValueType: CustomStringConvertible {
  private static let names: [(ValueType, String)] = [
    (.bytes, "bytes"), (.string, "string"), (.bool, "bool"), (.int, "int"), (.double, "double"),
    (.date, "date"), (.json, "json"), (.uint, "uint"), (.float, "float"), (.cbor, "cbor"), (.uuid, "uuid"),
  ]

  /// The name that `sync-cli` shows; `type-N` for an unknown type.
  public var description: String {
    Self.names.first { $0.0 == self }?.1 ?? "type-\(rawValue)"
  }

  /// The type of that name; nil if there is none.
  public init?(name: some StringProtocol) {
    guard let match = Self.names.first(where: { $0.1 == name }) else { return nil }
    self = match.0
  }
}
