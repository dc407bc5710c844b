import Glibc
package import SyncStore

/// A file system in memory that keeps, for each file and directory, the kernel's content (*live*) and the
/// disk's content (*durable*), so that a test can lose power in one line.
///
/// - `sync` makes content and size of a file durable, `syncDirectory` the entries of a directory.
/// - Creating, renaming and removing are atomic: after a power loss each happened or did not, and a later
///   change of the same name did not happen without it. Nothing else is promised about their order.
/// - Holes are not modelled: all bytes before the highest written or allocated one occupy space.
package final class SimulatedStorage: Storage {
  struct State {
    var root = SimulatedNode(.directory, inode: 1)
    var lastInode: UInt64 = 1
    var lastHandle: UInt64 = 0
    var life = 1
    var free: Int?
    var type: UInt64 = 0xEF53
    var lies = false
    var pending: [Operation] = []
    var failingSyncs: [(path: String, forever: Bool)] = []
    var failures = 0
  }

  /// A directory change that is not durable yet.
  struct Operation {
    let effects: [(directory: SimulatedNode, name: String, node: SimulatedNode?)]

    func touches(_ entries: Set<Entry>) -> Bool { effects.contains { entries.contains(Entry($0)) } }
  }

  struct Entry: Hashable {
    let directory: UInt64
    let name: ByteString
    init(_ effect: (directory: SimulatedNode, name: String, node: SimulatedNode?)) {
      (directory, name) = (effect.directory.inode, ByteString(effect.name))
    }
  }

  struct Guarded: @unchecked Sendable {
    // Nodes are classes: all access to them goes through the mutex around this.
    var state = State()
  }

  let guarded = Locked(Guarded())

  /// An empty file system: a root directory.
  package init() {}

  func locked<Result: Sendable>(_ body: (inout State) throws(StoreError) -> Result) throws(StoreError)
    -> Result
  {
    let outcome = guarded.withLock { guarded -> Swift.Result<Result, StoreError> in
      do throws(StoreError) { return .success(try body(&guarded.state)) } catch { return .failure(error) }
    }
    return try outcome.get()
  }

  // MARK: Controls for tests

  /// Bytes that may still be written; nil for no limit. A write that needs more is `.diskFull` with `ENOSPC`.
  package var free: Int? {
    get { guarded.withLock { $0.state.free } }
    set { guarded.withLock { $0.state.free = newValue } }
  }

  /// Number of failures so far: writes without space, and syncs made to fail.
  package var failures: Int { guarded.withLock { $0.state.failures } }

  /// Whether it reports files as durable without making them so.
  package var lies: Bool {
    get { guarded.withLock { $0.state.lies } }
    set { guarded.withLock { $0.state.lies = newValue } }
  }

  /// The magic number of its type; ext4 by default.
  package var type: UInt64 {
    get { guarded.withLock { $0.state.type } }
    set { guarded.withLock { $0.state.type = newValue } }
  }

  /// Makes the next sync of the file at `path` fail (all of them, if `forever`). Its unsynced pages then
  /// count as clean although they never reach the disk.
  package func failSync(of path: String, forever: Bool = false) {
    guarded.withLock { $0.state.failingSyncs.append((path, forever)) }
  }

  /// Cancels all planned sync failures.
  package func endSyncFailures() {
    guarded.withLock { $0.state.failingSyncs = [] }
  }

  /// Flips one bit of a file, in both images.
  package func flipBit(of path: String, at offset: Int, bit: Int) throws(StoreError) {
    try locked { state throws(StoreError) in
      let node = try state.file(path)
      precondition(offset < node.size, "no such byte")
      node.flipBit(at: offset, bit: bit)
    }
  }

  /// Puts a link, or an object that is neither file nor directory, at `path`.
  package func plant(_ kind: FileStatus.Kind, at path: String) throws(StoreError) {
    try locked { state throws(StoreError) in
      let node = state.make(kind)
      try state.change([(path, node)])
    }
  }

  /// Changes the owner of the object at `path`.
  package func plantOwner(_ owner: UInt32, of path: String) throws(StoreError) {
    try locked { state throws(StoreError) in
      guard let node = try state.find(path) else { throw failure("no such file", path, ENOENT) }
      node.owner = owner
    }
  }

  /// Adds a hard link to the file at `path`.
  package func plantHardLink(of path: String, at second: String) throws(StoreError) {
    try locked { state throws(StoreError) in try state.change([(second, try state.file(path))]) }
  }

  /// Copies a directory tree as a backup does: same bytes, new inodes, all durable.
  package func copyTree(from source: String, to destination: String) throws(StoreError) {
    try locked { state throws(StoreError) in
      guard let node = try state.find(source) else { throw failure("cannot copy it", source, ENOENT) }
      let copy = state.copy(node)
      try state.change([(destination, copy)])
      guard let (directory, _) = try? state.parent(of: destination) else { return }
      state.makeDurable(directory)
    }
  }

  /// Every process dies. The kernel's pages survive, locks do not, and open handles throw from now on.
  package func killProcesses() {
    guarded.withLock { guarded in
      guarded.state.life += 1
      for (_, node) in guarded.state.allNodes() { node.loseProcesses() }
    }
  }

  /// Power loss. `pages` decides on each unsynced page, `sizes` on each unsynced size, `entries` on each
  /// unsynced directory entry; paths are those before the loss.
  package func crash(
    keeping pages: (_ path: String, _ page: Int) -> PageFate,
    sizes: (_ path: String) -> Bool = { _ in true },
    entries: (_ path: String) -> Bool = { _ in true }
  ) {
    guarded.withLock { guarded in
      guarded.state.life += 1
      let nodes = guarded.state.allNodes()
      guarded.state.resolvePending(nodes, entries)
      for (path, node) in nodes {
        let keepingSize = node.size != node.durableSize && sizes(path)
        node.losePower(keepingSize: keepingSize) { pages(path, $0) }
      }
      guarded.state.countLinks()
    }
  }

  /// Power loss with a fate for every page, size and entry drawn from `seed`; occasionally all or none
  /// survive.
  package func crash(seed: UInt64) {
    var random = SplitMix64(seed: seed)
    let odds: UInt64 = [0, 10, 50, 50, 50, 90, 100][Int(random.next() % 7)]
    var second = SplitMix64(seed: random.next())
    var third = SplitMix64(seed: random.next())
    crash(
      keeping: { _, _ in
        guard random.chance(25) else { return random.chance(odds) ? .survives : .lost }
        return .torn(sectors: UInt8(truncatingIfNeeded: random.next()))
      }, sizes: { _ in second.chance(odds) }, entries: { _ in third.chance(odds) })
  }

  // MARK: Storage

  package func createDirectory(_ path: String) throws(StoreError) -> Bool {
    try locked { state throws(StoreError) in
      guard try state.find(path) == nil else { return false }
      try state.change([(path, state.make(.directory))])
      return true
    }
  }

  package func list(_ directory: String) throws(StoreError) -> [String] {
    try locked { state throws(StoreError) in
      guard let node = try state.find(directory) else {
        throw failure("cannot list the directory", directory, ENOENT)
      }
      guard node.kind == .directory else { throw failure("cannot list the directory", directory, ENOTDIR) }
      return node.entries.keys.sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) }
    }
  }

  package func status(_ path: String) throws(StoreError) -> FileStatus? {
    try locked { state throws(StoreError) in
      do throws(StoreError) {
        return try state.find(path).map { $0.status }
      } catch  where error.errno == ENOTDIR {
        return nil
      }
    }
  }

  package func open(_ path: String, _ mode: OpenMode) throws(StoreError) -> any StorageFile {
    try locked { state throws(StoreError) in
      var found = try state.find(path)
      switch mode {
      case .readOnly, .readWrite:
        guard found != nil else { throw failure("cannot open it", path, ENOENT) }
      case .create:
        guard found == nil else { throw failure("cannot open it", path, EEXIST) }
      case .openOrCreate: break
      }
      if found == nil {
        let made = state.make(.file)
        try state.change([(path, made)])
        found = made
      }
      guard let node = found, node.kind == .file else {
        throw StoreError(.foreignFile, "is not a regular file: move it away", path: path, errno: ELOOP)
      }
      state.lastHandle += 1
      return SimulatedFile(
        self, node, path: path, handle: state.lastHandle, life: state.life, writable: mode != .readOnly)
    }
  }

  package func open(_ name: String, beneath directory: String, _ mode: OpenMode) throws(StoreError)
    -> any StorageFile
  {
    do throws(StoreError) {
      return try open(directory + "/" + name, mode)
    } catch  where error.errno == ENOTDIR {
      throw StoreError(
        .foreignFile, "a link or a file lies on the way to it: move that away",
        path: directory + "/" + name, errno: ENOTDIR)
    }
  }

  package func rename(_ path: String, to newPath: String) throws(StoreError) {
    _ = try rename(path, to: newPath, replacing: true)
  }

  package func renameUnlessPresent(_ path: String, to newPath: String) throws(StoreError) -> Bool {
    try rename(path, to: newPath, replacing: false)
  }

  package func exchange(_ path: String, with other: String) throws(StoreError) {
    try locked { state throws(StoreError) in
      guard let node = try state.find(path), let second = try state.find(other) else {
        throw failure("cannot change names with \(other)", path, ENOENT)
      }
      try state.change([(path, second), (other, node)])
    }
  }

  package func removeDirectory(_ path: String) throws(StoreError) -> Bool {
    try locked { state throws(StoreError) in
      guard let node = try state.find(path) else { return false }
      guard node.kind == .directory else { throw failure("cannot remove the directory", path, ENOTDIR) }
      guard node.entries.isEmpty else { throw failure("cannot remove the directory", path, ENOTEMPTY) }
      try state.change([(path, nil)])
      return true
    }
  }

  package func remove(_ path: String) throws(StoreError) -> Bool {
    try locked { state throws(StoreError) in
      guard let node = try state.find(path) else { return false }
      guard node.kind != .directory else { throw failure("cannot remove it", path, EISDIR) }
      try state.change([(path, nil)])
      return true
    }
  }

  package func syncDirectory(_ path: String) throws(StoreError) {
    try locked { state throws(StoreError) in
      guard let node = try state.find(path) else {
        throw failure("cannot make the directory durable", path, ENOENT)
      }
      if state.syncFails(path) { throw failure("cannot make the directory durable", path, EIO) }
      state.makeDurable(node)
    }
  }

  package func syncFileSystem(_ path: String) throws(StoreError) {
    try locked { state throws(StoreError) in
      for (path, node) in state.allNodes() where node.kind == .file {
        if state.syncFails(path) {
          node.failSync()
          throw failure("cannot make its file system durable", path, EIO)
        }
        if !state.lies { node.sync() }
      }
      state.makeDurable()
    }
  }

  package func fileSystem(_ path: String) throws(StoreError) -> FileSystem {
    FileSystem(type: type, freeBytes: UInt64(max(free ?? 1 << 50, 0)), isReadOnly: false)
  }

  package func systemPath(_ path: String) -> String? { nil }

  package var isFileSystem: Bool { false }

  package func anchored(at path: String) throws(StoreError) -> any Storage {
    try AnchoredSimulatedStorage(self, at: path)
  }

  package var unanchored: any Storage { self }

  package var identity: ObjectIdentifier { ObjectIdentifier(self) }

  private func rename(_ path: String, to newPath: String, replacing: Bool) throws(StoreError) -> Bool {
    try locked { state throws(StoreError) in
      guard let node = try state.find(path) else {
        throw failure("cannot rename it to \(newPath)", path, ENOENT)
      }
      if let old = try state.find(newPath) {
        if !replacing { return false }
        if old === node { return true }
        if old.kind == .directory { throw failure("cannot rename it to \(newPath)", path, EISDIR) }
      }
      try state.change([(path, nil), (newPath, node)])
      return true
    }
  }
}

/// The error that the kernel would return.
func failure(_ what: String, _ path: String, _ code: Int32) -> StoreError {
  SystemCall.failure(what, path, errno: code)
}
