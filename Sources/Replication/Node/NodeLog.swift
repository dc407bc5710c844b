private import SyncStore

/// A log that a storm of lines cannot fill (F94): what strangers cause is counted beyond a bound, and said once.
final class NodeLog: Sendable {
  /// Lines that come at once, and for each second after.
  private static let burst = 20.0
  private static let perSecond = 1.0

  private struct Bucket {
    var tokens = NodeLog.burst
    var filled = MonotonicClock.milliseconds()
    var suppressed = 0
  }

  private let write: @Sendable (LogLevel, String) -> Void
  private let bucket = LockedField(Bucket())

  /// A log that ends in `write`.
  init(_ write: @escaping @Sendable (LogLevel, String) -> Void) { self.write = write }

  /// A line that the own side caused: never left out.
  func emit(_ level: LogLevel, _ line: String) { write(level, line) }

  /// A line that somebody else caused, and could cause again and again.
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
