import Glibc

/// How long tests wait before they call something stuck.
public enum Patience {
  /// How many times as long as usual: `TEST_PATIENCE`, which `make tsan` and `make asan` set, for programs under a sanitizer are slow.
  private static let factor = unsafe getenv("TEST_PATIENCE").flatMap { unsafe Int(String(cString: $0)) } ?? 1

  /// Minutes to wait where `usual` do without a sanitizer.
  public static func minutes(_ usual: Int) -> Int { usual * max(factor, 1) }
}
