/// Reading by key and in key order: a `Store`, at its present state, or an immutable `Snapshot` of it.
public protocol ReadableStore: BlockingCalls {
  /// The value of a key; nil if it has none.
  func get(_ key: Key) throws(StoreError) -> Value?
  /// Whether the key has a value.
  func contains(_ key: Key) throws(StoreError) -> Bool
  /// Metadata of a key, without reading its value; nil if it has none.
  func entry(_ key: Key) throws(StoreError) -> Entry?
  /// Implementation of `scan`; see there.
  func visit(
    _ range: KeyRange, after: Key?, reversed: Bool, limit: Int,
    _ body: (_ key: RawSpan, _ value: RawSpan, _ details: EntryDetails) throws -> ScanStep
  ) throws -> Key?
  /// Implementation of `scanEntries`; see there.
  func visitEntries(
    _ range: KeyRange, after: Key?, reversed: Bool, limit: Int, _ body: (Entry) throws -> ScanStep
  ) throws -> Key?
}

/// Metadata that a scan gives with key and value.
public struct EntryDetails: Sendable {
  /// The type of the value.
  public let type: ValueType
  /// When it expires, in milliseconds since 1970.
  public let deadline: UInt64?
  /// When it was written.
  public let stamp: Stamp
  /// The write that the value comes from: the argument of `Expected.version`.
  public let dot: Dot
}

/// Scans. Each sees one moment of the store, whole transactions only, and blocks no writer, however long it
/// takes; `body` may use the store, also to write. The first scan on an opened store sorts all keys: about
/// 0.2 s for a million.
///
/// Each record is verified when it is visited. A scan fails with `.damaged` at a corrupted record, and at
/// once if a lost record may have been a newer one of any key in the range: it never gives a wrong value or
/// omits one. A value in the blob tier is read when its key is visited, and is `.blobUnavailable` if it has
/// not arrived yet.
///
/// - `range`: the keys to visit; by default all.
/// - `after`: only keys after this one, in the direction of the scan; continues an earlier scan.
/// - `reversed`: from the last key to the first.
/// - `limit`: the maximum number of entries.
/// - returns the last key visited if the limit was reached or `body` stopped, to be passed as `after`; nil if
///   there are no more keys.
extension ReadableStore {
  /// Visits keys and values in key order, in place: the spans are valid within `body` only.
  ///
  /// - Throws: `.damaged` at a corrupted record, and at once if a lost record may have been a newer one of a
  ///   key in the range; `.blobUnavailable` for a large value that is not here; `.closed`, `.forked`; errors
  ///   of `body`.
  @inlinable @discardableResult
  public func scan(
    _ range: KeyRange = .all, after: Key? = nil, reversed: Bool = false, limit: Int = .max,
    _ body: (_ key: RawSpan, _ value: RawSpan) throws -> Void
  ) throws -> Key? {
    try visit(range, after: after, reversed: reversed, limit: limit) { key, value, _ in
      try body(key, value)
      return .next
    }
  }

  /// Visits keys and values in key order, in place, until `body` stops.
  ///
  /// - Throws: `.damaged` at a corrupted record, and at once if a lost record may have been a newer one of a
  ///   key in the range; `.blobUnavailable` for a large value that is not here; `.closed`, `.forked`; errors
  ///   of `body`.
  @inlinable @discardableResult @_disfavoredOverload
  public func scan(
    _ range: KeyRange = .all, after: Key? = nil, reversed: Bool = false, limit: Int = .max,
    _ body: (_ key: RawSpan, _ value: RawSpan) throws -> ScanStep
  ) throws -> Key? {
    try visit(range, after: after, reversed: reversed, limit: limit) { key, value, _ in
      try body(key, value)
    }
  }

  /// Visits keys and values in key order, in place, with type, deadline and version of each.
  ///
  /// - Throws: `.damaged` at a corrupted record, and at once if a lost record may have been a newer one of a
  ///   key in the range; `.blobUnavailable` for a large value that is not here; `.closed`, `.forked`; errors
  ///   of `body`.
  @inlinable @discardableResult
  public func scan(
    _ range: KeyRange = .all, after: Key? = nil, reversed: Bool = false, limit: Int = .max,
    _ body: (_ key: RawSpan, _ value: RawSpan, _ details: EntryDetails) throws -> Void
  ) throws -> Key? {
    try visit(range, after: after, reversed: reversed, limit: limit) { key, value, details in
      try body(key, value, details)
      return .next
    }
  }

  /// Visits keys and values in key order, in place, with type, deadline and version of each, until `body`
  /// stops.
  ///
  /// - Throws: `.damaged` at a corrupted record, and at once if a lost record may have been a newer one of a
  ///   key in the range; `.blobUnavailable` for a large value that is not here; `.closed`, `.forked`; errors
  ///   of `body`.
  @inlinable @discardableResult @_disfavoredOverload
  public func scan(
    _ range: KeyRange = .all, after: Key? = nil, reversed: Bool = false, limit: Int = .max,
    _ body: (_ key: RawSpan, _ value: RawSpan, _ details: EntryDetails) throws -> ScanStep
  ) throws -> Key? {
    try visit(range, after: after, reversed: reversed, limit: limit, body)
  }

  /// Visits keys in order, with size and type of each value, without reading values. Includes keys of blobs
  /// that are not here, and does not fail where records were lost.
  ///
  /// - Throws: `.damaged` if the key order cannot be determined; `.closed`, `.forked`; errors of `body`.
  @inlinable @discardableResult
  public func scanEntries(
    _ range: KeyRange = .all, after: Key? = nil, reversed: Bool = false, limit: Int = .max,
    _ body: (Entry) throws -> Void
  ) throws -> Key? {
    try visitEntries(range, after: after, reversed: reversed, limit: limit) { entry in
      try body(entry)
      return .next
    }
  }

  /// Visits keys in order, with size and type of each value, until `body` stops.
  ///
  /// - Throws: as above.
  @inlinable @discardableResult @_disfavoredOverload
  public func scanEntries(
    _ range: KeyRange = .all, after: Key? = nil, reversed: Bool = false, limit: Int = .max,
    _ body: (Entry) throws -> ScanStep
  ) throws -> Key? {
    try visitEntries(range, after: after, reversed: reversed, limit: limit, body)
  }

  /// Lists keys in order, with size and type of each value.
  ///
  /// - Throws: `.damaged` if the key order cannot be determined; `.closed`, `.forked`.
  public func list(
    _ range: KeyRange, after: Key? = nil, reversed: Bool = false, limit: Int = .max
  ) throws(StoreError) -> [Entry] {
    var entries: [Entry] = []
    try StoreError.only {
      _ = try visitEntries(range, after: after, reversed: reversed, limit: limit) { entry in
        entries.append(entry)
        return .next
      }
    }
    return entries
  }

  /// Lists keys in order, with size and type of each value.
  ///
  /// - Parameters:
  ///   - prefix: only keys with this prefix.
  ///   - after: only keys after this one; continues an earlier listing.
  ///   - reversed: from the last key to the first.
  ///   - limit: the maximum number of entries.
  /// - Throws: `.damaged` if the key order cannot be determined; `.closed`, `.forked`.
  public func list(
    prefix: [UInt8] = [], after: Key? = nil, reversed: Bool = false, limit: Int = .max
  ) throws(StoreError) -> [Entry] {
    try list(KeyRange(prefix: prefix), after: after, reversed: reversed, limit: limit)
  }
}

extension Store: ReadableStore {
  /// Implementation of `scan`; see there.
  ///
  /// - Throws: as `scan`.
  public func visit(
    _ range: KeyRange, after: Key?, reversed: Bool, limit: Int,
    _ body: (_ key: RawSpan, _ value: RawSpan, _ details: EntryDetails) throws -> ScanStep
  ) throws -> Key? {
    let scan = SnapshotState.Scan(
      range: range, after: after, reversed: reversed, limit: limit, time: environment.now())
    return try snapshotState().visit(scan, in: self, body)
  }

  /// Implementation of `scanEntries`; see there.
  ///
  /// - Throws: as `scanEntries`.
  public func visitEntries(
    _ range: KeyRange, after: Key?, reversed: Bool, limit: Int, _ body: (Entry) throws -> ScanStep
  ) throws -> Key? {
    let scan = SnapshotState.Scan(
      range: range, after: after, reversed: reversed, limit: limit, time: environment.now())
    return try snapshotState().visitEntries(scan, in: self, body)
  }
}
