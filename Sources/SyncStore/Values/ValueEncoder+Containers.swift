/// What types write their properties to. Each call goes to the encoder's buffer at once.
///
/// They are plain to the point of repetition: a call that went through one generic method for all types would cost a
/// look at the type for each property.
struct ValueKeyedEncodingContainer<Key: CodingKey>: KeyedEncodingContainerProtocol {
  let encoder: ValueEncoder
  let number: Int

  var codingPath: [any CodingKey] { encoder.codingPath }

  func encodeNil(forKey key: Key) throws {
    try encoder.key(key, of: number)
    encoder.buffer.append(CBOR.nullItem)
  }
  func encode(_ value: Bool, forKey key: Key) throws {
    try encoder.key(key, of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: String, forKey key: Key) throws {
    try encoder.key(key, of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Double, forKey key: Key) throws {
    try encoder.key(key, of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Float, forKey key: Key) throws {
    try encoder.key(key, of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Int, forKey key: Key) throws {
    try encoder.key(key, of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Int8, forKey key: Key) throws {
    try encoder.key(key, of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Int16, forKey key: Key) throws {
    try encoder.key(key, of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Int32, forKey key: Key) throws {
    try encoder.key(key, of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Int64, forKey key: Key) throws {
    try encoder.key(key, of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: UInt, forKey key: Key) throws {
    try encoder.key(key, of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: UInt8, forKey key: Key) throws {
    try encoder.key(key, of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: UInt16, forKey key: Key) throws {
    try encoder.key(key, of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: UInt32, forKey key: Key) throws {
    try encoder.key(key, of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: UInt64, forKey key: Key) throws {
    try encoder.key(key, of: number)
    encoder.buffer.append(item: value)
  }
  func encode<Value: Encodable>(_ value: Value, forKey key: Key) throws {
    try encoder.key(key, of: number)
    try encoder.write(value)
  }

  func nestedContainer<NestedKey: CodingKey>(
    keyedBy type: NestedKey.Type, forKey key: Key
  ) -> KeyedEncodingContainer<NestedKey> {
    later(key).container(keyedBy: type)
  }
  func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedEncodingContainer {
    later(key).unkeyedContainer()
  }
  func superEncoder() -> any Encoder { later(ValueKey(stringValue: "super")) }
  func superEncoder(forKey key: Key) -> any Encoder { later(key) }

  private func later(_ key: some CodingKey) -> ValueEncoder {
    do {
      try encoder.key(key, of: number)
      return try encoder.encoderForLater()
    } catch {
      encoder.note(error)
      return ValueEncoder()
    }
  }
}

struct ValueUnkeyedEncodingContainer: UnkeyedEncodingContainer {
  let encoder: ValueEncoder
  let number: Int

  var codingPath: [any CodingKey] { encoder.codingPath }
  var count: Int { encoder.count(of: number) }

  func encodeNil() throws {
    try encoder.element(of: number)
    encoder.buffer.append(CBOR.nullItem)
  }
  func encode(_ value: Bool) throws {
    try encoder.element(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: String) throws {
    try encoder.element(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Double) throws {
    try encoder.element(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Float) throws {
    try encoder.element(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Int) throws {
    try encoder.element(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Int8) throws {
    try encoder.element(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Int16) throws {
    try encoder.element(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Int32) throws {
    try encoder.element(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Int64) throws {
    try encoder.element(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: UInt) throws {
    try encoder.element(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: UInt8) throws {
    try encoder.element(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: UInt16) throws {
    try encoder.element(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: UInt32) throws {
    try encoder.element(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: UInt64) throws {
    try encoder.element(of: number)
    encoder.buffer.append(item: value)
  }
  func encode<Value: Encodable>(_ value: Value) throws {
    try encoder.element(of: number)
    try encoder.write(value)
  }

  func nestedContainer<NestedKey: CodingKey>(
    keyedBy type: NestedKey.Type
  ) -> KeyedEncodingContainer<NestedKey> {
    later().container(keyedBy: type)
  }
  func nestedUnkeyedContainer() -> any UnkeyedEncodingContainer { later().unkeyedContainer() }
  func superEncoder() -> any Encoder { later() }

  private func later() -> ValueEncoder {
    do {
      try encoder.element(of: number)
      return try encoder.encoderForLater()
    } catch {
      encoder.note(error)
      return ValueEncoder()
    }
  }
}

struct ValueSingleEncodingContainer: SingleValueEncodingContainer {
  let encoder: ValueEncoder
  let number: Int

  var codingPath: [any CodingKey] { encoder.codingPath }

  func encodeNil() throws {
    try encoder.one(of: number)
    encoder.buffer.append(CBOR.nullItem)
  }
  func encode(_ value: Bool) throws {
    try encoder.one(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: String) throws {
    try encoder.one(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Double) throws {
    try encoder.one(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Float) throws {
    try encoder.one(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Int) throws {
    try encoder.one(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Int8) throws {
    try encoder.one(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Int16) throws {
    try encoder.one(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Int32) throws {
    try encoder.one(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Int64) throws {
    try encoder.one(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: UInt) throws {
    try encoder.one(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: UInt8) throws {
    try encoder.one(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: UInt16) throws {
    try encoder.one(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: UInt32) throws {
    try encoder.one(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: UInt64) throws {
    try encoder.one(of: number)
    encoder.buffer.append(item: value)
  }
  func encode<Value: Encodable>(_ value: Value) throws {
    try encoder.one(of: number)
    try encoder.write(value)
  }
}
