/// A value that needs no CBOR encoding: the types before `cbor` in `schemas/values.md`.
public enum Scalar: Hashable, Sendable {
  /// A truth value.
  case bool(Bool)
  /// An integer.
  case int(Int64)
  /// An integer; stored as `.int` if that can hold it.
  case uint(UInt64)
  /// A number of 32 bits.
  case float(Float)
  /// A number of 64 bits.
  case double(Double)
  /// Text.
  case string(String)
  /// Any bytes.
  case bytes([UInt8])
}

/// A type whose values are stored as a `Scalar`: `Bool`, the integers, `Float`, `Double`, `String` and
/// `[UInt8]`. Its values bypass the encoder; all other `Codable` types are encoded.
public protocol ScalarValue: Codable, Sendable {
  /// The stored form.
  var scalar: Scalar { get }
  /// The value of a stored scalar. Throws `.wrongType` for another type, `.outOfBounds` if this type cannot
  /// hold it.
  init(_ scalar: Scalar) throws(StoreError)
}

extension Scalar {
  /// Passes the stored bytes and their type to `body`.
  @inline(__always)
  func withBytes<Result>(
    _ body: (Span<UInt8>, ValueType) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    switch self {
    case .bool(let value):
      let bytes: InlineArray<1, UInt8> = [value ? 1 : 0]
      return try body(bytes.span, .bool)
    case .int(let value):
      return try Self.with(UInt64(bitPattern: value)) { bytes throws(StoreError) in try body(bytes, .int) }
    case .uint(let value):
      let type: ValueType = value > UInt64(Int64.max) ? .uint : .int
      return try Self.with(value) { bytes throws(StoreError) in try body(bytes, type) }
    case .double(let value):
      return try Self.with(value.bitPattern) { bytes throws(StoreError) in try body(bytes, .double) }
    case .float(let value):
      let bits = value.bitPattern
      let bytes = InlineArray<4, UInt8> { UInt8(truncatingIfNeeded: bits >> UInt32(8 * $0)) }
      return try body(bytes.span, .float)
    case .string(let text): return try body(text.utf8.span, .string)
    case .bytes(let bytes): return try body(bytes.span, .bytes)
    }
  }

  @inline(__always)
  private static func with<Result>(
    _ bits: UInt64, _ body: (Span<UInt8>) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    let bytes = InlineArray<8, UInt8> { UInt8(truncatingIfNeeded: bits >> UInt64(8 * $0)) }
    return try body(bytes.span)
  }

  /// Decodes bytes of a type; nil if that is no scalar type.
  @inline(__always)
  init?(_ bytes: RawSpan, _ type: ValueType) throws(StoreError) {
    switch type {
    case .bool:
      guard bytes.byteCount == 1, bytes.load(0, as: UInt8.self) < 2 else { throw Self.malformed(type) }
      self = .bool(bytes.load(0, as: UInt8.self) == 1)
    case .int: self = .int(Int64(bitPattern: try Self.word(bytes, type)))
    case .uint: self = .uint(try Self.word(bytes, type))
    case .double: self = .double(Double(bitPattern: try Self.word(bytes, type)))
    case .float:
      guard bytes.byteCount == 4 else { throw Self.malformed(type) }
      self = .float(Float(bitPattern: bytes.load(0)))
    case .string:
      guard let text = bytes.text else { throw Self.malformed(type) }
      self = .string(text)
    case .bytes: self = .bytes([UInt8](copying: bytes))
    default: return nil
    }
  }

  @inline(__always)
  private static func word(_ bytes: RawSpan, _ type: ValueType) throws(StoreError) -> UInt64 {
    guard bytes.byteCount == 8 else { throw malformed(type) }
    return bytes.load(0)
  }

  @inline(never)
  static func malformed(_ type: ValueType) -> StoreError {
    StoreError(
      .malformedValue, "the bytes are not those of type \(type), which the value has: write it again")
  }

  private var noun: String {
    switch self {
    case .bool: "a Bool"
    case .int, .uint: "an integer"
    case .float, .double: "a floating-point number"
    case .string: "text"
    case .bytes: "bytes"
    }
  }

  @inline(never)
  func mismatch<Wanted>(_: Wanted.Type) -> StoreError {
    StoreError(.wrongType, "the value is \(noun), not a value of type \(Wanted.self): read it as what it is")
  }
}
