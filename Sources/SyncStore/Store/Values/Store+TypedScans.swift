/// Typed values in key order. Each call reads one snapshot of the store; see `scan`.
///
/// - Throws: as `scan`, and as `get(_:as:)` for a value that is not of the type: the error names its key.
extension ReadableStore {
  /// The keys with a prefix and their values, in the order of the keys' bytes.
  ///
  /// ```swift
  /// for (key, reading) in try store.values(of: Reading.self, prefix: "readings/deck/", limit: 100) { … }
  /// ```
  ///
  /// - Parameters:
  ///   - after: only keys after this one in scan direction: pass the last key of a page to get the next page.
  ///   - reversed: from the last key to the first.
  ///   - limit: greatest number of results.
  /// - Throws: as `scan`; as `EncodedValue.decoded` for the first value that cannot be read as that type.
  public func values<Content: Decodable>(
    of type: Content.Type, prefix: String, after: Key? = nil, reversed: Bool = false, limit: Int = .max
  ) throws(StoreError) -> [(key: Key, value: Content)] {
    try values(of: type, in: KeyRange(prefix: prefix), after: after, reversed: reversed, limit: limit)
  }

  /// The keys in a range and their values; see `values(of:prefix:)`.
  ///
  /// - Throws: as `values(of:prefix:)`.
  public func values<Content: Decodable>(
    of type: Content.Type, in range: KeyRange = .all, after: Key? = nil, reversed: Bool = false,
    limit: Int = .max
  ) throws(StoreError) -> [(key: Key, value: Content)] {
    var values: [(key: Key, value: Content)] = []
    try StoreError.only {
      _ = try forEachValue(of: type, in: range, after: after, reversed: reversed, limit: limit) {
        key, value in
        values.append((key, value))
        return .next
      }
    }
    return values
  }

  /// Visits keys and values one at a time, until `body` stops; see `values(of:prefix:)`. Returns the last key
  /// visited if there may be more, for `after`.
  ///
  /// - Throws: errors of `body`, too.
  @discardableResult
  public func forEachValue<Content: Decodable>(
    of _: Content.Type, in range: KeyRange = .all, after: Key? = nil, reversed: Bool = false,
    limit: Int = .max, _ body: (Key, Content) throws -> ScanStep
  ) throws -> Key? {
    try visit(range, after: after, reversed: reversed, limit: limit) { bytes, value, details in
      let key = Key(unchecked: [UInt8](copying: bytes))
      let content: Content
      do throws(StoreError) {
        content = try EncodedValue.decode(Content.self, from: value, type: details.type)
      } catch {
        throw error.of(key)
      }
      return try body(key, content)
    }
  }
}
