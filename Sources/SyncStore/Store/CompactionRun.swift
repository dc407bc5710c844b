/// The segments that one compaction copies, and which of their records are live. They are closed: no record
/// can become live after this was made, so iterating over them takes no lock. Records that die during the
/// copy are detected when the copy is installed.
struct CompactionRun: Sendable {
  private let segments: [CompactionSource]
  /// File that the copy is written to.
  let temporaryPath: String
  /// True if the run begins with the first segment of the journal.
  private let isFirst: Bool
  /// Records live at this position are the only ones that can be live.
  let position: UInt64
  /// Purges up to this position are not needed any more: neither the segments before the run nor a backup
  /// hold the records that they purge.
  private let expiredPurges: UInt64
  /// Refers to all current records. Lock-free readers may use it while it is changed.
  let hashIndex: HashIndex
  /// Conflict losers that are kept although the index does not refer to them.
  private let kept: Set<Location>
  /// Locations of parked records.
  private let parked: Set<Location>
  /// The copy's local records.
  private let localMetadata: LocalMetadata
  /// Bytes that compaction can gain.
  let deadBytes: Int

  /// A run of the segments at these indices.
  init(_ places: Range<Int>, in engine: inout Engine) throws(StoreError) {
    var sources: [CompactionSource] = []
    var dead = 0
    for place in places {
      let segment = engine.journal.segments[place]
      // Beginning a segment assigned a slot to the one before it, unless the index was unusable.
      guard let slot = segment.slot else {
        throw engine.indexMismatchError("has no number for segment \(segment.number)")
      }
      let end = engine.journal.closedLength(at: place) ?? SegmentHeader.length
      sources.append(
        CompactionSource(
          segment: segment, slot: slot, end: end, actors: segment.actors.all,
          resolved: engine.resolvedDamage(in: segment.number)))
      dead += max(0, segment.mapping.count - max(0, segment.liveBytes))
    }
    segments = sources
    deadBytes = dead
    temporaryPath = engine.journal.compactingPath
    isFirst = places.lowerBound == 0
    position = engine.position
    let before = engine.journal.segments[..<places.lowerBound].map(\.header.compactedAt).min()
    expiredPurges = min(before ?? .max, Store.oldestBackupPosition(engine.localMetadata))
    hashIndex = engine.index.hashIndex
    kept = Set(engine.keptConflicts())
    parked = Set(engine.parked.locations)
    localMetadata = engine.localMetadata
  }

  var first: SegmentHeader { segments[0].segment.header }
  var last: SegmentHeader { segments[segments.count - 1].segment.header }
  var numbers: [UInt32] { segments.map(\.segment.number) }
  var names: [SegmentName] { segments.map(\.segment.header.name) }
  var fileBytes: Int { segments.reduce(0) { $0 + $1.segment.mapping.count } }

  /// True if pages of them could not be read.
  var isFaulty: Bool { segments.contains { $0.segment.mapping.fault != nil } }

  /// Excludes the segments from further compactions, since nothing is gained.
  func markNotWorthCompacting() {
    for source in segments { source.segment.compaction.isWorthRepeating = false }
  }

  fileprivate subscript(index: Int) -> CompactionSource? { index < segments.count ? segments[index] : nil }

  /// True if the record at this ref is the current one of the key with this hash.
  @inline(__always)
  fileprivate func isIndexed(_ hash: UInt64, at place: UInt64) throws(StoreError) -> Bool {
    try hashIndex.find(hash) { $0 == place } != nil
  }

  fileprivate func isParked(_ location: Location) -> Bool { !parked.isEmpty && parked.contains(location) }

  /// The liveness of a record that is no simple record; nil if it is dead.
  fileprivate func liveness(of view: RecordView, at place: UInt64) throws(StoreError) -> CompactedRecord
    .Liveness?
  {
    switch view.kind {
    case .local:
      guard let shape = view.shape else { return nil }
      return localMetadata.location(of: view.key(shape)) == view.location ? .byLocation : nil
    case .localRemoval:
      // A removal of a local key is live as long as a record that it removes may precede it.
      guard !isFirst, let shape = view.shape else { return nil }
      return localMetadata[view.key(shape)] == nil ? .byLocation : nil
    case .value, .blob, .tombstone:
      if view.flags.contains(.loser) { return kept.contains(view.location) ? .byLocation : nil }
      if isParked(view.location) { return .byLocation }
      guard let shape = view.shape else { return nil }
      let hash = view.bytes.withSpan(shape.key) { hashIndex.hash($0) }
      return try isIndexed(hash, at: place) ? .indexed(hash) : nil
    case .purge: return view.position <= expiredPurges ? nil : .byLocation
    case .actor, .checkpoint, .epoch, nil: return nil
    }
  }
}

/// Progress of copying a run.
struct CompactionCursor {
  private let run: CompactionRun
  private var index = 0
  private var source: CompactionSource?
  private var offset = SegmentHeader.length
  /// Records read ahead, so that their cache misses in the index overlap.
  private var prefetched: [PrefetchedRecord] = []

  /// A record that was read ahead.
  private struct PrefetchedRecord {
    var offset: Int
    /// Hash of its key; nil if it is no simple record.
    var hash: UInt64?
    /// True if its transaction continues after it.
    var continues: Bool
  }

  init(_ run: CompactionRun) {
    self.run = run
    source = run[0]
    prefetched.reserveCapacity(Self.readAhead)
  }

  /// Number of records whose cache lines are fetched together.
  private static let readAhead = 32

  /// Copied share of the run, from 0 to 1.
  var progress: Double {
    guard let source else { return 1 }
    let passed = (0..<index).reduce(0) { $0 + (run[$1]?.end ?? 0) }
    let all = (0..<run.numbers.count).reduce(0) { $0 + (run[$1]?.end ?? 0) }
    return Double(passed + min(offset, source.end)) / Double(max(all, 1))
  }

  /// Copies the live ones among the next records. Returns false if the run cannot be copied: its bytes are
  /// damaged, or were written by a program that knows more kinds of records.
  mutating func copyNext(to copier: inout CompactedSegmentBuilder, isAtEnd: inout Bool) throws(StoreError)
    -> Bool
  {
    guard let source else {
      isAtEnd = true
      return true
    }
    guard offset < source.end else {
      index += 1
      (self.source, offset) = (run[index], SegmentHeader.length)
      return true
    }
    var endsAtDamage = false
    guard read(source, &endsAtDamage) else { return false }
    for record in prefetched {
      let place = source.ref(at: record.offset)
      if let hash = record.hash {
        if try run.isIndexed(hash, at: place) {
          copier.add(CompactedRecord(offset: record.offset, liveness: .indexed(hash)))
        } else if run.isParked(Location(segment: source.segment.number, offset: record.offset)) {
          copier.add(CompactedRecord(offset: record.offset, liveness: .byLocation))
        }
      } else {
        let view = RecordView(segment: source.segment, offset: record.offset)
        guard view.isReadable, let kind = view.kind else { return false }
        if let liveness = try run.liveness(of: view, at: place) {
          copier.add(CompactedRecord(offset: record.offset, liveness: liveness))
        }
        if kind == .actor || kind == .epoch { continue }
      }
      if !record.continues, !copier.endTransaction(of: source) { return false }
    }
    // The part of a transaction before damage is live, as it is for readers.
    return !endsAtDamage || copier.endTransaction(of: source)
  }

  /// Reads the next records, up to resolved damage. Returns false at bytes that are no record.
  private mutating func read(_ source: CompactionSource, _ endsAtDamage: inout Bool) -> Bool {
    prefetched.removeAll(keepingCapacity: true)
    var reader = RecordIterator(source.segment, from: offset, limit: source.end)
    let isPlain = source.segment.cipher == nil
    while prefetched.count < Self.readAhead, offset < source.end {
      guard let bytes = reader.next() else {
        guard let damage = source.resolved[offset] else { return false }
        (offset, endsAtDamage) = (damage.upperBound, true)
        return true
      }
      let flags = bytes.recordKinds().flags
      var hash: UInt64?
      if isPlain, !flags.contains(.loser), let record = SimpleRecord(bytes, seed: nil) {
        hash = record.withKey { run.hashIndex.hash($0) }
        if let hash { run.hashIndex.prefetch(hash) }
      }
      prefetched.append(PrefetchedRecord(offset: offset, hash: hash, continues: flags.contains(.continues)))
      offset = reader.offset
    }
    return true
  }
}
