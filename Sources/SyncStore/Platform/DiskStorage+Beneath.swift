private import CLinux
private import Glibc

extension DiskStorage {
  /// The descriptor that `call` opens with the flags for a mode.
  ///
  /// A read-only open on overlayfs is opened for writing if permitted. Otherwise the file stays in its lower
  /// layer: the descriptor and its mappings keep showing that file when another process opens it for writing,
  /// which copies it up, and two stores above one lower layer would be taken for the same.
  func opened(_ mode: OpenMode, _ call: (_ flags: Int32) -> Int32) -> Int32 {
    let flags =
      switch mode {
      case .readOnly: O_RDONLY
      case .readWrite: O_RDWR
      case .create: O_RDWR | O_CREAT | O_EXCL
      case .openOrCreate: O_RDWR | O_CREAT
      }
    // O_NONBLOCK: a FIFO in place of a file must not hang the caller.
    let always = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY
    if mode == .readOnly, anchor?.isLayered ?? false {
      let descriptor = SystemCall.retrying { call(O_RDWR | always) }
      if descriptor >= 0 { return descriptor }
    }
    return SystemCall.retrying { call(flags | always) }
  }
}

// Opening names that come from peers, in a directory that may have been tampered with (blob tier).
extension DiskStorage {
  package func open(_ name: String, beneath directory: String, _ mode: OpenMode) throws(StoreError)
    -> any StorageFile
  {
    let path = directory + "/" + name
    let parent = unsafe at(directory) { unsafe sync_hold_directory($0, $1) }
    guard parent >= 0 else { throw Self.refusal(path) }
    defer { close(parent) }
    let descriptor = opened(mode) { flags in unsafe sync_open_beneath(parent, name, flags, 0o600) }
    guard descriptor >= 0 else { throw Self.refusal(path) }
    return try regularFile(descriptor, path)
  }

  package func renameUnlessPresent(_ path: String, to newPath: String) throws(StoreError) -> Bool {
    if unsafe at(path, and: newPath, { unsafe sync_rename_unless_present($0, $1, $2, $3) }) == 0 {
      return true
    }
    guard errno == EEXIST else { throw SystemCall.failure("cannot rename it to \(newPath)", path) }
    return false
  }

  package func exchange(_ path: String, with other: String) throws(StoreError) {
    if unsafe at(path, and: other, { unsafe sync_rename_exchange($0, $1, $2, $3) }) == 0 { return }
    guard sync_is_refused(errno) != 0 else {
      throw SystemCall.failure("cannot change names with \(other)", path)
    }
    // In steps. `other` has no name between the first and the second: a process that dies there leaves it
    // under the third name, and `StagedDirectory.recover` puts it back.
    let parked = other + exchangeSuffix
    guard try renameUnlessPresent(other, to: parked) else {
      throw SystemCall.failure("cannot change names with \(other)", path, errno: EEXIST)
    }
    do throws(StoreError) {
      guard try renameUnlessPresent(path, to: other) else {
        throw SystemCall.failure("cannot change names with \(other)", path, errno: EEXIST)
      }
    } catch {
      _ = try? renameUnlessPresent(parked, to: other)
      throw error
    }
    try rename(parked, to: path)
  }

  package func removeDirectory(_ path: String) throws(StoreError) -> Bool {
    if unsafe at(path, { unsafe unlinkat($0, $1, AT_REMOVEDIR) }) == 0 { return true }
    guard errno == ENOENT else { throw SystemCall.failure("cannot remove the directory", path) }
    return false
  }

  private static func refusal(_ path: String) -> StoreError {
    switch errno {
    case ELOOP, EXDEV, ENOTDIR, EISDIR, ENXIO:
      StoreError(
        .foreignFile, "a link or something else that is no file lies there or on the way: move it away",
        path: path, errno: errno)
    default: SystemCall.failure("cannot open it", path)
    }
  }
}
