package import SyncStore

/// Decides about the own stream: what the relay says of it, and whether a checkpoint is due (rules L2, L5,
/// L6, L11). Pure.
package struct RelayPublisher {
  /// The own stream, as a relay shows it that has lost nothing of it (`RelayReader.loss`).
  package enum OwnStream: Sendable {
    /// It is as this copy left it, or does not exist yet.
    case asKnown
    /// The entry that was being published is there: this copy died after its creation.
    case published(RelayEntry)
    /// It has entries that this copy did not write: this copy was rolled back.
    case continuedByAnother
  }

  private let view: RelayView
  private let progress: RelayProgress

  /// A publisher, with what was read of the relay.
  package init(_ view: RelayView, _ progress: RelayProgress) { (self.view, self.progress) = (view, progress) }

  /// The own stream, as the relay shows it.
  package var ownStream: OwnStream {
    guard let stream = progress.stream else { return .asKnown }
    guard let head = view.streams[stream]?.head else { return .asKnown }
    let (known, there) = (progress.last?.number ?? 0, head.last?.number ?? 0)
    guard there > known else { return .asKnown }
    guard there == known + 1, let entry = head.run.entry(there), progress.isOwn(entry.place.mark) else {
      return .continuedByAnother
    }
    return .published(entry)
  }

  /// The newest checkpoint that stands and was read.
  package var standingCheckpoint: RelayCheckpoint? {
    for (name, _) in view.namedCheckpoints {
      if let read = view.checkpoints[name], let checkpoint = read, view.stands(checkpoint) {
        return checkpoint
      }
    }
    return nil
  }

  /// The newest checkpoint that was not read and may be newer than the standing one; nil if there is none.
  package var unreadCheckpoint: (name: RelayView.CheckpointName, reference: RelayCheckpointReference)? {
    for (name, reference) in view.namedCheckpoints {
      guard let read = view.checkpoints[name] else { return (name, reference) }
      if let checkpoint = read, view.stands(checkpoint) { return nil }
    }
    return nil
  }

  /// Whether entries after the newest checkpoint, with one more of `bytes` bytes, are so many that another
  /// checkpoint is due.
  package func isCheckpointDue(adding bytes: UInt64) -> Bool {
    let newest = standingCheckpoint
    let places = newest?.places ?? [:]
    var (entries, published): (UInt64, UInt64) = (1, bytes)
    for (stream, known) in view.streams {
      let head = known.head
      let (last, stood) = (head.last?.number ?? 0, places[stream]?.number ?? 0)
      entries += last - min(last, stood)
      published += head.total - min(head.total, newest?.totals[stream] ?? 0)
    }
    return entries >= RelayLimits.checkpointEntries
      || published > max(RelayLimits.checkpointBytes, (newest?.bytes ?? 0) / 2)
  }

  /// The bytes published in each stream up to these places. Totals are those of the heads: a place before the
  /// head's last entry counts as more than it is, which only makes the next checkpoint later.
  package func totals(at places: [StreamID: RelayProgress.Place]) -> [StreamID: UInt64] {
    Dictionary(uniqueKeysWithValues: places.keys.map { ($0, view.streams[$0]?.head.total ?? 0) })
  }
}

/// What can be deleted of the own stream (rule L11). Pure.
package struct RelayCollection: Hashable, Sendable {
  /// Names of objects to delete, once the head no longer names them.
  package var deletions: [String] = []
  /// The runs that stay.
  package var runs: [RelayRunReference] = []
  /// The checkpoints that stay.
  package var checkpoints: [RelayCheckpointReference] = []

  /// Decides what goes.
  ///
  /// - Parameters:
  ///   - head: the head of the stream.
  ///   - view: what was read of the relay; the tables of all named checkpoints, and the runs of this stream.
  ///   - readers: for each active member the last entry of this stream that it has read; nil for one that has
  ///     read none.
  ///   - ages: milliseconds since objects were written, by the store's clock; an object whose age is unknown
  ///     stays.
  package init(
    of head: RelayHead, in view: RelayView, readers: [UInt64?], ages: StringDictionary<UInt64>
  ) {
    let stream = head.stream
    let standing = view.namedCheckpoints.compactMap { name, _ in
      view.checkpoints[name].flatMap { $0 }.flatMap { view.stands($0) ? $0 : nil }
    }
    checkpoints = Self.keptCheckpoints(of: head, in: view, ages: ages)
    let kept = Set(checkpoints.map { RelayName.checkpoint(stream, $0.place) })
    let covered = standing.compactMap { $0.places[stream]?.number }.max() ?? 0
    let read = readers.map { $0 ?? 0 }.min() ?? UInt64.max
    // A part stays as long as a checkpoint that stays refers to it.
    let referred = StringSet(
      view.checkpoints.values.compactMap { $0 }.filter {
        kept.contains(RelayName.checkpoint($0.stream, $0.state.place)) || $0.stream != stream
      }.flatMap { $0.state.parts.map(\.name) })
    for reference in head.runs {
      let name = RelayName.run(stream, reference.numbers)
      let isOld = ages[name].map { $0 > Limits.retirementMilliseconds } ?? false
      let last = reference.numbers.upperBound
      guard last <= covered, last <= read || isOld,
        let run = view.streams[stream]?.runs[reference.numbers.lowerBound]
      else {
        runs.append(reference)
        continue
      }
      deletions.append(name)
      deletions += run.entries.flatMap(\.parts).map(\.name).filter { !referred.contains($0) }
    }
    for reference in head.checkpoints where !checkpoints.contains(reference) {
      deletions.append(RelayName.checkpoint(stream, reference.place))
      let name = RelayView.CheckpointName(stream: stream, place: reference.place)
      let parts = view.checkpoints[name].flatMap { $0 }?.state.parts ?? []
      let mine = parts.map(\.name).filter { $0.hasPrefix("c/") }
      deletions += mine
    }
  }

  /// The checkpoints of the stream that stay: the two newest, those that are not old, and those that no newer
  /// one of the stream replaces.
  private static func keptCheckpoints(
    of head: RelayHead, in view: RelayView, ages: StringDictionary<UInt64>
  ) -> [RelayCheckpointReference] {
    func table(_ reference: RelayCheckpointReference) -> RelayCheckpoint? {
      view.checkpoints[RelayView.CheckpointName(stream: head.stream, place: reference.place)].flatMap { $0 }
    }
    let newest = head.checkpoints.suffix(2)
    return head.checkpoints.filter { reference in
      if newest.contains(reference) { return true }
      let age = ages[RelayName.checkpoint(head.stream, reference.place)]
      guard let age, age > RelayLimits.checkpointMilliseconds else { return true }
      guard let old = table(reference), let new = newest.last.flatMap({ table($0) }), view.stands(new) else {
        return true
      }
      return !old.places.allSatisfy { (new.places[$0.key]?.number ?? 0) >= $0.value.number }
    }
  }
}

extension RelayEntry {
  /// The objects with its records; empty if they are in the entry.
  package var parts: [RelayPart] {
    if case .parts(let parts) = content { parts } else { [] }
  }
}
