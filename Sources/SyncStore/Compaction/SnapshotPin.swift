internal import Synchronization

/// Lives as long as somebody reads places of a view that may since have been compacted.
///
/// What it keeps is bounded: a reader that never ends is ended, the oldest first, once the segments kept for readers take
/// more room than the journal itself, and than `Limits.heldBytes` (F93). It is told at its next step.
final class SnapshotPin: Sendable {
  private let ended = Atomic(false)

  /// May the places not be read any more? To be asked under the engine's lock.
  var isEnded: Bool { ended.load(ordering: .relaxed) }

  /// May the places still be read? To be asked under the engine's lock, before each step.
  func check(_ path: String) throws(StoreError) {
    guard isEnded else { return }
    throw StoreError(
      .snapshotEnded,
      "what it read was compacted, and the room for that is used up: begin again, and read faster", path: path
    )
  }

  /// From now on they may not.
  func end() { ended.store(true, ordering: .relaxed) }
}

extension Engine {
  struct HeldPin {
    weak var pin: SnapshotPin?
    /// How many segments had been replaced when it began: it needs those that came later.
    var start: Int
  }

  /// Keeps what compaction replaces readable as long as `pin` lives, and there is room.
  mutating func retainSegments(for pin: SnapshotPin) {
    pins.append(HeldPin(pin: pin, start: journal.replacedCount))
  }

  /// Bytes of replaced segments that are kept for readers of this process.
  var heldBytes: Int { journal.replaced.reduce(0) { $0 + $1.mapping.count } }

  /// Is there a copy in this view that has its name, and no number in the index of all yet? That one's turn is still to come.
  private var hasUninstalledCopy: Bool {
    journal.segments.contains { $0.header.compaction > 0 && $0.slot == nil }
  }

  /// Unmaps what nobody needs any more, and ends the oldest readers while more is kept than there is room for.
  mutating func releaseReplaced() {
    pins.removeAll { $0.pin == nil }
    // Until whoever compacts has moved the index over, it names what was replaced; one of this process's own until this view
    // has read what made the rest of it go.
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
