import Glibc

/// Adjustments for sanitizer builds.
public enum Sanitizer {
  /// Whether this program was built with the thread or address sanitizer.
  public static let isActive = unsafe dlsym(nil, "__tsan_init") != nil || dlsym(nil, "__asan_init") != nil
}

/// How long tests wait before they give up on an operation.
public enum Patience {
  /// Timeout in minutes, scaled up from `usual` (a single test): all tests share few processors, and
  /// sanitizers are slow.
  public static func minutes(_ usual: Int) -> Int { (Sanitizer.isActive ? 10 : 4) * usual }

  /// Ends this process with SIGALRM after that time. Every process that a test starts and waits for must call
  /// it: a test's time limit cannot end a process, so one that hangs, or whose child hangs, would block the
  /// whole run forever.
  public static func limitProcess(minutes usual: Int = 2) {
    // A child forked from a Swift concurrency thread has all signals blocked.
    var signals = sigset_t()
    unsafe sigemptyset(&signals)
    unsafe sigaddset(&signals, SIGALRM)
    unsafe pthread_sigmask(SIG_UNBLOCK, &signals, nil)
    alarm(UInt32(60 * minutes(usual)))
  }
}
