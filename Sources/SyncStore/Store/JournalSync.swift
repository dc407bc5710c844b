private import Synchronization

/// Durability of appended records, by group commit (rules R4, R7).
///
/// No lock is held while the disk works, except by the group commit itself: one caller runs the sync, the
/// others wait for it.
final class JournalSync: StorePart {
  let core: OpenStore
  private let blobs: BlobTier
  /// Group commit of the syncs made by this instance.
  private let group = GroupCommit()
  private let isScheduled = Atomic(false)
  private let durations = LockedField(DurationHistogram())
  private let requests = Atomic<UInt64>(0)

  init(_ core: OpenStore, blobs: BlobTier) { (self.core, self.blobs) = (core, blobs) }

  /// Syncs made by this instance: fewer than durable writes if writers share them.
  var count: Int { group.count }

  /// The syncs made by this instance, and the number of requests that they have served.
  var measured: (syncs: DurationHistogram, requests: UInt64) {
    (durations.withLock { $0 }, requests.load(ordering: .relaxed))
  }

  /// Waits for a sync by another thread that is under way.
  func waitForOthers() {
    try? group.wait {
      false
    } work: {
    }
  }

  /// Waits until `target`, a packed location, is durable. Callers that arrive during a sync share the next
  /// one.
  func sync(upTo target: UInt64) throws(StoreError) {
    if control.durable >= target, !control.poisoned { return }
    requests.add(1, ordering: .relaxed)
    try group.wait { () throws(StoreError) in
      try isDurable(upTo: target)
    } work: { () throws(StoreError) in
      try syncNow()
    }
  }

  /// Calls `body` once when `target` is durable, or with the reason why nothing more becomes durable.
  ///
  /// The call is made before this returns, unless another thread is running the sync: that thread then calls
  /// `body` itself, without waking another one. `body` must return at once.
  func whenDurable(
    upTo target: UInt64, _ body: @escaping @Sendable (StoreError?) -> Void
  ) {
    if control.durable < target { requests.add(1, ordering: .relaxed) }
    group.whenDone { [self] () throws(StoreError) in
      try isDurable(upTo: target)
    } work: { [self] () throws(StoreError) in
      try syncNow()
    } then: { [store = core.owner.store] error in
      // Until then the store stays open.
      withExtendedLifetime(store) { body(error) }
    }
  }

  private func isDurable(upTo target: UInt64) throws(StoreError) -> Bool {
    guard !control.poisoned else { throw poisonedError }
    return control.durable >= target
  }

  /// Least number of bytes for which it pays off to unmap the pages before they are written back.
  private static let minBytesToUnmap = 1 << 18

  private func syncNow() throws(StoreError) {
    let start = SuspendingClock.now
    try syncUnmeasured()
    let seconds = (SuspendingClock.now - start) / .seconds(1)
    durations.withLock { $0.add(seconds: seconds) }
  }

  private func syncUnmeasured() throws(StoreError) {
    try checkUsable()
    let first = Location(packed: control.durable)
    let (tail, segments) = try core.engine.withLock { engine throws(StoreError) -> (UInt64, [Segment]) in
      try catchUp(&engine)
      let place = engine.journal.index(of: first.segment) ?? 0
      return (engine.applied.packed, Array(engine.journal.segments[place...]))
    }
    try blobs.syncBlobs()
    // Segments written by compaction are durable from the beginning.
    for segment in segments where segment.header.compaction == 0 {
      let file = segment.file
      do throws(StoreError) {
        let end =
          segment.number == Location(packed: tail).segment
          ? Location(packed: tail).offset : segment.mapping.count
        let start = segment.number == first.segment ? first.offset & ~4095 : 0
        // For a few pages, writing them back in place is faster than unmapping them and faulting them in
        // again.
        if end - start >= Self.minBytesToUnmap {
          try file.sync(unchanged: start..<end, of: segment.mapping)
        } else {
          try file.sync()
        }
        let status = try file.status()
        // Segments that other processes made durable and then compacted may be gone.
        let durable = control.durable
        guard status.links > 0 || durable >= tail || Location(packed: durable).segment > segment.number else {
          throw StoreError(
            .inputOutput, "was removed while in use: restore it from a backup", path: file.path)
        }
        // Bytes that were cut off were not synced, though the sync succeeded.
        guard status.size >= segment.mapping.count else {
          throw StoreError(
            .damaged,
            "was cut short by another program while in use: \(status.size) of \(segment.mapping.count) bytes left: "
              + "restore it from a backup", path: file.path)
        }
        if let error = segment.faultError { throw error }
      } catch {
        throw poisoned(by: error, file.path)
      }
    }
    // The last segments may have been begun without their names being durable.
    if let last = segments.last?.number, control.lastDurableSegment < UInt64(last) {
      try syncNames()
      control.raiseLastDurableSegment(to: last)
    }
    // Another process may have got the failure for the same pages.
    guard !control.poisoned else { throw poisonedError }
    control.raiseDurable(to: tail)
  }

  /// Schedules a sync after a delay, unless one is scheduled already.
  func schedule(after milliseconds: Int) {
    guard !isScheduled.exchange(true, ordering: .acquiringAndReleasing) else { return }
    Background.run(after: milliseconds) { [owner = core.owner] in
      owner.store?.journalSync.syncScheduled(every: milliseconds)
    }
  }

  private func syncScheduled(every milliseconds: Int) {
    isScheduled.store(false, ordering: .releasing)
    do throws(StoreError) {
      try checkUsable()
      try sync(upTo: control.tail)
    } catch {
      // A failed sync poisons the store, and the next writer gets the error. One that could not even begin,
      // for want of a descriptor for example, was reported to no caller: it is retried.
      guard error.code != .closed, error.code != .poisoned, !control.poisoned else { return }
      StoreLog.log(.warning, path: path, "is not durable yet, and is tried again: \(error.description)")
      schedule(after: milliseconds)
    }
  }
}
