/// The keyed container to which types write their properties. Each call writes to the encoder's buffer
/// directly.
///
/// The methods repeat each other on purpose: one generic method for all types would cost a type check per
/// property.
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
    deferredEncoder(key).container(keyedBy: type)
  }
  func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedEncodingContainer {
    deferredEncoder(key).unkeyedContainer()
  }
  func superEncoder() -> any Encoder { deferredEncoder(ValueKey(stringValue: "super")) }
  func superEncoder(forKey key: Key) -> any Encoder { deferredEncoder(key) }

  private func deferredEncoder(_ key: some CodingKey) -> ValueEncoder {
    do {
      try encoder.key(key, of: number)
      return try encoder.deferredEncoder()
    } catch {
      encoder.recordFailure(error)
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
    deferredEncoder().container(keyedBy: type)
  }
  func nestedUnkeyedContainer() -> any UnkeyedEncodingContainer { deferredEncoder().unkeyedContainer() }
  func superEncoder() -> any Encoder { deferredEncoder() }

  private func deferredEncoder() -> ValueEncoder {
    do {
      try encoder.element(of: number)
      return try encoder.deferredEncoder()
    } catch {
      encoder.recordFailure(error)
      return ValueEncoder()
    }
  }
}

struct ValueSingleEncodingContainer: SingleValueEncodingContainer {
  let encoder: ValueEncoder
  let number: Int

  var codingPath: [any CodingKey] { encoder.codingPath }

  func encodeNil() throws {
    try encoder.single(of: number)
    encoder.buffer.append(CBOR.nullItem)
  }
  func encode(_ value: Bool) throws {
    try encoder.single(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: String) throws {
    try encoder.single(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Double) throws {
    try encoder.single(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Float) throws {
    try encoder.single(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Int) throws {
    try encoder.single(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Int8) throws {
    try encoder.single(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Int16) throws {
    try encoder.single(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Int32) throws {
    try encoder.single(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: Int64) throws {
    try encoder.single(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: UInt) throws {
    try encoder.single(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: UInt8) throws {
    try encoder.single(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: UInt16) throws {
    try encoder.single(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: UInt32) throws {
    try encoder.single(of: number)
    encoder.buffer.append(item: value)
  }
  func encode(_ value: UInt64) throws {
    try encoder.single(of: number)
    encoder.buffer.append(item: value)
  }
  func encode<Value: Encodable>(_ value: Value) throws {
    try encoder.single(of: number)
    try encoder.write(value)
  }
}
