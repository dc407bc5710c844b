/// The segments that one compaction copies. They are sealed: only what counts of them changes.
struct CompactionRun: Sendable {
  private let segments: [Segment]
  private let ends: [Int]
  /// Where the copy is written.
  let temporaryPath: String
  /// Does the journal begin with it?
  private let isFirst: Bool

  /// The segments at these places.
  init(_ places: Range<Int>, in engine: Engine) throws(StoreError) {
    segments = Array(engine.journal.segments[places])
    ends = places.map { engine.journal.sealedLength(at: $0) ?? SegmentHeader.length }
    temporaryPath = engine.journal.compactingPath
    isFirst = places.lowerBound == 0
  }

  var first: SegmentHeader { segments[0].header }
  var last: SegmentHeader { segments[segments.count - 1].header }
  var numbers: [UInt32] { segments.map(\.number) }
  var names: [SegmentName] { segments.map(\.header.name) }
  var fileBytes: Int { segments.reduce(0) { $0 + $1.mapping.count } }

  /// Could pages of them not be had?
  var isFaulty: Bool { segments.contains { $0.mapping.fault != nil } }

  /// Compacting them gains nothing: they are left alone from now on.
  func giveUp() { for segment in segments { segment.isWorthCompacting = false } }

  fileprivate func walker(_ index: Int) -> SegmentWalker? {
    segments.indices.contains(index) ? SegmentWalker(segments[index], limit: ends[index]) : nil
  }

  /// Does a record still count? The end of a local key does as long as a record that it ends may lie before it.
  fileprivate func counts(_ view: RecordView, in engine: Engine, losers: Set<Location>) -> Bool {
    switch view.kind {
    case .local: view.shape.map { engine.localPlaces[view.key($0)] == view.location } ?? false
    case .localRemoval: !isFirst && view.shape.map { engine.localPlaces[view.key($0)] == nil } ?? false
    case .value, .blob, .tombstone:
      view.flags.contains(.loser) ? losers.contains(view.location) : engine.isCurrent(view)
    case .actor, .checkpoint, .epoch, nil: false
    }
  }
}

/// Where the copying of a run stands.
struct CompactionWalk {
  private let run: CompactionRun
  private var index = 0
  private var walker: SegmentWalker?
  private var losers: Set<Location>?

  init(_ run: CompactionRun) {
    self.run = run
    walker = run.walker(0)
  }

  /// Copies what counts among the next `count` records. False if the run cannot be copied: bytes of it are damaged, or
  /// written by a program that knows more kinds of records.
  mutating func copy(
    _ count: Int, from engine: Engine, to copier: inout CompactedBytes, isAtEnd: inout Bool
  ) throws(StoreError) -> Bool {
    let kept = losers ?? Set(engine.losers)
    losers = kept
    for _ in 0..<count {
      guard let step = walker?.next() else {
        index += 1
        walker = run.walker(index)
        isAtEnd = walker == nil
        if isAtEnd { return true }
        continue
      }
      guard case .record(let view) = step, view.kind != nil else { return false }
      if run.counts(view, in: engine, losers: kept) { copier.keep(view) }
      if view.kind != .actor, view.kind != .epoch, !view.flags.contains(.continues), !copier.endTransaction()
      {
        return false
      }
    }
    return true
  }
}
