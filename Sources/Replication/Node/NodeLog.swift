private import SyncStore

/// A log that a flood of lines cannot fill (F94): lines caused by strangers are counted beyond a bound, and
/// the count is logged once.
final class NodeLog: Sendable {
  /// Token bucket of the rate limit: lines at once, and lines per second after that.
  private static let burst = 20.0
  private static let perSecond = 1.0

  private struct Bucket {
    var tokens = NodeLog.burst
    var filled = MonotonicClock.milliseconds()
    var suppressed = 0
  }

  private let write: @Sendable (LogLevel, String) -> Void
  private let bucket = LockedField(Bucket())

  /// A log that passes its lines to `write`.
  init(_ write: @escaping @Sendable (LogLevel, String) -> Void) { self.write = write }

  /// Logs a line that this side caused: never suppressed.
  func emit(_ level: LogLevel, _ line: String) { write(level, line) }

  /// Logs a line that a remote party caused and could repeat at will.
  func emitRateLimited(_ level: LogLevel, _ line: String) {
    let now = MonotonicClock.milliseconds()
    let suppressed = bucket.withLock { bucket -> Int? in
      let elapsed = Double(now - bucket.filled) / 1000
      bucket.tokens = min(Self.burst, bucket.tokens + elapsed * Self.perSecond)
      bucket.filled = now
      guard bucket.tokens >= 1 else {
        bucket.suppressed += 1
        return nil
      }
      bucket.tokens -= 1
      defer { bucket.suppressed = 0 }
      return bucket.suppressed
    }
    guard let suppressed else { return }
    if suppressed > 0 {
      write(.warning, "\(CountText.of(suppressed, noun: "line")) like the next one left out")
    }
    write(level, line)
  }
}
