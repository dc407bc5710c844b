package import SyncStore

extension Store {
  /// Receives one round from `sender` as a session would: the changes, or with `expansion` the missing keys.
  /// `batches` limits how many batches are delivered before the connection breaks; nil delivers all and
  /// closes the round. `afterFirst` is called after the first batch was applied.
  package func receive(
    from sender: Store, expansion: ScopeExpansion? = nil, batches: Int? = nil, maximumBytes: Int = 1 << 20,
    afterFirst: () -> Void = {}
  ) throws(StoreError) {
    let mine = try replicaSummary()
    let theirs = try sender.replicaSummary()
    let known = try cursor(for: theirs.actor)
    let lacking = expansion.flatMap { expansion in
      mine.scope.map { MissingScope(wanted: expansion.scope, held: $0) }
    }
    let round = try sender.openRound(
      for: RoundReceiver(
        cursor: expansion.map(\.cursor) ?? known, covered: mine.vector,
        floor: mine.floor, health: mine.health, scope: mine.scope,
        lacking: lacking))
    let full = round.close.isFull ? FullState() : nil
    var delivered = 0
    var previous: Cursor?
    while batches.map({ delivered < $0 }) ?? true, var batch = try round.next(maximumBytes: maximumBytes) {
      (batch.scope, batch.scopeExpansion, batch.previousCursor) = (mine.scope, expansion, previous)
      batch.expectedState = ExpectedReplicaState(actor: mine.actor)
      _ = try apply(batch, full)
      if expansion != nil { previous = Cursor(position: batch.position, mark: batch.mark, closed: false) }
      delivered += 1
      if delivered == 1 { afterFirst() }
    }
    guard batches == nil else { return }
    var close = round.close
    if theirs.scope != nil { close.kind = .narrowDelta }
    (close.scope, close.scopeExpansion) = (mine.scope, expansion)
    close.expectedState = ExpectedReplicaState(actor: mine.actor)
    try finish(close, full, after: previous)
  }

  /// A round for a healthy receiver that has purged nothing.
  package func openRound(since cursor: Cursor?, covered: VersionVector) throws(StoreError) -> DeltaStream {
    try openRound(for: RoundReceiver(cursor: cursor, covered: covered))
  }

  /// Both rounds of a session.
  package func synchronize(with other: Store) throws(StoreError) {
    try receive(from: other)
    try other.receive(from: self)
  }
}

extension Store {
  /// Applies a batch durably. Returns the missing blobs that its records refer to and that must be fetched.
  package func apply(
    _ batch: IncomingBatch, _ full: FullState? = nil, closing close: RoundClose? = nil
  ) throws(StoreError) -> [BlobReference] {
    let taken = try applyBatch(batch, full, closing: close)
    try awaitDurability(of: taken)
    return taken.missing
  }
}

extension DeltaStream {
  /// The next batch, with its records in memory; nil at the end.
  package func next(maximumBytes: Int) throws(StoreError) -> IncomingBatch? {
    var collector = BatchCollector()
    guard let batch = try next(maximumBytes: maximumBytes, into: &collector) else { return nil }
    // Alternate between the two representations: both must have the same effect.
    let records: BatchRecords =
      batch.position.isMultiple(of: 2) ? .list(collector.records) : BatchRecords(packing: collector.records)
    return IncomingBatch(
      sender: close.sender, mark: close.mark, position: batch.position, records: records,
      present: batch.present, scope: nil, expansion: nil)
  }
}

extension BatchRecords {
  /// The records as received over a connection: compact if all are simple enough, otherwise a list.
  package init(packing records: [PositionedRecord]) {
    var bytes: [UInt8] = []
    var actors: [ActorID] = []
    func number(_ actor: ActorID) -> Int {
      if let known = actors.firstIndex(of: actor) { return known }
      actors.append(actor)
      return actors.count - 1
    }
    func indexed(_ dot: Dot) -> CompactBatch.IndexedDot {
      CompactBatch.IndexedDot(author: number(dot.actor), sequence: dot.sequence)
    }
    func place(_ more: [UInt8]) -> Range<Int> {
      bytes += more
      return bytes.count - more.count..<bytes.count
    }
    var entries: [CompactBatch.Entry] = []
    for item in records {
      let record = item.record
      var value: [UInt8]?
      switch record.content {
      case .tombstone: break
      case .inline(let bytes): value = bytes
      case .blob:
        self = .list(records)
        return
      }
      guard record.open.isEmpty, record.deadline == nil else {
        self = .list(records)
        return
      }
      var entry = CompactBatch.Entry(
        position: item.position, stamp: record.stamp, dot: indexed(record.dot),
        continues: record.continues, type: record.type, key: place(record.key), value: value.map(place))
      if let base = record.base { entry.setBase(indexed(base)) }
      entries.append(entry)
    }
    self = .compact(CompactBatch(bytes: bytes, actors: actors, entries: entries))
  }
}

/// Collects records unchanged.
private struct BatchCollector: BatchWriter {
  var records: [PositionedRecord] = []

  mutating func write(_ record: PositionedRecord) { records.append(record) }

  mutating func write(_ entries: [CompactBatch.Entry], of actors: [ActorID], in bytes: Span<UInt8>) {
    for entry in entries {
      let base = entry.hasBase ? Dot(actor: actors[entry.baseAuthor], sequence: entry.baseSequence) : nil
      let record = Record(
        version: Version(stamp: entry.stamp, dot: Dot(actor: actors[entry.author], sequence: entry.sequence)),
        context: CausalContext(base: base), type: entry.type,
        key: Array(copying: bytes.extracting(entry.key)),
        content: entry.isTombstone ? .tombstone : .inline(Array(copying: bytes.extracting(entry.value))),
        continues: entry.continues)
      write(PositionedRecord(position: entry.position, record: record))
    }
  }
}
