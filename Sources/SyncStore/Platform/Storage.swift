/// The seam through which every file operation of the journal, the blobs and the identity goes.
///
/// `DiskStorage` is the real one. The test support has one that keeps a live and a durable image of each file, so that
/// a loss of power is a line of a test, and one that fails the N-th call.
package protocol Storage: AnyObject, Sendable {
  /// Makes one directory, for its owner alone. False if it was there already.
  func createDirectory(_ path: String) throws(StoreError) -> Bool
  /// The names in a directory, sorted, without "." and "..".
  func list(_ directory: String) throws(StoreError) -> [String]
  /// The path of what `path` leads to if that is a symbolic link, else `path` itself, as it is of a link that leads nowhere.
  func followingLink(_ path: String) throws(StoreError) -> String
  /// What lies at `path`; nil if nothing does. A symbolic link is not followed.
  func status(_ path: String) throws(StoreError) -> FileStatus?
  /// Opens a regular file; whatever else lies there is `.foreignFile` (F45). A symbolic link is not followed.
  func open(_ path: String, _ mode: OpenMode) throws(StoreError) -> any StorageFile
  /// Opens the regular file `name` (slashes allowed) in `directory`. No link is followed on the way, and nothing
  /// outside of the directory is reached: `.foreignFile` otherwise (F84).
  func open(_ name: String, beneath directory: String, _ mode: OpenMode) throws(StoreError) -> any StorageFile
  /// Gives a file a new name in place of whatever had it.
  func rename(_ path: String, to newPath: String) throws(StoreError)
  /// Gives a file or a directory a new name. False, and nothing changes, if something has that name.
  func renameUnlessPresent(_ path: String, to newPath: String) throws(StoreError) -> Bool
  /// Lets two files or directories change their names, at once: nobody finds either name without one of them. Where that cannot be
  /// done at once it is done in steps: `other` is missing between two of them, and lies at `other` + `exchangeSuffix` if the process
  /// dies there.
  func exchange(_ path: String, with other: String) throws(StoreError)
  /// Removes an empty directory. False if there was none.
  func removeDirectory(_ path: String) throws(StoreError) -> Bool
  /// Removes a file. False if there was none.
  func remove(_ path: String) throws(StoreError) -> Bool
  /// Makes the entries of a directory durable: what was created, renamed or removed in it.
  func syncDirectory(_ path: String) throws(StoreError)
  /// Makes all of the file system durable that `path` lies in.
  func syncFileSystem(_ path: String) throws(StoreError)
  /// What is known of the file system that `path` lies in.
  func fileSystem(_ path: String) throws(StoreError) -> FileSystem
  /// The processes that have locks on that byte of a file, as text for a person; empty if that cannot be
  /// told.
  func lockHolders(of path: String, byte: Int) -> [String]
  /// Where a library that opens files by itself (SQLite) finds `path`; nil if this storage is not the file system. It may lead through
  /// a descriptor, and is good as long as this storage is.
  func systemPath(_ path: String) throws(StoreError) -> String?
  /// Is this the file system, which other programs and libraries see, too?
  var isFileSystem: Bool { get }
  /// The same files, with the directory at `path` held open: each path that begins with `path` means that directory from then on,
  /// whatever becomes of its name. `path` must not be a link.
  func anchored(at path: String) throws(StoreError) -> any Storage
  /// The same files by their paths alone: for those that a user names, wherever they are.
  var unanchored: any Storage { get }
  /// One word for all storages that show the same files.
  var identity: ObjectIdentifier { get }
}

/// What follows the name of a directory while it is exchanged in steps, where the file system or a sandbox refuses to do it in one.
let exchangeSuffix = ".exchanging"

/// How `Storage.open` opens.
package enum OpenMode: Sendable {
  /// The file must exist.
  case readOnly
  /// The file must exist.
  case readWrite
  /// The file must not exist; it is made for its owner alone.
  case create
  /// The file is made if it is missing.
  case openOrCreate
}

/// One open file. Closed when the last reference goes.
package protocol StorageFile: AnyObject, Sendable {
  /// Where it was opened.
  var path: String { get }
  /// What it is now.
  func status() throws(StoreError) -> FileStatus
  /// How many bytes it had when it was opened: known without looking again.
  var sizeAtOpening: Int { get throws(StoreError) }
  /// What it was when it was opened: all of it but size and links stays so, and is known without looking again.
  var statusAtOpening: FileStatus { get throws(StoreError) }
  /// Up to `count` bytes from `offset`; fewer only at the end of the file.
  func read(_ count: Int, at offset: Int) throws(StoreError) -> [UInt8]
  /// Writes all of `bytes`, or fails.
  func write(_ bytes: [UInt8], at offset: Int) throws(StoreError)
  /// Writes all bytes in `range` of some memory, or fails.
  func write(_ range: Range<Int>, of memory: Mapping, at offset: Int) throws(StoreError)
  /// Cuts the file, or lengthens it with a hole.
  func resize(to size: Int) throws(StoreError)
  /// Lengthens the file to `size` with blocks that are really there; if they are not to be had, it stays as it was.
  func allocate(to size: Int) throws(StoreError)
  /// Has the disk begin to take what was written, without waiting: the sync that comes later waits for less. Whether it succeeds, that
  /// sync says.
  func startWriteback()
  /// Has the disk take the bytes in `range`, and waits for that, which makes nothing durable: whoever syncs another file meanwhile waits
  /// for no more than these. After a failure the file must not be synced (rule R4).
  func writeBack(_ range: Range<Int>) throws(StoreError)
  /// Makes content and size durable (`fdatasync`). After a failure the file must not be synced again (rule R4).
  func sync() throws(StoreError)
  /// The same where nothing is stored through `mapping` any more to the bytes in `range`: others need not be held up for each
  /// page of them.
  func sync(unchanged range: Range<Int>, of mapping: Mapping) throws(StoreError)
  /// Makes the bytes in `range` durable, which were stored through `mapping`, and the size; perhaps all others, too.
  func sync(_ range: Range<Int>, of mapping: Mapping) throws(StoreError)
  /// Maps the bytes in `range`, shared; it begins at a multiple of 4096.
  func map(_ range: Range<Int>, writable: Bool) throws(StoreError) -> Mapping
  /// Takes a lock of this open file on one byte; released when the file is closed, also by the death of the process.
  /// False if another holds it and `wait` is false.
  func lock(byte: Int, _ kind: LockKind, wait: Bool) throws(StoreError) -> Bool
  /// Whether another open file has a lock on the byte. Takes none, so that a process that is stopped in this call misleads nobody.
  func isLocked(byte: Int) throws(StoreError) -> Bool
  /// Keeps the locks of this open file from children that are forked from now on: they end with this process, though a child
  /// lives. The child's file is closed; it must not be mapped, since a mapping is inherited with its locks.
  func dropInForkedChildren()
  /// Marks it in the kernel's memory and on no disk: the mark outlives the processes, but not the power, and it is gone where the
  /// file system was mounted anew. Nothing happens where there are no such marks.
  func mark()
  /// Its name is gone, or about to go: who lets go of it last, or of memory that maps it, does not wait until its pages and blocks are
  /// given back. That takes a quarter of a second for 64 MiB on a file system that tells the disk of each free block.
  func deferRelease()
  /// Is it marked? Then all that was written to it since that was done is there, whether it was synced or not.
  var isMarked: Bool { get }
}

/// The kinds of lock on a byte of a file.
package enum LockKind: Sendable {
  /// Held by any number at once.
  case shared
  /// Held by one alone.
  case exclusive
  /// None: given back.
  case none
}

/// What a directory entry is.
package struct FileStatus: Sendable, Equatable {
  /// The kinds of directory entry that matter here.
  package enum Kind: Sendable { case file, directory, link, other }
  /// What it is.
  package var kind: Kind
  /// Bytes.
  package var size: Int
  /// Names that it has; 0 once it was removed while open (F39).
  package var links: Int
  /// Its number in the file system.
  package var inode: UInt64
  /// The file system it lies in.
  package var fileSystem: UInt64
  /// When it came into being, in nanoseconds since 1970; 0 where the file system does not tell.
  package var birth: UInt64
  /// Its owner.
  package var owner: UInt32
  /// Its permission bits.
  package var permissions: UInt32

  /// All fields.
  package init(
    kind: Kind, size: Int, links: Int, inode: UInt64, fileSystem: UInt64, birth: UInt64, owner: UInt32,
    permissions: UInt32
  ) {
    (self.kind, self.size, self.links, self.inode) = (kind, size, links, inode)
    (self.fileSystem, self.birth, self.owner) = (fileSystem, birth, owner)
    self.permissions = permissions
  }
}

/// What a file need not do by itself.
extension StorageFile {
  /// The same by a copy of them.
  package func write(_ range: Range<Int>, of memory: Mapping, at offset: Int) throws(StoreError) {
    try write(memory.bytes(range), at: offset)
  }

  /// Nothing begins before the sync.
  package func startWriteback() {}

  /// It is written by the sync that comes later.
  package func writeBack(_ range: Range<Int>) throws(StoreError) {}

  /// It is given back where it is let go.
  package func deferRelease() {}

  /// No process of this storage is forked.
  package func dropInForkedChildren() {}

  /// How many bytes it has: no fewer than when it was opened, unless somebody has cut it.
  package var sizeAtOpening: Int { get throws(StoreError) { try status().size } }

  /// Looks at it now.
  package var statusAtOpening: FileStatus { get throws(StoreError) { try status() } }

  /// Makes all of the file durable: more than was asked for.
  package func sync(_ range: Range<Int>, of mapping: Mapping) throws(StoreError) { try sync() }

  /// Makes all of the file durable.
  package func sync(unchanged range: Range<Int>, of mapping: Mapping) throws(StoreError) { try sync() }

  /// The whole of a small file that is replaced, never added to. One larger than `limit` is `.foreignFile`.
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
  /// Is the directory that this storage is anchored at still the one to which its path leads?
  package func resolvesToAnchor(_ path: String) throws(StoreError) -> Bool {
    let (held, named) = (try status(path), try unanchored.status(path))
    return held != nil && held?.inode == named?.inode && held?.fileSystem == named?.fileSystem
  }

  /// Where there are no links, each path is that of what lies there.
  package func followingLink(_ path: String) -> String { path }

  /// The path of a file that the caller has named to be read, a symbolic link followed, and what is known of it; anything else is an
  /// error that says so.
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

  /// The path of a file that the caller has named to be written, a symbolic link followed: there is a file, or nothing. A device, a pipe
  /// or a directory would be gone with what replaces it.
  package func fileToReplace(_ path: String) throws(StoreError) -> String {
    let path = try followingLink(path)
    guard let status = try status(path), status.kind != .file else { return path }
    throw StoreError(.foreignFile, "is no regular file, and is not replaced: name another", path: path)
  }

  /// Opens a file that is nearly always there, which is not looked for first; nil if it is not.
  func openIfPresent(_ path: String, _ mode: OpenMode) throws(StoreError) -> (any StorageFile)? {
    do throws(StoreError) { return try open(path, mode) } catch {
      guard error.errno == SystemCall.noEntry else { throw error }
      return nil
    }
  }

  /// The whole of a small file; nil if there is none. One larger than `limit` is `.foreignFile`.
  package func contents(of path: String, limit: Int) throws(StoreError) -> [UInt8]? {
    try status(path) == nil ? nil : open(path, .readOnly).contents(limit: limit)
  }

  /// Puts a small file in place of whatever is there, durably and at once: either the old or the new is found (F5).
  package func replace(_ path: String, with bytes: [UInt8]) throws(StoreError) {
    let temporary = path + ".new"
    _ = try remove(temporary)
    let file = try open(temporary, .create)
    try file.write(bytes, at: 0)
    try file.sync()
    try rename(temporary, to: path)
    try syncDirectory(Self.directory(of: path))
  }

  /// Makes the entries of a directory durable, and the one of its own name.
  package func syncDirectoryAndParent(_ directory: String) throws(StoreError) {
    try syncDirectory(Self.directory(of: directory))
    try syncDirectory(directory)
  }

  /// Removes whatever lies at `path`, a directory with all in it; links are removed, not followed. `first` names entries
  /// of that directory that go before all others, durably.
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

  /// The file system's free space for its user, in bytes.
  package func freeBytes(_ path: String) throws(StoreError) -> UInt64 { try fileSystem(path).freeBytes }

  /// What comes before the last slash.
  package static func directory(of path: String) -> String {
    guard let last = path.utf8.lastIndex(of: slash) else { return "." }
    return last == path.startIndex ? "/" : String(path[..<last])
  }

  static var slash: UInt8 { UInt8(ascii: "/") }
}
