/// The state of a store for a backup: fixed at one position under the writers' mutex, copied afterwards.
///
/// Later writes, compaction and key rotation do not change it.
///
/// Invariants: everything in it is durable before any of it is copied (rule R7); its segments stay mapped for
/// its lifetime.
struct BackupSnapshot: Sendable {
  /// The last position.
  let position: UInt64
  /// The end up to which the journal must be made durable.
  let tail: UInt64
  /// The segments from the start, the first one from `offset` on, and the ends of their records.
  fileprivate let segments: [Segment]
  fileprivate let ends: [Int]
  fileprivate let offset: Int
  /// The local records of this copy, and the segments that hold them: they may precede the start.
  private let localMetadata: LocalMetadata
  private let table: SegmentTable
  fileprivate let losers: Set<Location>
  /// Damaged ranges whose records were received again.
  fileprivate let repairedDamage: Set<JournalDamage>

  /// Everything after `position`. Requires an up-to-date engine; the caller must hold the writers' mutex.
  init(after position: UInt64, in engine: Engine) throws(StoreError) {
    for gap in engine.damage.gaps where !engine.state.handledDamage.isResolved(gap.location) {
      throw StoreError(
        .damaged,
        "bytes \(gap.bytes) are damaged, and a backup would lack their records: run `Store.verify` first",
        path: engine.journal.path(of: gap.segment))
    }
    repairedDamage = engine.damage.gapSet
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
    losers = Set(engine.losers.locations)
    (localMetadata, table) = (engine.localMetadata, engine.journal.table)
  }

  /// Bytes of all records after the start, live or not.
  var recordBytes: Int {
    zip(segments, ends).enumerated().reduce(0) { total, part in
      total + max(0, part.element.1 - (part.offset == 0 ? offset : SegmentHeader.length))
    }
  }

  /// The local records of this copy, that of its actor first. Blocks no other thread.
  private func stateRecords() -> [(segment: Segment, offset: Int)] {
    let keys = localMetadata.all().map(\.key).filter(Self.isKept).sorted { $0.lexicographicallyPrecedes($1) }
    // The first record must identify the copy.
    return ([StateKey.actor] + keys.filter { $0 != StateKey.actor }).compactMap { key in
      guard let place = localMetadata.location(of: key), let segment = table[place.segment] else {
        return nil
      }
      return (segment, place.offset)
    }
  }

  /// Excludes invitations, which belong to the copy that issued them, marks and tokens, which belong to an
  /// actor, and damaged ranges, which belong to a file.
  private static func isKept(_ key: [UInt8]) -> Bool {
    let left =
      [StateKey.markPrefix, StateKey.damagePrefix, StateKey.backupPrefix]
      + ["invite/", "answered/"].map { Array($0.utf8) }
    return !left.contains { key.starts(with: $0) }
  }

  /// Bytes of the local records of this copy.
  var stateBytes: Int {
    stateRecords().reduce(0) { total, local in
      total + local.segment.extent(at: local.offset).end - local.offset + RecordLayout.fixedLength
    }
  }

  /// The segment with the local records of this copy.
  func state(
    _ begin: (SegmentHeader) throws(StoreError) -> CompactedSegmentBuilder, _ header: SegmentHeader,
    in store: Store
  )
    throws(StoreError) -> CompactedSegmentBuilder
  {
    var copier = try begin(header)
    for local in stateRecords() {
      let isCopied = try store.core.engine.withLock { _ throws(StoreError) in
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

/// Iterates over the records of a snapshot in the order of their positions, a few at a time under the
/// engine's lock.
struct BackupCursor {
  private let snapshot: BackupSnapshot
  private let after: UInt64
  private var index = 0
  private var walker: ResyncingRecordIterator?

  /// An element of the iteration.
  enum Step {
    /// A record that was live at the snapshot.
    case keep(RecordView)
    /// The end of a transaction, with its position.
    case end(UInt64)
  }

  private static let recordBatchSize = 64

  init(_ snapshot: BackupSnapshot, after: UInt64) {
    (self.snapshot, self.after) = (snapshot, after)
    walker = snapshot.segments.first.map {
      ResyncingRecordIterator($0, from: snapshot.offset, limit: snapshot.ends[0])
    }
  }

  /// The next few steps; nil at the end.
  ///
  /// - Throws: `.damaged` if a record cannot be read.
  mutating func next(in store: Store) throws(StoreError) -> [Step]? {
    guard walker != nil else { return nil }
    let start = self
    // The closure may be retried: only the result of the last run counts.
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

  /// Whether the record was live at the snapshot.
  ///
  /// Also true for records overwritten since, and for some overwritten shortly before: stamps decide which of
  /// several versions counts.
  private func wasLive(_ view: RecordView, _ engine: Engine) -> Bool {
    guard view.namesActor else { return false }
    // The loser of a conflict has the position of the preceding record.
    if view.flags.contains(.loser) {
      return view.position >= after && snapshot.losers.contains(view.location)
    }
    guard view.position > after else { return false }
    // Also in a full backup: records ended by a purge may be in a segment that was not compacted since.
    if view.kind == .purge { return view.position <= snapshot.position }
    if engine.isCurrent(view) { return true }
    guard let shape = view.shape, let place = engine.find(view.key(shape)),
      let held = try? engine.journal.record(at: place)
    else { return true }
    return held.position > snapshot.position
  }
}
