/// The segments that one compaction copies, and what counts of them. They are sealed: what counted when this was made is all
/// that ever will, so whoever walks through them takes no lock. What stops to count meanwhile is found out when the copy is
/// adopted.
struct CompactionRun: Sendable {
  private let segments: [Source]
  /// Where the copy is written.
  let temporaryPath: String
  /// Does the journal begin with it?
  private let isFirst: Bool
  /// What counted at this position is all that counts of them.
  let position: UInt64
  /// Purges up to this position are needed no more: the segments before the run hold nothing that they speak of, nor does a
  /// backup.
  private let expiredPurges: UInt64
  /// Names the places of all records that count for their keys. Lock-free readers may use it while others change it.
  let hashIndex: HashIndex
  /// The beaten sides of conflicts that count though the index does not name them.
  private let kept: Set<Location>
  /// Those whose time has not come.
  private let parked: Set<Location>
  /// What the copy has noted for itself.
  private let localMetadata: LocalMetadata
  /// Bytes that can be gained.
  let deadBytes: Int

  /// A segment, with what the index called it.
  struct Source: Sendable {
    let segment: Segment
    let slot: Int
    let end: Int
    /// Those that it numbers, as they were when this was made: the engine may take in definitions while this is copied.
    let actors: [ActorID?]
    /// Damage whose records came again from a peer, by where it begins: it is passed over.
    let resolved: [Int: Range<Int>]

    /// What the index called the record at `offset`.
    func ref(at offset: Int) -> UInt64 { SegmentTable.ref(slot: slot, offset: offset) }
  }

  /// The segments at these places.
  init(_ places: Range<Int>, in engine: inout Engine) throws(StoreError) {
    var sources: [Source] = []
    var dead = 0
    for place in places {
      let segment = engine.journal.segments[place]
      // Whoever begins a segment has given the one before it its number, unless the index could not be used.
      guard let slot = segment.slot else {
        throw engine.indexMismatchError("has no number for segment \(segment.number)")
      }
      let end = engine.journal.closedLength(at: place) ?? SegmentHeader.length
      sources.append(
        Source(
          segment: segment, slot: slot, end: end, actors: segment.actors,
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
    parked = Set(engine.parked.values.joined())
    localMetadata = engine.localMetadata
  }

  var first: SegmentHeader { segments[0].segment.header }
  var last: SegmentHeader { segments[segments.count - 1].segment.header }
  var numbers: [UInt32] { segments.map(\.segment.number) }
  var names: [SegmentName] { segments.map(\.segment.header.name) }
  var fileBytes: Int { segments.reduce(0) { $0 + $1.segment.mapping.count } }

  /// Could pages of them not be had?
  var isFaulty: Bool { segments.contains { $0.segment.mapping.fault != nil } }

  /// Compacting them gains nothing: they are left alone from now on.
  func markNotWorthCompacting() { for source in segments { source.segment.isWorthCompacting = false } }

  fileprivate subscript(index: Int) -> Source? { index < segments.count ? segments[index] : nil }

  /// Is the record at a place of the index the one that counts for the key with this hash?
  @inline(__always)
  fileprivate func isIndexed(_ hash: UInt64, at place: UInt64) throws(StoreError) -> Bool {
    try hashIndex.find(hash) { $0 == place } != nil
  }

  fileprivate func isParked(_ location: Location) -> Bool { !parked.isEmpty && parked.contains(location) }

  /// How a record counts that is not of the ordinary form.
  fileprivate func liveness(of view: RecordView, at place: UInt64) throws(StoreError) -> CompactedRecord
    .Liveness?
  {
    switch view.kind {
    case .local:
      guard let shape = view.shape else { return nil }
      return localMetadata.location(of: view.key(shape)) == view.location ? .byLocation : nil
    case .localRemoval:
      // The end of a local key counts as long as a record that it ends may lie before it.
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

/// A record that counts, on its way into the copy.
struct CompactedRecord {
  /// Why it counts.
  enum Liveness {
    /// The index names it for the key with this hash.
    case indexed(UInt64)
    /// A view knows it by its place.
    case byLocation
  }

  var offset: Int
  var liveness: Liveness
}

/// Where the copying of a run stands.
struct CompactionCursor {
  private let run: CompactionRun
  private var index = 0
  private var source: CompactionRun.Source?
  private var offset = SegmentHeader.length
  /// Records read ahead, so that the lines of the index that they need come all at once.
  private var ahead: [Ahead] = []

  /// A record that was read.
  private struct Ahead {
    var offset: Int
    /// Of its key; nil if it is not of the ordinary form.
    var hash: UInt64?
    /// Does it belong to a transaction that goes on behind it?
    var continues: Bool
  }

  init(_ run: CompactionRun) {
    self.run = run
    source = run[0]
    ahead.reserveCapacity(Self.readAhead)
  }

  /// Of how many records the lines are fetched at once.
  private static let readAhead = 32

  /// How much of the run was copied so far, from 0 to 1.
  var progress: Double {
    guard let source else { return 1 }
    let passed = (0..<index).reduce(0) { $0 + (run[$1]?.end ?? 0) }
    let all = (0..<run.numbers.count).reduce(0) { $0 + (run[$1]?.end ?? 0) }
    return Double(passed + min(offset, source.end)) / Double(max(all, 1))
  }

  /// Copies what counts among the next records. False if the run cannot be copied: bytes of it are damaged, or written by a
  /// program that knows more kinds of records.
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
    for record in ahead {
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
    // What came before the damage counts, as it does for who reads it.
    return !endsAtDamage || copier.endTransaction(of: source)
  }

  /// Reads the next records, up to damage that is resolved. False if what stands there is none.
  private mutating func read(_ source: CompactionRun.Source, _ endsAtDamage: inout Bool) -> Bool {
    ahead.removeAll(keepingCapacity: true)
    var reader = RecordIterator(source.segment, from: offset, limit: source.end)
    let isPlain = source.segment.cipher == nil
    while ahead.count < Self.readAhead, offset < source.end {
      guard let bytes = reader.next() else {
        guard let damage = source.resolved[offset] else { return false }
        (offset, endsAtDamage) = (damage.upperBound, true)
        return true
      }
      let flags = RecordLayout.Flags(rawValue: bytes.load(RecordLayout.flags))
      var hash: UInt64?
      if isPlain, !flags.contains(.loser), let record = SimpleRecord(bytes, seed: nil) {
        hash = record.withKey { run.hashIndex.hash($0) }
        if let hash { run.hashIndex.prefetch(hash) }
      }
      ahead.append(Ahead(offset: offset, hash: hash, continues: flags.contains(.continues)))
      offset = reader.offset
    }
    return true
  }
}
