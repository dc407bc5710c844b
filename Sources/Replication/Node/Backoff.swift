/// How long to wait before the next attempt (F71): exponential, with full jitter ("Exponential Backoff And Jitter", AWS
/// Architecture Blog, 2015), so that peers that lost the same node do not all come back at once. A value: the random
/// number is given.
public struct Backoff: Hashable, Sendable {
  /// Milliseconds before the second attempt, at most.
  public let base: UInt64
  /// Milliseconds between two attempts, at most.
  public let cap: UInt64
  /// Attempts that have failed in a row.
  public private(set) var failures = 0

  /// No attempt has failed. `base` is at least 1, and at most `cap`.
  public init(base: UInt64 = 1_000, cap: UInt64 = 300_000) {
    precondition(base >= 1 && base <= cap, "base is 1 to cap")
    (self.base, self.cap) = (base, cap)
  }

  /// An attempt failed: milliseconds to wait, between half of the present bound and the bound. `random` is any number,
  /// evenly distributed.
  public mutating func failed(random: UInt64) -> UInt64 {
    let bound = failures < 40 ? min(cap, base << UInt64(min(failures, 40))) : cap
    failures += 1
    let half = max(1, bound / 2)
    return half + random % (bound - half + 1)
  }

  /// An attempt went well: the next failure begins anew.
  public mutating func succeeded() { failures = 0 }
}
