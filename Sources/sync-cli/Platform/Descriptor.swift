private import CLinux
private import Glibc
private import SyncStore

/// An open file or directory; closed with its last reference.
///
/// Names are bytes, since a file name may contain anything but "/" and NUL. This file and `System.swift` are
/// the only ones of the program with unsafe code: each pointer is made for one call of the C library and does
/// not outlive it.
final class Descriptor: Sendable {
  let number: Int32
  /// For messages.
  let path: [UInt8]

  private init(_ number: Int32, _ path: [UInt8]) {
    (self.number, self.path) = (SystemCall.moveAboveStdio(number), path)
  }

  /// Takes a descriptor over; `name` is for messages.
  convenience init(owning number: Int32, named name: String) { self.init(number, Array(name.utf8)) }

  /// Wraps a standard stream: 0, 1 or 2.
  init(standard number: Int32) { (self.number, path) = (number, Array("standard stream \(number)".utf8)) }

  deinit { if number > 2 { close(number) } }

  /// The kind of a directory entry.
  enum Kind { case file, directory, link, other }

  // MARK: - Opening

  /// Opens a path named by the user for reading. A symbolic link in the last component is followed.
  ///
  /// Opening a pipe blocks until it has a writer. Without `waiting` it does not block, and a pipe seems
  /// empty: for paths that should be directories, and for callers that must not block.
  static func reading(_ path: [UInt8], waiting: Bool = true) throws(Failure) -> Descriptor {
    try opened(path, in: nil, flags: O_RDONLY | O_NOCTTY | (waiting ? 0 : O_NONBLOCK), doing: "open")
  }

  /// Opens a device or pipe named by the user for writing; nothing is created.
  static func writing(_ path: [UInt8]) throws(Failure) -> Descriptor {
    try opened(path, in: nil, flags: O_WRONLY | O_NOCTTY, doing: "open")
  }

  /// Opens or creates a file for reading, and for writing at its end. Nothing blocks.
  static func updating(_ path: [UInt8], mode: UInt32) throws(Failure) -> Descriptor {
    try opened(
      path, in: nil, flags: O_RDWR | O_APPEND | O_CREAT | O_NOCTTY | O_NONBLOCK, mode: mode, doing: "open")
  }

  /// The standard stream (output or error) that a path leads to, such as /dev/stdout; nil if it leads to
  /// neither.
  static func standard(at path: [UInt8]) -> Descriptor? {
    var named = stat()
    guard unsafe withName(path, { unsafe stat($0, &named) }) == 0 else { return nil }
    for number in Int32(1)...2 {
      var own = stat()
      guard unsafe fstat(number, &own) == 0, own.st_dev == named.st_dev, own.st_ino == named.st_ino else {
        continue
      }
      return Descriptor(standard: number)
    }
    return nil
  }

  /// The kind of a path named by the user, following symbolic links; nil if it does not exist.
  static func kind(at path: [UInt8]) throws(Failure) -> Kind? {
    var answer = stat()
    guard unsafe withName(path, { unsafe stat($0, &answer) }) == 0 else {
      if errno == ENOENT { return nil }
      throw failure("look at", path)
    }
    return kind(answer.st_mode)
  }

  /// Opens the file at `path` below this directory for reading. Links in any component are refused, and a
  /// device does not block.
  func reading(_ path: [UInt8]) throws(Failure) -> Descriptor {
    try beneath(path, flags: O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, doing: "open")
  }

  /// Opens the directory at `path` below this one. Links in any component are refused.
  func directory(_ path: [UInt8]) throws(Failure) -> Descriptor {
    try beneath(path, flags: O_RDONLY | O_NOFOLLOW | O_DIRECTORY, doing: "enter")
  }

  /// O_NOFOLLOW alone protects only the last component: a directory in the middle could be replaced by a
  /// link.
  private func beneath(_ path: [UInt8], flags: Int32, doing: String) throws(Failure) -> Descriptor {
    let opened = unsafe Self.withName(path) { name in
      SystemCall.retrying { unsafe sync_open_beneath(number, name, flags, 0) }
    }
    let full = Self.joined(self.path, path)
    guard opened >= 0 else { throw Self.failure(doing, full) }
    return Descriptor(opened, full)
  }

  /// Creates a new file in this directory, with the permissions that the umask allows. `shown` is its name in
  /// messages, if its own is temporary.
  func creating(
    _ name: [UInt8], mode: UInt32 = 0o666, shownAs shown: [UInt8]? = nil
  ) throws(Failure) -> Descriptor {
    try Self.opened(
      name, in: self, flags: O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode: mode, doing: "create",
      shownAs: shown)
  }

  private static func opened(
    _ path: [UInt8], in directory: Descriptor?, flags: Int32, mode: UInt32 = 0, doing: String,
    shownAs shown: [UInt8]? = nil
  ) throws(Failure) -> Descriptor {
    let number = unsafe withName(path) { name in
      SystemCall.retrying { unsafe openat(directory?.number ?? AT_FDCWD, name, flags | O_CLOEXEC, mode) }
    }
    let full = directory.map { joined($0.path, shown ?? path) } ?? shown ?? path
    guard number >= 0 else { throw failure(doing, full) }
    return Descriptor(number, full)
  }

  // MARK: - Content

  /// The kind of the open file, and its size in bytes.
  func status() throws(Failure) -> (kind: Kind, size: UInt64) {
    var answer = stat()
    guard unsafe fstat(number, &answer) == 0 else { throw Self.failure("look at", path) }
    return (Self.kind(answer.st_mode), UInt64(max(0, answer.st_size)))
  }

  /// Reads up to `count` bytes from the current offset; empty at the end.
  func read(_ count: Int) throws(Failure) -> [UInt8] {
    try Interruption.check()
    var failed = false
    let bytes = unsafe [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
      let got = SystemCall.retrying { unsafe Glibc.read(number, buffer.baseAddress, count) }
      failed = got < 0
      filled = max(0, got)
    }
    guard !failed else { throw Self.failure("read", path) }
    return bytes
  }

  /// Reads the rest, at most `limit` bytes.
  func readAll(limit: Int) throws(Failure) -> [UInt8] {
    var content: [UInt8] = []
    while content.count < limit {
      let part = try read(min(1 << 20, limit - content.count))
      if part.isEmpty { break }
      content += part
    }
    return content
  }

  /// Writes all of `bytes`.
  func write(_ bytes: [UInt8]) throws(Failure) {
    var done = 0
    while done < bytes.count {
      let wrote = unsafe bytes.withUnsafeBytes { buffer in
        SystemCall.retrying { unsafe Glibc.write(number, buffer.baseAddress! + done, bytes.count - done) }
      }
      guard wrote >= 0 else { throw Self.failure("write", path) }
      done += wrote
    }
  }

  /// Whether a write of at most `PIPE_BUF` bytes would return within this time, successfully or not. A write
  /// without a reader blocks forever.
  func isWritable(within milliseconds: Int32) -> Bool {
    var waiting = pollfd(fd: number, events: Int16(POLLOUT), revents: 0)
    return SystemCall.retrying { Int(unsafe poll(&waiting, 1, milliseconds)) } != 0
  }

  /// Whether this is the writing end of a pipe or socket whose reader has gone.
  var hasLostReader: Bool {
    var waiting = pollfd(fd: number, events: 0, revents: 0)
    return SystemCall.retrying { Int(unsafe poll(&waiting, 1, 0)) } == 1
      && waiting.revents & Int16(POLLERR) != 0
  }

  /// Bytes that an unprivileged user can still write to this file system.
  func freeBytes() throws(Failure) -> UInt64 {
    var answer = statvfs()
    guard unsafe fstatvfs(number, &answer) == 0 else { throw Self.failure("look at", path) }
    return UInt64(answer.f_bavail) * UInt64(answer.f_frsize)
  }

  /// Waits until no other process has the file locked, and locks it until it is closed.
  func lock() throws(Failure) {
    guard SystemCall.retrying({ Int(flock(number, LOCK_EX)) }) == 0 else { throw Self.failure("lock", path) }
  }

  /// Replaces the content of a file that was opened for writing at its end.
  func replaceContent(_ bytes: [UInt8]) throws(Failure) {
    guard ftruncate(number, 0) == 0 else { throw Self.failure("write", path) }
    try write(bytes)
  }

  /// Makes content and size durable.
  func sync() throws(Failure) {
    guard fdatasync(number) == 0 else { throw Self.failure("sync", path) }
  }

  /// Makes everything written to this file system durable.
  func syncFileSystem() throws(Failure) {
    guard sync_file_system(number) == 0 else { throw Self.failure("sync the file system of", path) }
  }

  // MARK: - Directory

  /// The names in this directory, sorted, without "." and "..".
  func names() throws(Failure) -> [[UInt8]] {
    let copy = dup(number)
    guard copy >= 0, let stream = unsafe fdopendir(copy) else { throw Self.failure("list", path) }
    defer { unsafe closedir(stream) }
    unsafe rewinddir(stream)
    var names: [[UInt8]] = []
    errno = 0
    while let entry = unsafe readdir(stream) {
      let name = unsafe withUnsafeBytes(of: &entry.pointee.d_name) { unsafe Array($0.prefix { $0 != 0 }) }
      if name != [0x2E], name != [0x2E, 0x2E] { names.append(name) }
      errno = 0
    }
    guard errno == 0 else { throw Self.failure("list", path) }
    return names.sorted { $0.lexicographicallyPrecedes($1) }
  }

  /// The kind and size of `name`; nil if it does not exist. Links are not followed.
  func kind(of name: [UInt8]) throws(Failure) -> (kind: Kind, size: UInt64)? {
    var answer = stat()
    let result = unsafe Self.withName(name) { unsafe fstatat(number, $0, &answer, AT_SYMLINK_NOFOLLOW) }
    guard result == 0 else {
      if errno == ENOENT { return nil }
      throw Self.failure("look at", Self.joined(path, name))
    }
    return (Self.kind(answer.st_mode), UInt64(max(0, answer.st_size)))
  }

  /// Creates the directory `name` unless it exists.
  func makeDirectory(_ name: [UInt8], mode: UInt32 = 0o777) throws(Failure) {
    let result = unsafe Self.withName(name) { unsafe mkdirat(number, $0, mode) }
    guard result == 0 || errno == EEXIST else { throw Self.failure("make", Self.joined(path, name)) }
  }

  /// Creates the directory `path` and its missing parents. With `durably` they survive a loss of power, and
  /// so does the last one that already existed.
  static func makeDirectories(
    _ path: [UInt8], mode: UInt32 = 0o777, durably: Bool = false
  ) throws(Failure) {
    var made = unsafe withName(path) { unsafe mkdir($0, mode) }
    let slash = path.lastIndex(of: UInt8(ascii: "/"))
    if made != 0, errno == ENOENT, let slash, slash > 0 {
      try makeDirectories(Array(path[..<slash]), mode: mode, durably: durably)
      made = unsafe withName(path) { unsafe mkdir($0, mode) }
    }
    guard made == 0 || errno == EEXIST else { throw failure("make", path) }
    if durably {
      do {
        try DiskStorage().syncParentDirectory(of: String(decoding: path, as: UTF8.self))
      } catch {
        throw Failure(error)
      }
    }
  }

  /// Moves `name` to `newName` in another directory, replacing any file there.
  func rename(_ name: [UInt8], to newName: [UInt8], in directory: Descriptor) throws(Failure) {
    let result = unsafe Self.withName(name) { old in
      unsafe Self.withName(newName) { unsafe renameat(number, old, directory.number, $0) }
    }
    guard result == 0 else {
      let path = Self.joined(directory.path, newName)
      guard ![EISDIR, EEXIST, ENOTEMPTY].contains(errno) else {
        throw Failure(
          .inputOutput,
          "cannot replace \(Text.printable(path)): a directory is where the file belongs: move the directory away"
        )
      }
      throw Self.failure("replace", path)
    }
  }

  /// Removes the file `name`, if it exists.
  func remove(_ name: [UInt8]) {
    _ = unsafe Self.withName(name) { unsafe unlinkat(number, $0, 0) }
  }

  /// Removes the empty directory `name`, if it exists.
  func removeDirectory(_ name: [UInt8]) {
    _ = unsafe Self.withName(name) { unsafe unlinkat(number, $0, AT_REMOVEDIR) }
  }

  // MARK: - Helpers

  /// `directory/name`.
  static func joined(_ directory: [UInt8], _ name: [UInt8]) -> [UInt8] {
    directory.last == UInt8(ascii: "/") ? directory + name : directory + [UInt8(ascii: "/")] + name
  }

  private static func kind(_ mode: mode_t) -> Kind {
    switch mode & S_IFMT {
    case S_IFREG: .file
    case S_IFDIR: .directory
    case S_IFLNK: .link
    default: .other
    }
  }

  private static func withName<Result>(
    _ name: [UInt8], _ body: (UnsafePointer<CChar>) -> Result
  ) -> Result {
    unsafe (name + [0]).withUnsafeBufferPointer { bytes in
      unsafe bytes.withMemoryRebound(to: CChar.self) { unsafe body($0.baseAddress!) }
    }
  }

  private static func failure(_ doing: String, _ path: [UInt8]) -> Failure {
    let code = errno
    let shown = Text.printable(path)
    let (exit, advice): (ExitCode, String) =
      switch code {
      case ENOENT: (.notFound, "check the path")
      case ENOTDIR: (.inputOutput, "a file or a symbolic link is in the way")
      case EACCES, EPERM: (.inputOutput, "check owner and permissions")
      case ELOOP: (.inputOutput, "a symbolic link is not followed here")
      case EISDIR: (.usage, "give a file")
      case ENOSPC, EDQUOT: (.inputOutput, "make room")
      case EFBIG: (.inputOutput, "raise the limit on file sizes (ulimit -f)")
      case EROFS: (.inputOutput, "mount the file system for writing")
      case EPIPE: (.inputOutput, "its reader has gone")
      default: (.inputOutput, "see the operating system's error")
      }
    return Failure(
      exit, "cannot \(doing) \(shown): \(SystemCall.text(of: code)): \(advice)",
      cause: code == EPIPE ? .brokenPipe : .ordinary)
  }
}
