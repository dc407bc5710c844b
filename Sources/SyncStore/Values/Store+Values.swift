/// Typed values: any `Codable` type is stored together with its type, and read back as what it was or not at
/// all.
///
/// - An absent key is nil, or the default; a value of another type is never taken for absent: it is
///   `.wrongType`.
/// - A number is read as any type of number of its kind that holds it exactly, else it is `.outOfBounds`.
/// - A property that the stored value lacks is nil if it is optional, else `.wrongType`; what the type does
///   not know is passed over. So properties can be added, removed and put in another order.
/// - `Data`, `Date` and `UUID` are at home in `SyncStoreFoundation`: import that, too.
extension Store {
  /// Sets a key to a value of any type that can be encoded.
  ///
  /// An array literal of whole numbers is taken for bytes: `put("k", [1, 2, 3])` is the put of `[UInt8]`.
  /// Where it is to be an array of numbers say so: `put("k", [1, 300] as [Int])`.
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

  /// Sets a key to a number, a text or a truth value.
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
  /// - Throws: as the same for bytes, and as `EncodedValue`.
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

  /// Sets a key unless it has this very value, type and deadline already. False in that case.
  ///
  /// - Throws: as the same for bytes, and as `EncodedValue`.
  @_disfavoredOverload
  public func putIfChanged<Content: Encodable>(
    _ key: Key, _ value: Content, expiration: Expiration? = nil, durability: Durability? = nil
  ) throws(StoreError) -> Bool {
    let form = try EncodedValue(value)
    return try putIfChanged(key, form.bytes, type: form.type, expiration: expiration, durability: durability)
  }

  /// The value of a key as a number, a text or a truth value; nil if it has none.
  ///
  /// - Throws: as `get`; `.wrongType` if it is of another type, `.outOfBounds` if it does not fit.
  @inlinable
  public func get<Content: ScalarValue>(_ key: Key, as _: Content.Type) throws(StoreError) -> Content? {
    guard let scalar = try scalar(key, of: Content.self) else { return nil }
    do throws(StoreError) { return try Content(scalar) } catch { throw error.of(key) }
  }

  /// The value of a key as a type of the program; nil if it has none.
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

  /// The value of a key as a number, a text or a truth value; the default if it has none.
  ///
  /// - Throws: as `get(_:as:)`: a value of another type is no reason to take the default.
  public func get<Content: ScalarValue>(
    _ key: Key, default fallback: @autoclosure () -> Content
  ) throws(StoreError) -> Content {
    try get(key, as: Content.self) ?? fallback()
  }
}

extension ReadableStore {
  /// The value of a key as a type of the program; nil if it has none.
  ///
  /// - Throws: as `get`, and as `EncodedValue.decoded`.
  public func get<Content: Decodable>(_ key: Key, as _: Content.Type) throws(StoreError) -> Content? {
    try get(key)?.decoded(Content.self, of: key)
  }

  /// The value of a key as a type of the program; the default if it has none.
  ///
  /// - Throws: as `get(_:as:)`: a value of another type is no reason to take the default.
  public func get<Content: Decodable>(
    _ key: Key, default fallback: @autoclosure () -> Content
  ) throws(StoreError) -> Content {
    try get(key, as: Content.self) ?? fallback()
  }
}

extension Transaction {
  /// Sets a key to a value of any type that can be encoded, as `Store.put` does.
  ///
  /// - Throws: as the put of bytes, and as `EncodedValue`.
  @_disfavoredOverload
  public mutating func put<Content: Encodable>(
    _ key: Key, _ value: Content, expiration: Expiration? = nil
  ) throws(StoreError) {
    let form = try EncodedValue(value)
    try put(key, form.bytes, type: form.type, expiration: expiration)
  }

  /// Sets a key if what it holds is what is expected, as this transaction leaves it so far.
  ///
  /// - Throws: as the same for bytes, and as `EncodedValue`.
  @_disfavoredOverload
  public mutating func put<Content: Encodable>(
    _ key: Key, _ value: Content, expecting expectation: Expected, expiration: Expiration? = nil
  ) throws(StoreError) -> Dot? {
    let form = try EncodedValue(value)
    return try put(key, form.bytes, expecting: expectation, type: form.type, expiration: expiration)
  }

  /// Sets a key unless it has this very value, type and deadline already. False in that case.
  ///
  /// - Throws: as the same for bytes, and as `EncodedValue`.
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
  /// - Throws: as `get(_:as:)`: a value of another type is no reason to take the default.
  public func get<Content: Decodable>(
    _ key: Key, default fallback: @autoclosure () -> Content
  ) throws(StoreError) -> Content {
    try get(key, as: Content.self) ?? fallback()
  }
}

extension Value {
  /// The same as `decoded`, with an error that names the key.
  @inline(__always)
  func decoded<Content: Decodable>(_: Content.Type, of key: Key) throws(StoreError) -> Content {
    do throws(StoreError) { return try EncodedValue.decode(Content.self, from: bytes, type: type) } catch {
      throw error.of(key)
    }
  }
}

extension StoreError {
  /// The same of the value of a key.
  @usableFromInline @inline(never)
  func of(_ key: Key) -> StoreError { StoreError(code, "key \(key): \(message)", path: path, errno: errno) }
}
