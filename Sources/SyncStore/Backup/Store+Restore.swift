/// Result of a restore.
public struct RestoreReport: Hashable, Sendable {
  /// The restored store.
  public let id: StoreID
  /// The store's name.
  public let name: String
  /// When the restored backup was made, in milliseconds since 1970.
  public let time: UInt64
  /// The last position that it contains.
  public let position: UInt64
  /// Number of blobs written.
  public let blobs: Int
  /// Bytes of the blobs written.
  public let blobBytes: UInt64
  /// Blobs that records refer to but that the backup lacks: they are fetched from a peer.
  ///
  /// In an encrypted store each is identified by its stored name, which is not the hash of its content.
  public let missingBlobs: [BlobReference]
}

/// Summary of a backup file.
public struct BackupSummary: Hashable, Sendable {
  /// The store that it is a backup of.
  public let store: StoreID
  /// The store's name.
  public let name: String
  /// Whether its contents are encrypted.
  public let isEncrypted: Bool
  /// The states of the store in the file, one per backup, the oldest first: numbered from 1.
  public let states: [State]
  /// Whether data follows the last state: a backup was interrupted, or the end of the file was damaged. The
  /// next backup repairs that.
  public let isUnfinished: Bool

  /// The state added by one backup.
  public struct State: Hashable, Sendable {
    /// When it was made, in milliseconds since 1970.
    public let time: UInt64
    /// The store's last position that it contains.
    public let position: UInt64
    /// Bytes that it added to the file.
    public let bytes: UInt64
  }
}

extension Store {
  /// Restores a store from a backup. The passphrase of an encrypted store is not needed, and stays unchanged.
  ///
  /// The restored store is a copy (rule R9): the first opening for writing makes it a new actor, so that it
  /// converges with the original, whatever either has written since. **It has the device identity of the
  /// original**: if both are to stay in use, one of them must join anew.
  ///
  /// Everything is verified and durable before the directory gets its name: if the restore fails or is
  /// killed, the previous content is unchanged. On return the restored store survives a power failure.
  ///
  /// - Parameters:
  ///   - file: A backup file.
  ///   - path: The directory to create; it may exist if it is empty. Its parent must exist.
  ///   - state: The state of the file, from 1 (`backupSummary(of:)` lists them); by default the last one,
  ///     unless a backup was interrupted after it: then the state must be given.
  ///   - replacing: Replaces an existing store in one step, and removes it.
  ///   - progress: Gets the bytes written so far and the total.
  /// - Throws: `.alreadyExists` if something exists at `path` and must not be replaced; `.busy` if the store
  ///   there is in use; `.damaged` if the backup is; `.foreignFile`, `.newerFormat`, `.diskFull` …
  @discardableResult
  public static func restore(
    from file: String, to path: String, state: Int? = nil, replacing: Bool = false,
    progress: @escaping (_ done: UInt64, _ total: UInt64) -> Void = { _, _ in }
  ) throws(StoreError) -> RestoreReport {
    try restore(
      from: file, to: path, state: state, replacing: replacing, environment: .real(), progress: progress)
  }

  /// `restore` in the given environment, for tests.
  package static func restore(
    from file: String, to path: String, state: Int?, replacing: Bool, environment: Environment,
    progress: @escaping (_ done: UInt64, _ total: UInt64) -> Void = { _, _ in }
  ) throws(StoreError) -> RestoreReport {
    let storage = environment.storage
    // The directory is replaced, not a link to it.
    let path = try storage.canonicalPath(of: path)
    try StagedDirectory.recover(path, storage)
    let backup = try BackupFile(file, storage: storage)
    if state == nil { try backup.checkEnd() }
    let count = state ?? backup.sections.count
    guard (1...backup.sections.count).contains(count) else {
      throw StoreError(
        .outOfBounds, "has states 1 to \(backup.sections.count), not \(count): name one of them", path: file)
    }
    // Held to the end: the store to be replaced must not be opened during the restore.
    let possession = try lockReplaced(path, replacing: replacing, storage: storage)
    defer { possession?.end() }
    let staging = path + StagedDirectory.restoringSuffix
    try StagedDirectory.clear(path + exchangeSuffix, storage)
    do throws(StoreError) {
      try StagedDirectory.clear(staging, storage)
      guard try storage.createDirectory(staging) else {
        throw StoreError(.busy, "another process is restoring there: wait for it", path: path)
      }
    } catch {
      // The obstacle must be reported under its own name, so that it can be moved.
      throw error.code == .alreadyExists ? error : StagedDirectory.error(error, at: staging, namedBy: path)
    }
    var own: ExclusiveDirectoryLock?
    defer { own?.end() }
    let report: RestoreReport
    do throws(StoreError) {
      own = try ExclusiveDirectoryLock(staging, storage)
      var held = environment
      held.storage = try storage.anchored(at: staging)
      var restoration = Restoration(backup, upTo: count, in: staging, held, progress)
      report = try restoration.run()
      guard try held.storage.resolvesToAnchor(staging) else {
        throw StoreError(
          .busy, "the directory was renamed or replaced while it was restored into: restore again",
          path: staging)
      }
      try StagedDirectory.install(staging, as: path, replacing: possession != nil, storage)
    } catch {
      own?.end()
      own = nil
      try? StagedDirectory.clear(staging, storage)
      throw StagedDirectory.error(error, at: staging, namedBy: path)
    }
    try StagedDirectory.finishInstall(staging, as: path, storage)
    return report
  }

  /// Locks the store to be replaced; nil if there is none.
  private static func lockReplaced(
    _ path: String, replacing: Bool, storage: any Storage
  ) throws(StoreError) -> ExclusiveDirectoryLock? {
    guard let status = try storage.status(path) else { return nil }
    guard status.kind == .directory else {
      throw StoreError(.alreadyExists, "is there and is no directory: name another", path: path)
    }
    if try storage.list(path).isEmpty { return nil }
    guard try StoreIdentity.read(path, storage: storage) != nil else {
      throw StoreError(
        .alreadyExists, "something is there that is no store, and is not replaced: name another directory",
        path: path)
    }
    guard replacing else {
      throw StoreError(
        .alreadyExists, "the directory is not empty: name another, or have the store in it replaced",
        path: path)
    }
    try StoreContents.check(path, storage)
    return try ExclusiveDirectoryLock(path, storage)
  }

  /// Summarizes a backup file. Only its structure is read: `verifyBackup(_:)` checks its contents.
  ///
  /// - Throws: `.foreignFile`, `.newerFormat`, `.damaged`.
  public static func backupSummary(of file: String) throws(StoreError) -> BackupSummary {
    try backupSummary(of: file, Environment.real().storage)
  }

  /// `backupSummary` with the storage given, for tests.
  package static func backupSummary(
    of file: String, _ storage: any Storage
  ) throws(StoreError) -> BackupSummary {
    let backup = try BackupFile(file, storage: storage)
    let states = backup.sections.map { section in
      BackupSummary.State(
        time: section.closing.time, position: section.closing.position, bytes: UInt64(section.range.count))
    }
    guard let last = backup.last else {
      throw backup.damaged("it has no complete section: use another backup")
    }
    return BackupSummary(
      store: backup.header.store, name: last.closing.name, isEncrypted: last.closing.generation > 0,
      states: states, isUnfinished: backup.isUnfinished)
  }

  /// Reads a whole backup file and verifies its checksums.
  ///
  /// - Throws: `.damaged` if anything was changed, or the last backup was interrupted; `.foreignFile`,
  ///   `.newerFormat`.
  public static func verifyBackup(
    _ file: String, progress: (_ done: UInt64, _ total: UInt64) -> Void = { _, _ in }
  ) throws(StoreError) {
    try verifyBackup(file, Environment.real().storage, progress: progress)
  }

  /// `verifyBackup` with the storage given, for tests.
  package static func verifyBackup(
    _ file: String, _ storage: any Storage, progress: (_ done: UInt64, _ total: UInt64) -> Void = { _, _ in }
  ) throws(StoreError) {
    let backup = try BackupFile(file, storage: storage)
    for section in backup.sections {
      for entry in section.entries {
        try backup.read(entry) { _, _ in }
        progress(UInt64(entry.end), UInt64(backup.end))
      }
    }
    try backup.checkEnd()
  }
}
