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
