/// A store's directory that nobody has open, and nobody can open, as long as this lives: other processes, and other
/// instances of this one, get `.busy`.
struct ExclusiveDirectoryLock {
  private let control: any StorageFile
  private let path: String
  /// Those of this process, by their paths: who is refused is told who it is that refuses him.
  private static let heldPaths = LockedField<StringDictionary<Int>>([:])

  /// Does this process keep others out of the directory?
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
          ? "this process keeps everybody out at the moment: wait for that to end"
          : "the store is in use, by \(storage.presentProcesses(control.path, otherwise: "a process")): "
            + "close it in all processes first", path: path)
    }
    // One path for all that lead there.
    let absolute = SystemCall.absolutePath(path)
    self.path = absolute
    Self.heldPaths.withLock { $0[absolute, default: 0] += 1 }
  }

  /// Lets the directory go.
  func end() {
    Self.heldPaths.withLock { own in
      let left = (own[path] ?? 0) - 1
      own[path] = left > 0 ? left : nil
    }
    _ = try? control.lock(byte: StoreLayout.presenceByte, .none, wait: false)
  }
}

extension Storage {
  /// The processes that have the store with this control file open, in words; `otherwise` if none is known.
  func presentProcesses(_ control: String, otherwise: String) -> String {
    let holders = lockHolders(of: control, byte: StoreLayout.presenceByte)
    return holders.isEmpty ? otherwise : holders.joined(separator: ", ")
  }
}

/// What may lie in a store's directory, so that nothing else is ever removed with it.
enum StoreContents {
  static let names: StringSet = [
    StoreIdentity.fileName, StoreIdentity.fileName + ".new", StoreLayout.journal, StoreLayout.blobs,
    StoreLayout.control,
    JournalKeys.directory, "index", "index.new", "ledger", "ledger.new", Leftovers.staging,
    DaemonLock.fileName,
  ]

  /// - Throws: `.foreignFile` if there is anything in the directory that no store has.
  static func check(_ path: String, _ storage: any Storage) throws(StoreError) {
    guard let stranger = try storage.list(path).first(where: { !names.contains($0) }) else { return }
    throw StoreError(
      .foreignFile, "is not of the store, and would be removed with it: move it away",
      path: path + "/" + stranger)
  }
}
