private import CLinux
private import Glibc
private import SyncStore

/// A program that runs in the foreground of the terminal while this one waits for it.
enum ForegroundProcess {
  /// Runs a script of the shell with arguments, and returns its exit code, above 128 for a signal.
  ///
  /// Until it ends, this process ignores the signals of the keyboard: they are meant for the program. The
  /// program itself gets the default handlers.
  static func run(shell script: String, named name: String, _ arguments: [[UInt8]]) throws(Failure) -> Int32 {
    let before = (signal(SIGINT, SIG_IGN), signal(SIGQUIT, SIG_IGN))
    defer { (_, _) = (signal(SIGINT, before.0), signal(SIGQUIT, before.1)) }
    var attributes = posix_spawnattr_t()
    unsafe posix_spawnattr_init(&attributes)
    defer { unsafe posix_spawnattr_destroy(&attributes) }
    var (all, none) = (sigset_t(), sigset_t())
    unsafe (_, _) = (sigfillset(&all), sigemptyset(&none))
    unsafe posix_spawnattr_setsigdefault(&attributes, &all)
    unsafe posix_spawnattr_setsigmask(&attributes, &none)
    unsafe posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK))
    let words = ["/bin/sh", "-c", script, name].map { Array($0.utf8) } + arguments
    var copies =
      unsafe words.map { word in
        unsafe (word + [0]).withUnsafeBytes { unsafe strdup($0.bindMemory(to: CChar.self).baseAddress!) }
      } + [nil]
    defer { unsafe copies.forEach { unsafe free($0) } }
    var process: pid_t = 0
    let code = unsafe posix_spawn(&process, "/bin/sh", nil, &attributes, &copies, sync_environment())
    guard code == 0 else {
      throw Failure(
        .inputOutput,
        "\(name): cannot start /bin/sh: \(SystemCall.text(of: code)): see the operating system's error")
    }
    var status: Int32 = 0
    while unsafe waitpid(process, &status, 0) < 0, errno == EINTR {}
    let signal = status & 0x7F
    return signal == 0 ? status >> 8 & 0xFF : 128 + signal
  }
}
