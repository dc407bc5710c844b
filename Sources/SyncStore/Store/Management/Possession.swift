/// Exclusive access to a store's directory as long as this lives: other processes, and other instances in
/// this one, get `.busy`.
struct ExclusiveDirectoryLock {
  private let control: any StorageFile
  private let path: String
  /// Paths locked by this process, so that an error can name it as the holder.
  private static let heldPaths = LockedField<StringDictionary<Int>>([:])

  /// Whether this process holds the directory exclusively.
  static func isHeldByThisProcess(_ path: String) -> Bool {
    heldPaths.withLock { $0[SystemCall.absolutePath(path)] != nil }
  }

  /// - Throws: `.busy` if the store is open, here or in another process.
  init(_ path: String, _ storage: any Storage) throws(StoreError) {
    control = try storage.open(path + "/" + StoreLayout.control, .openOrCreate)
    guard try control.lock(byte: StoreLayout.presenceByte, .exclusive, wait: false),
      try storage.status(control.path)?.inode == control.status().inode
    else {
      let isHere = Self.isHeldByThisProcess(path)
      throw StoreError(
        .busy,
        isHere
          ? "this process has the store closed at the moment: wait for that to end"
          : "the store is in use, by \(storage.presentProcesses(control.path, otherwise: "a process")): "
            + "close it in all processes first", path: path)
    }
    // One canonical path, however it was spelled.
    let absolute = SystemCall.absolutePath(path)
    self.path = absolute
    Self.heldPaths.withLock { $0[absolute, default: 0] += 1 }
  }

  /// Releases the directory.
  func end() {
    Self.heldPaths.withLock { own in
      let left = (own[path] ?? 0) - 1
      own[path] = left > 0 ? left : nil
    }
    _ = try? control.lock(byte: StoreLayout.presenceByte, .none, wait: false)
  }
}

extension Storage {
  /// The processes that have the store with this control file open, as text; `otherwise` if none is known.
  func presentProcesses(_ control: String, otherwise: String) -> String {
    let holders = lockHolders(of: control, byte: StoreLayout.presenceByte)
    return holders.isEmpty ? otherwise : holders.joined(separator: ", ")
  }
}

/// Names that may lie in a store's directory, so that nothing else is ever removed with it.
enum StoreContents {
  static let names: StringSet = [
    StoreIdentity.fileName, StoreIdentity.fileName + ".new", StoreLayout.journal, StoreLayout.blobs,
    StoreLayout.control,
    JournalKeys.directory, "index", "index.new", "ledger", "ledger.new", Leftovers.staging,
    DaemonLock.fileName,
  ]

  /// - Throws: `.foreignFile` if the directory contains anything that is not part of a store.
  static func check(_ path: String, _ storage: any Storage) throws(StoreError) {
    guard let stranger = try storage.list(path).first(where: { !names.contains($0) }) else { return }
    throw StoreError(
      .foreignFile, "is not of the store, and would be removed with it: move it away",
      path: path + "/" + stranger)
  }
}
