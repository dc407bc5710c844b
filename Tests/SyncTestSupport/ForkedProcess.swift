package import Glibc

/// A forked child, for cases `posix_spawn` cannot produce: inherited state, and PID namespaces. Use it only
/// in a process without other threads (an exit test), and before that process opens a store that the child
/// will open.
package struct ForkedProcess {
  /// PID in the namespace of this process.
  package let processID: pid_t

  private static func fork() -> pid_t {
    // Swift does not import fork, because it is unsafe in multithreaded programs.
    guard let symbol = unsafe dlsym(nil, "fork") else { fatalError("no fork") }
    return unsafe unsafeBitCast(symbol, to: (@convention(c) () -> pid_t).self)()
  }

  /// PR_SET_PDEATHSIG of prctl(2), which is variadic: the child dies with its test.
  private static func endWithParent() {
    guard let symbol = unsafe dlsym(nil, "prctl") else { return }
    typealias Control = @convention(c) (Int32, UInt, UInt, UInt, UInt) -> Int32
    _ = unsafe unsafeBitCast(symbol, to: Control.self)(1, UInt(SIGKILL), 0, 0, 0)
  }

  /// Runs `body` in a child, for some minutes at most (`Patience`). The child exits with the result of
  /// `body`.
  package init(_ body: () -> Int32) {
    let number = Self.fork()
    if number == 0 {
      // fork(2) clears the parent's alarm.
      Patience.limitProcess()
      _exit(body())
    }
    processID = number
  }

  private init(_ number: pid_t) { processID = number }

  /// Runs `body` as process 1 of a new PID namespace, as in a container; nil where the machine forbids that.
  ///
  /// An intermediate process is the parent, because a process can leave its namespace only once. It exits
  /// with the child's status.
  package static func inNamespace(_ body: () -> Int32) -> (container: ForkedProcess, process: ForkedProcess)?
  {
    var ends: [Int32] = [0, 0]
    guard unsafe pipe(&ends) == 0 else { return nil }
    let container = ForkedProcess {
      guard let symbol = unsafe dlsym(nil, "unshare") else { return 1 }
      // CLONE_NEWPID
      guard unsafe unsafeBitCast(symbol, to: (@convention(c) (Int32) -> Int32).self)(0x2000_0000) == 0 else {
        return 1
      }
      let first = ForkedProcess {
        Self.endWithParent()
        return getpid() == 1 ? body() : 2
      }
      var number = first.processID
      unsafe write(ends[1], &number, 4)
      return first.finish()
    }
    close(ends[1])
    defer { close(ends[0]) }
    var number: pid_t = 0
    guard unsafe read(ends[0], &number, 4) == 4 else {
      container.finish()
      return nil
    }
    return (container, ForkedProcess(number))
  }

  package func signal(_ number: Int32) { kill(processID, number) }

  /// Waits for a child of this process. Returns its exit code, or 128 plus the signal number.
  @discardableResult
  package func finish() -> Int32 {
    var status: Int32 = 0
    guard unsafe waitpid(processID, &status, 0) == processID else { return -1 }
    return status & 0x7f == 0 ? status >> 8 & 0xff : 128 + status & 0x7f
  }
}
