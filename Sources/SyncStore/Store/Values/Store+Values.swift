/// Typed values: any `Codable` type is stored with its type; reading as an incompatible type fails.
///
/// - An absent key is nil, or the default; a value of another type is `.wrongType`, never treated as absent.
/// - A number can be read as any number type of its kind that holds it exactly; otherwise it is
///   `.outOfBounds`.
/// - A property that the stored value lacks is nil if it is optional, otherwise `.wrongType`; unknown
///   properties are ignored. So properties can be added, removed and reordered.
/// - For `Data`, `Date` and `UUID` also import `SyncStoreFoundation`.
extension Store {
  /// Sets a key to a value of any `Encodable` type.
  ///
  /// An array literal of whole numbers is treated as bytes: `put("k", [1, 2, 3])` is the put of `[UInt8]`.
  /// For an array of numbers state the type: `put("k", [1, 300] as [Int])`.
  ///
  /// - Parameters:
  ///   - expiration: when it expires; nil is the default of the configuration.
  ///   - durability: for this write; by default the store's.
  /// - Throws: as the put of bytes, and as `EncodedValue`.
  @_disfavoredOverload
  public func put<Content: Encodable>(
    _ key: Key, _ value: Content, expiration: Expiration? = nil, durability: Durability? = nil
  ) throws(StoreError) {
    try EncodedValue.with(value) { bytes, type throws(StoreError) in
      try put(key, bytes, type: type, expiration: expiration, durability: durability)
    }
  }

  /// Sets a key to a number, a string or a Boolean.
  ///
  /// - Parameters:
  ///   - expiration: when it expires; nil is the default of the configuration.
  ///   - durability: for this write; by default the store's.
  /// - Throws: as the put of bytes.
  @_disfavoredOverload
  public func put<Content: ScalarValue>(
    _ key: Key, _ value: Content, expiration: Expiration? = nil, durability: Durability? = nil
  ) throws(StoreError) {
    try value.scalar.withBytes { bytes, type throws(StoreError) in
      try put(key, bytes, type: type, expiration: expiration, durability: durability)
    }
  }

  /// Sets a key to a typed value if its present state is the expected one; see the put of bytes.
  /// `Expected.equal(to:)` expects a typed value.
  ///
  /// - Throws: as the call for bytes, and as `EncodedValue`.
  @_disfavoredOverload
  public func put<Content: Encodable>(
    _ key: Key, _ value: Content, expecting expectation: Expected, expiration: Expiration? = nil,
    durability: Durability? = nil
  ) throws(StoreError) -> Dot? {
    let form = try EncodedValue(value)
    return try put(
      key, form.bytes, expecting: expectation, type: form.type, expiration: expiration, durability: durability
    )
  }

  /// Sets a key unless it already has this value, type and deadline. False in that case.
  ///
  /// - Throws: as the call for bytes, and as `EncodedValue`.
  @_disfavoredOverload
  public func putIfChanged<Content: Encodable>(
    _ key: Key, _ value: Content, expiration: Expiration? = nil, durability: Durability? = nil
  ) throws(StoreError) -> Bool {
    let form = try EncodedValue(value)
    return try putIfChanged(key, form.bytes, type: form.type, expiration: expiration, durability: durability)
  }

  /// The value of a key as a number, a string or a Boolean; nil if it has none.
  ///
  /// - Throws: as `get`; `.wrongType` if it is of another type, `.outOfBounds` if it does not fit.
  @inlinable
  public func get<Content: ScalarValue>(_ key: Key, as _: Content.Type) throws(StoreError) -> Content? {
    guard let scalar = try scalar(key, of: Content.self) else { return nil }
    do throws(StoreError) { return try Content(scalar) } catch { throw error.of(key) }
  }

  /// The decoded value of a key; nil if it has none.
  ///
  /// - Throws: as `get`, and as `EncodedValue.decoded`.
  public func get<Content: Decodable>(_ key: Key, as _: Content.Type) throws(StoreError) -> Content? {
    var source = ValueSource.pool.acquire()
    defer { ValueSource.pool.release(&source) }
    guard let type = try load(key, into: source) else { return nil }
    do throws(StoreError) { return try EncodedValue.decode(Content.self, from: source, type: type) } catch {
      throw error.of(key)
    }
  }

  /// The value of a key as a number, a string or a Boolean; the default if it has none.
  ///
  /// - Throws: as `get(_:as:)`; also if the value is of another type: the default applies to absent keys
  ///   only.
  public func get<Content: ScalarValue>(
    _ key: Key, default fallback: @autoclosure () -> Content
  ) throws(StoreError) -> Content {
    try get(key, as: Content.self) ?? fallback()
  }
}

extension ReadableStore {
  /// The decoded value of a key; nil if it has none.
  ///
  /// - Throws: as `get`, and as `EncodedValue.decoded`.
  public func get<Content: Decodable>(_ key: Key, as _: Content.Type) throws(StoreError) -> Content? {
    try get(key)?.decoded(Content.self, of: key)
  }

  /// The decoded value of a key; the default if it has none.
  ///
  /// - Throws: as `get(_:as:)`; also if the value is of another type: the default applies to absent keys
  ///   only.
  public func get<Content: Decodable>(
    _ key: Key, default fallback: @autoclosure () -> Content
  ) throws(StoreError) -> Content {
    try get(key, as: Content.self) ?? fallback()
  }
}

extension Transaction {
  /// Sets a key to a value of any `Encodable` type, as `Store.put` does.
  ///
  /// - Throws: as the put of bytes, and as `EncodedValue`.
  @_disfavoredOverload
  public mutating func put<Content: Encodable>(
    _ key: Key, _ value: Content, expiration: Expiration? = nil
  ) throws(StoreError) {
    let form = try EncodedValue(value)
    try put(key, form.bytes, type: form.type, expiration: expiration)
  }

  /// Sets a key if its state, including earlier writes of this transaction, is the expected one.
  ///
  /// - Throws: as the call for bytes, and as `EncodedValue`.
  @_disfavoredOverload
  public mutating func put<Content: Encodable>(
    _ key: Key, _ value: Content, expecting expectation: Expected, expiration: Expiration? = nil
  ) throws(StoreError) -> Dot? {
    let form = try EncodedValue(value)
    return try put(key, form.bytes, expecting: expectation, type: form.type, expiration: expiration)
  }

  /// Sets a key unless it already has this value, type and deadline. False in that case.
  ///
  /// - Throws: as the call for bytes, and as `EncodedValue`.
  @_disfavoredOverload
  public mutating func putIfChanged<Content: Encodable>(
    _ key: Key, _ value: Content, expiration: Expiration? = nil
  ) throws(StoreError) -> Bool {
    let form = try EncodedValue(value)
    return try putIfChanged(key, form.bytes, type: form.type, expiration: expiration)
  }

  /// The typed value of a key, including earlier writes of this transaction; nil if it has none.
  ///
  /// - Throws: as `get`, and as `EncodedValue.decoded`.
  public func get<Content: Decodable>(_ key: Key, as _: Content.Type) throws(StoreError) -> Content? {
    try get(key)?.decoded(Content.self, of: key)
  }

  /// The typed value of a key, including earlier writes of this transaction; the default if it has none.
  ///
  /// - Throws: as `get(_:as:)`; also if the value is of another type: the default applies to absent keys
  ///   only.
  public func get<Content: Decodable>(
    _ key: Key, default fallback: @autoclosure () -> Content
  ) throws(StoreError) -> Content {
    try get(key, as: Content.self) ?? fallback()
  }
}

extension Value {
  /// Decodes the value; errors name the key.
  @inline(__always)
  func decoded<Content: Decodable>(_: Content.Type, of key: Key) throws(StoreError) -> Content {
    do throws(StoreError) { return try EncodedValue.decode(Content.self, from: bytes, type: type) } catch {
      throw error.of(key)
    }
  }
}

extension StoreError {
  /// This error with the key in its message.
  @usableFromInline @inline(never)
  func of(_ key: Key) -> StoreError { StoreError(code, "key \(key): \(message)", path: path, errno: errno) }
}
