/// Delta scan of one part of the journal, by one thread.
struct DeltaScanTask {
  private let filter: DeltaFilter
  private let context: DeltaScanContext
  /// The live records, if known.
  private let current: LiveRecordBitmap?
  /// Everything up to this position was scanned before.
  private let reached: UInt64
  /// Number of the next transaction.
  private(set) var group: UInt32
  private(set) var items: [DeltaStream.Item] = []
  /// Number of scanned records that are in `current`.
  private(set) var named = 0
  private var candidates: [Candidate] = []
  /// Whether the pin ended, so that compacted segments may be gone.
  private var isOver = false

  private struct Candidate {
    /// Hash of the key.
    var hash: UInt64
    /// Record ref as the index stores it.
    var ref: UInt64
    var item: DeltaStream.Item
  }

  /// Records looked up in one batch: their cache misses overlap, and the engine lock is held for at most this
  /// many.
  private static let recordsPerLookup = 64

  init(
    _ choice: DeltaFilter, context: DeltaScanContext, current: LiveRecordBitmap?, reached: UInt64,
    group: UInt32,
    expected: Int
  ) {
    (self.filter, self.context, self.current) = (choice, context, current)
    (self.reached, self.group) = (reached, group)
    items.reserveCapacity(expected)
  }

  /// False if the scan needs the engine lock.
  mutating func scan(through stretch: JournalSlice, in deltas: DeltaSource) throws(StoreError) -> Bool {
    for source in stretch.sources {
      guard try scanSource(through: source, in: deltas) else { return false }
    }
    try resolveCandidates(deltas)
    return !isOver
  }

  private mutating func scanSource(
    through source: JournalSlice.Source, in deltas: DeltaSource
  ) throws(StoreError) -> Bool {
    let most = min(Self.recordsPerLookup, Int(clamping: deltas.environment.scanBatchPositions))
    // Local copies: no reference count per record.
    let (choice, unconfirmed, keys, reached) = (filter, context.unconfirmedRanges, context.keys, reached)
    let (segment, actors) = (source.segment, source.actors)
    guard let slot = source.slot else { return false }
    let (isPlain, base, known) = (segment.cipher == nil, segment.header.basePosition, current)
    var named = 0
    defer { self.named += named }
    // Records in the bitmap were just verified and are verified again before they are sent.
    var reader = RecordIterator(
      segment, from: source.bytes.lowerBound, limit: source.bytes.upperBound, verifies: known == nil)
    while case let offset = reader.offset, let record = reader.next() {
      let plain = isPlain ? SimpleRecord(record, seed: nil, orBlob: true) : nil
      let view = plain == nil ? RecordView(segment: segment, offset: offset) : nil
      guard let summary = plain.map({ RecordSummary($0, base: base) }) ?? view.flatMap({ RecordSummary($0) })
      else { return false }
      defer { if !summary.continues { group &+= 1 } }
      let place = SegmentTable.ref(slot: slot, offset: offset)
      if let known {
        guard known.contains(place) else { continue }
        named &+= 1
      }
      guard summary.isOfKey, summary.position > reached, summary.actor < actors.count,
        let dot = actors[summary.actor].map({ Dot(actor: $0, sequence: summary.sequence) }),
        let isPresent = choice.isPresent(
          at: summary.position, dot: dot, key: RecordView(segment: segment, offset: offset).keyBytes),
        !unconfirmed.contains(where: { $0.includes(dot) })
      else { continue }
      let item = DeltaStream.Item(
        location: Location(segment: segment.number, offset: offset), position: summary.position, group: group,
        bytes: UInt32(truncatingIfNeeded: reader.offset &- offset), isPresent: isPresent)
      guard known == nil else {
        items.append(item)
        continue
      }
      let ofPlain = plain?.withKey { keys.hash($0) }
      guard let hash = ofPlain ?? view.flatMap({ $0.hash(keys) }) else { continue }
      keys.prefetch(hash)
      candidates.append(Candidate(hash: hash, ref: place, item: item))
      if candidates.count >= most { try resolveCandidates(deltas) }
    }
    return reader.offset >= source.bytes.upperBound && segment.mapping.fault == nil
  }

  /// The fields of a record that the scan needs.
  private struct RecordSummary {
    /// A write of a key that is no conflict loser.
    var isOfKey: Bool
    var continues: Bool
    var actor: Int
    var position: UInt64
    var sequence: UInt64

    @inline(__always)
    init(_ record: SimpleRecord, base: UInt64) {
      isOfKey = !record.flags.contains(.loser)
      continues = record.flags.contains(.continues)
      actor = Int(record.actorNumber)
      position = base &+ record.bytes.recordPosition()
      sequence = record.bytes.recordSequence()
    }

    /// Nil if the record is unreadable.
    init?(_ view: RecordView) {
      guard view.isReadable else { return nil }
      (isOfKey, continues) = (view.isOfKey && view.shape != nil, view.flags.contains(.continues))
      (actor, position, sequence) = (Int(view.actorNumber), view.position, view.sequence)
    }
  }

  /// Adds the candidates that are current to `items`.
  private mutating func resolveCandidates(_ deltas: DeltaSource) throws(StoreError) {
    defer {
      candidates.removeAll(keepingCapacity: true)
      deltas.yieldEngineLock()
    }
    var unsure: [Candidate] = []
    for candidate in candidates {
      let found = try? context.keys.find(candidate.hash) { $0 == candidate.ref }
      if found != candidate.ref { unsure.append(candidate) }
    }
    guard !unsure.isEmpty else {
      for candidate in candidates { items.append(candidate.item) }
      return
    }
    // Superseded, moved by a compaction, parked, or the index must be rebuilt: decide under the engine lock.
    let pin = context.pin
    let answers = try deltas.reading { engine throws(StoreError) in
      // Compacted segments may be gone.
      if pin.isEnded { return [Bool]() }
      return unsure.map { engine.isCurrent(at: $0.item.location, $0.hash) }
    }
    if answers.isEmpty { isOver = true }
    let gone = Set(zip(unsure, answers).lazy.filter { !$0.1 }.map { $0.0.ref })
    for candidate in candidates where !gone.contains(candidate.ref) { items.append(candidate.item) }
  }
}

extension RecordView {
  /// Hash of the key; nil if the record has no readable key.
  fileprivate func hash(_ keys: HashIndex) -> UInt64? {
    shape.map { shape in bytes.withSpan(shape.key) { keys.hash($0) } }
  }
}
