/// The store's directory as a whole: files, size, location.
extension Store {
  /// Whether this directory holds a store. The store is not opened.
  ///
  /// - Throws: `.inputOutput` if the directory cannot be read; `.foreignFile`, `.damaged`, `.newerFormat` if
  ///   the identity file cannot be read.
  public static func exists(at path: String) throws(StoreError) -> Bool {
    try exists(at: path, Environment.real().storage)
  }

  /// `exists` with a given storage, for tests.
  package static func exists(at path: String, _ storage: any Storage) throws(StoreError) -> Bool {
    let path = try storage.canonicalPath(of: path)
    guard try storage.status(path)?.kind == .directory else { return false }
    return try StoreIdentity.read(path, storage: storage) != nil
  }

  /// The paths of all files in the store's directory, sorted. Files may come and go concurrently.
  ///
  /// - Throws: `.inputOutput` if the directory is missing or cannot be listed.
  public static func files(at path: String) throws(StoreError) -> [String] {
    try files(at: path, Environment.real().storage).map(\.path)
  }

  /// Bytes of all files in the store's directory.
  ///
  /// - Throws: as `files(at:)`.
  public static func sizeOfFiles(at path: String) throws(StoreError) -> UInt64 {
    try files(at: path, Environment.real().storage).reduce(0) { $0 + UInt64($1.size) }
  }

  /// All files below a directory with their sizes, sorted by path.
  package static func files(
    at path: String, _ storage: any Storage
  ) throws(StoreError) -> [(path: String, size: Int)] {
    var files: [(path: String, size: Int)] = []
    for name in try storage.list(path) {
      let entry = path + "/" + name
      guard let status = try storage.status(entry) else { continue }
      if status.kind == .directory {
        files += try self.files(at: entry, storage)
      } else {
        files.append((entry, status.size))
      }
    }
    return files
  }

  /// Removes a store with all its files; an encrypted one needs no key. False if there was none. If `path` is
  /// a symbolic link, its target is removed and the link stays.
  ///
  /// On return the removal is durable. After a crash at any moment either the whole store is there or none;
  /// leftovers may then remain next to it (`PATH.removing`), which the next removal there deletes. What a
  /// killed restore left next to it is removed with it.
  ///
  /// - Throws: `.busy` if it is open, here or in another process; `.foreignFile` if the directory contains
  ///   anything that is not part of a store: nothing was removed then.
  @discardableResult
  public static func remove(at path: String) throws(StoreError) -> Bool {
    try remove(at: path, Environment.real().storage)
  }

  /// `remove` with a given storage, for tests.
  package static func remove(at path: String, _ storage: any Storage) throws(StoreError) -> Bool {
    let path = try storage.canonicalPath(of: path)
    let trash = path + StagedDirectory.removingSuffix
    try StagedDirectory.recover(path, storage)
    try StagedDirectory.clear(path + exchangeSuffix, storage)
    try StagedDirectory.clear(trash, storage)
    try StagedDirectory.clearCopies(of: path, storage)
    guard let status = try storage.status(path), status.kind == .directory else { return false }
    guard try storage.status(path + "/" + StoreIdentity.fileName) != nil else {
      // Its creation was interrupted, or a removal that could not rename it first.
      let names = try storage.list(path)
      guard !names.isEmpty, names.allSatisfy(StoreContents.names.contains) else { return false }
      let possession = try ExclusiveDirectoryLock(path, storage)
      defer { possession.end() }
      try storage.removeTree(path)
      return false
    }
    try StoreContents.check(path, storage)
    let possession = try ExclusiveDirectoryLock(path, storage)
    defer { possession.end() }
    do throws(StoreError) {
      _ = try storage.renameUnlessPresent(path, to: trash)
    } catch {
      // A mount point, or in a directory without write permission: removing its identity first makes it no
      // store any more.
      try storage.removeTree(path, first: [StoreIdentity.fileName])
      return true
    }
    try storage.syncDirectory(type(of: storage).directory(of: path))
    try storage.removeTree(trash, first: [StoreIdentity.fileName])
    return true
  }

  /// Moves a store to another place on the same file system. It stays the same copy, the same actor. If
  /// `path` is a symbolic link, its target is moved and the link stays.
  ///
  /// On return the move is durable. After a crash at any moment the store is at one of the two places.
  ///
  /// - Throws: `.busy` if it is open, here or in another process; `.alreadyExists` if the new place is taken;
  ///   `.notAStore`; `.inputOutput` if the new place is on another file system: back it up and restore it
  ///   there.
  public static func move(from path: String, to newPath: String) throws(StoreError) {
    try move(from: path, to: newPath, Environment.real().storage)
  }

  /// `move` with a given storage, for tests.
  package static func move(
    from path: String, to newPath: String, _ storage: any Storage
  ) throws(StoreError) {
    let (path, newPath) = (try storage.canonicalPath(of: path), try storage.canonicalPath(of: newPath))
    try StagedDirectory.recover(path, storage)
    guard try exists(at: path, storage) else {
      throw StoreError(.notAStore, "there is no store here: name the directory of one", path: path)
    }
    let possession = try ExclusiveDirectoryLock(path, storage)
    defer { possession.end() }
    do throws(StoreError) {
      guard try storage.renameUnlessPresent(path, to: newPath) else {
        throw StoreError(.alreadyExists, "something is there: name another directory", path: newPath)
      }
    } catch {
      guard error.errno == SystemCall.crossDevice else { throw error }
      throw StoreError(
        .inputOutput, "lies on another file system: back the store up, and restore it there", path: newPath,
        errno: error.errno)
    }
    // The new directory first: a power loss between the two syncs must not lose both names.
    try storage.syncParentDirectory(of: newPath)
    let directory = type(of: storage).directory(of:)
    if directory(newPath) != directory(path) { try storage.syncDirectory(directory(path)) }
  }
}
