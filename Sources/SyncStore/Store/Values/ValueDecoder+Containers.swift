/// The elements of an array or of bytes: a type that encodes its bytes one by one may have been stored as
/// bytes.
struct ValueUnkeyedDecodingContainer: UnkeyedDecodingContainer {
  private let source: ValueSource
  private let array: Int
  private let isBytes: Bool
  private let total: Int
  private var next: Int
  private(set) var currentIndex = 0

  init(_ source: ValueSource, _ at: Int) throws {
    let head = source.head(at)
    guard head.major == CBOR.Major.array || head.major == CBOR.Major.bytes else {
      throw source.mismatch([Any].self, words: "a list", at: at)
    }
    (self.source, array, next) = (source, at, head.next)
    (isBytes, total) = (head.major == CBOR.Major.bytes, Int(head.argument))
  }

  var codingPath: [any CodingKey] { source.path(to: array) }
  var count: Int? { total }
  var isAtEnd: Bool { currentIndex >= total }

  /// Reads the next element, and advances if that succeeds.
  @inline(__always)
  private mutating func step<Value>(_ read: (ValueSource, Int) throws -> Value) throws -> Value {
    guard !isAtEnd else { throw source.atEnd(Value.self, at: array) }
    guard !isBytes else { throw source.mismatch([Value].self, at: array) }
    let value = try read(source, next)
    next = source.skip(next)
    currentIndex += 1
    return value
  }

  @inline(__always)
  private mutating func integer<Number: FixedWidthInteger>(_: Number.Type) throws -> Number {
    guard isBytes, !isAtEnd else { return try step { try $0.integer(at: $1, Number.self) } }
    guard let number = Number(exactly: source.bytes[next]) else {
      throw source.outOfRange("\(source.bytes[next])", wanted: Number.self, at: array)
    }
    next += 1
    currentIndex += 1
    return number
  }

  mutating func decodeNil() throws -> Bool {
    guard !isAtEnd else { throw source.atEnd(Any?.self, at: array) }
    guard !isBytes, source.isNull(at: next) else { return false }
    next += 1
    currentIndex += 1
    return true
  }
  mutating func decode(_: Bool.Type) throws -> Bool { try step { try $0.bool(at: $1) } }
  mutating func decode(_: String.Type) throws -> String { try step { try $0.text(at: $1) } }
  mutating func decode(_: Double.Type) throws -> Double { try step { try $0.double(at: $1) } }
  mutating func decode(_: Float.Type) throws -> Float { try step { try $0.float(at: $1) } }
  mutating func decode(_: Int.Type) throws -> Int { try integer(Int.self) }
  mutating func decode(_: Int8.Type) throws -> Int8 { try integer(Int8.self) }
  mutating func decode(_: Int16.Type) throws -> Int16 { try integer(Int16.self) }
  mutating func decode(_: Int32.Type) throws -> Int32 { try integer(Int32.self) }
  mutating func decode(_: Int64.Type) throws -> Int64 { try integer(Int64.self) }
  mutating func decode(_: UInt.Type) throws -> UInt { try integer(UInt.self) }
  mutating func decode(_: UInt8.Type) throws -> UInt8 { try integer(UInt8.self) }
  mutating func decode(_: UInt16.Type) throws -> UInt16 { try integer(UInt16.self) }
  mutating func decode(_: UInt32.Type) throws -> UInt32 { try integer(UInt32.self) }
  mutating func decode(_: UInt64.Type) throws -> UInt64 { try integer(UInt64.self) }
  mutating func decode<Value: Decodable>(_: Value.Type) throws -> Value {
    // A single byte is no item of its own: it is read as an integer.
    if isBytes, Value.self == UInt8.self, let byte = staticCast(try integer(UInt8.self), as: Value.self) {
      return byte
    }
    return try step { try $0.read(Value.self, at: $1) }
  }

  mutating func nestedContainer<NestedKey: CodingKey>(
    keyedBy _: NestedKey.Type
  ) throws -> KeyedDecodingContainer<NestedKey> {
    try step { try ValueDecoder(source: $0, at: $1).container(keyedBy: NestedKey.self) }
  }
  mutating func nestedUnkeyedContainer() throws -> any UnkeyedDecodingContainer {
    try step { try ValueUnkeyedDecodingContainer($0, $1) }
  }
  mutating func superDecoder() throws -> any Decoder { try step { ValueDecoder(source: $0, at: $1) } }
}

struct ValueSingleDecodingContainer: SingleValueDecodingContainer {
  let source: ValueSource
  let at: Int

  var codingPath: [any CodingKey] { source.path(to: at) }

  func decodeNil() -> Bool { source.isNull(at: at) }
  func decode(_: Bool.Type) throws -> Bool { try source.bool(at: at) }
  func decode(_: String.Type) throws -> String { try source.text(at: at) }
  func decode(_: Double.Type) throws -> Double { try source.double(at: at) }
  func decode(_: Float.Type) throws -> Float { try source.float(at: at) }
  func decode(_: Int.Type) throws -> Int { try source.integer(at: at, Int.self) }
  func decode(_: Int8.Type) throws -> Int8 { try source.integer(at: at, Int8.self) }
  func decode(_: Int16.Type) throws -> Int16 { try source.integer(at: at, Int16.self) }
  func decode(_: Int32.Type) throws -> Int32 { try source.integer(at: at, Int32.self) }
  func decode(_: Int64.Type) throws -> Int64 { try source.integer(at: at, Int64.self) }
  func decode(_: UInt.Type) throws -> UInt { try source.integer(at: at, UInt.self) }
  func decode(_: UInt8.Type) throws -> UInt8 { try source.integer(at: at, UInt8.self) }
  func decode(_: UInt16.Type) throws -> UInt16 { try source.integer(at: at, UInt16.self) }
  func decode(_: UInt32.Type) throws -> UInt32 { try source.integer(at: at, UInt32.self) }
  func decode(_: UInt64.Type) throws -> UInt64 { try source.integer(at: at, UInt64.self) }
  func decode<Value: Decodable>(_: Value.Type) throws -> Value { try source.read(Value.self, at: at) }
}
