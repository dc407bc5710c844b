/// A directory that is built next to its final path, and moved there in one step.
enum StagedDirectory {
  /// Of a store that is being restored.
  static let restoringSuffix = ".restoring"
  /// Of a store that is being removed.
  static let removingSuffix = ".removing"
  /// Of a backup that is restored only to be read.
  static let comparedSuffix = ".comparing"
  /// Of every directory that an operation makes next to a store, and a killed one may leave there.
  static let suffixes = [removingSuffix, restoringSuffix, comparedSuffix, exchangeSuffix]

  /// Recovers from a replacement in steps that was killed while `path` had no directory: moves the parked one
  /// back. Does nothing if `path` exists.
  ///
  /// - Throws: `.busy` if the replacement is still running.
  static func recover(_ path: String, _ storage: any Storage) throws(StoreError) {
    let parked = path + exchangeSuffix
    guard try storage.status(path) == nil, try storage.status(parked + "/" + StoreIdentity.fileName) != nil,
      try storage.list(parked).allSatisfy(StoreContents.names.contains)
    else { return }
    // A running replacement holds this lock to the end.
    let possession = try ExclusiveDirectoryLock(parked, storage)
    defer { possession.end() }
    if try storage.renameUnlessPresent(parked, to: path) { try storage.syncParentDirectory(of: path) }
  }

  /// Removes the remains of an interrupted restore.
  ///
  /// - Throws: `.busy` if it is in use; `.alreadyExists` if it has other content than a restore leaves.
  static func clear(_ path: String, _ storage: any Storage) throws(StoreError) {
    guard let status = try storage.status(path) else { return }
    guard status.kind == .directory, try storage.list(path).allSatisfy(StoreContents.names.contains) else {
      throw StoreError(.alreadyExists, "is in the way: move it", path: path)
    }
    let possession = try ExclusiveDirectoryLock(path, storage)
    defer { possession.end() }
    // The directory that took its place may not be durable yet.
    try storage.syncDirectory(type(of: storage).directory(of: path))
    try storage.removeTree(path, first: [StoreIdentity.fileName])
  }

  /// Removes what killed restores of this store left: it holds the keys and values of the store. What is not
  /// theirs stays.
  ///
  /// - Throws: `.busy` if a restore is running.
  static func clearCopies(of path: String, _ storage: any Storage) throws(StoreError) {
    for suffix in [restoringSuffix, comparedSuffix, comparedSuffix + restoringSuffix] {
      do throws(StoreError) { try clear(path + suffix, storage) } catch {
        if error.code != .alreadyExists { throw error }
      }
    }
  }

  /// Moves a complete, durable directory to its final path. `finishInstall` must follow.
  ///
  /// With `replacing`, an existing store is exchanged with it; the caller must hold the lock on that store.
  ///
  /// - Throws: `.alreadyExists` if something was created there concurrently.
  static func install(
    _ staging: String, as path: String, replacing: Bool, _ storage: any Storage
  ) throws(StoreError) {
    if try storage.renameUnlessPresent(staging, to: path) { return }
    guard replacing else {
      // An empty directory, unless a store was created in it concurrently.
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

  /// Rewrites an error about `staging`, or its content, to the final directory: that is the path the user
  /// knows.
  static func error(_ error: StoreError, at staging: String, namedBy path: String) -> StoreError {
    guard let failed = error.path, failed.hasPrefix(staging) else { return error }
    return StoreError(
      error.code, error.message, path: path + failed.dropFirst(staging.count), errno: error.errno)
  }

  /// Makes the new name durable, and then removes the replaced directory. If the sync fails, both stay: a
  /// power failure may bring back the old names.
  static func finishInstall(_ staging: String, as path: String, _ storage: any Storage) throws(StoreError) {
    do throws(StoreError) { try storage.syncParentDirectory(of: path) } catch {
      let replaced = try storage.status(staging) == nil ? "" : "; what was there is left at \(staging)"
      throw StoreError(
        error.code,
        "the restored store has its place, but it is not known whether that outlives a loss of power\(replaced): "
          + error.message, path: path, errno: error.errno)
    }
    // A failure from here on leaves garbage next to the store, not a partial store.
    try? storage.removeTree(staging, first: [StoreIdentity.fileName])
  }
}
