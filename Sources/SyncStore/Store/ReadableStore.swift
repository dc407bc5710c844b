/// What can be read by key and in order: a `Store` as it is at each call, or a `Snapshot` of it, which does not move.
public protocol ReadableStore: Sendable {
  /// The value of a key; nil if it has none.
  func get(_ key: Key) throws(StoreError) -> Value?
  /// Has the key a value?
  func contains(_ key: Key) throws(StoreError) -> Bool
  /// What is known of a key without reading its value; nil if it has none.
  func entry(_ key: Key) throws(StoreError) -> Entry?
  /// What `scan` does; see there.
  func visit(
    _ range: KeyRange, after: Key?, reversed: Bool, limit: Int,
    _ body: (_ key: RawSpan, _ value: RawSpan, _ details: EntryDetails) throws -> ScanStep
  ) throws -> Key?
  /// What `scanEntries` does; see there.
  func visitEntries(
    _ range: KeyRange, after: Key?, reversed: Bool, limit: Int, _ body: (Entry) throws -> ScanStep
  ) throws -> Key?
}

/// What a scan does after an entry.
public enum ScanStep: Sendable {
  /// It goes on.
  case next
  /// It ends here.
  case stop
}

/// What a scan tells of an entry beside key and value.
public struct EntryDetails: Sendable {
  /// The type of the value.
  public let type: ValueType
  /// When it expires, in milliseconds since 1970.
  public let deadline: UInt64?
  /// When it was written.
  public let stamp: Stamp
  /// Which write it is: what `Expected.version` takes.
  public let dot: Dot
}

/// Scans. All of them see one moment of the store, whole transactions only, and hold up no writer, however long they
/// take; `body` may use the store, also to write. The first one on an opened store sorts all keys: some 0.2 s for a
/// million.
///
/// Each record is verified on the way. A scan fails with `.damaged` where it comes upon one that is not what was written,
/// and at once where a lost one may have been a newer one of any key in the range: never a wrong value, and none missing.
/// A value in the blob tier is read when its turn comes, and is `.blobUnavailable` if it has not arrived yet.
///
/// - `range`: which keys; by default all.
/// - `after`: only keys behind this one in the direction of the scan: it goes on where another one stopped.
/// - `reversed`: from the last key to the first.
/// - `limit`: at most so many entries.
/// - returns the last key visited if the limit was reached or `body` stopped there, for `after`; nil if there are no more.
extension ReadableStore {
  /// Visits keys and values in the order of the keys' bytes, in place: the spans are valid within `body` only.
  ///
  /// - Throws: `.damaged` where it comes upon a record that is not what was written, and at once where a lost
  ///   one may have been a newer one of a key in the range; `.blobUnavailable` for a large value that is not
  ///   here; `.closed`, `.forked`; what `body` throws.
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

  /// Visits keys and values in the order of the keys' bytes, in place, until `body` stops.
  ///
  /// - Throws: `.damaged` where it comes upon a record that is not what was written, and at once where a lost
  ///   one may have been a newer one of a key in the range; `.blobUnavailable` for a large value that is not
  ///   here; `.closed`, `.forked`; what `body` throws.
  @inlinable @discardableResult @_disfavoredOverload
  public func scan(
    _ range: KeyRange = .all, after: Key? = nil, reversed: Bool = false, limit: Int = .max,
    _ body: (_ key: RawSpan, _ value: RawSpan) throws -> ScanStep
  ) throws -> Key? {
    try visit(range, after: after, reversed: reversed, limit: limit) { key, value, _ in
      try body(key, value)
    }
  }

  /// Visits keys and values in the order of the keys' bytes, in place, with type, deadline and version of each.
  ///
  /// - Throws: `.damaged` where it comes upon a record that is not what was written, and at once where a lost
  ///   one may have been a newer one of a key in the range; `.blobUnavailable` for a large value that is not
  ///   here; `.closed`, `.forked`; what `body` throws.
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

  /// Visits keys and values in the order of the keys' bytes, in place, with type, deadline and version of each, until
  /// `body` stops.
  ///
  /// - Throws: `.damaged` where it comes upon a record that is not what was written, and at once where a lost
  ///   one may have been a newer one of a key in the range; `.blobUnavailable` for a large value that is not
  ///   here; `.closed`, `.forked`; what `body` throws.
  @inlinable @discardableResult @_disfavoredOverload
  public func scan(
    _ range: KeyRange = .all, after: Key? = nil, reversed: Bool = false, limit: Int = .max,
    _ body: (_ key: RawSpan, _ value: RawSpan, _ details: EntryDetails) throws -> ScanStep
  ) throws -> Key? {
    try visit(range, after: after, reversed: reversed, limit: limit, body)
  }

  /// Visits keys with their values' sizes and types, in the order of the keys' bytes, without reading values: also of
  /// blobs that are not here, and beside records that were lost.
  ///
  /// - Throws: `.damaged` where the order of the keys cannot be known; `.closed`, `.forked`; what `body`
  ///   throws.
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

  /// The same until `body` stops.
  ///
  /// - Throws: as above.
  @inlinable @discardableResult @_disfavoredOverload
  public func scanEntries(
    _ range: KeyRange = .all, after: Key? = nil, reversed: Bool = false, limit: Int = .max,
    _ body: (Entry) throws -> ScanStep
  ) throws -> Key? {
    try visitEntries(range, after: after, reversed: reversed, limit: limit, body)
  }

  /// Keys with their values' sizes and types, in the order of bytes.
  ///
  /// - Throws: `.damaged` where the order of the keys cannot be known; `.closed`, `.forked`.
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

  /// Keys with their values' sizes and types, in the order of bytes.
  ///
  /// - Parameters:
  ///   - prefix: only keys that begin so.
  ///   - after: only keys behind this one: a listing goes on where the last one ended.
  ///   - reversed: from the last key to the first.
  ///   - limit: at most so many.
  /// - Throws: `.damaged` where the order of the keys cannot be known; `.closed`, `.forked`.
  public func list(
    prefix: [UInt8] = [], after: Key? = nil, reversed: Bool = false, limit: Int = .max
  ) throws(StoreError) -> [Entry] {
    try list(KeyRange(prefix: prefix), after: after, reversed: reversed, limit: limit)
  }
}

extension Store: ReadableStore {
  /// What `scan` does; see there.
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

  /// What `scanEntries` does; see there.
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
