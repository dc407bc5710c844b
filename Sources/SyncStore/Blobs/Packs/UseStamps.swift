internal import Synchronization

/// Issues the stamps by which objects are ordered by last use. Lock-free.
struct UseStamps: ~Copyable, Sendable {
  private let last = Atomic<UInt64>(0)
  /// Time of the monotonic clock before which uses are not recorded, after recording one failed.
  private let recordingResumesAt = Atomic<UInt64>(0)

  /// A stamp above all that were issued or observed: the order of last use is exact.
  ///
  /// - Parameter milliseconds: The time of the wall clock.
  func next(at milliseconds: UInt64) -> UInt64 {
    let now = milliseconds << 16
    while true {
      let last = last.load(ordering: .relaxed)
      let next = max(last &+ 1, now)
      if self.last.compareExchange(expected: last, desired: next, ordering: .relaxed).exchanged {
        return next
      }
    }
  }

  /// Raises the stamps that will be issued above one that was found in a pack.
  func observe(_ stamp: UInt64) {
    // No checksum guards a word: an implausible stamp must not make later ones overflow.
    guard stamp < PackLayout.greatestStamp else { return }
    // One atomic maximum: with a separate load and store, another thread could issue a greater stamp in
    // between, which would be issued twice.
    last.max(stamp, ordering: .relaxed)
  }

  var isRecordingPaused: Bool {
    let resumesAt = recordingResumesAt.load(ordering: .relaxed)
    return resumesAt != 0 && SystemCall.monotonicMilliseconds() < resumesAt
  }

  func pauseRecording() {
    recordingResumesAt.store(
      SystemCall.monotonicMilliseconds() + Self.recordingPauseMilliseconds, ordering: .relaxed)
  }

  private static let recordingPauseMilliseconds: UInt64 = 60_000
}
