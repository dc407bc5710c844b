/// Decodes the item at an offset of a coded value. Two words, so that passing it to an initialiser allocates
/// nothing.
struct ValueDecoder: Decoder {
  let source: ValueSource
  let at: Int

  var codingPath: [any CodingKey] { source.path(to: at) }
  var userInfo: [CodingUserInfoKey: Any] { [:] }

  func container<Key: CodingKey>(keyedBy _: Key.Type) throws -> KeyedDecodingContainer<Key> {
    KeyedDecodingContainer(try ValueKeyedDecodingContainer<Key>(source, at))
  }
  func unkeyedContainer() throws -> any UnkeyedDecodingContainer {
    try ValueUnkeyedDecodingContainer(source, at)
  }
  func singleValueContainer() -> any SingleValueDecodingContainer {
    ValueSingleDecodingContainer(source: source, at: at)
  }
}

extension ValueSource {
  /// Reads the item at an offset.
  @inline(__always)
  func read<Value: Decodable>(_: Value.Type, at: Int) throws -> Value {
    if SelfCodingTypes.contains(Value.self) {
      return try restore { try Value(from: ValueDecoder(source: self, at: at)) }
    }
    if Value.self == String.self, let value = staticCast(try text(at: at), as: Value.self) { return value }
    return try readOther(Value.self, at: at)
  }

  @inline(never)
  private func readOther<Value: Decodable>(_: Value.Type, at: Int) throws -> Value {
    if let value = try array(Value.self, at: at) { return value }
    if let convertible = Value.self as? any ValueItemConvertible.Type {
      return try read(convertible, at: at)
    }
    SelfCodingTypes.insert(Value.self)
    return try restore { try Value(from: ValueDecoder(source: self, at: at)) }
  }

  private func read<Value>(_ type: any ValueItemConvertible.Type, at: Int) throws -> Value {
    guard let item = try item(at: at), let value = type.init(valueItem: item) as? Value else {
      throw mismatch(Value.self, at: at)
    }
    return value
  }

  /// Arrays whose elements need no container; nil for other types.
  private func array<Value>(_: Value.Type, at: Int) throws -> Value? {
    func integers<Number: FixedWidthInteger>(_: [Number].Type) throws -> Value? {
      if head(at).major == CBOR.Major.bytes {
        return staticCast(try byteString(at: at).map { Number($0) }, as: Value.self)
      }
      return staticCast(try elements(at: at) { try integer(at: $0, Number.self) }, as: Value.self)
    }
    if Value.self == [UInt8].self { return staticCast(try byteString(at: at), as: Value.self) }
    if Value.self == [String].self { return staticCast(try elements(at: at, text), as: Value.self) }
    if Value.self == [Int].self { return try integers([Int].self) }
    if Value.self == [Double].self { return staticCast(try elements(at: at, double), as: Value.self) }
    if Value.self == [Float].self { return staticCast(try elements(at: at, float), as: Value.self) }
    if Value.self == [Int32].self { return try integers([Int32].self) }
    if Value.self == [Int64].self { return try integers([Int64].self) }
    if Value.self == [UInt32].self { return try integers([UInt32].self) }
    if Value.self == [UInt64].self { return try integers([UInt64].self) }
    return nil
  }
}

/// The keyed container from which types read their properties.
struct ValueKeyedDecodingContainer<Key: CodingKey>: KeyedDecodingContainerProtocol {
  let source: ValueSource
  let map: Int
  let body: Int
  let count: Int

  init(_ source: ValueSource, _ at: Int) throws {
    let head = source.head(at)
    guard head.major == CBOR.Major.map else {
      throw source.mismatch([String: Any].self, words: "an object with properties", at: at)
    }
    (self.source, map, body, count) = (source, at, head.next, Int(head.argument))
  }

  var codingPath: [any CodingKey] { source.path(to: map) }
  var allKeys: [Key] { source.keys(body: body, count: count).compactMap { Key(stringValue: $0) } }

  func contains(_ key: Key) -> Bool { lookUp(key) != nil }

  @inline(__always)
  private func lookUp(_ key: some CodingKey) -> Int? {
    source.lookUp(key.stringValue, in: map, body: body, count: count)
  }

  @inline(__always)
  private func place(_ key: some CodingKey) throws -> Int {
    guard let place = lookUp(key) else { throw source.missing(key, at: map) }
    return place
  }

  /// The offset of the key's value; nil if it is missing or null.
  @inline(__always)
  private func present(_ key: Key) -> Int? {
    guard let place = lookUp(key), !source.isNull(at: place) else { return nil }
    return place
  }

  func decodeNil(forKey key: Key) throws -> Bool { source.isNull(at: try place(key)) }
  func decode(_: Bool.Type, forKey key: Key) throws -> Bool { try source.bool(at: try place(key)) }
  func decode(_: String.Type, forKey key: Key) throws -> String { try source.text(at: try place(key)) }
  func decode(_: Double.Type, forKey key: Key) throws -> Double { try source.double(at: try place(key)) }
  func decode(_: Float.Type, forKey key: Key) throws -> Float { try source.float(at: try place(key)) }
  func decode(_: Int.Type, forKey key: Key) throws -> Int {
    try source.integer(at: try place(key), Int.self)
  }
  func decode(_: Int8.Type, forKey key: Key) throws -> Int8 {
    try source.integer(at: try place(key), Int8.self)
  }
  func decode(_: Int16.Type, forKey key: Key) throws -> Int16 {
    try source.integer(at: try place(key), Int16.self)
  }
  func decode(_: Int32.Type, forKey key: Key) throws -> Int32 {
    try source.integer(at: try place(key), Int32.self)
  }
  func decode(_: Int64.Type, forKey key: Key) throws -> Int64 {
    try source.integer(at: try place(key), Int64.self)
  }
  func decode(_: UInt.Type, forKey key: Key) throws -> UInt {
    try source.integer(at: try place(key), UInt.self)
  }
  func decode(_: UInt8.Type, forKey key: Key) throws -> UInt8 {
    try source.integer(at: try place(key), UInt8.self)
  }
  func decode(_: UInt16.Type, forKey key: Key) throws -> UInt16 {
    try source.integer(at: try place(key), UInt16.self)
  }
  func decode(_: UInt32.Type, forKey key: Key) throws -> UInt32 {
    try source.integer(at: try place(key), UInt32.self)
  }
  func decode(_: UInt64.Type, forKey key: Key) throws -> UInt64 {
    try source.integer(at: try place(key), UInt64.self)
  }
  func decode<Value: Decodable>(_: Value.Type, forKey key: Key) throws -> Value {
    try source.read(Value.self, at: try place(key))
  }

  func decodeIfPresent(_: Bool.Type, forKey key: Key) throws -> Bool? {
    try present(key).map { try source.bool(at: $0) }
  }
  func decodeIfPresent(_: String.Type, forKey key: Key) throws -> String? {
    try present(key).map { try source.text(at: $0) }
  }
  func decodeIfPresent(_: Double.Type, forKey key: Key) throws -> Double? {
    try present(key).map { try source.double(at: $0) }
  }
  func decodeIfPresent(_: Float.Type, forKey key: Key) throws -> Float? {
    try present(key).map { try source.float(at: $0) }
  }
  func decodeIfPresent(_: Int.Type, forKey key: Key) throws -> Int? {
    try present(key).map { try source.integer(at: $0, Int.self) }
  }
  func decodeIfPresent(_: Int8.Type, forKey key: Key) throws -> Int8? {
    try present(key).map { try source.integer(at: $0, Int8.self) }
  }
  func decodeIfPresent(_: Int16.Type, forKey key: Key) throws -> Int16? {
    try present(key).map { try source.integer(at: $0, Int16.self) }
  }
  func decodeIfPresent(_: Int32.Type, forKey key: Key) throws -> Int32? {
    try present(key).map { try source.integer(at: $0, Int32.self) }
  }
  func decodeIfPresent(_: Int64.Type, forKey key: Key) throws -> Int64? {
    try present(key).map { try source.integer(at: $0, Int64.self) }
  }
  func decodeIfPresent(_: UInt.Type, forKey key: Key) throws -> UInt? {
    try present(key).map { try source.integer(at: $0, UInt.self) }
  }
  func decodeIfPresent(_: UInt8.Type, forKey key: Key) throws -> UInt8? {
    try present(key).map { try source.integer(at: $0, UInt8.self) }
  }
  func decodeIfPresent(_: UInt16.Type, forKey key: Key) throws -> UInt16? {
    try present(key).map { try source.integer(at: $0, UInt16.self) }
  }
  func decodeIfPresent(_: UInt32.Type, forKey key: Key) throws -> UInt32? {
    try present(key).map { try source.integer(at: $0, UInt32.self) }
  }
  func decodeIfPresent(_: UInt64.Type, forKey key: Key) throws -> UInt64? {
    try present(key).map { try source.integer(at: $0, UInt64.self) }
  }
  func decodeIfPresent<Value: Decodable>(_: Value.Type, forKey key: Key) throws -> Value? {
    try present(key).map { try source.read(Value.self, at: $0) }
  }

  func nestedContainer<NestedKey: CodingKey>(
    keyedBy _: NestedKey.Type, forKey key: Key
  ) throws -> KeyedDecodingContainer<NestedKey> {
    try ValueDecoder(source: source, at: try place(key)).container(keyedBy: NestedKey.self)
  }
  func nestedUnkeyedContainer(forKey key: Key) throws -> any UnkeyedDecodingContainer {
    try ValueUnkeyedDecodingContainer(source, try place(key))
  }
  func superDecoder() throws -> any Decoder {
    ValueDecoder(source: source, at: try place(ValueKey(stringValue: "super")))
  }
  func superDecoder(forKey key: Key) throws -> any Decoder {
    ValueDecoder(source: source, at: try place(key))
  }
}
