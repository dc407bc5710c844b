internal import Synchronization

/// Keeps replaced segments readable while a reader uses locations that may have been compacted.
///
/// The memory it keeps is bounded: once the segments kept for readers are larger than the journal itself, and
/// than `Limits.heldBytes`, the oldest reader is ended (F93). It gets the error at its next step.
final class SnapshotPin: Sendable {
  private let ended = Atomic(false)

  /// True if the locations must not be read any more. Requires the engine's lock.
  var isEnded: Bool { ended.load(ordering: .relaxed) }

  /// Fails if the locations must not be read any more. Call it under the engine's lock, before each step.
  func check(_ path: String) throws(StoreError) {
    guard isEnded else { return }
    throw StoreError(
      .snapshotEnded,
      "what it read was compacted, and the room for that is used up: begin again, and read faster", path: path
    )
  }

  /// Ends the reader: `check` fails from now on.
  func end() { ended.store(true, ordering: .relaxed) }
}

extension Engine {
  struct HeldPin {
    weak var pin: SnapshotPin?
    /// Number of segments replaced when it began: it needs those replaced later.
    var start: Int
  }

  /// Keeps segments that compaction replaces readable as long as `pin` lives and there is space.
  mutating func retainSegments(for pin: SnapshotPin) {
    pins.append(HeldPin(pin: pin, start: journal.replacedCount))
  }

  /// Bytes of replaced segments kept for readers of this process.
  var heldBytes: Int { journal.replaced.reduce(0) { $0 + $1.mapping.count } }

  /// True if a copy in this view has its name, but no slot in the shared index yet: its installation is still
  /// to come.
  private var hasUninstalledCopy: Bool {
    journal.segments.contains { $0.header.compaction > 0 && $0.slot == nil }
  }

  /// Unmaps replaced segments that are not needed any more, and ends the oldest readers while too much is
  /// kept.
  mutating func releaseReplaced() {
    pins.removeAll { $0.pin == nil }
    // A shared index refers to the replaced segments until the compacting process has installed its copy; an
    // index of this process alone, until this view has replayed the records that finished the compaction.
    guard !journal.replaced.isEmpty,
      index.isShared
        ? control.installedCompactions >= compactions && !hasUninstalledCopy : applied >= compactionsAppliedAt
    else { return }
    // The cached writer keeps replaced segments mapped. The next write builds another one in any case.
    writer = nil
    defer { publish() }
    while true {
      journal.unmapReplaced(before: pins.map(\.start).min() ?? .max)
      guard heldBytes > max(heldLimit, 4 * journal.largestSegment, journal.fileBytes),
        let oldest = pins.indices.min(by: { pins[$0].start < pins[$1].start })
      else { return }
      pins.remove(at: oldest).pin?.end()
    }
  }
}
