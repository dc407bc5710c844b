internal import Synchronization

/// Keeps writers from filling the disk faster than compaction frees it: with too many dead bytes, they may
/// append only as many bytes as compaction frees at the same time. So they are slowed down instead of waiting
/// for a whole compaction.
final class WriteThrottle: Sendable {
  private let isThrottling = Atomic(false)
  /// Bytes that may still be appended.
  private let allowance = Atomic(0)

  /// Bytes that may be appended before compaction has made any progress.
  private static let slack = 1 << 20

  /// The longest wait of a write, and the excess bytes that add as much again.
  private static let maxWait = Duration.milliseconds(4)
  private static let bytesPerMaxWait = 64 << 10

  /// True if there are so many dead bytes that writers are throttled.
  @inline(__always)
  var isUrgent: Bool { isThrottling.load(ordering: .relaxed) }

  /// Starts or ends throttling.
  func set(_ isUrgent: Bool) {
    guard isThrottling.exchange(isUrgent, ordering: .relaxed) != isUrgent, isUrgent else { return }
    allowance.store(Self.slack, ordering: .relaxed)
  }

  /// Subtracts appended bytes from the allowance.
  @inline(__always)
  func spend(_ bytes: Int) {
    if isUrgent { allowance.subtract(bytes, ordering: .relaxed) }
  }

  /// Adds bytes to the allowance as compaction progresses.
  func grant(_ bytes: Int) {
    if isUrgent { allowance.add(bytes, ordering: .relaxed) }
  }

  /// Waits while the allowance is used up, until `isOver` returns true, and not for long: a few milliseconds
  /// for each 64 KiB of excess. That slows a writer enough, and no single write waits for the disk.
  func wait(isOver: () -> Bool) {
    let begin = ContinuousClock.now
    while isUrgent, !isOver() {
      let allowed = allowance.load(ordering: .relaxed)
      // Measured by the clock: on a busy machine each sleep may take much longer than requested.
      guard allowed <= 0, ContinuousClock.now - begin < Self.maxWait * (1 - allowed / Self.bytesPerMaxWait)
      else {
        return
      }
      SystemCall.sleep(microseconds: 100)
    }
  }
}

/// Reports the progress of one compaction to throttled writers.
struct CompactionProgress {
  private let throttle: WriteThrottle
  /// Bytes that it gains.
  private let bytes: Int
  private var granted = 0.0

  /// Shares of progress: when the live records are copied, and when the copy is durable.
  static let copied = 0.6
  static let durable = 0.85

  init(_ pace: WriteThrottle, gaining bytes: Int) { (self.throttle, self.bytes) = (pace, bytes) }

  /// Reports that this share is done.
  mutating func reach(_ share: Double) {
    let new = min(share, 1)
    guard new > granted else { return }
    throttle.grant(Int(Double(bytes) * (new - granted)))
    granted = new
  }
}
