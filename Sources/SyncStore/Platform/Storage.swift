/// The seam for every file operation of the journal, the blobs and the identity.
///
/// `DiskStorage` is the real one. Test support has one that keeps a live and a durable image of each file, so
/// that a power loss is a line of a test, and one that fails the N-th call.
package protocol Storage: AnyObject, Sendable {
  /// Makes one directory, for its owner alone. False if it already exists.
  func createDirectory(_ path: String) throws(StoreError) -> Bool
  /// The names in a directory, sorted, without "." and "..".
  func list(_ directory: String) throws(StoreError) -> [String]
  /// The target of `path` if that is a symbolic link; otherwise, and for a dangling link, `path` itself.
  func followingLink(_ path: String) throws(StoreError) -> String
  /// Status of the entry at `path`; nil if there is none. A symbolic link is not followed.
  func status(_ path: String) throws(StoreError) -> FileStatus?
  /// Opens a regular file; any other kind of entry is `.foreignFile` (F45). A symbolic link is not followed.
  func open(_ path: String, _ mode: OpenMode) throws(StoreError) -> any StorageFile
  /// Opens the regular file `name` (slashes allowed) in `directory`.
  ///
  /// No link is followed on the way, and nothing outside of the directory is reached: `.foreignFile`
  /// otherwise (F84).
  func open(_ name: String, beneath directory: String, _ mode: OpenMode) throws(StoreError) -> any StorageFile
  /// Renames a file, replacing the target.
  func rename(_ path: String, to newPath: String) throws(StoreError)
  /// Renames a file or a directory. False, and nothing changes, if the target exists.
  func renameUnlessPresent(_ path: String, to newPath: String) throws(StoreError) -> Bool
  /// Exchanges the names of two files or directories atomically: neither name is ever missing.
  ///
  /// Where the file system cannot do that it is done in steps: `other` is missing between two of them, and
  /// lies at `other` + `exchangeSuffix` if the process dies there.
  func exchange(_ path: String, with other: String) throws(StoreError)
  /// Removes an empty directory. False if there was none.
  func removeDirectory(_ path: String) throws(StoreError) -> Bool
  /// Removes a file. False if there was none.
  func remove(_ path: String) throws(StoreError) -> Bool
  /// Makes the entries of a directory durable: files created, renamed or removed in it.
  func syncDirectory(_ path: String) throws(StoreError)
  /// Makes everything in the file system of `path` durable (`syncfs`).
  func syncFileSystem(_ path: String) throws(StoreError)
  /// Properties of the file system of `path`.
  func fileSystem(_ path: String) throws(StoreError) -> FileSystem
  /// The processes with locks on that byte of a file, as text for a person; empty if unknown.
  func lockHolders(of path: String, byte: Int) -> [String]
  /// Path of `path` for a library that opens files by itself (SQLite); nil if this storage is not the file
  /// system. It may lead through a descriptor, and is valid as long as this storage is.
  func systemPath(_ path: String) throws(StoreError) -> String?
  /// Whether this is the file system, which other programs and libraries see, too.
  var isFileSystem: Bool { get }
  /// The same files, with the directory at `path` held open: each path that begins with `path` then means
  /// that directory, even after it is renamed. `path` must not be a link.
  func anchored(at path: String) throws(StoreError) -> any Storage
  /// The same files by unanchored paths: for files that a user names, wherever they are.
  var unanchored: any Storage { get }
  /// Equal for all storages that show the same files.
  var identity: ObjectIdentifier { get }
}

/// Suffix of a directory's name while it is exchanged in steps, where the file system or a sandbox refuses
/// the atomic call.
let exchangeSuffix = ".exchanging"

/// Modes of `Storage.open`.
package enum OpenMode: Sendable {
  /// The file must exist.
  case readOnly
  /// The file must exist.
  case readWrite
  /// The file must not exist; it is created for its owner alone.
  case create
  /// The file is created if it is missing.
  case openOrCreate
}

/// One open file, closed with its last reference.
package protocol StorageFile: AnyObject, Sendable {
  /// The path at which it was opened.
  var path: String { get }
  /// Its current status.
  func status() throws(StoreError) -> FileStatus
  /// Size at opening, without another query.
  var sizeAtOpening: Int { get throws(StoreError) }
  /// Status at opening, without another query: all of it except size and links is constant.
  var statusAtOpening: FileStatus { get throws(StoreError) }
  /// Up to `count` bytes from `offset`; fewer only at the end of the file.
  func read(_ count: Int, at offset: Int) throws(StoreError) -> [UInt8]
  /// Writes all of `bytes`, or fails.
  func write(_ bytes: [UInt8], at offset: Int) throws(StoreError)
  /// Writes all bytes in `range` of `memory`, or fails.
  func write(_ range: Range<Int>, of memory: Mapping, at offset: Int) throws(StoreError)
  /// Truncates the file, or lengthens it with a hole.
  func resize(to size: Int) throws(StoreError)
  /// Lengthens the file to `size` with allocated blocks; if there are too few, the file stays unchanged.
  func allocate(to size: Int) throws(StoreError)
  /// Starts writeback without waiting (`sync_file_range`), so that the later sync waits for less. Not
  /// durable; errors surface at that sync.
  func startWriteback()
  /// Writes the bytes in `range` back and waits for that, so that a concurrent sync of another file has no
  /// more than these to wait for. Not durable. After a failure the file must not be synced (rule R4).
  func writeBack(_ range: Range<Int>) throws(StoreError)
  /// Makes content and size durable (`fdatasync`). After a failure the file must not be synced again (rule
  /// R4).
  func sync() throws(StoreError)
  /// Makes the file durable when nothing is stored through `mapping` to the bytes in `range` any more: avoids
  /// interrupting other processors for each page.
  func sync(unchanged range: Range<Int>, of mapping: Mapping) throws(StoreError)
  /// Makes the bytes in `range`, which were stored through `mapping`, and the size durable; perhaps other
  /// bytes, too.
  func sync(_ range: Range<Int>, of mapping: Mapping) throws(StoreError)
  /// Maps the bytes in `range`, shared. The range must begin at a multiple of 4096.
  func map(_ range: Range<Int>, writable: Bool) throws(StoreError) -> Mapping
  /// Locks one byte for this open file; released when the file is closed, also by the death of the process.
  /// False if another holds the lock and `wait` is false.
  func lock(byte: Int, _ kind: LockKind, wait: Bool) throws(StoreError) -> Bool
  /// Whether another open file locks the byte. Takes no lock itself, so that a process stopped in this call
  /// misleads no other.
  func isLocked(byte: Int) throws(StoreError) -> Bool
  /// Keeps the locks of this open file from children forked later: they end with this process, even if a
  /// child lives.
  ///
  /// The child's file is closed. It must not be mapped, since a mapping is inherited with its locks.
  func dropInForkedChildren()
  /// Marks the file in the kernel's memory only: the mark outlives the processes, but neither a power loss
  /// nor a remount. No effect where there are no such marks.
  func mark()
  /// Defers unmapping and closing to a background queue. Call it when the name is gone or about to go:
  /// otherwise the last owner of the file or its memory waits until pages and blocks are freed, a quarter of
  /// a second for 64 MiB on a file system that discards each free block.
  func deferRelease()
  /// Whether the file is marked. Then everything written since it was marked is present, synced or not.
  var isMarked: Bool { get }
}

/// The kinds of lock on a byte of a file.
package enum LockKind: Sendable {
  /// Held by any number at once.
  case shared
  /// Held by one alone.
  case exclusive
  /// No lock: releases it.
  case none
}

/// The numbers that tell a file from every other one. Inode numbers are reused, so the creation time is part
/// of it.
package struct FileIdentity: Sendable, Equatable {
  /// Inode number in the file system.
  package var inode: UInt64
  /// Number of the file system.
  package var fileSystem: UInt64
  /// Creation time in nanoseconds since 1970; 0 where the file system does not record it.
  package var birth: UInt64

  /// All fields.
  package init(inode: UInt64, fileSystem: UInt64, birth: UInt64) {
    (self.inode, self.fileSystem, self.birth) = (inode, fileSystem, birth)
  }
}

/// Status of a directory entry.
package struct FileStatus: Sendable, Equatable {
  /// The kinds of directory entry that matter here.
  package enum Kind: Sendable { case file, directory, link, other }
  /// The kind of entry.
  package var kind: Kind
  /// Size in bytes.
  package var size: Int
  /// Number of hard links; 0 once removed while open (F39).
  package var links: Int
  /// The file, whatever its names.
  package var identity: FileIdentity
  /// User ID of the owner.
  package var owner: UInt32
  /// Permission bits.
  package var permissions: UInt32

  /// All fields.
  package init(
    kind: Kind, size: Int, links: Int, identity: FileIdentity, owner: UInt32, permissions: UInt32
  ) {
    (self.kind, self.size, self.links, self.identity) = (kind, size, links, identity)
    (self.owner, self.permissions) = (owner, permissions)
  }

  /// Inode number in the file system.
  package var inode: UInt64 { identity.inode }
  /// Number of the file system.
  package var fileSystem: UInt64 { identity.fileSystem }
  /// Creation time in nanoseconds since 1970; 0 where the file system does not record it.
  package var birth: UInt64 { identity.birth }
}

/// Defaults for optional file operations.
extension StorageFile {
  /// Writes a copy of the bytes.
  package func write(_ range: Range<Int>, of memory: Mapping, at offset: Int) throws(StoreError) {
    try write(memory.bytes(range), at: offset)
  }

  /// No effect: writeback begins at the sync.
  package func startWriteback() {}

  /// No effect: the later sync writes the bytes.
  package func writeBack(_ range: Range<Int>) throws(StoreError) {}

  /// No effect: the last owner releases it.
  package func deferRelease() {}

  /// No effect: processes of such a storage are never forked.
  package func dropInForkedChildren() {}

  /// The current size: no smaller than at opening, unless the file was truncated.
  package var sizeAtOpening: Int { get throws(StoreError) { try status().size } }

  /// The current status.
  package var statusAtOpening: FileStatus { get throws(StoreError) { try status() } }

  /// Makes all of the file durable: more than requested.
  package func sync(_ range: Range<Int>, of mapping: Mapping) throws(StoreError) { try sync() }

  /// Makes all of the file durable.
  package func sync(unchanged range: Range<Int>, of mapping: Mapping) throws(StoreError) { try sync() }

  /// All of a small file that is replaced, never appended to. One larger than `limit` is `.foreignFile`.
  package func contents(limit: Int) throws(StoreError) -> [UInt8] {
    let size = try sizeAtOpening
    guard size <= limit else {
      throw StoreError(
        .foreignFile,
        "holds \(CountText.of(size, noun: "byte")), \(limit) is the most it can: restore it from a backup",
        path: path
      )
    }
    return try read(size, at: 0)
  }

  /// Maps the first `count` bytes, shared.
  package func map(_ count: Int, writable: Bool) throws(StoreError) -> Mapping {
    try map(0..<max(count, 0), writable: writable)
  }
}

extension Storage {
  /// Whether the path of the anchored directory still leads to it.
  package func resolvesToAnchor(_ path: String) throws(StoreError) -> Bool {
    let (held, named) = (try status(path), try unanchored.status(path))
    return held != nil && held?.inode == named?.inode && held?.fileSystem == named?.fileSystem
  }

  /// No effect: a storage without links.
  package func followingLink(_ path: String) -> String { path }

  /// The path of a file that the caller named for reading, with a symbolic link followed, and its status.
  /// Anything but a regular file is an error that says so.
  package func fileToRead(
    _ path: String, _ wanted: String
  ) throws(StoreError) -> (path: String, status: FileStatus) {
    let path = try followingLink(path)
    guard let status = try status(path) else {
      throw StoreError(.inputOutput, "there is no such file: name \(wanted)", path: path)
    }
    let found: String
    switch status.kind {
    case .file: return (path, status)
    case .directory: found = "is a directory"
    case .link: found = "is a symbolic link that leads nowhere"
    case .other: found = "is no regular file"
    }
    throw StoreError(.foreignFile, "\(found): name \(wanted)", path: path)
  }

  /// The path of a file that the caller named for writing, with a symbolic link followed: a regular file, or
  /// nothing yet. Replacing a device, a pipe or a directory would destroy it.
  package func fileToReplace(_ path: String) throws(StoreError) -> String {
    let path = try followingLink(path)
    guard let status = try status(path), status.kind != .file else { return path }
    throw StoreError(.foreignFile, "is no regular file, and is not replaced: name another", path: path)
  }

  /// Opens a file that nearly always exists, without a status query first; nil if it is missing.
  func openIfPresent(_ path: String, _ mode: OpenMode) throws(StoreError) -> (any StorageFile)? {
    do throws(StoreError) { return try open(path, mode) } catch {
      guard error.errno == SystemCall.noEntry else { throw error }
      return nil
    }
  }

  /// All of a small file; nil if there is none. One larger than `limit` is `.foreignFile`.
  package func contents(of path: String, limit: Int) throws(StoreError) -> [UInt8]? {
    try status(path) == nil ? nil : open(path, .readOnly).contents(limit: limit)
  }

  /// Replaces a small file durably and atomically: after a crash either the old or the new is found (F5).
  package func replace(_ path: String, with bytes: [UInt8]) throws(StoreError) {
    let temporary = path + ".new"
    _ = try remove(temporary)
    let file = try open(temporary, .create)
    try file.write(bytes, at: 0)
    try file.sync()
    try rename(temporary, to: path)
    try syncDirectory(Self.directory(of: path))
  }

  /// Makes the entries of a directory and its own name durable.
  package func syncDirectoryAndParent(_ directory: String) throws(StoreError) {
    try syncDirectory(Self.directory(of: directory))
    try syncDirectory(directory)
  }

  /// Removes whatever lies at `path`, a directory with all its content; links are removed, not followed.
  /// `first` names entries of that directory to be removed before all others, durably.
  package func removeTree(_ path: String, first: [String] = []) throws(StoreError) {
    guard let status = try status(path) else { return }
    guard status.kind == .directory else {
      _ = try remove(path)
      return
    }
    var removed = false
    for name in first { removed = try remove(path + "/" + name) || removed }
    if removed { try syncDirectory(path) }
    for name in try list(path) { try removeTree(path + "/" + name) }
    _ = try removeDirectory(path)
  }

  /// The file system's free space for this user, in bytes.
  package func freeBytes(_ path: String) throws(StoreError) -> UInt64 { try fileSystem(path).freeBytes }

  /// The part before the last slash.
  package static func directory(of path: String) -> String {
    guard let last = path.utf8.lastIndex(of: slash) else { return "." }
    return last == path.startIndex ? "/" : String(path[..<last])
  }

  static var slash: UInt8 { UInt8(ascii: "/") }
}
