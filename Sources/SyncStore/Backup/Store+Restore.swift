/// What a restore did.
public struct RestoreReport: Hashable, Sendable {
  /// The data set.
  public let id: StoreID
  /// The store's name.
  public let name: String
  /// When the backup was made that it was restored from, in milliseconds since 1970.
  public let time: UInt64
  /// The last position that is in it.
  public let position: UInt64
  /// Blobs that were written.
  public let blobs: Int
  /// Bytes of those blobs.
  public let blobBytes: UInt64
  /// Blobs that records refer to and that the backup lacks: they are fetched from a peer. Of an encrypted store each is
  /// given by the name of its object, which is not the hash of its content.
  public let missingBlobs: [BlobReference]
}

/// A backup file, looked at.
public struct BackupSummary: Hashable, Sendable {
  /// The data set that it is of.
  public let store: StoreID
  /// The store's name.
  public let name: String
  /// Is what it holds encrypted?
  public let isEncrypted: Bool
  /// The state of the store that each backup into it has made, the oldest first: numbered from 1.
  public let states: [State]
  /// Does something lie behind the last state? A backup was interrupted, or its end was damaged. The next one mends that.
  public let isUnfinished: Bool

  /// What one backup has made of the file.
  public struct State: Hashable, Sendable {
    /// When, in milliseconds since 1970.
    public let time: UInt64
    /// The store's last position that is in it.
    public let position: UInt64
    /// Bytes that it added to the file.
    public let bytes: UInt64
  }
}

extension Store {
  /// Makes a store of a backup. The passphrase of an encrypted one is not needed, and stays what it was.
  ///
  /// The restored store is a copy (rule R9): the first who opens it for writing makes it a new actor, so that it and the
  /// store it was made of converge, whatever either has written since. It has the device identity of that store: where both
  /// are to go on, one of them joins anew instead.
  ///
  /// Everything is verified and durable before the directory gets its name: if this fails, or is killed at any moment, there
  /// is what was there before. On return the restored store is there after any loss of power.
  ///
  /// - Parameters:
  ///   - file: a backup file.
  ///   - path: the directory to make; it may be there and empty. Its parent must exist.
  ///   - state: which state of the file, from 1 (`backupSummary(of:)` lists them); by default the last one, unless a backup was
  ///     interrupted behind it: then it must be named.
  ///   - replacing: takes the place of a store that is there, in one step, and removes that.
  ///   - progress: hears how many of how many bytes were written.
  /// - Throws: `.alreadyExists` if there is something and it is not to be replaced; `.busy` if the store there is in use;
  ///   `.damaged` if the backup is; `.foreignFile`, `.newerFormat`, `.diskFull` …
  @discardableResult
  public static func restore(
    from file: String, to path: String, state: Int? = nil, replacing: Bool = false,
    progress: @escaping (_ done: UInt64, _ total: UInt64) -> Void = { _, _ in }
  ) throws(StoreError) -> RestoreReport {
    try restore(
      from: file, to: path, state: state, replacing: replacing, environment: .real(), progress: progress)
  }

  /// `restore` with the surroundings given, for tests.
  package static func restore(
    from file: String, to path: String, state: Int?, replacing: Bool, environment: Environment,
    progress: @escaping (_ done: UInt64, _ total: UInt64) -> Void = { _, _ in }
  ) throws(StoreError) -> RestoreReport {
    let storage = environment.storage
    // What is replaced is the directory, not a link to it.
    let path = try storage.canonicalPath(of: path)
    try StagedDirectory.recover(path, storage)
    let backup = try BackupFile(file, storage: storage)
    if state == nil { try backup.checkEnd() }
    let count = state ?? backup.sections.count
    guard (1...backup.sections.count).contains(count) else {
      throw StoreError(
        .outOfBounds, "has states 1 to \(backup.sections.count), not \(count): name one of them", path: file)
    }
    // Held to the end: nobody opens what is about to be replaced.
    let possession = try lockReplaced(path, replacing: replacing, storage: storage)
    defer { possession?.end() }
    let staging = path + ".restoring"
    try StagedDirectory.clear(path + exchangeSuffix, storage)
    do throws(StoreError) {
      try StagedDirectory.clear(staging, storage)
      guard try storage.createDirectory(staging) else {
        throw StoreError(.busy, "another process is restoring there: wait for it", path: path)
      }
    } catch {
      // What is in the way has to be moved, under its own name.
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

  /// Nil if nothing is there.
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

  /// What a backup file holds. Its states are looked through, not read: `verifyBackup(_:)` does that.
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

  /// Reads all of a backup file and compares it with its checksums.
  ///
  /// - Throws: `.damaged` if anything is not as it was written, also if a backup was interrupted last; `.foreignFile`,
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

/// A directory that is made beside the place it is to have, and takes that in one step.
enum StagedDirectory {
  /// Puts back what an exchange in steps, which was killed between two of them, has left without its name. Does nothing where something
  /// has that name.
  ///
  /// - Throws: `.busy` if that exchange is under way.
  static func recover(_ path: String, _ storage: any Storage) throws(StoreError) {
    let parked = path + exchangeSuffix
    guard try storage.status(path) == nil, try storage.status(parked + "/" + StoreIdentity.fileName) != nil,
      try storage.list(parked).allSatisfy(StoreContents.names.contains)
    else { return }
    // An exchange holds it to the end.
    let possession = try ExclusiveDirectoryLock(parked, storage)
    defer { possession.end() }
    if try storage.renameUnlessPresent(parked, to: path) { try storage.syncParentDirectory(of: path) }
  }

  /// Removes what an interrupted one left.
  ///
  /// - Throws: `.busy` if somebody is at work there; `.alreadyExists` if it is not what we would have left.
  static func clear(_ path: String, _ storage: any Storage) throws(StoreError) {
    guard let status = try storage.status(path) else { return }
    guard status.kind == .directory, try storage.list(path).allSatisfy(StoreContents.names.contains) else {
      throw StoreError(.alreadyExists, "is in the way: move it", path: path)
    }
    let possession = try ExclusiveDirectoryLock(path, storage)
    defer { possession.end() }
    // What took its place may not be known to have done so durably.
    try storage.syncDirectory(type(of: storage).directory(of: path))
    try storage.removeTree(path, first: [StoreIdentity.fileName])
  }

  /// Gives a complete, durable directory its name. A store that is there takes its place beside it, if the caller is
  /// `replacing` it and keeps others out of it. `settle` is to follow.
  ///
  /// - Throws: `.alreadyExists` if something has come to be there meanwhile.
  static func install(
    _ staging: String, as path: String, replacing: Bool, _ storage: any Storage
  ) throws(StoreError) {
    if try storage.renameUnlessPresent(staging, to: path) { return }
    guard replacing else {
      // An empty directory, unless somebody has made a store of it while this one was written.
      guard try storage.list(path).isEmpty, case _ = try storage.removeDirectory(path),
        try storage.renameUnlessPresent(staging, to: path)
      else {
        throw StoreError(
          .alreadyExists, "something has come to be there meanwhile, and is not replaced: name another",
          path: path)
      }
      return
    }
    try storage.exchange(staging, with: path)
  }

  /// An error about `staging`, or what lies in it, as one about the directory that it was to become: that is the one people know.
  static func error(_ error: StoreError, at staging: String, namedBy path: String) -> StoreError {
    guard let failed = error.path, failed.hasPrefix(staging) else { return error }
    return StoreError(
      error.code, error.message, path: path + failed.dropFirst(staging.count), errno: error.errno)
  }

  /// Makes the new name durable, and then removes what was replaced. Where the first fails both stay: a loss of power may show the
  /// old names again.
  static func finishInstall(_ staging: String, as path: String, _ storage: any Storage) throws(StoreError) {
    do throws(StoreError) { try storage.syncParentDirectory(of: path) } catch {
      let replaced = try storage.status(staging) == nil ? "" : "; what was there is left at \(staging)"
      throw StoreError(
        error.code,
        "the restored store has its place, but it is not known whether that outlives a loss of power\(replaced): "
          + error.message, path: path, errno: error.errno)
    }
    // What fails from here on leaves rubbish beside the store, not half of one.
    try? storage.removeTree(staging, first: [StoreIdentity.fileName])
  }
}
