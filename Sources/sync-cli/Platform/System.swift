private import CLinux
private import Dispatch
private import Glibc
private import SyncStore

/// The process and its environment.
enum System {
  /// The command line without the program's name, as bytes: a key need not be UTF-8.
  ///
  /// They come from the kernel: Swift's `CommandLine` reads /proc/self/cmdline, and is empty where there is
  /// no /proc.
  static var arguments: [Argument] {
    (1..<max(1, Int(sync_argument_count()))).compactMap { index in
      guard let word = unsafe sync_argument(Int32(index)) else { return nil }
      return unsafe Argument(Array(UnsafeRawBufferPointer(start: word, count: strlen(word))))
    }
  }

  /// An environment variable with ASCII content; nil if it is unset or empty.
  static func environment(_ name: String) -> String? {
    environmentBytes(name).map { String(decoding: $0, as: UTF8.self) }
  }

  /// The bytes of an environment variable, which need not be UTF-8; nil if it is unset or empty.
  static func environmentBytes(_ name: String) -> [UInt8]? {
    guard let value = unsafe getenv(name) else { return nil }
    let bytes = unsafe Array(UnsafeRawBufferPointer(start: value, count: strlen(value)))
    return bytes.isEmpty ? nil : bytes
  }

  /// Whether an environment variable is set, be it to nothing.
  static func isSet(_ name: String) -> Bool { unsafe getenv(name) != nil }

  /// Occupies the descriptors 0 to 2 so that no file of the store gets one of them (F36): messages would be
  /// written into it. Closed streams stay unusable: reading or writing them is an error.
  static func reserveStandardDescriptors() {
    for number in Int32(0)...2 where fcntl(number, F_GETFD) == -1 {
      _ = unsafe open("/dev/null", number == 0 ? O_WRONLY : O_RDONLY)
    }
  }

  /// Moves standard input to another descriptor, and leaves an empty file in its place: what reads standard
  /// input then does not take the lines of a script.
  static func takeStandardInput() -> Descriptor {
    let moved = sync_duplicate_above_standard(0)
    guard moved > 2 else { return Descriptor(standard: 0) }
    let empty = unsafe open("/dev/null", O_RDONLY | O_CLOEXEC)
    if empty >= 0 {
      dup2(empty, 0)
      close(empty)
    }
    return Descriptor(owning: moved, named: "standard input")
  }

  /// Raises the descriptor limit to its maximum: the usual 1024 are fewer than the members that a hub can
  /// serve.
  static func raiseDescriptorLimit() {
    var limit = rlimit()
    guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0,
      limit.rlim_cur < limit.rlim_max
    else { return }
    limit.rlim_cur = limit.rlim_max
    _ = unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
  }

  /// Whether the standard stream is a terminal.
  static func isTerminal(_ number: Int32) -> Bool { isatty(number) == 1 }

  /// The width of the terminal; nil if the stream is none, or does not report it.
  static func terminalColumns(_ number: Int32) -> Int? {
    let columns = sync_terminal_columns(number)
    return columns > 0 ? Int(columns) : nil
  }

  /// Monotonic seconds since some point in the past.
  static var monotonicSeconds: Double {
    var time = timespec()
    unsafe clock_gettime(CLOCK_MONOTONIC, &time)
    return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
  }

  /// Milliseconds since 1970.
  static var wallMilliseconds: UInt64 { SystemCall.wallMilliseconds() }

  /// The ID of this process.
  static var processID: Int32 { getpid() }

  /// Whether a process with that ID exists.
  static func isAlive(_ process: Int32) -> Bool { kill(process, 0) == 0 || errno != ESRCH }

  /// The machine's name.
  static var hostName: String {
    var name = [UInt8](repeating: 0, count: 256)
    let result = unsafe name.withUnsafeMutableBytes { buffer in
      unsafe gethostname(buffer.baseAddress!.assumingMemoryBound(to: CChar.self), 255)
    }
    return result == 0 ? String(decoding: name.prefix { $0 != 0 }, as: UTF8.self) : "host"
  }

  // MARK: - Signals

  /// Turns SIGPIPE and SIGXFSZ (F35) into errors of the write call, instead of ending the process.
  static func ignoreSignalsOfWriting() {
    signal(SIGPIPE, SIG_IGN)
    signal(SIGXFSZ, SIG_IGN)
  }

  /// Ends the process as SIGPIPE would.
  static func dieOfBrokenPipe() -> Never {
    signal(SIGPIPE, SIG_DFL)
    raise(SIGPIPE)
    exit(.inputOutput)
  }

  /// Ends the process at once, without exit handlers.
  ///
  /// Handlers of libraries (OpenSSL frees its tables) would break threads that are still running. All output
  /// was written before.
  static func exit(_ code: ExitCode) -> Never { Glibc._exit(code.rawValue) }

  /// Ends the process with `code` after that time, if it has not ended. Calls `body` before.
  static func exit(_ code: ExitCode, after milliseconds: Int, _ body: @escaping @Sendable () -> Void) {
    DispatchQueue(label: "sync-cli.exit").asyncAfter(deadline: .now() + .milliseconds(milliseconds)) {
      body()
      exit(code)
    }
  }

  /// The result of `nextSignal`.
  enum Signal { case end, reload, none }

  /// The signals that ask a command to end.
  static let endingSignals = [SIGTERM, SIGINT, SIGHUP]
  /// Those that a key on the terminal, or the terminal itself, can send to a shell in addition.
  static let terminalSignals = endingSignals + [SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH]

  private static func set(of numbers: [Int32]) -> sigset_t {
    var set = sigset_t()
    unsafe sigemptyset(&set)
    for number in numbers { unsafe sigaddset(&set, number) }
    return set
  }

  /// Blocks signals for `nextSignal` and `awaitSignal(among:within:)`. Call it before any thread starts:
  /// threads inherit the mask.
  static func blockSignals(_ numbers: [Int32] = endingSignals) {
    var set = set(of: numbers)
    unsafe pthread_sigmask(SIG_BLOCK, &set, nil)
  }

  /// Waits for a signal, at most `seconds`.
  static func nextSignal(within seconds: Double) -> Signal {
    switch awaitSignal(among: endingSignals, within: seconds) {
    case SIGTERM, SIGINT: .end
    case SIGHUP: .reload
    default: .none
    }
  }

  /// Waits for one of these signals, which must be blocked, at most `seconds`. Returns its number.
  static func awaitSignal(among numbers: [Int32], within seconds: Double) -> Int32? {
    var set = set(of: numbers)
    var limit = timespec()
    limit.tv_sec = Int(seconds)
    limit.tv_nsec = Int((seconds - seconds.rounded(.down)) * 1e9)
    let number = unsafe sigtimedwait(&set, nil, &limit)
    return number > 0 ? number : nil
  }

  /// Does what the kernel does by default with a signal that is blocked: ends or stops the process, or
  /// nothing. A signal that the program's caller ignores stays ignored.
  static func takeDefaultAction(of number: Int32) {
    var (set, before) = (set(of: [number]), sigset_t())
    unsafe pthread_sigmask(SIG_UNBLOCK, &set, &before)
    raise(number)
    unsafe pthread_sigmask(SIG_SETMASK, &before, nil)
  }

  /// Whether what is written to the standard stream is lost: it is a pipe or socket that nothing reads.
  static func hasLostReader(_ number: Int32) -> Bool {
    var waiting = pollfd(fd: number, events: 0, revents: 0)
    return unsafe poll(&waiting, 1, 0) > 0 && Int32(waiting.revents) & POLLERR != 0
  }

  // MARK: - Service manager

  /// Maximum bytes of a Unix socket's name, with its terminator (unix(7)).
  private static let socketNameBytes = 108

  /// Sends one datagram to the Unix socket at `path`; one that begins with "@" is in the abstract name space.
  /// False if it could not be sent.
  static func send(_ message: String, toSocketAt path: String) -> Bool {
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    var name = Array(path.utf8)
    guard !name.isEmpty, name.count < socketNameBytes else { return false }
    if name[0] == UInt8(ascii: "@") { name[0] = 0 }
    unsafe withUnsafeMutableBytes(of: &address.sun_path) { unsafe $0.copyBytes(from: name) }
    let socket = Glibc.socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    guard socket >= 0 else { return false }
    defer { close(socket) }
    let length = socklen_t(MemoryLayout<sa_family_t>.size + name.count)
    let bytes = Array(message.utf8)
    let sent = unsafe withUnsafePointer(to: address) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        unsafe sendto(socket, bytes, bytes.count, Int32(MSG_NOSIGNAL), $0, length)
      }
    }
    return sent == bytes.count
  }
}
