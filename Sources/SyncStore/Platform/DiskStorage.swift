private import CLinux
internal import Synchronization
private import Glibc

/// The real file system. Files are opened without following links, close-on-exec, and made for their owner
/// alone.
///
/// Every call that takes a path goes through `at`, so that an anchored storage never leaves its directory by
/// a name.
package final class DiskStorage: Storage {
  let handlesSignals: Bool
  /// The directory whose paths are resolved from its descriptor; nil for unanchored paths.
  let anchor: DirectoryAnchor?
  /// Permissions of new files and new directories, before the process's umask.
  let permissions: (file: UInt32, directory: UInt32)

  /// The storage of this machine.
  ///
  /// With `handlesSignals` mapped files are watched for pages that cannot be read (SIGBUS), and a limit on
  /// file sizes does not end the process (SIGXFSZ).
  package init(handlesSignals: Bool = true) {
    (self.handlesSignals, anchor) = (handlesSignals, nil)
    permissions = (0o600, 0o700)
    if handlesSignals { sync_survive_file_limit() }
  }

  /// The storage of this machine for files that other users read as well: new ones are for everybody whom the
  /// umask admits.
  package init(sharing _: Void) {
    (handlesSignals, anchor) = (false, nil)
    permissions = (0o666, 0o777)
  }

  init(handlesSignals: Bool, anchor: DirectoryAnchor) {
    (self.handlesSignals, self.anchor) = (handlesSignals, anchor)
    permissions = (0o600, 0o700)
  }

  package func createDirectory(_ path: String) throws(StoreError) -> Bool {
    if unsafe at(path, { unsafe mkdirat($0, $1, permissions.directory) }) == 0 { return true }
    guard errno == EEXIST else { throw SystemCall.failure("cannot make the directory", path) }
    return false
  }

  package func list(_ directory: String) throws(StoreError) -> [String] {
    try SystemCall.uncancelled { () throws(StoreError) in try names(in: directory) }
  }

  private func names(in directory: String) throws(StoreError) -> [String] {
    let descriptor = unsafe at(directory) { unsafe sync_open($0, $1, O_RDONLY | O_DIRECTORY, 0) }
    guard descriptor >= 0 else { throw SystemCall.failure("cannot list the directory", directory) }
    guard let stream = unsafe fdopendir(descriptor) else {
      let code = errno
      close(descriptor)
      throw SystemCall.failure("cannot list the directory", directory, errno: code)
    }
    defer { unsafe closedir(stream) }
    var names: [String] = []
    while true {
      errno = 0
      guard let entry = unsafe readdir(stream) else { break }
      let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) { field in
        unsafe field.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe String(cString: $0) }
      }
      if name != ".", name != ".." { names.append(name) }
    }
    guard errno == 0 else { throw SystemCall.failure("cannot list the directory", directory) }
    return names.sorted()
  }

  package func followingLink(_ path: String) throws(StoreError) -> String {
    guard try status(path)?.kind == .link else { return path }
    // The kernel decides whether this link may be followed (protected_symlinks): not one that another user
    // has put into a world-writable directory.
    var answer = stat()
    guard unsafe at(path, { unsafe fstatat($0, $1, &answer, 0) }) == 0 else {
      if errno == ENOENT || errno == ENOTDIR || errno == ELOOP { return path }
      throw SystemCall.failure("cannot follow the link", path)
    }
    return SystemCall.absolutePath(path)
  }

  package func status(_ path: String) throws(StoreError) -> FileStatus? {
    var answer = stat()
    guard unsafe at(path, { unsafe fstatat($0, $1, &answer, AT_SYMLINK_NOFOLLOW) }) == 0 else {
      if errno == ENOENT || errno == ENOTDIR { return nil }
      throw SystemCall.failure("cannot look at it", path)
    }
    return FileStatus(answer)
  }

  package func open(_ path: String, _ mode: OpenMode) throws(StoreError) -> any StorageFile {
    let descriptor = opened(mode) { flags in
      unsafe at(path) { unsafe sync_open($0, $1, flags, permissions.file) }
    }
    guard descriptor >= 0 else {
      if errno == ELOOP || errno == EISDIR || errno == ENXIO {
        throw StoreError(
          .foreignFile, "is not a regular file: move it away", path: path, errno: errno)
      }
      throw SystemCall.failure("cannot open it", path)
    }
    return try regularFile(descriptor, path)
  }

  /// The file of a descriptor, if it is a regular one.
  func regularFile(_ descriptor: Int32, _ path: String) throws(StoreError) -> DiskFile {
    let descriptor = SystemCall.moveAboveStdio(descriptor)
    let found: FileStatus
    do throws(StoreError) {
      found = try DiskFile.queryStatus(at: descriptor, path)
      guard found.kind == .file else {
        throw StoreError(.foreignFile, "is not a regular file: move it away", path: path)
      }
    } catch {
      close(descriptor)
      throw error
    }
    return DiskFile(descriptor: descriptor, path: path, found: found, watchesMappings: handlesSignals)
  }

  package func rename(_ path: String, to newPath: String) throws(StoreError) {
    let result = unsafe at(path, and: newPath) { unsafe renameat($0, $1, $2, $3) }
    guard result == 0 else {
      throw SystemCall.failure("cannot rename it to \(newPath)", path)
    }
  }

  package func remove(_ path: String) throws(StoreError) -> Bool {
    if unsafe at(path, { unsafe unlinkat($0, $1, 0) }) == 0 { return true }
    guard errno == ENOENT else { throw SystemCall.failure("cannot remove it", path) }
    return false
  }

  package func syncDirectory(_ path: String) throws(StoreError) {
    try sync(path, failing: "cannot make the directory durable") { fsync($0) }
  }

  package func syncFileSystem(_ path: String) throws(StoreError) {
    try sync(path, failing: "cannot make its file system durable") { sync_file_system($0) }
  }

  private func sync(_ directory: String, failing: String, _ call: (Int32) -> Int32) throws(StoreError) {
    try SystemCall.uncancelled { () throws(StoreError) in
      let descriptor = unsafe at(directory) { unsafe sync_open($0, $1, O_RDONLY | O_DIRECTORY, 0) }
      guard descriptor >= 0 else { throw SystemCall.failure("cannot open the directory", directory) }
      defer { close(descriptor) }
      guard call(descriptor) == 0 else { throw SystemCall.failure(failing, directory) }
    }
  }

  package func fileSystem(_ path: String) throws(StoreError) -> FileSystem {
    var free: UInt64 = 0
    var type: UInt64 = 0
    var isReadOnly: Int32 = 0
    let code = unsafe at(path) { unsafe sync_file_system_status($0, $1, &free, &type, &isReadOnly) }
    guard code == 0 else {
      throw SystemCall.failure("cannot look at its file system", path)
    }
    return FileSystem(type: type, freeBytes: free, isReadOnly: isReadOnly != 0)
  }
}

/// A file of `DiskStorage`.
final class DiskFile: StorageFile {
  let path: String
  private let descriptor: Int32
  /// Its status at opening, without the number of its file system.
  private let found: FileStatus
  private let watchesMappings: Bool
  private let releaseIsDeferred = Atomic(false)
  private let isDroppedInChildren = Atomic(false)
  /// 0 before the first query.
  private let knownFileSystem = Atomic<UInt64>(0)
  /// Reads up to this size allocate their buffer without querying the file size.
  private static let smallBytes = 16 << 10

  init(descriptor: Int32, path: String, found: FileStatus, watchesMappings: Bool) {
    self.descriptor = descriptor
    self.path = path
    self.found = found
    self.watchesMappings = watchesMappings
  }

  deinit {
    let descriptor = descriptor
    if isDroppedInChildren.load(ordering: .relaxed) { sync_keep_in_children(descriptor) }
    release { SystemCall.uncancelled { _ = close(descriptor) } }
  }

  func startWriteback() { SystemCall.uncancelled { _ = sync_file_begin(descriptor) } }

  func writeBack(_ range: Range<Int>) throws(StoreError) {
    let (start, count) = (UInt64(range.lowerBound), UInt64(range.count))
    if SystemCall.retrying({ sync_file_write_back(descriptor, start, count) }) == 0 { return }
    // File systems without this call write the bytes at the sync.
    guard sync_is_refused(errno) != 0 || errno == ESPIPE else {
      throw SystemCall.failure("cannot write it to the disk", path)
    }
  }

  func deferRelease() { releaseIsDeferred.store(true, ordering: .relaxed) }

  private func release(_ work: @escaping @Sendable () -> Void) {
    if releaseIsDeferred.load(ordering: .relaxed) { Background.release(work) } else { work() }
  }

  func status() throws(StoreError) -> FileStatus {
    try inFileSystem(Self.queryStatus(at: descriptor, path))
  }

  var sizeAtOpening: Int { found.size }

  var statusAtOpening: FileStatus { get throws(StoreError) { try inFileSystem(found) } }

  /// The status without the number of its file system, which is 0.
  fileprivate static func queryStatus(at descriptor: Int32, _ path: String) throws(StoreError) -> FileStatus {
    var answer = sync_file_status()
    guard unsafe sync_file_status(descriptor, &answer) == 0 else {
      throw SystemCall.failure("cannot look at it", path)
    }
    return FileStatus(
      kind: FileStatus.Kind(mode: answer.mode), size: Int(answer.size), links: Int(answer.links),
      identity: FileIdentity(inode: answer.inode, fileSystem: 0, birth: answer.birth), owner: answer.owner,
      permissions: answer.mode & 0o7777)
  }

  private func inFileSystem(_ status: FileStatus) throws(StoreError) -> FileStatus {
    var status = status
    status.identity.fileSystem = try fileSystem()
    return status
  }

  private var size: Int { get throws(StoreError) { try Self.queryStatus(at: descriptor, path).size } }

  /// Number of the file system, cached. It is part of the file system's content; that of the device can
  /// change at any boot.
  private func fileSystem() throws(StoreError) -> UInt64 {
    var number = knownFileSystem.load(ordering: .relaxed)
    if number != 0 { return number }
    guard unsafe sync_file_system_number(descriptor, &number) == 0 else {
      throw SystemCall.failure("cannot look at its file system", path)
    }
    knownFileSystem.store(number, ordering: .relaxed)
    return number
  }

  func read(_ count: Int, at offset: Int) throws(StoreError) -> [UInt8] {
    // Allocate no more memory than there are bytes.
    guard count > Self.smallBytes else { return try readUnsized(count, at: offset) }
    let size = try size
    return try readUnsized(min(count, max(0, size - offset)), at: offset)
  }

  func readUnsized(_ wanted: Int, at offset: Int) throws(StoreError) -> [UInt8] {
    var failed = false
    let bytes = unsafe [UInt8](unsafeUninitializedCapacity: wanted) { buffer, filled in
      while filled < wanted {
        let done = SystemCall.retrying {
          unsafe pread(descriptor, buffer.baseAddress! + filled, wanted - filled, off_t(offset + filled))
        }
        guard done > 0 else {
          failed = done < 0
          return
        }
        filled += done
      }
    }
    if failed { throw SystemCall.failure("cannot read it", path) }
    return bytes
  }

  func write(_ bytes: [UInt8], at offset: Int) throws(StoreError) {
    try bytes.withRawSpan { bytes throws(StoreError) in try write(bytes, at: offset) }
  }

  func write(_ range: Range<Int>, of memory: Mapping, at offset: Int) throws(StoreError) {
    try memory.withBytes(range) { bytes throws(StoreError) in try write(bytes, at: offset) }
  }

  private func write(_ bytes: RawSpan, at offset: Int) throws(StoreError) {
    let count = bytes.byteCount
    let written = unsafe bytes.withUnsafeBytes { source -> Int in
      var written = 0
      while written < count {
        let done = SystemCall.retrying {
          unsafe pwrite(descriptor, source.baseAddress! + written, count - written, off_t(offset + written))
        }
        guard done > 0 else { break }
        written += done
      }
      return written
    }
    guard written == count else { throw SystemCall.failure("cannot write to it", path) }
  }

  func resize(to size: Int) throws(StoreError) {
    guard SystemCall.retrying({ ftruncate(descriptor, off_t(size)) }) == 0 else {
      throw SystemCall.failure("cannot change its size", path)
    }
  }

  func allocate(to size: Int) throws(StoreError) {
    let before = try self.size
    guard size > before else { return }
    guard SystemCall.retrying({ sync_allocate(descriptor, UInt64(before), UInt64(size - before)) }) != 0
    else { return }
    let code = errno
    do throws(StoreError) {
      guard sync_is_refused(code) != 0 else {
        throw SystemCall.failure(
          "cannot find space for \(CountText.of(size - before, noun: "byte"))", path, errno: code)
      }
      try fill(from: before, to: size)
    } catch {
      try resize(to: before)
      throw error
    }
  }

  /// Lengthens the file with written zeros where it has no allocating call: the file system takes a block for
  /// each written page, or refuses the write. Where it may still lack a block later, the tail of a journal is
  /// not mapped (`FileSystem.mappedStoresMayFail`).
  private func fill(from start: Int, to end: Int) throws(StoreError) {
    let zeros = [UInt8](repeating: 0, count: min(end - start, 64 << 10))
    for offset in stride(from: start, to: end, by: zeros.count) {
      try write(offset + zeros.count <= end ? zeros : Array(zeros[..<(end - offset)]), at: offset)
    }
  }

  func sync() throws(StoreError) {
    guard SystemCall.retrying({ fdatasync(descriptor) }) == 0 else {
      throw SystemCall.failure("cannot make it durable", path)
    }
    try checkFileSystem()
  }

  /// Checks with an empty read that the file system still works after a sync that reported success. Costs 0.3
  /// µs.
  ///
  /// ext4 also reports success when it is shut down in the middle of a sync, as when its disk disappears:
  /// blocks that were allocated but not yet recorded as written are missing afterwards. Any read is refused
  /// from then on.
  private func checkFileSystem() throws(StoreError) {
    var nothing: UInt8 = 0
    guard SystemCall.retrying({ unsafe pread(descriptor, &nothing, 0, 0) }) == 0 else {
      throw SystemCall.failure("cannot make it durable: its file system has failed meanwhile", path)
    }
  }

  func sync(unchanged range: Range<Int>, of mapping: Mapping) throws(StoreError) {
    // Writing a page back revokes it from the processors that may store to it, page by page, each with an
    // interrupt. Nothing stores to these pages: dropping all mappings at once avoids that; reads fault them
    // in again.
    mapping.adviseDontNeed(range)
    try sync()
  }

  func sync(_ range: Range<Int>, of mapping: Mapping) throws(StoreError) {
    guard SystemCall.uncancelled({ mapping.sync(range) }) else {
      throw SystemCall.failure("cannot make it durable", path)
    }
    try checkFileSystem()
  }

  func map(_ range: Range<Int>, writable: Bool) throws(StoreError) -> Mapping {
    let protection = writable ? PROT_READ | PROT_WRITE : PROT_READ
    // Bytes before it in its page are mapped with it: the pages of this kernel may be larger than those
    // of the format.
    let before = range.lowerBound % Mapping.pageBytes
    let (start, length) = (off_t(range.lowerBound - before), range.count + before)
    guard let base = unsafe mmap(nil, length, protection, MAP_SHARED, descriptor, start),
      unsafe base != MAP_FAILED
    else { throw SystemCall.failure("cannot map it", path) }
    let watch =
      watchesMappings
      ? unsafe sync_watch(base, UInt64(length), descriptor, UInt64(start), writable ? 1 : 0) : nil
    // The SIGBUS handler queries the size of the file: it stays open as long as it is mapped.
    return unsafe Mapping(unsafeBase: base + before, count: range.count, watch: watch) { [self] base, _ in
      let start = UInt(bitPattern: base) - UInt(before)
      release {
        unsafe munmap(UnsafeMutableRawPointer(bitPattern: start), length)
        withExtendedLifetime(self) {}
      }
    }
  }

  func lock(byte: Int, _ kind: LockKind, wait: Bool) throws(StoreError) -> Bool {
    let type =
      switch kind {
      case .shared: F_RDLCK
      case .exclusive: F_WRLCK
      case .none: F_UNLCK
      }
    let code = SystemCall.retrying { sync_lock_byte(descriptor, type, Int64(byte), wait ? 1 : 0) }
    if code == 0 { return true }
    guard errno == EAGAIN || errno == EACCES else { throw SystemCall.failure("cannot lock it", path) }
    return false
  }

  func isLocked(byte: Int) throws(StoreError) -> Bool {
    let answer = sync_is_byte_locked(descriptor, Int64(byte))
    guard answer >= 0 else { throw SystemCall.failure("cannot ask for its locks", path) }
    return answer != 0
  }

  func dropInForkedChildren() {
    guard !isDroppedInChildren.exchange(true, ordering: .relaxed) else { return }
    sync_drop_in_children(descriptor)
  }

  func mark() { sync_mark(descriptor) }

  var isMarked: Bool { sync_is_marked(descriptor) != 0 }
}
