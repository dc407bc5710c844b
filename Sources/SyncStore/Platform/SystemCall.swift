private import CLinux
private import Glibc

/// Helpers for system calls: retrying after signals, and readable errors.
package enum SystemCall {
  /// Repeats a call that a signal interrupted (F32). The thread cannot be cancelled in it: see `uncancelled`.
  package static func retrying<Result: SignedInteger>(_ call: () -> Result) -> Result {
    let state = sync_disable_cancelling()
    defer { sync_restore_cancelling(state) }
    while true {
      let result = call()
      if result != -1 || errno != EINTR { return result }
    }
  }

  /// Runs `body` while the thread cannot be cancelled (`pthread_cancel`). A thread cancelled in a system call
  /// ends without running any `defer`: its locks would stay locked for as long as the process lives.
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

  /// The operating system's text for the error.
  package static func text(of code: Int32) -> String {
    unsafe String(cString: strerror(code))
  }

  /// Moves a descriptor above the standard three, so that a program started without them never writes text
  /// into data (F36).
  package static func moveAboveStdio(_ descriptor: Int32) -> Int32 {
    guard descriptor <= 2 else { return descriptor }
    let moved = sync_duplicate_above_standard(descriptor)
    guard moved >= 0 else { return descriptor }
    close(descriptor)
    return moved
  }

  /// Milliseconds since 1970 by the wall clock.
  package static func wallMilliseconds() -> UInt64 { milliseconds(CLOCK_REALTIME) }

  /// Milliseconds by a clock that is never set and cheap to read; its resolution is a few milliseconds.
  package static func monotonicMilliseconds() -> UInt64 { milliseconds(CLOCK_MONOTONIC_COARSE) }

  /// Milliseconds since boot, suspended time included, by a clock that is never set.
  package static func bootMilliseconds() -> UInt64 { milliseconds(CLOCK_BOOTTIME) }

  /// A time before 1970 reads as the second in which that year began.
  private static func milliseconds(_ clock: clockid_t) -> UInt64 {
    var time = timespec()
    unsafe clock_gettime(clock, &time)
    return UInt64(max(time.tv_sec, 0)) * 1000 + UInt64(time.tv_nsec) / 1_000_000
  }

  /// Sleeps for about this long, less than a second. A signal handler may end it early: callers check their
  /// condition again.
  package static func sleep(microseconds: UInt32) {
    assert(microseconds < 1_000_000, "too long a sleep")
    uncancelled { _ = usleep(microseconds) }
  }

  /// Eight unpredictable bytes from the kernel (`getrandom`, used by Swift's system generator).
  package static func randomWord() -> UInt64 { UInt64.random(in: 0...UInt64.max) }

  /// Differs in a child process: what was opened before the fork belongs to the parent.
  package static var forkGeneration: UInt32 { sync_fork_generation() }

  /// `forkGeneration` without registration, for callers that have read it before: cheap.
  @inline(__always)
  static var forksSeen: UInt32 { sync_forks_seen() }

  /// The calling thread; never 0.
  @inline(__always)
  static var thread: UInt { UInt(pthread_self()) }

  /// The process ID.
  package static var processID: Int32 { getpid() }

  /// The effective user ID.
  package static var userID: UInt32 { geteuid() }

  /// Error of a rename across file systems.
  static let crossDevice = EXDEV
  /// Error for a missing name.
  static let noEntry = ENOENT
  /// Error for missing permissions.
  package static let permissionDenied = EACCES
  /// Error where a file system lacks the call.
  static let invalidArgument = EINVAL
  /// Error for a full disk.
  static let noSpace = ENOSPC
  /// Whether this error number means that the process, or the system, has no descriptor left.
  static func isOutOfDescriptors(_ code: Int32) -> Bool { code == EMFILE || code == ENFILE }
  /// Error for a name that is taken.
  static let exists = EEXIST

  /// The value of an environment variable; nil if it is unset or empty.
  package static func environmentVariable(_ name: String) -> String? {
    guard let value = unsafe getenv(name) else { return nil }
    let text = unsafe String(cString: value)
    return text.isEmpty ? nil : text
  }

  /// The absolute path without links, dots and doubled slashes, as far as it exists.
  package static func absolutePath(_ path: String) -> String {
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

extension StoreError {
  /// Whether no descriptor was left (F33). The file was not touched, so retrying loses nothing.
  var isOutOfDescriptors: Bool { SystemCall.isOutOfDescriptors(errno) }
}
