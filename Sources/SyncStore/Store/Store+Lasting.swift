/// Values that last for a span of time from now on, by the clock of this machine; each put begins it anew. See `Expiry`.
extension Store {
  /// Sets a key to bytes that last so long; see `put(_:_:type:expires:durability:)`.
  public func put(
    _ key: Key, _ value: [UInt8], type: ValueType = .bytes, lasting span: Expiry,
    durability: Durability? = nil
  ) throws(StoreError) {
    try put(key, value, type: type, expires: span.after(environment.now()), durability: durability)
  }

  /// Sets a key to a value that lasts so long; see `put(_:_:expires:durability:)`.
  @_disfavoredOverload
  public func put<Content: Encodable>(
    _ key: Key, _ value: Content, lasting span: Expiry, durability: Durability? = nil
  ) throws(StoreError) {
    try put(key, value, expires: span.after(environment.now()), durability: durability)
  }
}

extension Transaction {
  /// Sets a key to bytes that last so long, as `Store.put` does.
  public mutating func put(
    _ key: Key, _ value: [UInt8], type: ValueType = .bytes, lasting span: Expiry
  ) throws(StoreError) {
    try put(key, value, type: type, expires: span.after(store.environment.now()))
  }

  /// Sets a key to a value that lasts so long, as `Store.put` does.
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
}
