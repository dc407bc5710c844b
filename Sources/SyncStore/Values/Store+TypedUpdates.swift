/// A value as a type of the program, and the write that made it.
public struct Versioned<Content> {
  /// The value.
  public let value: Content
  /// Which write it is: what `Expected.version` takes.
  public let version: Dot
  /// When it expires, in milliseconds since 1970.
  public let deadline: UInt64?
}

extension Versioned: Sendable where Content: Sendable {}
extension Versioned: Equatable where Content: Equatable {}

extension VersionedValue {
  /// The same with the value as a type of the program.
  ///
  /// - Throws: as `EncodedValue.decoded`.
  public func decoded<Content: Decodable>(
    as _: Content.Type = Content.self
  ) throws(StoreError) -> Versioned<Content> {
    Versioned(value: try value.decoded(as: Content.self), version: version, deadline: value.deadline)
  }
}

extension Expected {
  /// The key has this very value, with whatever deadline. Type and bytes are compared, as they are stored: an `Int` of 0 is not
  /// equal to a `Double` of 0, and a text not to the bytes of its UTF-8; whole numbers up to `Int64.max` are of one type. `value(_:)`
  /// compares the bytes alone.
  ///
  /// - Throws: as `EncodedValue.init`.
  public static func equal<Content: Encodable>(to value: Content) throws(StoreError) -> Expected {
    .typed(try EncodedValue(value))
  }

  /// The key has the value that was read; it has none if none was.
  public static func unchanged<Content>(since seen: Versioned<Content>?) -> Expected {
    seen.map { .version($0.version) } ?? .absent
  }
}

/// Values that depend on what is there.
extension Store {
  /// The value of a key as a type of the program, together with its version; nil if it has none.
  ///
  /// ```swift
  /// let seen = try store.versioned("routes", as: [Route].self)
  /// let next = recomputed(seen?.value ?? [])                    // takes its time, and holds up nobody
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

  /// Changes the value of a key by what it is now, while nobody else writes, in no thread and no process. Returns what it is
  /// then.
  ///
  /// ```swift
  /// let visits = try store.update("visits", default: 0) { $0 += 1 }
  /// ```
  ///
  /// A value that `body` leaves as it is, is not written. One with a deadline keeps it.
  ///
  /// - Parameters:
  ///   - fallback: what `body` begins with if the key has no value.
  ///   - body: quick, since all other writers wait for it. Where the new value takes time to find, use `versioned` and
  ///     `put(_:_:expecting:)`.
  /// - Throws: as `get(_:as:)` and `put`, and what `body` throws: nothing is changed then.
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
  /// Changes the value of a key by what it is as this transaction leaves it so far; see `Store.update`.
  ///
  /// - Throws: what `body` throws; as `get(_:as:)`, and as `put`.
  @discardableResult
  public mutating func update<Content: Codable>(
    _ key: Key, default fallback: @autoclosure () -> Content, _ body: (inout Content) throws -> Void
  ) throws -> Content {
    let held = try get(key)
    var content = try held?.decoded(Content.self, of: key) ?? fallback()
    try body(&content)
    let form = try EncodedValue(content)
    if held?.bytes != form.bytes || held?.type != form.type {
      // One that never expires stays so: the store's default is for what is new.
      try put(key, form.bytes, type: form.type, expires: held.map { $0.deadline ?? .max })
    }
    return content
  }
}
