/// Reads changes from the journal in small steps: a value.
///
/// Invariants: all records up to `position` were examined, and none after it; those still to be delivered are
/// in `pending`.
struct ChangeReader {
  private let range: KeyRange
  private let start: ChangePosition
  private var position: UInt64
  private var pending: [UInt64]
  /// Location of the record after `position`, if its segment is still there.
  private var place: Location?
  private var isChecked = false

  init(_ start: ChangePosition, _ range: KeyRange) {
    (self.start, self.range) = (start, range)
    (position, pending) = (start.position, start.pending)
  }

  /// Bounds of one step, which ends at the next transaction end: writers wait for it.
  private static let maxRecords = 512
  private static let maxChanges = 64
  private static let maxBytes = 256 << 10
  /// Milliseconds between checks whether a parked record is due.
  private static let pendingPollMilliseconds = 1000

  /// The next changes, or whether there may be more.
  mutating func poll(_ store: Store) throws(StoreError) -> JournalFollower<[Change]>.PollResult {
    let before = self
    let (after, changes, isAtEnd) = try store.reading { engine throws(StoreError) in
      // The closure may run more than once, each time from the beginning.
      var reader = before
      var changes: [Change] = []
      let isAtEnd = try reader.read(store, &engine, into: &changes)
      return (reader, changes, isAtEnd)
    }
    self = after
    if !changes.isEmpty { return .found(changes) }
    return isAtEnd ? .wait(milliseconds: pending.isEmpty ? nil : Self.pendingPollMilliseconds) : .more
  }

  /// Reads further records. Returns whether the end of the journal was reached.
  private mutating func read(
    _ store: Store, _ engine: inout Engine, into changes: inout [Change]
  ) throws(StoreError) -> Bool {
    let actor = try store.changeActor(engine)
    try check(engine, store.path)
    let limit = Stamp(milliseconds: store.environment.now() + Limits.clockDriftMilliseconds)
    if !pending.isEmpty {
      try collectDue(upTo: limit, store: store, engine: engine, actor: actor, into: &changes)
    }
    let from =
      if let place, engine.journal.index(of: place.segment) != nil {
        place
      } else {
        engine.start(of: position + 1)
      }
    var (looked, bytes, group) = (0, 0, changes.count)
    var isAtEnd = true
    // Copied, because the closure cannot use `inout` values.
    var (position, pending, place) = (self.position, self.pending, self.place)
    try engine.visit(from: from, isComplete: true) { view throws(StoreError) in
      guard view.kind != .actor, view.kind != .epoch else { return true }
      looked += 1
      if view.isWrite, view.position > position {
        position = view.position
        if let change = change(view, store: store, position: position, pending: pending, actor: actor) {
          if engine.isParked(view) {
            pending.append(view.position)
          } else {
            changes.append(change)
            bytes += change.key.bytes.count + Int(truncatingIfNeeded: change.blob == nil ? change.size : 0)
          }
        }
      }
      guard !view.flags.contains(.continues) else { return true }
      place = Location(segment: view.segment.number, offset: view.end)
      if changes.count > group { changes[changes.count - 1].endsTransaction = true }
      group = changes.count
      isAtEnd = looked < Self.maxRecords && changes.count < Self.maxChanges && bytes < Self.maxBytes
      return isAtEnd
    }
    (self.position, self.pending, self.place) = (position, pending, place)
    return isAtEnd
  }

  /// The change of a record; nil if it is irrelevant.
  private func change(
    _ view: RecordView, store: Store, position: UInt64, pending: [UInt64], actor: ActorID
  ) -> Change? {
    guard let shape = view.shape, let dot = view.dot, !view.isReserved(shape) else { return nil }
    let key = view.key(shape)
    guard range.contains(key), let content = view.content(shape) else { return nil }
    return Change(
      key: Key(unchecked: key), kind: content == .tombstone ? .delete : .put,
      position: ChangePosition(actor: actor, position: position, stamp: view.stamp, pending: pending),
      stamp: view.stamp, dot: dot, type: view.type, deadline: view.deadline(shape), content: content,
      store: store)
  }

  /// Collects parked records that have become due, and drops those that no longer count.
  private mutating func collectDue(
    upTo limit: Stamp, store: Store, engine: borrowing Engine, actor: ActorID,
    into changes: inout [Change]
  ) throws(StoreError) {
    // The position of each change delivered lists those still pending.
    let stamp = try engine.write(at: position)?.stamp ?? .zero
    for early in pending {
      guard let view = try engine.write(at: early), let shape = view.shape else {
        pending.removeAll { $0 == early }
        continue
      }
      guard view.stamp <= limit else { continue }
      pending.removeAll { $0 == early }
      guard engine.greatest(view.key(shape))?.dot == view.dot,
        let change = change(view, store: store, position: position, pending: pending, actor: actor)
      else { continue }
      var due = change
      due.position = ChangePosition(actor: actor, position: position, stamp: stamp, pending: pending)
      due.endsTransaction = true
      changes.append(due)
    }
  }

  /// Fails if the journal has lost changes since the position.
  private mutating func check(_ engine: borrowing Engine, _ path: String) throws(StoreError) {
    // A reader at the beginning holds nothing that could have been deleted.
    if let purged = engine.state.purged.position, purged > position, position > 0 {
      throw StoreError(
        .changesLost,
        "deletes behind this position are not kept any more: take a snapshot, and go on from `changePosition()`",
        path: path)
    }
    guard !isChecked else { return }
    isChecked = true
    guard let actor = start.actor else { return }
    let known = try engine.write(at: start.position)?.stamp
    guard actor == engine.state.actor || engine.state.incarnations.all.contains(actor),
      start.position <= engine.position,
      start.stamp == .zero || known == nil || known == start.stamp
    else {
      throw StoreError(
        .rolledBack,
        "the position is one of another copy, or of writes that a loss of power took: take a snapshot, and go on from "
          + "`changePosition()`", path: path)
    }
  }
}

extension Engine {
  /// The write at a position; nil if it was superseded and is gone.
  func write(at position: UInt64) throws(StoreError) -> RecordView? {
    guard position > 0 else { return nil }
    var found: RecordView?
    try visit(from: start(of: position)) { view throws(StoreError) in
      guard view.isWrite, view.position >= position else { return true }
      if view.position == position { found = view }
      return false
    }
    return found
  }

  /// Whether the record was parked when it was received.
  func isParked(_ view: RecordView) -> Bool {
    guard !parked.isEmpty, let shape = view.shape else { return false }
    return parked[view.key(shape)]?.contains { $0 == view.location || isCopy(of: view, at: $0) } ?? false
  }

  /// Positions of parked records, in order.
  func parkedPositions() throws(StoreError) -> [UInt64] {
    parked.locations.compactMap { try? journal.record(at: $0).position }.sorted()
  }
}

extension RecordView {
  /// Content of the record; nil if it is inconsistent.
  fileprivate func content(_ shape: RecordShape) -> Record.Content? {
    switch kind {
    case .value: .inline(value(shape))
    case .blob: BlobReference(recorded: value(shape)).map { .blob($0) }
    case .tombstone: .tombstone
    default: nil
    }
  }
}
