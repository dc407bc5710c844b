/// The result of an import.
public struct ImportReport: Hashable, Sendable {
  /// Keys that now have the imported value: those that were written, and those that already had this value,
  /// type and deadline, for which nothing was written.
  public var imported = 0
  /// Keys left unchanged, because they had a value.
  public var kept = 0
  /// Keys skipped, because they could not be read or are not valid here.
  public var skipped = 0
  /// Values of a property list whose key occurs again in the same dictionary: the later one was imported.
  public var merged = 0
}

/// Handling of a key that already has a value.
public enum ImportConflict: Hashable, Sendable {
  /// Overwrite it, unless it has the same value.
  case replace
  /// Keep it.
  case keep
}

extension Store {
  /// Writes each key that another store, or a snapshot of one, has in a range, with type and deadline, as new
  /// writes of this store. The other store may be of any data set, and encrypted differently.
  ///
  /// Works in atomic steps of a few megabytes; on return all of it is durable as the mode promises. After a
  /// crash it can be repeated: values that are already here are not written twice.
  ///
  /// - Parameters:
  ///   - conflict: what to do with keys that have a value here.
  ///   - unreadable: called for keys whose value is damaged or has not arrived; when it returns they are
  ///     skipped. By default the import ends with that error.
  /// - Throws: as `put`, and errors of `unreadable`.
  @discardableResult
  public func importAll(
    from other: some ReadableStore, _ range: KeyRange = .all, conflict: ImportConflict = .replace,
    unreadable: (Key, StoreError) throws -> Void = { throw $1 }
  ) throws -> ImportReport {
    var batch = ImportBatch(self, conflict)
    try other.scanEntries(range) { entry in
      let value: Value?
      do throws(StoreError) { value = try other.get(entry.key) } catch {
        try unreadable(entry.key, error)
        batch.report.skipped += 1
        return
      }
      guard let value else { return }
      // A value without expiry there gets none here, whatever the default is.
      try batch.add(entry.key, Value(bytes: value.bytes, type: value.type, deadline: value.deadline ?? .max))
    }
    return try batch.finish()
  }
}

/// Batches imported keys, some megabytes per transaction.
struct ImportBatch {
  var report = ImportReport()
  private let store: Store
  private let conflict: ImportConflict
  private var pending: [(key: Key, value: Value)] = []
  private var bytes = 0

  private static let batchBytes = 2 << 20
  private static let batchKeys = 1000

  init(_ store: Store, _ conflict: ImportConflict) { (self.store, self.conflict) = (store, conflict) }

  mutating func add(_ key: Key, _ value: Value) throws {
    pending.append((key, value))
    bytes += key.bytes.count + value.bytes.count
    if bytes >= Self.batchBytes || pending.count >= Self.batchKeys { try flush() }
  }

  /// Adds a key from bytes; an invalid one is skipped.
  mutating func add(_ bytes: [UInt8], value: [UInt8], type: ValueType) throws {
    guard let key = try? Key(bytes: bytes) else {
      report.skipped += 1
      return
    }
    try add(key, Value(bytes: value, type: type, deadline: nil))
  }

  mutating func finish() throws -> ImportReport {
    try flush()
    try store.awaitDurability(store.control.tail, durability: nil)
    return report
  }

  private mutating func flush() throws {
    guard !pending.isEmpty else { return }
    let (entries, conflict) = (pending, conflict)
    // The last transaction makes the earlier ones durable, too.
    let kept = try store.transaction(durability: .relaxed) { transaction in
      var kept = 0
      for (key, value) in entries {
        if conflict == .keep, try transaction.contains(key) {
          kept += 1
        } else {
          _ = try transaction.putIfChanged(
            key, value.bytes, type: value.type, expiration: value.deadline.map { .at($0) })
        }
      }
      return kept
    }
    report.kept += kept
    report.imported += entries.count - kept
    (pending, bytes) = ([], 0)
  }
}
