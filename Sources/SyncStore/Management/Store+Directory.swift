/// A store's directory as a whole: what is in it, how large it is, where it lies.
extension Store {
  /// Is there a store in this directory? It is not opened.
  ///
  /// - Throws: `.inputOutput` if the directory cannot be looked at; `.foreignFile`, `.damaged`,
  ///   `.newerFormat` if the file that says which store it is cannot be read.
  public static func exists(at path: String) throws(StoreError) -> Bool {
    try exists(at: path, Environment.real().storage)
  }

  /// `exists` with the storage given, for tests.
  package static func exists(at path: String, _ storage: any Storage) throws(StoreError) -> Bool {
    let path = try storage.canonicalPath(of: path)
    guard try storage.status(path)?.kind == .directory else { return false }
    return try StoreIdentity.read(path, storage: storage) != nil
  }

  /// The paths of all files in the store's directory, sorted. Some may come and go meanwhile.
  ///
  /// - Throws: `.inputOutput` if the directory cannot be listed, or is not there.
  public static func files(at path: String) throws(StoreError) -> [String] {
    try files(at: path, Environment.real().storage).map(\.path)
  }

  /// Bytes of all files in the store's directory.
  ///
  /// - Throws: as `files(at:)`.
  public static func sizeOfFiles(at path: String) throws(StoreError) -> UInt64 {
    try files(at: path, Environment.real().storage).reduce(0) { $0 + UInt64($1.size) }
  }

  /// All files below a directory with their sizes, in the order of their paths.
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

  /// Removes a store with all its files; that of an encrypted one needs no key. False if there was none. Of a symbolic link, the
  /// directory that it leads to goes, and the link stays.
  ///
  /// On return it is gone for good, also after a loss of power. Killed at any moment, the store is there whole, or none is;
  /// then rubbish may be left beside its place (`PATH.removing`), which the next removal there takes along.
  ///
  /// - Throws: `.busy` if it is open, here or in another process; `.foreignFile` if there is something in the directory
  ///   that no store has: nothing was removed then.
  @discardableResult
  public static func remove(at path: String) throws(StoreError) -> Bool {
    try remove(at: path, Environment.real().storage)
  }

  /// `remove` with the storage given, for tests.
  package static func remove(at path: String, _ storage: any Storage) throws(StoreError) -> Bool {
    let path = try storage.canonicalPath(of: path)
    let trash = path + ".removing"
    try StagedDirectory.recover(path, storage)
    try StagedDirectory.clear(path + exchangeSuffix, storage)
    try StagedDirectory.clear(trash, storage)
    guard let status = try storage.status(path), status.kind == .directory else { return false }
    guard try storage.status(path + "/" + StoreIdentity.fileName) != nil else {
      // One that was being created, or whose removal could not begin with another name.
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
      // A mount point, or in a directory that is not ours: without its identity it is no store any more.
      try storage.removeTree(path, first: [StoreIdentity.fileName])
      return true
    }
    try storage.syncDirectory(type(of: storage).directory(of: path))
    try storage.removeTree(trash, first: [StoreIdentity.fileName])
    return true
  }

  /// Moves a store to another place on the same file system. It stays the same copy, the same actor. Of a symbolic link, the
  /// directory that it leads to is moved, and the link stays.
  ///
  /// On return it is there for good. Killed at any moment, it is at the one place or at the other.
  ///
  /// - Throws: `.busy` if it is open, here or in another process; `.alreadyExists` if something is at the new place;
  ///   `.notAStore`; `.inputOutput` if the new place is on another file system: back it up and restore it there.
  public static func move(from path: String, to newPath: String) throws(StoreError) {
    try move(from: path, to: newPath, Environment.real().storage)
  }

  /// `move` with the storage given, for tests.
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
    // First where it is now: a loss of power between the two must not take both names.
    try storage.syncParentDirectory(of: newPath)
    let directory = type(of: storage).directory(of:)
    if directory(newPath) != directory(path) { try storage.syncDirectory(directory(path)) }
  }
}
