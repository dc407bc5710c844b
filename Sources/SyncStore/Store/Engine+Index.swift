/// How a view uses the index: which segments it names, what to do when it cannot be believed any more, and how a process
/// goes on where another one stopped.
extension Engine {
  /// Is the index in trouble? Answers got meanwhile do not count.
  var indexIsInvalid: Bool { index.namesUnmappedSegment || index.failure != nil }

  /// Has one who died left the index behind what this view has read?
  @inline(__always)
  var isIndexBehind: Bool {
    get throws(StoreError) {
      try index.hashIndex.applied != applied.packed || index.checkpoint.seqlock & 1 != 0
    }
  }

  /// Changes the index that processes share, if this one uses it. Where it turns out to be damaged, or to be given up by another process,
  /// this one goes on with an index of its own.
  @inline(__always)
  mutating func changeSharedIndex(_ body: (inout Engine) throws(StoreError) -> Void) throws(StoreError) {
    guard index.isShared else { return }
    do throws(StoreError) { try body(&self) } catch {
      guard error.code == .damaged || error.code == .closed else { throw error }
      index.failure = index.failure ?? error
    }
    if indexIsInvalid { rebuildIndex() }
  }

  /// Comes to a state in which the index gives answers.
  @inline(never)
  mutating func rebuildIndex() {
    if index.failure == nil, index.namesUnmappedSegment {
      index.namesUnmappedSegment = false
      do throws(StoreError) {
        try catchUp()
        try loadReplaced()
        // The ledger may have named a segment a moment after it was begun.
        return assignSlots(mayAdd: !index.isShared)
      } catch {
        index.failure = error
      }
    }
    buildInMemory()
  }

  /// Until another process has moved the index over to a copy, it names what that stands for: also where this view has come to know
  /// the copy alone, because it had not read so far, or knew another copy of the same, or none.
  mutating func loadReplaced() throws(StoreError) {
    guard index.isShared, !journal.segments.isEmpty else { return }
    let known = journal.replacedCount
    try journal.loadReplaced()
    if journal.replacedCount > known { defineReplaced() }
  }

  /// Learns who wrote the records of segments that were replaced before this view has read them. The ledger notes it for as long as the index
  /// names any of them.
  mutating func defineReplaced() {
    guard index.isShared, !journal.replaced.isEmpty else { return }
    assignSlots(mayAdd: false)
    do throws(StoreError) {
      for place in try index.checkpoint.specialRecords().refs {
        guard let segment = journal.table.segment(ofRef: place),
          let view = segment.record(at: SegmentTable.offset(ofRef: place), limit: segment.mapping.count),
          view.kind == .actor
        else { continue }
        define(view)
      }
    } catch {
      index.failure = error
    }
  }

  /// Builds an index of this process's own from the journal, because the shared one is damaged, was replaced, or has no
  /// room on the disk.
  private mutating func buildInMemory() {
    if index.isShared, journal.writable { try? JournalIndex.removeFiles(files) }
    let secret = environment.random(16)
    rebuild(with: JournalIndex.inMemory(files, secret: secret), upTo: applied)
  }

  /// Takes all of the journal up to `end` into another index.
  mutating func rebuild(with other: JournalIndex, upTo end: Location) {
    let former = preDamageIndex
    if former == nil { retireSharedIndex() }
    journal.forgetSlots()
    var fresh = Engine(context, journal: journal, index: other, compactions: compactions)
    (fresh.pins, fresh.usesFastPath, fresh.lostKeysByDamage) = (pins, usesFastPath, lostKeysByDamage)
    fresh.replay(upTo: end, indexing: true)
    if let former {
      fresh.attributeDamage(by: former)
      retireSharedIndex()
    }
    replace(by: fresh)
  }

  /// Tells other processes not to use the index any more. It makes no system call, which could fail for the
  /// reason that makes this process go on without the index.
  private func retireSharedIndex() {
    if index.isShared, journal.writable { index.hashIndex.retire() }
  }

  /// Goes on as another view.
  mutating func replace(by other: consuming Engine) {
    let wasPublic = isPublished
    other.lostKeysByDamage.merge(lostKeysByDamage) { found, _ in found }
    self = other
    isPublished = wasPublic
    publish()
  }

  /// Lets threads read without the lock from what this view has now, if that is plain.
  func publish() {
    guard isPublished else { return }
    let isPlain = parked.isEmpty && gaps.isEmpty && (index.isShared || isSoleProcess)
    readers.publish(isPlain ? LockFreeView(index: index, table: journal.table) : nil)
  }

  /// The journal was found damaged: who opens the store next reads all of it and does what rule R9 asks for.
  func recordDamageFound() {
    if !index.isShared || journal.writable { index.checkpoint.setDamageFound() }
  }

  // MARK: Segments

  /// Lets the index and this view find all mapped segments; those that it has no number for get one if this process
  /// `mayAdd`, as the holder of the writers' mutex may, and anybody to an index of its own.
  mutating func assignSlots(mayAdd: Bool) {
    guard journal.lacksSlots else { return }
    let index = index
    do throws(StoreError) {
      try journal.assignSlots { segment throws(StoreError) in
        var slot = try index.slot(of: segment.number)
        if slot == nil, mayAdd { slot = try index.add(segment: segment.number) }
        return try slot.map { slot throws(StoreError) in (slot, try index.checkpoint.liveByteCounter(slot)) }
      }
      publish()
    } catch {
      index.failure = error
    }
  }

  /// The error for who finds the index to contradict the journal. It is built anew before what was asked is asked again.
  @discardableResult
  func indexMismatchError(_ what: String = "names a segment that is not there") -> StoreError {
    let error = StoreError(.damaged, "\(what): it is to be built anew")
    index.failure = index.failure ?? error
    return error
  }

  // MARK: All keys

  /// The places of all keys, in no particular order. Who holds the writers' mutex `isExclusive`.
  func locations(isExclusive: Bool = false) throws(StoreError) -> [Location] {
    if mayChange(isExclusive) { return try locationsFromJournal() }
    var locations: [Location] = []
    locations.reserveCapacity(try index.hashIndex.count)
    try index.hashIndex.forEachRef { place throws(StoreError) in
      guard let segment = journal.table.segment(ofRef: place) else {
        throw indexMismatchError()
      }
      locations.append(Location(segment: segment.number, offset: SegmentTable.offset(ofRef: place)))
    }
    return locations
  }

  /// The same, as the index calls them; nil while others may change it, and if one of them is nowhere in the journal: what somebody has
  /// just begun may have no number yet.
  func liveRecordBitmap(isExclusive: Bool) throws(StoreError) -> LiveRecordBitmap? {
    if mayChange(isExclusive) { return nil }
    let keys = index.hashIndex
    let parts = try keys.count < Self.parallelThreshold ? 1 : Background.processors
    let found = Locked([Result<LiveRecordBitmap, StoreError>?](repeating: nil, count: parts))
    let none = LiveRecordBitmap(journal.table)
    Background.concurrentPerform(parts) { part in
      let result = Result { () throws(StoreError) in
        var current = none
        try keys.forEachRef(part: part, of: parts) { current.insert($0) }
        return current
      }
      found.withLock { $0[part] = result }
    }
    var current = none
    for part in found.withLock({ $0 }) { if let part = try part?.get() { current.add(part) } }
    return current.isComplete ? current : nil
  }

  /// May others change the index meanwhile?
  private func mayChange(_ isExclusive: Bool) -> Bool { index.isShared && !isSoleProcess && !isExclusive }

  /// The places of all keys, those among them whose record was damaged while in use: for who must not take what is left for all.
  func allLocations() throws(StoreError) -> [Location] {
    // The index names what is damaged like all else.
    guard mayChange(false) else { return try locations() }
    var lost: [Location] = []
    let found = try locationsFromJournal { segment, range in
      if let place = lostLocation(range, in: segment) { lost.append(place) }
    }
    if !lost.isEmpty { recordDamageFound() }
    return found + lost
  }

  /// Where a record counted that was damaged while in use; nil if one that is whole has taken its place.
  private func lostLocation(_ range: Range<Int>, in segment: Segment) -> Location? {
    let place = Location(segment: segment.number, offset: range.lowerBound)
    guard let key = DamagedRecord.key(in: range, of: segment) else { return place }
    guard !key.isEmpty, let found = find(key) else { return nil }
    return found.segment == segment.number && range.contains(found.offset) ? found : nil
  }

  /// The places of all keys from the journal, which stays as it is. `lost` hears of bytes that were damaged while in use.
  private func locationsFromJournal(
    lost: (Segment, Range<Int>) -> Void = { _, _ in }
  ) throws(StoreError) -> [Location] {
    let start = Location(segment: journal.segments.first?.number ?? 0, offset: SegmentHeader.length)
    return try liveLocations(from: start, isComplete: false, lost: lost) ?? []
  }

  /// The places of the records behind `start` that count for their keys, as far as this view has read; nil if there are
  /// more than `limit`. With `purged` also the last records of keys that were purged since: they take the place of older ones.
  func liveLocations(
    from start: Location, isComplete: Bool = true, purged: Bool = false, limit: Int = .max,
    lost: (Segment, Range<Int>) -> Void = { _, _ in }
  ) throws(StoreError) -> [Location]? {
    var places: [Location] = []
    // Of keys that others have written to meanwhile: their latest record here.
    var overtaken: [[UInt8]: Location] = [:]
    let now = Stamp(milliseconds: environment.now() + Limits.clockDriftMilliseconds)
    try visit(from: start, isComplete: isComplete, lost: lost) { record throws(StoreError) in
      guard record.isWrite, let shape = record.shape else { return true }
      let key = record.key(shape)
      // Does it count here, others or the index aside?
      func counts() -> Bool {
        guard let version = record.version else { return false }
        return applies(version, limit: now, waited: parked[key]?.contains(record.location) ?? false)
      }
      guard let place = find(key) else {
        if purged, counts() { overtaken[key] = record.location }
        return true
      }
      if place.segment < SegmentHeader.compacted, place >= applied {
        if counts() { overtaken[key] = record.location }
      } else if place == record.location || isCopy(of: record, at: place) {
        // While a compaction is taken in, what is named may be the copy of this record.
        places.append(place)
      }
      return places.count + overtaken.count <= limit
    }
    guard places.count + overtaken.count <= limit else { return nil }
    return places + overtaken.values
  }

  // MARK: Going on where another process stopped

  /// Takes in what the ledger notes, instead of reading the journal. False if it does not fit the journal: then nothing of
  /// this view is to be used.
  mutating func restoreFromCheckpoint() throws(StoreError) -> Bool {
    assignSlots(mayAdd: false)
    let ledger = index.checkpoint
    let end = Location(packed: try index.hashIndex.applied)
    guard journal.index(of: end.segment) != nil, !ledger.isDamageFound else { return false }
    lastRef = try ledger.last
    // What is appended bears its position as a difference to others. A segment that was cut has lost its last record.
    if journal.segments.last?.truncatedEnd == nil {
      guard let known = lastPosition(atRef: lastRef, before: end), try ledger.position >= known else {
        return false
      }
    }
    var (views, defined) = ([RecordView](), 0)
    let noted = try ledger.specialRecords()
    installedCompaction = noted.installedCompaction
    for place in noted.refs {
      let offset = SegmentTable.offset(ofRef: place)
      guard let segment = journal.table.segment(ofRef: place) else {
        return false
      }
      // Noted by one who died before it was taken in: it is met again.
      if segment.header.compaction == 0, Location(segment: segment.number, offset: offset) >= end { continue }
      if segment.defineLeading(at: offset) {
        defined += 1
        continue
      }
      guard let view = segment.record(at: offset, limit: segment.mapping.count) else { return false }
      views.append(view)
    }
    // While a compaction is taken in, some are noted where they were and some where they are.
    func order(_ view: RecordView) -> (UInt64, UInt32, Int) {
      (view.position, view.segment.header.covered.lowerBound, view.offset)
    }
    views.sort { order($0) < order($1) }
    // What a write is compared with may have been defined after it.
    for view in views where view.kind == .actor { define(view) }
    var last: Location?
    for view in views where view.location != last {
      last = view.location
      restoreRecord(view)
    }
    specialRecordsAtRewrite = views.count + defined
    position = try ledger.position
    state.restoreAuthor(sequence: try ledger.sequence, clock: try ledger.clock)
    applied = end
    deadBytesReviewThreshold = 0
    isRestored = true
    return true
  }

  /// The position that the record there bears, which ends at `end`; 0 for one behind that, which is yet to be read: whoever
  /// notes what the index has notes this first, and may just be at it, be stopped or dead. Nil if it is neither: then the
  /// journal is not the one that the index is of, somebody put an older one in its place.
  private func lastPosition(atRef place: UInt64, before end: Location) -> UInt64? {
    if end.offset == SegmentHeader.length { return journal.segment(end.segment)?.header.basePosition }
    guard let segment = journal.table.segment(ofRef: place), segment.header.compaction == 0,
      case let offset = SegmentTable.offset(ofRef: place),
      let view = segment.record(at: offset, limit: segment.mapping.count, isSealed: true)
    else { return nil }
    if segment.number == end.segment, view.end == end.offset { return view.position }
    return view.location >= end ? 0 : nil
  }

  private func define(_ view: RecordView) {
    guard let shape = view.shape, let actor = ActorID(bytes: view.key(shape)) else { return }
    view.segment.define(actor, as: view.actorNumber, at: view.offset)
  }

  private mutating func restoreRecord(_ view: RecordView) {
    guard let shape = view.shape else { return }
    switch view.kind {
    case .local, .localRemoval: applyLocal(view, shape: shape)
    case .value, .blob, .tombstone:
      if view.flags.contains(.loser) {
        applyLoser(view)
      } else {
        let key = view.key(shape)
        let limit = Stamp(milliseconds: environment.now() + Limits.clockDriftMilliseconds)
        // One whose time has come may have been applied since it was noted; one of the store's own keys is noted in any case.
        let mayWait = view.stamp > limit && !view.isReserved(shape)
        if mayWait || find(key).map({ !isAtOrBehind(view, $0) }) ?? true, view.version != nil {
          parked[key, default: []].append(view.location)
        } else if view.isReserved(shape) {
          reserved.insert(key)
        } else {
          specialRecordsAreStale = true
        }
      }
    case .actor, .checkpoint, .epoch, .purge, nil: break
    }
  }

  /// Is the record at `location`, or one that beats it?
  private func isAtOrBehind(_ view: RecordView, _ location: Location) -> Bool {
    guard let other = try? journal.record(at: location), let version = other.version, let own = view.version
    else { return false }
    return version >= own
  }

  /// Notes the places of all records that are more than a key's value, instead of those noted so far.
  mutating func rewriteSpecialRecords() throws(StoreError) {
    var notes = IndexCheckpoint.SpecialRecords(installedCompaction: installedCompaction)
    func note(_ location: Location) {
      if let segment = journal.segment(location.segment), segment.slot != nil {
        notes.refs.append(segment.ref(at: location.offset))
      }
    }
    for segment in journal.segments + journal.uninstalled where segment.slot != nil {
      for offset in segment.definitionOffsets {
        notes.refs.append(segment.ref(at: offset))
      }
    }
    let others = notes.refs.endIndex
    for location in localMetadata.locations { note(location) }
    for location in losers { note(location) }
    for location in parked.values.joined() { note(location) }
    for key in reserved { if let location = find(key) { note(location) } }
    // What is stored is the same in every process: the order of tables in memory is not.
    notes.refs[others...].sort()
    try index.checkpoint.replaceSpecialRecords(notes)
    specialRecordsAtRewrite = notes.refs.count
    specialRecordsAreStale = false
  }

  /// Notes one more place. Only for who may change the index.
  mutating func addSpecialRecord(_ view: RecordView) throws(StoreError) {
    let count = try index.checkpoint.specialRecordCount
    if count >= max(Self.minSpecialRecordsToRewrite, 4 * specialRecordsAtRewrite) {
      try rewriteSpecialRecords()
    }
    try index.checkpoint.addSpecialRecord(view.segment.ref(at: view.offset))
  }

  private static let minSpecialRecordsToRewrite = 1024
}

extension ReplicaState {
  /// Takes over what a process that stopped knew last.
  mutating func restoreAuthor(sequence: UInt64, clock: Stamp) {
    author.sequence = max(author.sequence, sequence)
    author.clock.observe(clock)
  }
}
