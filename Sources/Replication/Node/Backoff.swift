/// The delay before the next attempt (F71): exponential with full jitter ("Exponential Backoff And Jitter",
/// AWS Architecture Blog, 2015), so that peers that lost the same node do not all reconnect at once.
///
/// A value: the caller supplies the random number.
public struct Backoff: Hashable, Sendable {
  /// Upper bound of the first delay, in milliseconds.
  public let base: UInt64
  /// Upper bound of any delay, in milliseconds.
  public let cap: UInt64
  /// Consecutive failures.
  public private(set) var failures = 0

  /// No attempt has failed yet. `base` is at least 1 and at most `cap`.
  public init(base: UInt64 = 1_000, cap: UInt64 = 300_000) {
    precondition(base >= 1 && base <= cap, "base is 1 to cap")
    (self.base, self.cap) = (base, cap)
  }

  /// Records a failed attempt and returns the delay in milliseconds, between half of the current bound and
  /// the bound. `random` is any number, evenly distributed.
  public mutating func failed(random: UInt64) -> UInt64 {
    let bound = failures < 40 ? min(cap, base << UInt64(min(failures, 40))) : cap
    failures += 1
    let half = max(1, bound / 2)
    return half + random % (bound - half + 1)
  }

  /// Records a success: the next failure starts at `base` again.
  public mutating func succeeded() { failures = 0 }
}
