/// Journal replay: the same code for own writes, for those of other processes and at opening.
///
/// With `indexing`, replay also updates the index: only for the holder of the writers' mutex, or with an
/// index of its own.
extension Engine {
  /// How the records of a segment are replayed.
  struct ReplayOptions: OptionSet {
    let rawValue: UInt8

    /// Verifies their checksums, which are not known to be valid.
    static let verifyChecksums = Self(rawValue: 1)
    /// Also updates the index.
    static let index = Self(rawValue: 2)
  }

  /// Replays the journal up to `end`, which lies in a mapped segment. Checksums of the segments in `seen`,
  /// verified a moment ago, are not computed again.
  mutating func replay(upTo end: Location, seen: Set<UInt32> = [], indexing: Bool) {
    if applied.segment == 0, let first = journal.segments.first {
      applied = Location(segment: first.number, offset: SegmentHeader.length)
    }
    // A crashed writer may have left the seqlock odd; treat the index as consistent up to `applied`.
    if indexing { beginIndexWrite(from: applied) }
    assignSlots(mayAdd: indexing)
    guard var place = journal.index(of: applied.segment), let last = journal.index(of: end.segment) else {
      return
    }
    let limit = Stamp(milliseconds: context.environment.now() + Limits.clockDriftMilliseconds)
    while place <= last {
      let segment = journal.segments[place]
      // A position is never reused, even if compaction has dropped its record.
      position = max(position, segment.header.basePosition)
      let stop = place == last ? end.offset : journal.closedLength(at: place) ?? 0
      var options: ReplayOptions = indexing ? .index : []
      if !seen.contains(segment.number) { options.insert(.verifyChecksums) }
      replay(segment, bytes: applied.offset..<stop, limit: limit, options: options)
      place += 1
      applied =
        place > last
        ? end : Location(segment: journal.segments[place].number, offset: SegmentHeader.length)
    }
    if indexing { endIndexWrite() }
  }

  /// Indexes the records after the index's own `applied` offset that this view has replayed: those that a
  /// crashed writer appended. Only for the holder of the writers' mutex.
  mutating func catchUpIndex() throws(StoreError) {
    let start = Location(packed: try index.hashIndex.applied)
    guard start != applied else { return index.checkpoint.endWrite() }
    beginIndexWrite(from: start)
    // Unknown whether the crashed writer added them to the digest.
    index.checkpoint.setDigest(nil, at: 0)
    let limit = Stamp(milliseconds: context.environment.now() + Limits.clockDriftMilliseconds)
    assignSlots(mayAdd: true)
    var failure: StoreError?
    var views: [RecordView] = []
    try visit(from: start) { view throws(StoreError) in
      views.append(view)
      return true
    }
    for view in views {
      let write = view.isWrite ? view.shape.flatMap { WriteSummary(view, shape: $0) } : nil
      do throws(StoreError) { try indexRecord(view, write: write, limit: limit) } catch {
        failure = failure ?? error
      }
    }
    status.isWritingIndex = false
    if let failure { throw failure }
    if let last = views.last { lastRef = last.segment.ref(at: last.offset) }
    publishApplied()
  }

  /// Applies what this process has just appended, up to `end`. Checksums, computed a moment ago from the same
  /// bytes, are not verified, and the records of a bulk insert are not decoded.
  mutating func applyOwnAppend(own end: Location, bringing intake: PreparedBulkInsert? = nil, wall: UInt64) {
    let limit = Stamp(milliseconds: wall + Limits.clockDriftMilliseconds)
    // The odd seqlock tells readers who see some of these records that more may follow.
    beginIndexWrite(from: applied)
    if applied.segment != end.segment {
      replay(upTo: Location(segment: end.segment, offset: SegmentHeader.length), indexing: true)
      beginIndexWrite(from: applied)
    }
    guard let segment = journal.segment(end.segment) else { return }
    var start = applied.offset
    if let intake {
      replay(segment, bytes: start..<intake.start, limit: limit, options: .index)
      start = indexBulkInsert(intake, in: segment)
    }
    replay(segment, bytes: start..<end.offset, limit: limit, options: .index)
    applied = end
    endIndexWrite()
  }

  /// Replays the records in `bytes`.
  private mutating func replay(
    _ segment: Segment, bytes: Range<Int>, limit: Stamp, options: ReplayOptions
  ) {
    let (verifies, indexing) = (options.contains(.verifyChecksums), options.contains(.index))
    let ordinary = FastPathReader(segment)
    var offset = bytes.lowerBound
    while offset < bytes.upperBound {
      if let ordinary {
        offset = replayFastPath(
          ordinary, bytes: offset..<bytes.upperBound, limit: limit, options: options)
        if offset >= bytes.upperBound { return }
      }
      if !verifies {
        let view = RecordView(segment: segment, offset: offset)
        // Bytes may change between two reads; that must not crash the process.
        guard offset + RecordLayout.fixedLength <= bytes.upperBound, view.length >= RecordLayout.fixedLength,
          view.end <= bytes.upperBound
        else { return recordGap(offset..<bytes.upperBound, in: segment) }
        offset = view.end
        if view.isReadable {
          apply(view, limit: limit, indexing: indexing)
        } else {
          recordGap(view.offset..<view.end, in: segment)
        }
      } else {
        var walker = ResyncingRecordIterator(segment, from: offset, limit: bytes.upperBound)
        switch walker.next() {
        case .record(let view)?: apply(view, limit: limit, indexing: indexing)
        case .gap(let range)?: recordGap(range, in: segment)
        case nil: return
        }
        offset = walker.offset
      }
    }
  }

  /// Publishes that the index covers everything replayed so far; after a failure, rebuilds the index.
  @inline(__always)
  mutating func endIndexWrite() {
    if index.failure == nil { publishApplied() } else { rebuildIndex() }
  }

  mutating func beginIndexWrite(from start: Location) {
    index.checkpoint.beginWrite(from: start)
    status.isWritingIndex = true
  }

  @inline(__always)
  private mutating func publishApplied() {
    if index.hasFaulted { return abandonFaultedIndex() }
    let checkpoint = index.checkpoint
    checkpoint.setCounters(
      position: position, sequence: state.sequence, clock: state.author.clock.last, last: lastRef)
    checkpoint.moveDigest(to: applied.packed)
    index.hashIndex.setApplied(applied.packed)
    checkpoint.endWrite()
    status.isWritingIndex = false
  }

  /// Abandons an index with a faulted page: its content is visible to this process only, and compaction drops
  /// records that the index does not name.
  @inline(never)
  mutating func abandonFaultedIndex() {
    status.isWritingIndex = false
    indexMismatchError("had a page refused by the kernel: make room, or check the disk")
    rebuildIndex()
  }

  private mutating func recordGap(_ range: Range<Int>, in segment: Segment) {
    recordDamage(
      JournalDamage(segment: segment.number, bytes: range), of: DamagedRecord.key(in: range, of: segment))
  }

  private mutating func recordDamage(_ damage: JournalDamage, of key: [UInt8]?) {
    guard self.damage.add(damage, of: key) else { return }
    publish()
    recordDamageFound()
  }

  mutating func apply(_ view: RecordView, limit: Stamp, indexing: Bool) {
    position = max(position, view.position)
    var before: Location?
    var known: WriteSummary?
    switch view.kind {
    case .actor:
      guard let shape = view.shape, let actor = ActorID(bytes: view.key(shape)) else { return }
      view.segment.actors.define(actor, as: view.actorNumber, at: view.offset)
    case .local, .localRemoval:
      if let shape = view.shape { before = applyLocal(view, shape: shape) }
    case .value, .blob, .tombstone:
      if view.flags.contains(.loser) {
        applyLoser(view)
      } else if let shape = view.shape {
        guard let write = WriteSummary(view, shape: shape) else {
          // Both definitions of the actor number are lost, so the version cannot be compared.
          let place = JournalDamage(segment: view.segment.number, bytes: view.offset..<view.end)
          return recordDamage(place, of: view.key(shape))
        }
        applyWrite(write, at: view, limit: limit)
        known = write
      }
    case .purge:
      // With `indexing`, `indexPurge` applies it, since it needs the state before.
      if !indexing, let purge = view.purge { applyPurge(purge) }
    case .checkpoint, .epoch, nil: break
    }
    if indexing {
      lastRef = view.segment.ref(at: view.offset)
      do throws(StoreError) {
        try indexRecord(view, write: known, replacing: before, limit: limit)
      } catch {
        index.failure = error
      }
    }
    if view.kind == .local, !parked.isEmpty { applyParked(by: view, indexing: indexing) }
  }

  /// Returns the location of the record that this one replaces.
  @discardableResult
  mutating func applyLocal(_ view: RecordView, shape: RecordShape) -> Location? {
    let key = view.key(shape)
    let before: Location?
    if view.kind == .local {
      let value = view.value(shape)
      state.apply(local: key, value)
      before = localMetadata.set(key, value, at: view.location)
    } else {
      state.apply(local: key, nil)
      before = localMetadata.remove(key)
    }
    return before
  }

  mutating func applyLoser(_ view: RecordView) {
    losers.locations.append(view.location)
    if let record = view.decoded() { losers.digests.insert(StateDigest(of: record)) }
  }

  /// The fields of a write that replay needs.
  struct WriteSummary {
    var version: Version
    var position: UInt64
    var hasDeadline: Bool
    var isReserved: Bool
    /// Whether the write was ahead of the clock when it was appended.
    var wasParked: Bool
    /// Range of the key in the bytes of the view.
    var key: Range<Int>
  }

  /// Applies a write to everything but the index.
  @inline(__always)
  private mutating func applyWrite(_ write: WriteSummary, at view: RecordView, limit: Stamp) {
    position = max(position, write.position)
    let applies = self.applies(write.version, limit: limit, waited: write.wasParked)
    state.observe(write.version, applied: applies)
    if !applies || write.isReserved || write.hasDeadline && expiring != nil {
      applySpecialWrite(write, at: view, applies)
    }
  }

  /// Whether a write is applied rather than parked. Own writes are never parked: their author sees them at
  /// once, even after its clock was set back. A write of another actor that was parked when appended
  /// (`waited`) stays parked until an append has compared it, even when the journal is replayed after its
  /// time has come.
  @inline(__always)
  func applies(_ version: Version, limit: Stamp, waited: Bool) -> Bool {
    version.stamp <= limit && !waited || state.isMine(version.dot)
  }

  @inline(never)
  private mutating func applySpecialWrite(_ write: WriteSummary, at view: RecordView, _ applies: Bool) {
    let key = view.bytes.bytes(write.key)
    if !applies {
      parked.add(view.location, to: key)
      if parked.count == 1 { publish() }
    }
    if applies, write.isReserved { reserved.insert(key) }
    if write.hasDeadline { expiring?.insert(key) }
  }

  // MARK: Indexing

  /// Indexes a record that this view has applied; `write` is its summary, if it is a write.
  private mutating func indexRecord(
    _ view: RecordView, write: WriteSummary?, replacing local: Location? = nil, limit: Stamp
  ) throws(StoreError) {
    switch view.kind {
    case .actor: try addSpecialRecord(view)
    case .local:
      view.segment.liveBytes += view.end - view.offset
      if local != view.location { markDead(local) }
      try addSpecialRecord(view)
    case .localRemoval:
      markDead(local)
      try addSpecialRecord(view)
    case .value, .blob, .tombstone:
      if view.flags.contains(.loser) {
        view.segment.liveBytes += view.end - view.offset
        try addSpecialRecord(view)
      } else if let write {
        let search = view.bytes.withSpan(write.key) { self.search($0) }
        try indexWrite(write, at: view, search, limit: limit)
      }
    case .purge: if let purge = view.purge { try indexPurge(purge) }
    case .checkpoint, .epoch, nil: break
    }
  }

  /// Indexes a write; `search` is the index lookup of its key.
  @inline(__always)
  private mutating func indexWrite(
    _ write: WriteSummary, at view: RecordView, _ search: Search, limit: Stamp
  ) throws(StoreError) {
    let applies = self.applies(write.version, limit: limit, waited: write.wasParked)
    if applies, !write.isReserved, !write.hasDeadline, !index.checkpoint.keepsDigest {
      try upsertIfNewer(write.version, at: view, search)
    } else {
      try indexSpecialWrite(write, at: view, search, applies: applies)
    }
  }

  @inline(never)
  private mutating func indexSpecialWrite(
    _ write: WriteSummary, at view: RecordView, _ search: Search, applies: Bool
  ) throws(StoreError) {
    let key = view.bytes.bytes(write.key)
    if write.hasDeadline { try index.checkpoint.set(.deadlines) }
    if !applies { try index.checkpoint.set(.parked) }
    if !applies || write.isReserved && search.found == nil { try addSpecialRecord(view) }
    let keepsDigest = index.checkpoint.keepsDigest
    // Then the index alone determines the greatest record, and `search` has its answer.
    let isNamed = applies && (parked.isEmpty || parked[key] == nil)
    var before: Record?
    if keepsDigest, !isNamed {
      before = greatest(key, except: view.location)
    } else if keepsDigest, let place = search.found?.location, place != view.location {
      before = try? record(at: place)
    }
    if applies {
      try upsertIfNewer(write.version, at: view, search)
    } else {
      view.segment.liveBytes += view.end - view.offset
    }
    guard keepsDigest else { return }
    if isNamed {
      let isGreater = before.map { $0.version < write.version } ?? true
      updateDigest(from: before, to: isGreater ? view.decoded() : before)
    } else {
      updateDigest(from: before, to: greatest(key))
    }
  }

  /// Points the index to the record, if it beats the one held.
  @inline(__always)
  mutating func upsertIfNewer(_ version: Version, at view: RecordView, _ search: Search) throws(StoreError) {
    let place = view.segment.ref(at: view.offset)
    if let found = search.found {
      // Indexed by a process that died before it could publish that.
      guard found.ref != place else { return }
      if let segment = journal.segment(found.location.segment),
        case let held = RecordView(segment: segment, offset: found.location.offset), held.isReadable,
        let old = held.version, old > version, (try? journal.record(at: found.location)) != nil
      {
        return
      }
      guard try index.hashIndex.replace(search.hash, found.ref, with: place) else {
        throw StoreError(.damaged, "does not find what it has found: it is to be built anew")
      }
      markDead(found.location)
    } else {
      try index.hashIndex.insert(search.hash, place)
    }
    view.segment.liveBytes += view.end - view.offset
  }

  /// Counts the record at `location` as dead.
  mutating func markDead(_ location: Location?) {
    guard let location, let segment = journal.segment(location.segment) else { return }
    let bytes = segment.extent(at: location.offset).end - location.offset
    segment.liveBytes -= bytes
    if segment.number != journal.segments.last?.number { compaction.deadBytes += bytes }
  }
}

extension Engine.WriteSummary {
  /// Nil if the actor is unknown.
  init?(_ view: RecordView, shape: RecordShape) {
    guard let version = view.version else { return nil }
    self.init(
      version: version, position: view.position, hasDeadline: shape.deadline != nil,
      isReserved: view.isReserved(shape), wasParked: view.flags.contains(.parked), key: shape.key)
  }
}
