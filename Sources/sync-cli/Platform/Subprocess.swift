private import CLinux
private import Glibc
import SyncStore

/// A running `sh -c SCRIPT`. It shares the process group, so that a key pressed on the terminal reaches both,
/// and the standard streams, unless bytes are passed to its input.
final class Subprocess: Sendable {
  /// How a command ended.
  enum Ending: Equatable {
    case exited(Int32)
    case signalled(Int32)

    /// Whether a signal ended it that also stops this program, directly or in the shell's notation.
    var isStop: Bool {
      switch self {
      case .exited(let code): [128 + SIGINT, 128 + SIGTERM, 128 + SIGHUP].contains(code)
      case .signalled(let number): [SIGINT, SIGTERM, SIGHUP].contains(number)
      }
    }
  }

  /// Nil once its number may be another process's.
  private let process: LockedField<pid_t?>
  private let number: pid_t
  /// The writing end of the pipe that the command reads; nil once closed, or without one.
  private let input: LockedField<Int32?>
  /// Milliseconds between two looks whether the command has ended while it does not read its input.
  private static let pollMilliseconds: Int32 = 50

  /// Starts `sh -c script name arguments…` with these variables, "NAME=value" each, in place of its own of
  /// that name. With `feeds` its standard input is a pipe, for `finish(feeding:)`.
  init(
    _ script: [UInt8], arguments: [[UInt8]] = [], variables: [[UInt8]] = [], feeds: Bool
  ) throws(Failure) {
    let ends = try feeds ? Self.pipe() : nil
    defer { if let ends { close(ends.reading) } }
    var actions = unsafe posix_spawn_file_actions_t()
    unsafe posix_spawn_file_actions_init(&actions)
    defer { unsafe posix_spawn_file_actions_destroy(&actions) }
    if let ends { unsafe posix_spawn_file_actions_adddup2(&actions, ends.reading, 0) }
    // This program blocks and ignores signals that the command must get.
    var attributes = posix_spawnattr_t()
    unsafe posix_spawnattr_init(&attributes)
    defer { unsafe posix_spawnattr_destroy(&attributes) }
    var signals = sigset_t()
    unsafe sigemptyset(&signals)
    unsafe posix_spawnattr_setsigmask(&attributes, &signals)
    unsafe sigfillset(&signals)
    unsafe posix_spawnattr_setsigdefault(&attributes, &signals)
    unsafe posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF))

    let words = [Array("sh".utf8), Array("-c".utf8), script] + (arguments.isEmpty ? [] : [Array("sh".utf8)])
    let code = unsafe Self.withWords(words + arguments) { words in
      unsafe Self.withWords(variables + Self.inherited(without: variables)) { environment in
        var number: pid_t = 0
        let code = unsafe posix_spawn(&number, "/bin/sh", &actions, &attributes, words, environment)
        return (code, number)
      }
    }
    guard code.0 == 0 else {
      if let ends { close(ends.writing) }
      throw Self.failure(code.0)
    }
    number = code.1
    process = LockedField(code.1)
    input = LockedField(ends?.writing)
  }

  /// Both ends close with an `exec`; writing does not block.
  private static func pipe() throws(Failure) -> (reading: Int32, writing: Int32) {
    var ends: [Int32] = [-1, -1]
    guard unsafe Glibc.pipe(&ends) == 0 else { throw failure(errno) }
    let (reading, writing) = (SystemCall.moveAboveStdio(ends[0]), SystemCall.moveAboveStdio(ends[1]))
    for end in [reading, writing] { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    _ = sync_set_nonblocking(writing)
    return (reading, writing)
  }

  /// Runs a script in the foreground of the terminal, and returns its exit code, above 128 for a signal.
  ///
  /// Until it ends, this process ignores the signals of the keyboard: they are meant for the program that the
  /// script runs.
  static func runInForeground(_ script: String, _ arguments: [[UInt8]]) throws(Failure) -> Int32 {
    let ignored = [SIGINT, SIGQUIT]
    let before = (signal(SIGINT, SIG_IGN), signal(SIGQUIT, SIG_IGN))
    SignalListener.push { number in number.map(ignored.contains) ?? true }
    defer {
      SignalListener.pop()
      (_, _) = (signal(SIGINT, before.0), signal(SIGQUIT, before.1))
    }
    switch try Subprocess(Array(script.utf8), arguments: arguments, feeds: false).finish() {
    case .exited(let code): return code
    case .signalled(let number): return 128 + number
    }
  }

  deinit { shutInput() }

  /// Asks the command to end.
  func terminate() { process.withLock { if let process = $0 { _ = kill(process, SIGTERM) } } }

  /// Passes `bytes` to the command and waits for its end. A command that does not read them is no error.
  func finish(feeding bytes: [UInt8] = []) -> Ending {
    if let end = input.withLock({ $0 }) { feed(bytes, into: end) }
    shutInput()
    var information = unsafe siginfo_t()
    // Without reaping it: until then its number cannot be another process's.
    while unsafe waitid(P_PID, id_t(number), &information, WEXITED | WNOWAIT) != 0, errno == EINTR {}
    return process.withLock { process in
      process = nil
      var status: Int32 = 0
      _ = SystemCall.retrying { unsafe waitpid(number, &status, 0) }
      let signal = status & 0x7F
      return signal == 0 ? .exited(status >> 8 & 0xFF) : .signalled(signal)
    }
  }

  private func feed(_ bytes: [UInt8], into input: Int32) {
    var done = 0
    while done < bytes.count {
      var waiting = pollfd(fd: input, events: Int16(POLLOUT), revents: 0)
      if unsafe poll(&waiting, 1, Self.pollMilliseconds) == 0, hasEnded { return }
      let wrote = unsafe bytes.withUnsafeBytes { buffer in
        unsafe write(input, buffer.baseAddress! + done, bytes.count - done)
      }
      guard wrote >= 0 || errno == EAGAIN || errno == EINTR else { return }
      done += max(0, wrote)
    }
  }

  /// A process that the command left behind may keep the pipe open without reading it.
  private var hasEnded: Bool {
    var information = unsafe siginfo_t()
    return unsafe waitid(P_PID, id_t(number), &information, WEXITED | WNOWAIT | WNOHANG) == 0
      && information.si_signo == SIGCHLD
  }

  private func shutInput() {
    input.withLock { input in
      if let end = input { close(end) }
      input = nil
    }
  }

  /// The variables of this process, except those named in `variables`.
  private static func inherited(without variables: [[UInt8]]) -> [[UInt8]] {
    let names = Set(variables.map { $0.prefix { $0 != UInt8(ascii: "=") } })
    var found: [[UInt8]] = []
    guard var place = unsafe sync_environment() else { return [] }
    while let word = unsafe place.pointee {
      found.append(unsafe Array(UnsafeRawBufferPointer(start: word, count: strlen(word))))
      unsafe place += 1
    }
    return found.filter { !names.contains($0.prefix { $0 != UInt8(ascii: "=") }) }
  }

  private static func withWords<Result>(
    _ words: [[UInt8]], _ body: ([UnsafeMutablePointer<CChar>?]) -> Result
  ) -> Result {
    let copies = unsafe words.map { word in
      unsafe (word + [0]).withUnsafeBufferPointer { bytes in
        unsafe bytes.withMemoryRebound(to: CChar.self) { unsafe strdup($0.baseAddress!) }
      }
    }
    defer { unsafe copies.forEach { unsafe free($0) } }
    return unsafe body(copies + [nil])
  }

  private static func failure(_ code: Int32) -> Failure {
    Failure(
      .inputOutput, "cannot run sh: \(SystemCall.text(of: code)): see the operating system's error")
  }
}
