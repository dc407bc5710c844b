private import CLinux
private import Glibc

/// What all calls of the operating system need: going on after a signal, and errors that people can read.
package enum SystemCall {
  /// Repeats a call that a signal interrupted (F32). The thread is not cancelled in it: see `uncancelled`.
  package static func retrying<Result: SignedInteger>(_ call: () -> Result) -> Result {
    let state = sync_disable_cancelling()
    defer { sync_restore_cancelling(state) }
    while true {
      let result = call()
      if result != -1 || errno != EINTR { return result }
    }
  }

  /// Runs `body` while the thread cannot be cancelled (`pthread_cancel`). A thread that is cancelled in a system call ends without
  /// running any `defer`: the locks that it holds would stay locked for as long as the process lives.
  @inline(__always)
  static func uncancelled<Result, Failure: Error>(
    _ body: () throws(Failure) -> Result
  ) throws(Failure) -> Result {
    let state = sync_disable_cancelling()
    defer { sync_restore_cancelling(state) }
    return try body()
  }

  /// The typed error for the call that just failed.
  package static func failure(_ what: String, _ path: String?, errno code: Int32 = Glibc.errno) -> StoreError
  {
    let (kind, advice): (StoreError.Code, String) =
      switch code {
      case ENOSPC, EDQUOT: (.diskFull, "make room")
      case EFBIG: (.diskFull, "raise the limit on file sizes (ulimit -f)")
      case EROFS: (.readOnly, "mount the file system for writing")
      case EACCES, EPERM: (.readOnly, "check owner and permissions")
      case EMFILE, ENFILE: (.inputOutput, "raise the limit on open files (ulimit -n)")
      case EIO: (.inputOutput, "check the disk, then restore from a backup or a peer")
      case ENOENT: (.inputOutput, "check the path: what it lies in must exist")
      case ENOTDIR: (.inputOutput, "check the path: a part of it is no directory")
      default: (.inputOutput, "see the operating system's error")
      }
    return StoreError(kind, "\(what): \(text(of: code)): \(advice)", path: path, errno: code)
  }

  /// What the operating system calls the error.
  package static func text(of code: Int32) -> String {
    unsafe String(cString: strerror(code))
  }

  /// A descriptor above the standard three, so that a program started without them never writes text into data (F36).
  package static func moveAboveStdio(_ descriptor: Int32) -> Int32 {
    guard descriptor <= 2 else { return descriptor }
    let moved = sync_duplicate_above_standard(descriptor)
    guard moved >= 0 else { return descriptor }
    close(descriptor)
    return moved
  }

  /// Milliseconds since 1970 by the wall clock.
  package static func wallMilliseconds() -> UInt64 { milliseconds(CLOCK_REALTIME) }

  /// Milliseconds since some moment, by a clock that nobody sets, and that is cheap to read: it moves every few of them.
  package static func monotonicMilliseconds() -> UInt64 { milliseconds(CLOCK_MONOTONIC_COARSE) }

  /// Milliseconds since the machine was booted, those of its sleep included, by a clock that is never set.
  package static func bootMilliseconds() -> UInt64 { milliseconds(CLOCK_BOOTTIME) }

  /// A wall clock that stands before 1970 reads as the second in which that year began.
  private static func milliseconds(_ clock: clockid_t) -> UInt64 {
    var time = timespec()
    unsafe clock_gettime(clock, &time)
    return UInt64(max(time.tv_sec, 0)) * 1000 + UInt64(time.tv_nsec) / 1_000_000
  }

  /// Lets the thread sleep for about so long.
  static func sleep(microseconds: UInt32) { uncancelled { _ = usleep(microseconds) } }

  /// Eight unpredictable bytes from the kernel (`getrandom`, behind Swift's system generator).
  package static func randomWord() -> UInt64 { UInt64.random(in: 0...UInt64.max) }

  /// Changes in a child process: what was opened before the fork belongs to the parent.
  package static var forkGeneration: UInt32 { sync_fork_generation() }

  /// The same for who has asked before: cheap.
  @inline(__always)
  static var forksSeen: UInt32 { sync_forks_seen() }

  /// The calling thread; never 0.
  @inline(__always)
  static var thread: UInt { UInt(pthread_self()) }

  /// The process's number.
  package static var processID: Int32 { getpid() }

  /// The user this process acts for.
  package static var userID: UInt32 { geteuid() }

  /// What the kernel answers to a renaming from one file system to another.
  static let crossDevice = EXDEV
  /// What it answers where nothing has that name.
  static let noEntry = ENOENT
  /// What it answers where permissions are lacking.
  static let permissionDenied = EACCES
  /// What it answers where a file system has no such call.
  static let invalidArgument = EINVAL
  /// What it answers where there is no room.
  static let noSpace = ENOSPC
  /// Does this error number say that the process, or the system, has no descriptor left?
  static func isOutOfDescriptors(_ code: Int32) -> Bool { code == EMFILE || code == ENFILE }
  /// What it answers where a name is taken.
  static let exists = EEXIST

  /// The value of a variable of the environment; nil if it is not set, or empty.
  static func environmentVariable(_ name: String) -> String? {
    guard let value = unsafe getenv(name) else { return nil }
    let text = unsafe String(cString: value)
    return text.isEmpty ? nil : text
  }

  /// The path without links, dots and doubled slashes, from the root on, as far as it exists.
  static func absolutePath(_ path: String) -> String {
    if let resolved = unsafe realpath(path, nil) {
      defer { unsafe free(resolved) }
      return unsafe String(cString: resolved)
    }
    let isOpen = path.utf8.count > 1 && path.utf8.last == DiskStorage.slash
    let trimmed = isOpen ? String(path.unicodeScalars.dropLast()) : path
    guard let slash = trimmed.utf8.lastIndex(of: DiskStorage.slash) else {
      return absolutePath(".") + "/" + trimmed
    }
    let parent = slash == trimmed.startIndex ? "/" : absolutePath(String(trimmed[..<slash]))
    return (parent == "/" ? "" : parent) + trimmed[slash...]
  }
}
