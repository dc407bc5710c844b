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
}
