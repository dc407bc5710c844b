/// All keys and values of a store as they were at one moment: whatever is written or compacted afterwards, here or by
/// another process, it does not move. Made by `Store.snapshot()`.
///
/// Thread-safe, and no writer waits for it. It shows whole transactions only, and judges deadlines at its moment; what was
/// stamped too far ahead by another member and not applied yet is not part of it. Values in the blob tier are read through
/// the store when they are asked for.
///
/// It keeps the files of the journal mapped that compaction replaces meanwhile: their space comes back when the last
/// reference to it goes, or with `close()`. Once the store is closed its calls fail with `.closed`.
public final class Snapshot: ReadableStore {
  /// The store that it is of.
  public let store: Store
  /// When it was made, in milliseconds since 1970.
  public let time: UInt64
  /// Nil once closed.
  private let view: LockedField<SnapshotState?>
  private let cachedCount = LockedField<Int?>(nil)

  init(of store: Store, _ view: SnapshotState, at time: UInt64) {
    (self.store, self.time) = (store, time)
    self.view = LockedField(view)
  }

  /// Lets go of what it holds. Calls after it fail with `.closed`; a second one does nothing.
  public func close() { view.withLock { $0 = nil } }

  /// The value that the key had; nil if it had none.
  ///
  /// - Throws: `.damaged` if its record or blob is; `.blobUnavailable` if its bytes have not arrived from a peer yet.
  public func get(_ key: Key) throws(StoreError) -> Value? {
    try find(key) { record, fields in
      var bytes = [UInt8](copying: record.extracting(droppingFirst: fields.value))
      if fields.kind == .blob { bytes = try store.read(try SnapshotState.blob(record, fields: fields)) }
      return Value(bytes: bytes, type: fields.type, deadline: fields.deadline)
    }
  }

  /// Works on the value that the key had in place, without a copy if it lies in the journal; nil if it had none.
  ///
  /// - Throws: as `get`, and what `body` throws.
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

  /// Had the key a value?
  ///
  /// - Throws: `.damaged` if it cannot be known what the key held; `.closed` once the snapshot or the store
  ///   is.
  public func contains(_ key: Key) throws(StoreError) -> Bool { try find(key) { _, _ in } != nil }

  /// What was known of a key, without reading its value; nil if it had none.
  ///
  /// - Throws: `.damaged` if it cannot be known what the key held; `.closed` once the snapshot or the store
  ///   is.
  public func entry(_ key: Key) throws(StoreError) -> Entry? { try find(key, SnapshotState.entry) }

  private func find<Result>(
    _ key: Key, _ body: (RawSpan, SegmentSnapshot.Fields) throws -> Result
  ) throws(StoreError) -> Result? {
    let view = try usable()
    return try StoreError.only { try view.withRecord(of: key.bytes, at: time, body) }
  }

  /// How many keys had a value. Counted at the first call, by a look at each.
  ///
  /// - Throws: `.damaged` as `scanEntries`; `.closed` once the snapshot or the store is.
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

  /// What `scan` does; see there.
  ///
  /// - Throws: as `scan`.
  public func visit(
    _ range: KeyRange, after: Key?, reversed: Bool, limit: Int,
    _ body: (_ key: RawSpan, _ value: RawSpan, _ details: EntryDetails) throws -> ScanStep
  ) throws -> Key? {
    let scan = SnapshotState.Scan(range: range, after: after, reversed: reversed, limit: limit, time: time)
    return try usable().visit(scan, in: store, body)
  }

  /// What `scanEntries` does; see there.
  ///
  /// - Throws: as `scanEntries`.
  public func visitEntries(
    _ range: KeyRange, after: Key?, reversed: Bool, limit: Int, _ body: (Entry) throws -> ScanStep
  ) throws -> Key? {
    let scan = SnapshotState.Scan(range: range, after: after, reversed: reversed, limit: limit, time: time)
    return try usable().visitEntries(scan, in: store, body)
  }

  /// `scanEntries` for who shows what there is: what is damaged does not end it. Returns what is left open by that, too.
  package func scanReadable(
    _ range: KeyRange, after: Key? = nil, limit: Int = .max, _ body: (Entry) throws -> Void
  ) throws -> (last: Key?, doubts: [PossibleLoss]) {
    let scan = SnapshotState.Scan(range: range, after: after, reversed: false, limit: limit, time: time)
    return try usable().visitReadable(scan, in: store, body)
  }

  /// What was noted of the indexes of a collection; see `IndexMetadata`.
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
  /// All keys and values as they are now, to be read at leisure: what is written afterwards does not show in it. Sees what
  /// other processes have written up to now; within a transaction, what was there before it began.
  ///
  /// Costs next to nothing, but for the first one, or the first scan, on an opened store, which sorts all keys.
  ///
  /// - Throws: `.damaged`, `.inputOutput` if the journal cannot be read; `.closed`, `.forked`.
  public func snapshot() throws(StoreError) -> Snapshot {
    let view = try snapshotState()
    return Snapshot(of: self, view, at: environment.now())
  }
}
