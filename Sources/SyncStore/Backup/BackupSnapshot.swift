/// A state of a store that a backup takes: fixed in an instant under the writers' mutex, copied at leisure. What is
/// written, compacted or re-keyed meanwhile does not change it.
///
/// Invariants: all of it is durable before any of it is copied (rule R7); segments are kept mapped as long as this lives.
struct BackupSnapshot: Sendable {
  /// The last position.
  let position: UInt64
  /// Up to where the journal is to be made durable.
  let tail: UInt64
  /// The segments behind the start, the first one from `offset` on, and where their records end.
  fileprivate let segments: [Segment]
  fileprivate let ends: [Int]
  fileprivate let offset: Int
  /// What this copy keeps of itself, and where to find the records of it: they may lie before the start.
  private let localMetadata: LocalMetadata
  private let table: SegmentTable
  fileprivate let losers: Set<Location>
  /// Places whose records were lost and came again.
  fileprivate let repairedDamage: Set<JournalDamage>

  /// What is behind `position` in a view that is up to date, for the holder of the writers' mutex.
  init(after position: UInt64, in engine: Engine) throws(StoreError) {
    for gap in engine.gaps where !engine.state.resolvedDamage.contains(gap.location) {
      throw StoreError(
        .damaged,
        "bytes \(gap.bytes) are damaged, and a backup would lack their records: run `Store.verify` first",
        path: engine.journal.path(of: gap.segment))
    }
    repairedDamage = engine.gapSet
    self.position = engine.position
    tail = engine.applied.packed
    let start = engine.start(of: position + 1)
    let first = engine.journal.index(of: start.segment) ?? 0
    let last = engine.journal.index(of: engine.applied.segment) ?? first
    segments = Array(engine.journal.segments[first...max(first, last)])
    ends = (first...max(first, last)).map { place in
      place == last ? engine.applied.offset : engine.journal.closedLength(at: place) ?? SegmentHeader.length
    }
    offset = start.offset
    losers = Set(engine.losers)
    (localMetadata, table) = (engine.localMetadata, engine.journal.table)
  }

  /// Bytes of all records after the start, whether they count or not.
  var recordBytes: Int {
    zip(segments, ends).enumerated().reduce(0) { total, part in
      total + max(0, part.element.1 - (part.offset == 0 ? offset : SegmentHeader.length))
    }
  }

  /// The records of what this copy keeps of itself, its actor's first. Nobody else waits for the look at them.
  private func stateRecords() -> [(segment: Segment, offset: Int)] {
    let keys = localMetadata.all().map(\.key).filter(Self.isKept).sorted { $0.lexicographicallyPrecedes($1) }
    // From the first record on it is known whose copy this is.
    return ([StateKey.actor] + keys.filter { $0 != StateKey.actor }).compactMap { key in
      guard let place = localMetadata.location(of: key), let segment = table[place.segment] else {
        return nil
      }
      return (segment, place.offset)
    }
  }

  /// Invitations are for the copy that gave them, marks and tokens go with an actor, and places of damage with a file.
  private static func isKept(_ key: [UInt8]) -> Bool {
    let left = [StateKey.markPrefix, StateKey.damagePrefix, StateKey.backupPrefix, Array("invite/".utf8)]
    return !left.contains { key.starts(with: $0) }
  }

  /// Bytes of the records of what this copy keeps of itself.
  var stateBytes: Int {
    stateRecords().reduce(0) { total, local in
      total + local.segment.extent(at: local.offset).end - local.offset + RecordLayout.fixedLength
    }
  }

  /// The segment that holds what this copy keeps of itself.
  func state(
    _ begin: (SegmentHeader) throws(StoreError) -> CompactedSegmentBuilder, _ header: SegmentHeader,
    in store: Store
  )
    throws(StoreError) -> CompactedSegmentBuilder
  {
    var copier = try begin(header)
    for local in stateRecords() {
      let isCopied = try store.engine.withLock { _ throws(StoreError) in
        guard let view = local.segment.record(at: local.offset, limit: local.segment.mapping.count) else {
          throw local.segment.faultError ?? Self.damaged(local.segment, local.offset)
        }
        let isCopied = copier.copy(transaction: [view])
        try local.segment.checkUnchanged(at: local.offset)
        return isCopied
      }
      guard isCopied else { throw Self.damaged(local.segment, local.offset) }
    }
    return copier
  }

  static func damaged(_ segment: Segment, _ offset: Int) -> StoreError {
    StoreError(
      .damaged, "the record at offset \(offset) is damaged: run `Store.verify`, then back up again",
      path: segment.file.path)
  }
}

/// Goes through the records of a moment in the order of their positions, a few at a time under the engine's lock.
struct BackupCursor {
  private let snapshot: BackupSnapshot
  private let after: UInt64
  private var index = 0
  private var walker: ResyncingRecordIterator?

  /// What is met on the way.
  enum Step {
    /// A record that counted at the moment.
    case keep(RecordView)
    /// A transaction is complete, at this position.
    case end(UInt64)
  }

  private static let recordBatchSize = 64

  init(_ moment: BackupSnapshot, after: UInt64) {
    (self.snapshot, self.after) = (moment, after)
    walker = moment.segments.first.map {
      ResyncingRecordIterator($0, from: moment.offset, limit: moment.ends[0])
    }
  }

  /// The next few steps; nil at the end.
  ///
  /// - Throws: `.damaged` if a record cannot be read.
  mutating func next(in store: Store) throws(StoreError) -> [Step]? {
    guard walker != nil else { return nil }
    let start = self
    // It may be done again: only what the last time gave counts.
    let (steps, walk) = try store.reading { engine throws(StoreError) -> ([Step], BackupCursor) in
      var walk = start
      return (try walk.steps(engine), walk)
    }
    self = walk
    return steps
  }

  private mutating func steps(_ engine: Engine) throws(StoreError) -> [Step] {
    var steps: [Step] = []
    for _ in 0..<Self.recordBatchSize {
      guard let step = walker?.next() else {
        index += 1
        walker =
          snapshot.segments.indices.contains(index)
          ? ResyncingRecordIterator(snapshot.segments[index], limit: snapshot.ends[index]) : nil
        if walker == nil { break }
        continue
      }
      switch step {
      case .gap(let range):
        let segment = snapshot.segments[index]
        guard snapshot.repairedDamage.contains(JournalDamage(segment: segment.number, bytes: range)) else {
          throw segment.faultError ?? BackupSnapshot.damaged(segment, range.lowerBound)
        }
      case .record(let view):
        guard view.kind != nil else {
          throw StoreError(
            .newerFormat, "a newer program wrote a kind of record that this one does not know: update it",
            path: view.segment.file.path)
        }
        if wasLive(view, engine) { steps.append(.keep(view)) }
        if view.kind != .actor, view.kind != .epoch, !view.flags.contains(.continues) {
          steps.append(.end(view.position))
        }
        try view.segment.checkUnchanged(at: view.offset)
      }
    }
    return steps
  }

  /// Did the record count at the moment? One that was overtaken since is taken, too, and some that were just before:
  /// which of several counts is told by their stamps.
  private func wasLive(_ view: RecordView, _ engine: Engine) -> Bool {
    guard view.namesActor else { return false }
    // The beaten side of a conflict bears the position of the record before it.
    if view.flags.contains(.loser) {
      return view.position >= after && snapshot.losers.contains(view.location)
    }
    guard view.position > after else { return false }
    // Also in a whole backup: what a purge has ended may lie in a segment that was not compacted since.
    if view.kind == .purge { return view.position <= snapshot.position }
    if engine.isCurrent(view) { return true }
    guard let shape = view.shape, let place = engine.find(view.key(shape)),
      let held = try? engine.journal.record(at: place)
    else { return true }
    return held.position > snapshot.position
  }
}
