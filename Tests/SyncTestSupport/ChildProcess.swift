package import Foundation
import Glibc
import SyncStore

/// A program in its own process, killed when the last reference goes.
///
/// Foundation's `Process` detects termination through a socket whose other end the child holds. A child
/// started concurrently by another thread may inherit that end too, and then the first termination is seen
/// only when both have exited: if one of them is a daemon, its test may wait for the first one and hang. Here
/// a thread calls waitpid for each process, and no process inherits more than its three streams.
package final class ChildProcess: Sendable {
  package let processID: pid_t

  private final class Ending: Sendable {
    /// Status as returned by waitpid(2); nil while it runs.
    let status = Locked<Int32?>(nil)
    let group = DispatchGroup()
  }

  private let ending = Ending()

  /// posix_spawn_file_actions_addclosefrom_np(3) of glibc 2.34, which the headers do not expose to Swift.
  private static let addCloseFrom = unsafe unsafeBitCast(
    dlsym(nil, "posix_spawn_file_actions_addclosefrom_np"),
    to: (@convention(c) (UnsafeMutablePointer<posix_spawn_file_actions_t>, Int32) -> Int32).self)

  /// Starts `command[0]`, an absolute path, with the remaining arguments. Streams that are not given are
  /// empty; the environment defaults to that of this process.
  package init(
    _ command: [String], environment: [String: String]? = nil, input: FileHandle? = nil,
    output: FileHandle? = nil, error: FileHandle? = nil
  ) throws {
    var actions = unsafe posix_spawn_file_actions_t()
    unsafe posix_spawn_file_actions_init(&actions)
    defer { unsafe posix_spawn_file_actions_destroy(&actions) }
    for (stream, handle) in [input, output, error].enumerated() {
      if let handle {
        unsafe posix_spawn_file_actions_adddup2(&actions, handle.fileDescriptor, Int32(stream))
      } else {
        unsafe posix_spawn_file_actions_addopen(
          &actions, Int32(stream), "/dev/null", stream == 0 ? O_RDONLY : O_WRONLY, 0)
      }
    }
    _ = unsafe Self.addCloseFrom(&actions, 3)

    // The child gets its own process group and default signal handlers.
    var attributes = posix_spawnattr_t()
    unsafe posix_spawnattr_init(&attributes)
    defer { unsafe posix_spawnattr_destroy(&attributes) }
    var all = sigset_t()
    unsafe sigfillset(&all)
    unsafe posix_spawnattr_setsigdefault(&attributes, &all)
    unsafe posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF))

    let variables = environment ?? ProcessInfo.processInfo.environment
    var words = unsafe command.map { unsafe strdup($0) } + [nil]
    var settings = unsafe variables.map { unsafe strdup("\($0)=\($1)") } + [nil]
    defer { unsafe (words + settings).forEach { unsafe free($0) } }
    var number: pid_t = 0
    let code = unsafe posix_spawn(&number, command[0], &actions, &attributes, &words, &settings)
    // Their descriptors had to stay open until now.
    withExtendedLifetime((input, output, error)) {}
    guard code == 0 else { throw SystemCall.failure("cannot begin", command[0], errno: code) }
    processID = number

    ending.group.enter()
    Thread { [ending, number] in
      var status: Int32 = 0
      _ = SystemCall.retrying { unsafe waitpid(number, &status, 0) }
      ending.status.withLock { $0 = status }
      ending.group.leave()
    }.start()
  }

  deinit {
    guard isRunning else { return }
    signal(SIGKILL)
    finish()
  }

  package var isRunning: Bool { ending.status.withLock { $0 == nil } }

  package func signal(_ number: Int32) { kill(processID, number) }

  /// Waits for the process to exit and returns its exit code, or 128 plus the signal number. A process that
  /// hangs is killed after some minutes, so that one test fails instead of blocking the whole run.
  @discardableResult
  package func finish() -> Int32 {
    if ending.group.wait(timeout: .now() + .seconds(60 * Patience.minutes(3))) == .timedOut {
      signal(SIGKILL)
      ending.group.wait()
    }
    let status = ending.status.withLock { $0 } ?? 0
    let signal = status & 0x7f
    return signal == 0 ? status >> 8 & 0xff : 128 + signal
  }

  /// Runs a program to completion. Returns its exit code and the output of both streams.
  package static func run(
    _ command: [String], environment: [String: String]? = nil
  ) throws -> (code: Int32, text: String) {
    // Not a pipe: that stays open until the last process that inherited it exits.
    let directory = TemporaryDirectory()
    let path = directory.path + "/said"
    try Data().write(to: URL(fileURLWithPath: path))
    let said = try FileHandle(forUpdating: URL(fileURLWithPath: path))
    let child = try ChildProcess(command, environment: environment, output: said, error: said)
    let code = child.finish()
    try said.seek(toOffset: 0)
    return (code, String(decoding: try said.readToEnd() ?? Data(), as: UTF8.self))
  }
}
