/// A value as a type of the program, with the version of its write.
public struct Versioned<Content> {
  /// The value.
  public let value: Content
  /// Identity of the write, for `Expected.version`.
  public let version: Dot
  /// When it expires, in milliseconds since 1970.
  public let deadline: UInt64?
}

extension Versioned: Sendable where Content: Sendable {}
extension Versioned: Equatable where Content: Equatable {}

extension VersionedValue {
  /// The value decoded as a type of the program, with its version.
  ///
  /// - Throws: as `EncodedValue.decoded`.
  public func decoded<Content: Decodable>(
    as _: Content.Type = Content.self
  ) throws(StoreError) -> Versioned<Content> {
    Versioned(value: try value.decoded(as: Content.self), version: version, deadline: value.deadline)
  }
}

extension Expected {
  /// The key has this value, with any deadline.
  ///
  /// Type and bytes are compared as stored: an `Int` of 0 is not equal to a `Double` of 0, nor a text to its
  /// UTF-8 bytes; integers up to `Int64.max` are of one type. `value(_:)` compares the bytes alone.
  ///
  /// - Throws: as `EncodedValue.init`.
  public static func equal<Content: Encodable>(to value: Content) throws(StoreError) -> Expected {
    .typed(try EncodedValue(value))
  }

  /// The key still has the version that was read, or still has no value if it had none.
  public static func unchanged<Content>(since seen: Versioned<Content>?) -> Expected {
    seen.map { .version($0.version) } ?? .absent
  }
}

/// Updates that depend on the current value.
extension Store {
  /// The value of a key as a type of the program, together with its version; nil if it has none.
  ///
  /// ```swift
  /// let seen = try store.versioned("routes", as: [Route].self)
  /// let next = recomputed(seen?.value ?? [])                    // slow, but blocks no other writer
  /// let version = try store.put("routes", next, expecting: .unchanged(since: seen))
  /// ```
  ///
  /// - Throws: as `get(_:as:)`.
  public func versioned<Content: Decodable>(
    _ key: Key, as _: Content.Type
  ) throws(StoreError) -> Versioned<Content>? {
    guard let seen = try versioned(key) else { return nil }
    do throws(StoreError) { return try seen.decoded(as: Content.self) } catch { throw error.of(key) }
  }

  /// Atomically changes the value of a key: no other thread or process writes in between. Returns the new
  /// value.
  ///
  /// ```swift
  /// let visits = try store.update("visits", default: 0) { $0 += 1 }
  /// ```
  ///
  /// A value that `body` leaves unchanged is not written. A deadline is kept.
  ///
  /// - Parameters:
  ///   - fallback: the initial value if the key has none.
  ///   - body: must be quick, since all other writers wait for it. If computing the new value takes time, use
  ///     `versioned` and `put(_:_:expecting:)`.
  /// - Throws: as `get(_:as:)` and `put`, and errors of `body`: nothing is changed then.
  @discardableResult
  public func update<Content: Codable>(
    _ key: Key, default fallback: @autoclosure () -> Content, durability: Durability? = nil,
    _ body: (inout Content) throws -> Void
  ) throws -> Content {
    try transaction(durability: durability) { transaction in
      try transaction.update(key, default: fallback(), body)
    }
  }
}

extension Transaction {
  /// Changes the value of a key as this transaction has it so far; see `Store.update`.
  ///
  /// - Throws: errors of `body`; as `get(_:as:)`, and as `put`.
  @discardableResult
  public mutating func update<Content: Codable>(
    _ key: Key, default fallback: @autoclosure () -> Content, _ body: (inout Content) throws -> Void
  ) throws -> Content {
    let held = try get(key)
    var content = try held?.decoded(Content.self, of: key) ?? fallback()
    try body(&content)
    let form = try EncodedValue(content)
    if held?.bytes != form.bytes || held?.type != form.type {
      // A value that never expires stays so: the store's default applies to new values only.
      try put(
        key, form.bytes, type: form.type, expiration: held.map { Expiration(deadline: $0.deadline) })
    }
    return content
  }
}
