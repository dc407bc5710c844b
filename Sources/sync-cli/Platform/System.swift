private import CLinux
private import Glibc
private import SyncStore

/// The process and its surroundings.
enum System {
  /// The words of the command line after the program's name, as bytes: a key need not be UTF-8. They are what the kernel has passed:
  /// Swift's `CommandLine` reads /proc/self/cmdline, and is empty where there is no /proc.
  static var arguments: [Argument] {
    (1..<max(1, Int(sync_argument_count()))).compactMap { index in
      guard let word = unsafe sync_argument(Int32(index)) else { return nil }
      return unsafe Argument(Array(UnsafeRawBufferPointer(start: word, count: strlen(word))))
    }
  }

  /// A variable of the environment, for what is ASCII; nil if it is unset or empty.
  static func environment(_ name: String) -> String? {
    environmentBytes(name).map { String(decoding: $0, as: UTF8.self) }
  }

  /// The bytes of a variable, which need not be UTF-8 any more than those of an argument; nil if it is unset or empty.
  static func environmentBytes(_ name: String) -> [UInt8]? {
    guard let value = unsafe getenv(name) else { return nil }
    let bytes = unsafe Array(UnsafeRawBufferPointer(start: value, count: strlen(value)))
    return bytes.isEmpty ? nil : bytes
  }

  /// Makes sure that no file of the store gets one of the numbers 0 to 2 (F36), where text would be written into it.
  /// What was closed stays useless: reading or writing it is an error.
  static func reserveStandardDescriptors() {
    for number in Int32(0)...2 where fcntl(number, F_GETFD) == -1 {
      _ = unsafe open("/dev/null", number == 0 ? O_WRONLY : O_RDONLY)
    }
  }

  /// Takes as many descriptors as the process may have: the usual 1024 are fewer than the members that a hub can serve.
  static func raiseDescriptorLimit() {
    var limit = rlimit()
    guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0,
      limit.rlim_cur < limit.rlim_max
    else { return }
    limit.rlim_cur = limit.rlim_max
    _ = unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
  }

  /// Is the standard stream a terminal?
  static func isTerminal(_ number: Int32) -> Bool { isatty(number) == 1 }

  /// The columns of the terminal that the standard stream is; nil if it is none, or does not tell.
  static func terminalColumns(_ number: Int32) -> Int? {
    let columns = sync_terminal_columns(number)
    return columns > 0 ? Int(columns) : nil
  }

  /// Seconds that only rise, from some point in the past.
  static var monotonicSeconds: Double {
    var time = timespec()
    unsafe clock_gettime(CLOCK_MONOTONIC, &time)
    return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
  }

  /// Milliseconds since 1970.
  static var wallMilliseconds: UInt64 { SystemCall.wallMilliseconds() }

  /// This process.
  static var processID: Int32 { getpid() }

  /// Does a process of that number live?
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

  /// Writing to what nobody reads, or above the limit on file sizes (F35), is an error of that call, not the death of the
  /// process.
  static func ignoreSignalsOfWriting() {
    signal(SIGPIPE, SIG_IGN)
    signal(SIGXFSZ, SIG_IGN)
  }

  /// Ends the process as a broken pipe ends others.
  static func dieOfBrokenPipe() -> Never {
    signal(SIGPIPE, SIG_DFL)
    raise(SIGPIPE)
    exit(.inputOutput)
  }

  /// Ends the process.
  ///
  /// At once: what libraries do at the end of a program (OpenSSL frees its tables) would pull the ground from under workers
  /// that are still at it. All output was written by then.
  static func exit(_ code: ExitCode) -> Never { Glibc._exit(code.rawValue) }

  /// What `nextSignal` tells.
  enum Signal { case end, reload, none }

  private static var handled: sigset_t {
    var set = sigset_t()
    unsafe sigemptyset(&set)
    for number in [SIGTERM, SIGINT, SIGHUP] { unsafe sigaddset(&set, number) }
    return set
  }

  /// From now on SIGTERM, SIGINT and SIGHUP wait for `nextSignal`. Called before any thread is made, since threads
  /// inherit it.
  static func blockSignals() {
    var set = handled
    unsafe pthread_sigmask(SIG_BLOCK, &set, nil)
  }

  /// Waits for a signal, at most `seconds`.
  static func nextSignal(within seconds: Double) -> Signal {
    var set = handled
    var limit = timespec()
    limit.tv_sec = Int(seconds)
    limit.tv_nsec = Int((seconds - seconds.rounded(.down)) * 1e9)
    switch unsafe sigtimedwait(&set, nil, &limit) {
    case SIGTERM, SIGINT: return .end
    case SIGHUP: return .reload
    default: return .none
    }
  }

  // MARK: - The service manager

  /// Bytes of a Unix socket's name, its end included (unix(7)).
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
