private import CLinux
private import Glibc

/// Prompts on the terminal, whatever standard input and output are.
enum Terminal {
  /// Longer lines are cut; no passphrase is that long.
  private static let longestLine = 4096

  private enum Answer {
    case line([UInt8])
    /// A signal arrived, and the process survived it: it was stopped and continued, or ignores the signal.
    case interrupted
    case failed
  }

  /// Prompts for a line without echo; nil if there is no terminal, the line is empty, or the command of a
  /// shell is interrupted.
  ///
  /// A signal that ends or stops the process still does so, after the terminal is restored. If the process
  /// continues, the prompt is repeated.
  static func secret(_ prompt: String) -> [UInt8]? {
    answer(to: prompt, echoes: false).flatMap { $0.isEmpty ? nil : $0 }
  }

  /// Asks a question; true if the answer begins with "y". False also without a terminal.
  static func confirms(_ question: String) -> Bool {
    answer(to: question, echoes: true)?.first.map { $0 | 0x20 } == UInt8(ascii: "y")
  }

  private static func answer(to prompt: String, echoes: Bool) -> [UInt8]? {
    let terminal = unsafe open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)
    guard terminal >= 0 else { return nil }
    defer { close(terminal) }
    while !Interruption.isRequested {
      switch ask(prompt, terminal, echoes: echoes) {
      case .line(let line): return line
      case .interrupted: continue
      case .failed: return nil
      }
    }
    return nil
  }

  private static func ask(_ prompt: String, _ terminal: Int32, echoes: Bool) -> Answer {
    var before = termios()
    guard unsafe tcgetattr(terminal, &before) == 0, let signals = DeferredSignals() else { return .failed }
    // Deferred actions run in reverse order: the terminal is restored before.
    defer { signals.deliver() }
    if !echoes {
      var silent = before
      silent.c_lflag &= ~tcflag_t(ECHO)
      guard unsafe tcsetattr(terminal, TCSAFLUSH, &silent) == 0 else { return .failed }
    }
    defer {
      if !echoes {
        _ = unsafe tcsetattr(terminal, TCSAFLUSH, &before)
        _ = unsafe write(terminal, "\n", 1)
      }
    }
    let text = Array(prompt.utf8)
    guard unsafe write(terminal, text, text.count) == text.count else { return .failed }
    var line: [UInt8] = []
    var byte: UInt8 = 0
    while line.count < longestLine {
      guard signals.waitReadable(terminal) else { return .interrupted }
      guard unsafe read(terminal, &byte, 1) == 1, byte != 0x0A else { break }
      line.append(byte)
    }
    return .line(line)
  }
}

/// The pipe that the handler of `DeferredSignals` writes to. A global, because a handler takes no other
/// argument.
private nonisolated(unsafe) var signalPipe: Int32 = -1

/// Defers signals that would end or stop the process. They are caught, not blocked: other threads may exist
/// that do not block them. In a shell they are blocked in all threads, and the listener passes them on.
private struct DeferredSignals {
  private static let numbers = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP]
  private let pipe: (end: Int32, start: Int32)
  private var before: [(number: Int32, action: sigaction)] = []

  init?() {
    var ends: [Int32] = [-1, -1]
    guard unsafe Glibc.pipe(&ends) == 0 else { return nil }
    pipe = (ends[0], ends[1])
    // `deliver` reads until the pipe is empty.
    _ = sync_set_nonblocking(pipe.end)
    unsafe signalPipe = pipe.start
    var action = sigaction()
    action.sa_flags = SA_RESTART
    unsafe action.__sigaction_handler.sa_handler = { number in
      // The interrupted code may be about to read `errno`.
      let code = errno
      var byte = UInt8(truncatingIfNeeded: number)
      _ = unsafe write(signalPipe, &byte, 1)
      errno = code
    }
    for number in Self.numbers {
      var old = sigaction()
      if unsafe sigaction(number, &action, &old) == 0 { before.append((number, old)) }
    }
    guard SignalListener.isRunning else { return }
    let (start, numbers) = (pipe.start, Self.numbers)
    SignalListener.push { number in
      guard let number, numbers.contains(number) else { return number == nil }
      var byte = UInt8(truncatingIfNeeded: number)
      _ = unsafe write(start, &byte, 1)
      return true
    }
  }

  /// Waits until bytes can be read; false if a signal arrives first.
  func waitReadable(_ descriptor: Int32) -> Bool {
    var waiting = [
      pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0),
      pollfd(fd: pipe.end, events: Int16(POLLIN), revents: 0),
    ]
    while unsafe poll(&waiting, 2, -1) < 0, errno == EINTR {}
    return waiting[1].revents == 0
  }

  /// Delivers the deferred signals and restores the handlers.
  func deliver() {
    for (number, action) in before {
      var action = action
      _ = unsafe sigaction(number, &action, nil)
    }
    let isShared = SignalListener.isRunning
    if isShared { SignalListener.pop() }
    var number: UInt8 = 0
    // On this thread, which handles it before the next line.
    while unsafe read(pipe.end, &number, 1) == 1 {
      if isShared { SignalListener.deliver(Int32(number)) } else { raise(Int32(number)) }
    }
    close(pipe.end)
    close(pipe.start)
  }
}
