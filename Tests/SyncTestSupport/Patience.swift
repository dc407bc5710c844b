import Glibc

/// What a sanitizer changes for tests.
public enum Sanitizer {
  /// Was this program built with the thread or the address sanitizer?
  public static let isActive = unsafe dlsym(nil, "__tsan_init") != nil || dlsym(nil, "__asan_init") != nil
}

/// How long tests wait before they call something stuck.
public enum Patience {
  /// Minutes to wait where `usual` do for one alone: all tests run at once, on few processors, and a sanitizer makes programs slow.
  public static func minutes(_ usual: Int) -> Int { (Sanitizer.isActive ? 10 : 4) * usual }

  /// Ends this process with SIGALRM after that time. Every process that a test starts and waits for calls it:
  /// a time limit of the test cannot end a process, and one that hangs, or a child of it that does, would
  /// keep the whole run from ever ending.
  public static func limitProcess(minutes usual: Int = 2) {
    // A child that was forked from a thread of the concurrency runtime blocks all signals.
    var signals = sigset_t()
    unsafe sigemptyset(&signals)
    unsafe sigaddset(&signals, SIGALRM)
    unsafe pthread_sigmask(SIG_UNBLOCK, &signals, nil)
    alarm(UInt32(60 * minutes(usual)))
  }
}
