internal import Synchronization

/// Decides when a compaction is due, and throttles writers until it is done. Holds no lock while it calls
/// other parts.
final class CompactionSchedule: StorePart {
  let core: OpenStore
  /// Slows writers down while there are too many dead bytes.
  let throttle = WriteThrottle()
  private let isScheduled = Atomic(false)

  init(_ core: OpenStore) { self.core = core }

  /// Called by the work once nothing more is due.
  func end() {
    isScheduled.store(false, ordering: .releasing)
    throttle.set(false)
  }

  /// Schedules a compaction if it is due.
  func consider(_ engine: inout Engine) {
    let (dead, live) = engine.reviewDeadBytes()
    guard CompactionPlan.isDue(dead: dead, live: live) else { return }
    schedule(
      isUrgent: environment.compactionMode == .byNextWriter
        || CompactionPlan.isUrgent(dead: dead, live: live, largestSegment: configuration.segmentBytes))
  }

  /// Schedules a background compaction. If it `isUrgent`, writers are throttled until it is done.
  func schedule(isUrgent: Bool) {
    guard environment.compactionMode != .onRequest else { return }
    throttle.set(isUrgent)
    guard !isScheduled.exchange(true, ordering: .acquiringAndReleasing),
      environment.compactionMode == .background
    else { return }
    Background.runMaintenance { [owner = core.owner] in owner.store?.compactor.compactWhileDue() }
  }

  /// Write throttle: called before a writer takes the mutex, so that the disk does not fill faster than
  /// compaction reclaims it.
  func throttleWriter() {
    guard throttle.isUrgent else { return }
    if environment.compactionMode == .background {
      throttle.wait { core.closed.load(ordering: .relaxed) }
    } else {
      core.owner.store?.compactor.compactWhileDue()
    }
  }
}
