/// Values that last for a span of time from now on, by the clock of this machine; each put begins it anew. See `Expiry`.
extension Store {
  /// Sets a key to bytes that last so long; see `put(_:_:type:expires:durability:)`.
  ///
  /// - Throws: as that.
  public func put(
    _ key: Key, _ value: [UInt8], type: ValueType = .bytes, lasting span: Expiry,
    durability: Durability? = nil
  ) throws(StoreError) {
    try put(key, value, type: type, expires: span.after(environment.now()), durability: durability)
  }

  /// Sets a key to a value that lasts so long; see `put(_:_:expires:durability:)`.
  ///
  /// - Throws: as that.
  @_disfavoredOverload
  public func put<Content: Encodable>(
    _ key: Key, _ value: Content, lasting span: Expiry, durability: Durability? = nil
  ) throws(StoreError) {
    try put(key, value, expires: span.after(environment.now()), durability: durability)
  }
}

/// Claims and leases: what is made, or taken over, if nobody was faster, and goes by itself unless it is renewed.
extension Store {
  /// Sets a key, for so long, if what it holds is what is expected; see `put(_:_:expecting:expires:durability:)`.
  ///
  /// ```swift
  /// let isMine = try store.put("lease/door", "host-a", expecting: .absent, lasting: .seconds(10)) != nil
  /// ```
  ///
  /// - Throws: as that.
  @_disfavoredOverload
  public func put<Content: Encodable>(
    _ key: Key, _ value: Content, expecting expectation: Expected, lasting span: Expiry,
    durability: Durability? = nil
  ) throws(StoreError) -> Dot? {
    try put(
      key, value, expecting: expectation, expires: span.after(environment.now()), durability: durability)
  }

  /// Sets a key to bytes, for so long, if what it holds is what is expected; see
  /// `put(_:_:expecting:type:expires:durability:)`.
  ///
  /// - Throws: as that.
  public func put(
    _ key: Key, _ value: [UInt8], expecting expectation: Expected, type: ValueType = .bytes,
    lasting span: Expiry, durability: Durability? = nil
  ) throws(StoreError) -> Dot? {
    try put(
      key, value, expecting: expectation, type: type, expires: span.after(environment.now()),
      durability: durability)
  }
}

extension Transaction {
  /// Sets a key, for so long, if what it holds is what is expected, as `Store.put` does.
  ///
  /// - Throws: as the same with a deadline.
  @_disfavoredOverload
  public mutating func put<Content: Encodable>(
    _ key: Key, _ value: Content, expecting expectation: Expected, lasting span: Expiry
  ) throws(StoreError) -> Dot? {
    try put(key, value, expecting: expectation, expires: span.after(store.environment.now()))
  }

  /// Sets a key to bytes, for so long, if what it holds is what is expected, as `Store.put` does.
  ///
  /// - Throws: as the same with a deadline.
  public mutating func put(
    _ key: Key, _ value: [UInt8], expecting expectation: Expected, type: ValueType = .bytes,
    lasting span: Expiry
  ) throws(StoreError) -> Dot? {
    try put(key, value, expecting: expectation, type: type, expires: span.after(store.environment.now()))
  }

  /// Sets a key to bytes that last so long, as `Store.put` does.
  ///
  /// - Throws: as the same with a deadline.
  public mutating func put(
    _ key: Key, _ value: [UInt8], type: ValueType = .bytes, lasting span: Expiry
  ) throws(StoreError) {
    try put(key, value, type: type, expires: span.after(store.environment.now()))
  }

  /// Sets a key to a value that lasts so long, as `Store.put` does.
  ///
  /// - Throws: as the same with a deadline.
  @_disfavoredOverload
  public mutating func put<Content: Encodable>(
    _ key: Key, _ value: Content, lasting span: Expiry
  ) throws(StoreError) {
    try put(key, value, expires: span.after(store.environment.now()))
  }
}

extension AsyncStore {
  /// Sets a key to bytes that last so long, as `Store.put` does.
  public func put(
    _ key: Key, _ value: [UInt8], type: ValueType = .bytes, lasting span: Expiry,
    durability: Durability? = nil
  ) async throws(StoreError) {
    try await put(
      key, value, type: type, expires: span.after(store.environment.now()), durability: durability)
  }

  /// Sets a key to a value that lasts so long, as `Store.put` does.
  @_disfavoredOverload
  public func put(
    _ key: Key, _ value: some Encodable, lasting span: Expiry, durability: Durability? = nil
  ) async throws(StoreError) {
    try await put(key, value, expires: span.after(store.environment.now()), durability: durability)
  }

  /// Sets a key if what it holds is what is expected, as `Store.put` does.
  @_disfavoredOverload
  public func put(
    _ key: Key, _ value: some Encodable, expecting expectation: Expected, expires deadline: UInt64? = nil,
    durability: Durability? = nil
  ) async throws(StoreError) -> Dot? {
    let form = try EncodedValue(value)
    return try await put(
      key, form.bytes, expecting: expectation, type: form.type, expires: deadline, durability: durability)
  }

  /// Sets a key, for so long, if what it holds is what is expected, as `Store.put` does.
  @_disfavoredOverload
  public func put(
    _ key: Key, _ value: some Encodable, expecting expectation: Expected, lasting span: Expiry,
    durability: Durability? = nil
  ) async throws(StoreError) -> Dot? {
    try await put(
      key, value, expecting: expectation, expires: span.after(store.environment.now()), durability: durability
    )
  }
}
