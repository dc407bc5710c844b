/// Backing up and restoring through a handle.
extension StoreHandle {
  /// Backs the store up. As `Store.backUp(to:)`.
  ///
  /// - Throws: as `withStore`.
  @discardableResult
  public func backUp(to file: String, replacing: Bool = false) throws -> BackupReport {
    try withStore { try $0.backUp(to: file, replacing: replacing) }
  }

  /// Closes the store and replaces it with one restored from a backup. As `Store.restore(from:to:)`.
  ///
  /// - Throws: `.busy` within `withStore`; errors of closing.
  @discardableResult
  public func restore(from file: String, state: Int? = nil) throws(StoreError) -> RestoreReport {
    try blockade()
    defer { unblockade() }
    try closeInPlace()
    return try Store.restore(from: file, to: path, state: state, replacing: true, environment: environment)
  }
}

/// Backing up and restoring all stores of a directory.
extension StoreRoot {
  /// Backs up all stores, each into `directory/NAME.backup`; see `Store.backUp(to:)`. Each backup is
  /// consistent by itself; they are not taken at the same time.
  ///
  /// - Throws: at the first failure; the stores before it are backed up.
  @discardableResult
  public func backUpAll(to directory: String) throws(StoreError) -> StringDictionary<BackupReport> {
    let directory = try storage.canonicalPath(of: directory)
    _ = try storage.createDirectory(directory)
    try storage.syncParentDirectory(of: directory)
    var reports: StringDictionary<BackupReport> = [:]
    for name in try names() {
      let handle = try store(name, creates: false)
      reports[name] = try StoreError.only { try handle.backUp(to: "\(directory)/\(name).backup") }
    }
    return reports
  }

  /// Restores each `directory/NAME.backup`, replacing the store of that name if there is one; see
  /// `Store.restore(from:to:)`.
  ///
  /// - Throws: at the first failure; the stores before it are restored.
  @discardableResult
  public func restoreAll(from directory: String) throws(StoreError) -> StringDictionary<RestoreReport> {
    var reports: StringDictionary<RestoreReport> = [:]
    for file in try storage.list(directory) where file.hasSuffix(".backup") {
      let name = String(file.unicodeScalars.dropLast(".backup".count))
      reports[name] = try store(name).restore(from: directory + "/" + file)
    }
    return reports
  }
}
