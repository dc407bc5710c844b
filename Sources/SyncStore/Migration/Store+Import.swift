/// What an import did.
public struct ImportReport: Hashable, Sendable {
  /// Keys that have the value that was to be imported: those that were set, and those that had this very value, type and deadline
  /// before, for which nothing was written.
  public var imported = 0
  /// Keys that were left as they were, because they had a value.
  public var kept = 0
  /// Keys that could not be read, or be keys here, and were passed over.
  public var skipped = 0
  /// Values of a property list whose key came again in the same dictionary: the later one was imported.
  public var merged = 0
}

/// What is to become of a key that has a value here already.
public enum ImportConflict: Hashable, Sendable {
  /// It is overwritten, unless it has the very same value.
  case replace
  /// It stays.
  case keep
}

extension Store {
  /// Sets each key that another store, or a snapshot of one, has in a range, with type and deadline, as new writes of this
  /// store. The other one may be of any data set, and encrypted in another way.
  ///
  /// A few megabytes at a time, each time atomically; on return all of it is durable as the mode promises. Killed in between
  /// it can be begun again: what is here already is not written twice.
  ///
  /// - Parameters:
  ///   - conflict: what is to become of keys that have a value here.
  ///   - unreadable: hears of keys whose value is damaged or has not arrived; when it returns they are passed over. By
  ///     default the import ends with that error.
  /// - Throws: as `put`, and what `unreadable` throws.
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
      // One that does not expire there does not here, whatever the default is.
      try batch.add(entry.key, Value(bytes: value.bytes, type: value.type, deadline: value.deadline ?? .max))
    }
    return try batch.finish()
  }
}

/// Keys on their way into a store, some megabytes in one transaction.
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

  /// The same for a key that may be none: then it is passed over.
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
    // The last one makes those before it durable, too.
    let kept = try store.transaction(durability: .relaxed) { transaction in
      var kept = 0
      for (key, value) in entries {
        if conflict == .keep, try transaction.contains(key) {
          kept += 1
        } else {
          _ = try transaction.putIfChanged(key, value.bytes, type: value.type, expires: value.deadline)
        }
      }
      return kept
    }
    report.kept += kept
    report.imported += entries.count - kept
    (pending, bytes) = ([], 0)
  }
}
