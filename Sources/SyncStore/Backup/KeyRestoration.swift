/// How the keys under a prefix differ from what they were in a backup, and the writes that take them back.
///
/// `Store.withRestoration` makes one. Restored values are new writes of this copy: they replicate, and win
/// over what every copy holds now. Other keys are not touched.
///
/// ```swift
/// let report = try store.withRestoration(ofKeys: Array("config/".utf8), from: "shop.backup") { past in
///   for change in past.changes { print(change.kind, change.key) }
///   return try past.restoreValues()
/// }
/// print(report.restored)
/// ```
///
/// Not thread safe. Valid within the closure that receives it.
public final class KeyRestoration {
  /// A key that is not as it was.
  public struct Change: Hashable, Sendable {
    /// How the key differs.
    public enum Kind: String, Hashable, Sendable {
      /// The backup has a value for it, this store has none.
      case missing
      /// The value, its type or its deadline is another one.
      case differs
      /// This store has a value for it, the backup has none.
      case added
    }

    /// The key.
    public let key: Key
    /// How it differs.
    public let kind: Kind
    /// Bytes of the value in the backup; 0 for `added`.
    public let size: UInt64
    /// The version in this store that the comparison saw; nil for `missing`.
    let version: Dot?

    var expected: Expected { version.map { .version($0) } ?? .absent }
  }

  /// What `restoreValues` or `deleteAdded` did.
  public struct Report: Sendable {
    /// Keys whose values were written, or that were deleted.
    public internal(set) var restored = 0
    /// Bytes of the values written.
    public internal(set) var bytes: UInt64 = 0
    /// Keys that were written after the comparison, by another thread or a peer: they were left alone.
    public internal(set) var overtaken: [Key] = []
    /// Keys whose values the backup lacks or holds damaged, each with the error: they were left alone.
    public internal(set) var unreadable: [Failure] = []
  }

  /// A value that could not be restored.
  public struct Failure: Sendable {
    /// The key.
    public let key: Key
    /// `.blobUnavailable` or `.damaged`.
    public let error: StoreError
  }

  /// The state of the backup, as in `BackupSummary`.
  public let state: BackupSummary.State
  /// Keys that differ: first, in order of the keys, those in the backup, then those added since.
  public let changes: [Change]
  /// Keys that are as they were.
  public let unchanged: Int

  private let store: Store
  private let past: Store
  /// A transaction is committed at so many keys or bytes.
  private static let transactionKeys = 500
  private static let transactionBytes = 1 << 20
  /// Larger values are written one by one, and streamed.
  private static let smallValueBytes: UInt64 = 16 << 10

  /// Compares the keys of both stores.
  init(ofKeys prefix: [UInt8], in store: Store, from past: Store, state: BackupSummary.State) throws {
    (self.store, self.past, self.state) = (store, past, state)
    var changes: [Change] = []
    var unchanged = 0
    let (before, now) = (try past.snapshot(), try store.snapshot())
    defer {
      before.close()
      now.close()
    }
    try before.scanEntries(KeyRange(prefix: prefix)) { entry in
      guard let present = try now.entry(entry.key) else {
        return changes.append(Change(key: entry.key, kind: .missing, size: entry.size, version: nil))
      }
      if try Self.isSame(entry, in: before, as: present, in: now) {
        unchanged += 1
      } else {
        changes.append(Change(key: entry.key, kind: .differs, size: entry.size, version: present.dot))
      }
    }
    try now.scanEntries(KeyRange(prefix: prefix)) { entry in
      if try !before.contains(entry.key) {
        changes.append(Change(key: entry.key, kind: .added, size: 0, version: entry.dot))
      }
    }
    (self.changes, self.unchanged) = (changes, unchanged)
  }

  /// Whether both values are equal. Large values are compared by their references, and not read; a value that
  /// cannot be read here counts as different.
  private static func isSame(
    _ past: Entry, in before: Snapshot, as present: Entry, in now: Snapshot
  ) throws(StoreError) -> Bool {
    guard past.size == present.size, past.type == present.type, past.deadline == present.deadline else {
      return false
    }
    if let blob = past.blob, blob == present.blob { return true }
    guard past.blob == nil, present.blob == nil else { return false }
    do throws(StoreError) { return try before.get(past.key) == now.get(past.key) } catch {
      guard [.damaged, .blobUnavailable].contains(error.code) else { throw error }
      return false
    }
  }

  /// Writes the values of the backup whose keys are missing here or have other values. Each transaction is
  /// as durable as the store's mode promises.
  ///
  /// - Throws: as `Store.put`. What was committed before the error stays; calling it again continues.
  public func restoreValues() throws -> Report {
    var report = Report()
    var small: [(change: Change, value: Value)] = []
    var bytes = 0
    for change in changes where change.kind != .added {
      do {
        if change.size > Self.smallValueBytes {
          try stream(change, into: &report)
        } else if let value = try past.get(change.key) {
          small.append((change, value))
          bytes += value.bytes.count
        }
      } catch let error as StoreError where [.damaged, .blobUnavailable].contains(error.code) {
        report.unreadable.append(Failure(key: change.key, error: error))
      }
      if small.count >= Self.transactionKeys || bytes >= Self.transactionBytes {
        try write(small, into: &report)
        (small, bytes) = ([], 0)
      }
    }
    try write(small, into: &report)
    return report
  }

  /// Deletes the keys that the backup does not have.
  ///
  /// - Throws: as `Store.delete`. What was committed before the error stays; calling it again continues.
  public func deleteAdded() throws -> Report {
    var report = Report()
    let added = changes.filter { $0.kind == .added }
    for start in stride(from: 0, to: added.count, by: Self.transactionKeys) {
      let page = added[start...].prefix(Self.transactionKeys)
      let (deleted, overtaken) = try store.transaction { transaction in
        var (deleted, overtaken) = (0, [Key]())
        for change in page {
          if try transaction.delete(change.key, expecting: change.expected) {
            deleted += 1
          } else {
            overtaken.append(change.key)
          }
        }
        return (deleted, overtaken)
      }
      report.restored += deleted
      report.overtaken += overtaken
    }
    return report
  }

  private func write(_ page: [(change: Change, value: Value)], into report: inout Report) throws {
    guard !page.isEmpty else { return }
    let overtaken = try store.transaction { transaction in
      var overtaken: [Key] = []
      for (change, value) in page {
        let version = try transaction.put(
          change.key, value.bytes, expecting: change.expected, type: value.type,
          expiration: Expiration(deadline: value.deadline))
        if version == nil { overtaken.append(change.key) }
      }
      return overtaken
    }
    report.overtaken += overtaken
    report.restored += page.count - overtaken.count
    for (change, value) in page where !overtaken.contains(change.key) {
      report.bytes += UInt64(value.bytes.count)
    }
  }

  /// Writes one large value, a piece at a time. `read` does not verify the bytes, so all of them are verified
  /// first.
  private func stream(_ change: Change, into report: inout Report) throws {
    guard let reader = try past.reader(of: change.key), let entry = try past.entry(change.key) else { return }
    try reader.withBytes { _ throws(StoreError) in }
    let version = try store.put(
      change.key, expecting: change.expected, type: reader.type,
      expiration: Expiration(deadline: entry.deadline)
    ) { writer in
      var offset: UInt64 = 0
      while offset < reader.size {
        let part = try reader.read(1 << 20, at: offset)
        try writer.append(part)
        offset += UInt64(part.count)
      }
    }
    if version == nil {
      report.overtaken.append(change.key)
    } else {
      report.restored += 1
      report.bytes += reader.size
    }
  }
}

extension Store {
  /// Compares the keys under a prefix with those in a backup of this store, for `body` to take back what it
  /// chooses.
  ///
  /// The backup is verified and restored into a directory next to the store (`PATH.comparing`), which needs
  /// as much space as a whole restore, and is removed afterwards; the remains of a killed call are removed by
  /// the next one. Other threads, processes and peers can write during the call: a key that was written
  /// after the comparison is not changed, and is reported.
  ///
  /// - Parameters:
  ///   - prefix: of the keys; with an empty one, all keys.
  ///   - file: a backup file of this store, made by this copy or by another one.
  ///   - state: the state of the file, from 1; by default the last one, unless a backup was interrupted after
  ///     it: then the state must be given.
  ///   - passphrase: the one of the moment of the backup, if that was encrypted; by default the one that this
  ///     store was opened with.
  ///   - progress: gets the bytes of the backup verified so far and the total.
  ///   - body: gets the differences. What it returns is returned.
  /// - Throws: `.foreignFile` if the file is no backup, or one of another store; `.busy` while another
  ///   process does the same with this store; `.wrongKey` if the passphrase is another one; as `restore`;
  ///   what `body` throws.
  public func withRestoration<Result>(
    ofKeys prefix: [UInt8], from file: String, state: Int? = nil, passphrase: Passphrase? = nil,
    progress: @escaping (_ done: UInt64, _ total: UInt64) -> Void = { _, _ in },
    _ body: (KeyRestoration) throws -> Result
  ) throws -> Result {
    let summary = try Store.backupSummary(of: file, environment.storage)
    guard summary.store == id else {
      throw StoreError(
        .foreignFile, "is a backup of another store, \(summary.name): restore it into a directory of its own",
        path: file)
    }
    let place = path + StagedDirectory.comparedSuffix
    let report = try Store.restore(
      from: file, to: place, state: state, replacing: true, environment: environment, progress: progress)
    // It holds keys and values: nothing of it stays.
    defer { _ = try? Store.remove(at: place, environment.storage) }
    var settings = Configuration(
      mode: .readOnly, passphrase: summary.isEncrypted ? passphrase ?? configuration.passphrase : nil)
    settings.allowsNetworkFileSystem = configuration.allowsNetworkFileSystem
    let past = try Store.open(at: place, configuration: settings, environment: environment)
    defer { try? past.close() }
    guard past.id == id, try past.status().position == report.position else {
      throw StoreError(.busy, "another process is restoring keys of this store: wait for it", path: path)
    }
    let number = state ?? summary.states.count
    return try body(
      KeyRestoration(ofKeys: prefix, in: self, from: past, state: summary.states[number - 1]))
  }
}
