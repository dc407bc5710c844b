package import Foundation
import Glibc
import SyncStore

/// A program that runs as a process of its own, and is killed with the last reference.
///
/// Foundation's `Process` learns of an end from a socket of which the process has the other end; a process that is begun by another
/// thread at the same moment can inherit that, too, and then the end of the first is seen when both have ended. Where one of them is a
/// daemon, that is when its test ends it, which may itself wait for the first. Here a thread waits for each process by its number, and
/// no process inherits more than its three streams.
package final class ChildProcess: Sendable {
  package let processID: pid_t

  private final class Ending: Sendable {
    /// As waitpid(2) tells it; nil while it runs.
    let status = Locked<Int32?>(nil)
    let group = DispatchGroup()
  }

  private let ending = Ending()

  /// posix_spawn_file_actions_addclosefrom_np(3), of glibc 2.34, which its headers do not show to Swift.
  private static let addCloseFrom = unsafe unsafeBitCast(
    dlsym(nil, "posix_spawn_file_actions_addclosefrom_np"),
    to: (@convention(c) (UnsafeMutablePointer<posix_spawn_file_actions_t>, Int32) -> Int32).self)

  /// Begins the program `command[0]`, a whole path, with the other words. It has the streams that are named, and an empty one for
  /// each that is not; the environment of this process, if none is given.
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

    // A signal that is meant for the tests is not meant for it, and none that they ignore is ignored by it.
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
    // Their descriptors were in use until now.
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

  /// Waits for its end, and gives its exit code, or 128 and the number of the signal that ended it. A process
  /// that hangs is killed after some minutes, so that the test fails instead of keeping the whole run from
  /// ending.
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

  /// Runs a program to its end: its exit code, and what it has said on both streams.
  package static func run(
    _ command: [String], environment: [String: String]? = nil
  ) throws -> (code: Int32, text: String) {
    // Not a pipe: that ends with the last process that has it.
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
