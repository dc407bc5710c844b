/// An immutable view of all keys and values of a store at one moment. Later writes and compactions, here or
/// by another process, do not change it. Made by `Store.snapshot()`.
///
/// Thread-safe, and blocks no writer. It contains whole transactions only and applies deadlines as of its
/// time. Records stamped too far ahead by another member and not applied yet are not part of it. Values in
/// the blob tier are read through the store when they are requested.
///
/// **A snapshot keeps journal files mapped that compaction has replaced**: their space is freed when
/// the last reference to the snapshot goes, or with `close()`. Once the store is closed, calls fail with
/// `.closed`.
public final class Snapshot: ReadableStore {
  /// The store that it was made from.
  public let store: Store
  /// When it was made, in milliseconds since 1970.
  public let time: UInt64
  /// Nil once closed.
  private let view: LockedField<SnapshotState?>
  private let cachedCount = LockedField<Int?>(nil, rank: .stream)

  init(of store: Store, _ view: SnapshotState, at time: UInt64) {
    (self.store, self.time) = (store, time)
    self.view = LockedField(view)
  }

  /// Releases the snapshot. Later calls fail with `.closed`; closing twice does nothing.
  public func close() { view.withLock { $0 = nil } }

  /// The value of a key at the snapshot; nil if it had none.
  ///
  /// - Throws: `.damaged` if its record or blob is damaged; `.blobUnavailable` if its bytes have not arrived
  ///   from a peer yet.
  public func get(_ key: Key) throws(StoreError) -> Value? {
    try find(key) { record, fields in
      var bytes = [UInt8](copying: record.extracting(droppingFirst: fields.value))
      if fields.kind == .blob { bytes = try store.read(try SnapshotState.blob(record, fields: fields)) }
      return Value(bytes: bytes, type: fields.type, deadline: fields.deadline)
    }
  }

  /// Calls `body` with the value of a key in place, without a copy if it is inline; nil if the key had none.
  ///
  /// - Throws: as `get`, and errors of `body`.
  @inlinable
  public func withValue<Result>(_ key: Key, _ body: (RawSpan) throws -> Result) throws -> Result? {
    var result: Result?
    try read(key) { result = try body($0) }
    return result
  }

  @usableFromInline
  func read(_ key: Key, _ body: (RawSpan) throws -> Void) throws {
    _ = try usable().withRecord(of: key.bytes, at: time) { record, fields in
      guard fields.kind == .blob else { return try body(record.extracting(droppingFirst: fields.value)) }
      try store.read(try SnapshotState.blob(record, fields: fields)).withRawSpan(body)
    }
  }

  /// Whether the key had a value.
  ///
  /// - Throws: `.damaged` if that cannot be determined; `.closed` once the snapshot or the store is closed.
  public func contains(_ key: Key) throws(StoreError) -> Bool { try find(key) { _, _ in } != nil }

  /// Metadata of a key, without reading its value; nil if it had none.
  ///
  /// - Throws: `.damaged` if that cannot be determined; `.closed` once the snapshot or the store is closed.
  public func entry(_ key: Key) throws(StoreError) -> Entry? { try find(key, SnapshotState.entry) }

  private func find<Result>(
    _ key: Key, _ body: (RawSpan, SegmentSnapshot.Fields) throws -> Result
  ) throws(StoreError) -> Result? {
    let view = try usable()
    return try StoreError.only { try view.withRecord(of: key.bytes, at: time, body) }
  }

  /// The number of keys that had a value. The first call visits every key; the result is cached.
  ///
  /// - Throws: `.damaged` as `scanEntries`; `.closed` once the snapshot or the store is closed.
  public var count: Int {
    get throws(StoreError) {
      _ = try usable()
      return try cachedCount.withLock { counted throws(StoreError) in
        if let counted { return counted }
        var count = 0
        try StoreError.only { _ = try scanEntries { _ in count += 1 } }
        counted = count
        return count
      }
    }
  }

  /// Implementation of `scan`; see there.
  ///
  /// - Throws: as `scan`.
  public func visit(
    _ range: KeyRange, after: Key?, reversed: Bool, limit: Int,
    _ body: (_ key: RawSpan, _ value: RawSpan, _ details: EntryDetails) throws -> ScanStep
  ) throws -> Key? {
    let scan = SnapshotState.Scan(range: range, after: after, reversed: reversed, limit: limit, time: time)
    return try usable().visit(scan, in: store, body)
  }

  /// Implementation of `scanEntries`; see there.
  ///
  /// - Throws: as `scanEntries`.
  public func visitEntries(
    _ range: KeyRange, after: Key?, reversed: Bool, limit: Int, _ body: (Entry) throws -> ScanStep
  ) throws -> Key? {
    let scan = SnapshotState.Scan(range: range, after: after, reversed: reversed, limit: limit, time: time)
    return try usable().visitEntries(scan, in: store, body)
  }

  /// `scanEntries` for listings that continue past damage. Also returns the losses that the damage may hide.
  package func scanReadable(
    _ range: KeyRange, after: Key? = nil, limit: Int = .max, _ body: (Entry) throws -> Void
  ) throws -> (last: Key?, doubts: [PossibleLoss]) {
    let scan = SnapshotState.Scan(range: range, after: after, reversed: false, limit: limit, time: time)
    return try usable().visitReadable(scan, in: store, body)
  }

  /// State of the indexes of a collection; see `IndexMetadata`.
  func indexNote(_ key: [UInt8]) throws(StoreError) -> [UInt8]? { try usable().indexNotes[key] }

  private func usable() throws(StoreError) -> SnapshotState {
    try store.checkUsable()
    guard let view = view.withLock({ $0 }) else {
      throw StoreError(.closed, "the snapshot was closed: make another", path: store.path)
    }
    return view
  }
}

extension Store {
  /// A snapshot of all keys and values now, which later writes do not change. It includes what other
  /// processes have committed so far; within a transaction, the state before it began.
  ///
  /// Costs almost nothing, except that the first snapshot or scan on an opened store sorts all keys.
  ///
  /// - Throws: `.damaged`, `.inputOutput` if the journal cannot be read; `.closed`, `.forked`.
  public func snapshot() throws(StoreError) -> Snapshot {
    let view = try snapshotState()
    return Snapshot(of: self, view, at: environment.now())
  }
}
