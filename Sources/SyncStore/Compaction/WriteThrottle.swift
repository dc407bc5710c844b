internal import Synchronization

/// Keeps writers from filling the disk faster than it is tidied: once there are too many dead bytes, they may append as many
/// bytes as compaction gains meanwhile. So they go on slowly, rather than wait for a whole compaction.
final class WriteThrottle: Sendable {
  private let isThrottling = Atomic(false)
  /// Bytes that may be appended.
  private let allowance = Atomic(0)

  /// Bytes that may be appended before compaction has made any progress.
  private static let slack = 1 << 20

  /// How long a write waits at most, and for how many excess bytes as long again.
  private static let maxWait = Duration.milliseconds(4)
  private static let bytesPerMaxWait = 64 << 10

  /// Are there so many dead bytes that writers are held back?
  @inline(__always)
  var isUrgent: Bool { isThrottling.load(ordering: .relaxed) }

  /// Holds writers back from now on, or no more.
  func set(_ isUrgent: Bool) {
    guard isThrottling.exchange(isUrgent, ordering: .relaxed) != isUrgent, isUrgent else { return }
    allowance.store(Self.slack, ordering: .relaxed)
  }

  /// So many bytes were appended.
  @inline(__always)
  func spend(_ bytes: Int) {
    if isUrgent { allowance.subtract(bytes, ordering: .relaxed) }
  }

  /// Compaction has come so much closer to what it gains.
  func grant(_ bytes: Int) {
    if isUrgent { allowance.add(bytes, ordering: .relaxed) }
  }

  /// Waits while nothing may be appended, but not when `isOver`, and not for long: a few milliseconds for each 64 KiB that were
  /// appended too much. So slow a writer does not get far, and no single write has to wait for the disk.
  func wait(isOver: () -> Bool) {
    let begin = ContinuousClock.now
    while isUrgent, !isOver() {
      let allowed = allowance.load(ordering: .relaxed)
      // By the clock: where the processors are busy, each sleep may end much later than it was asked to.
      guard allowed <= 0, ContinuousClock.now - begin < Self.maxWait * (1 - allowed / Self.bytesPerMaxWait)
      else {
        return
      }
      SystemCall.sleep(microseconds: 100)
    }
  }
}

/// How far one compaction has come, told to those who wait for it.
struct CompactionProgress {
  private let throttle: WriteThrottle
  /// What it gains.
  private let bytes: Int
  private var granted = 0.0

  /// When the records that count were copied, and when the copy is durable.
  static let copied = 0.6
  static let durable = 0.85

  init(_ pace: WriteThrottle, gaining bytes: Int) { (self.throttle, self.bytes) = (pace, bytes) }

  /// This share of it is done.
  mutating func reach(_ share: Double) {
    let new = min(share, 1)
    guard new > granted else { return }
    throttle.grant(Int(Double(bytes) * (new - granted)))
    granted = new
  }
}
