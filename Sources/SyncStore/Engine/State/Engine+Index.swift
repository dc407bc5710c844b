/// How a view uses the index: slots of segments, rebuilding an invalid index, and resuming from the index
/// checkpoint.
extension Engine {
  /// Whether the index is invalid; results obtained while it is must be discarded.
  var indexIsInvalid: Bool { index.namesUnmappedSegment || index.failure != nil }

  /// Whether a crashed writer has left the index behind what this view has replayed.
  @inline(__always)
  var isIndexBehind: Bool {
    get throws(StoreError) {
      try index.hashIndex.applied != applied.packed || index.checkpoint.seqlock & 1 != 0
    }
  }

  /// Changes the shared index, if this process uses it. If it proves damaged or was retired by another
  /// process, this process continues with an in-memory index.
  @inline(__always)
  mutating func changeSharedIndex(_ body: (inout Engine) throws(StoreError) -> Void) throws(StoreError) {
    guard index.isShared else { return }
    do throws(StoreError) { try body(&self) } catch {
      guard error.code == .damaged || error.code == .closed else { throw error }
      index.failure = index.failure ?? error
    }
    if indexIsInvalid { rebuildIndex() }
  }

  /// Restores a usable index: catches up with segments, or else rebuilds it in memory.
  @inline(never)
  mutating func rebuildIndex() {
    if index.failure == nil, index.namesUnmappedSegment {
      index.namesUnmappedSegment = false
      do throws(StoreError) {
        try catchUp()
        try loadReplaced()
        // The checkpoint may have named a segment a moment after it was created.
        return assignSlots(mayAdd: !index.isShared)
      } catch {
        index.failure = error
      }
    }
    buildInMemory()
  }

  /// Maps the segments that compactions have replaced. Until another process has installed a copy, the index
  /// still refers to the originals, which this view may not have: it had not read that far, or it knew
  /// another copy or none.
  mutating func loadReplaced() throws(StoreError) {
    guard index.isShared, !journal.segments.isEmpty else { return }
    let known = journal.replaced.totalCount
    try journal.loadReplaced()
    if journal.replaced.totalCount > known { defineReplaced() }
  }

  /// Reads the actor definitions of replaced segments that this view has never replayed. The checkpoint lists
  /// them as long as the index refers to such a segment.
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

  /// Builds an in-memory index from the journal, because the shared one is damaged, was replaced, or has no
  /// room on the disk.
  private mutating func buildInMemory() {
    if index.isShared, journal.writable { try? JournalIndex.removeFiles(context.files) }
    let secret = context.environment.random(16)
    rebuild(with: JournalIndex.inMemory(context.files, secret: secret), upTo: applied)
  }

  /// Replays the journal up to `end` into another index.
  mutating func rebuild(with other: JournalIndex, upTo end: Location) {
    let former = preDamageIndex
    if former == nil { retireSharedIndex() }
    journal.forgetSlots()
    var fresh = Engine(context, journal: journal, index: other, compactions: compaction.count)
    (fresh.pinned.all, fresh.fastPath.isOn) = (pinned.all, fastPath.isOn)
    fresh.damage.lostKeys = damage.lostKeys
    fresh.replay(upTo: end, indexing: true)
    if let former {
      fresh.attributeDamage(by: former)
      retireSharedIndex()
    }
    replace(by: fresh)
  }

  /// Tells other processes to stop using the shared index. Makes no system call: it could fail for the very
  /// reason that invalidated the index here.
  private func retireSharedIndex() {
    if index.isShared, journal.writable { index.hashIndex.retire() }
  }

  /// Replaces this view by another one, keeping whether it is published.
  mutating func replace(by other: consuming Engine) {
    let wasPublic = status.isPublished
    other.damage.lostKeys.merge(damage.lostKeys) { found, _ in found }
    self = other
    status.isPublished = wasPublic
    publish()
  }

  /// Publishes a lock-free view for reading threads; none while records are parked, the journal has gaps, or
  /// other processes use another index.
  func publish() {
    guard status.isPublished else { return }
    let isPlain = parked.isEmpty && damage.gaps.isEmpty && (index.isShared || context.isSoleProcess)
    context.readers.publish(isPlain ? LockFreeView(index: index, table: journal.table) : nil)
  }

  /// Marks the index: the next process to open the store must replay the whole journal and follow rule R9.
  func recordDamageFound() {
    if !index.isShared || journal.writable { index.checkpoint.setDamageFound() }
  }

  // MARK: Segments

  /// Assigns index slots to all mapped segments. A segment without one gets it if this process `mayAdd`: as
  /// the holder of the writers' mutex, or in an index of its own.
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

  /// Marks the index as contradicting the journal and returns the error. The index is rebuilt before the
  /// operation is retried.
  @discardableResult
  func indexMismatchError(_ what: String = "names a segment that is not there") -> StoreError {
    let error = StoreError(.damaged, "\(what): it is to be built anew")
    index.failure = index.failure ?? error
    return error
  }

  // MARK: Key enumeration

  /// Locations of all keys, in no particular order. `isExclusive` if the caller holds the writers' mutex.
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

  /// The refs of all keys, as a bitmap. Nil while other processes may change the index, or if a ref is not in
  /// the journal's table: a segment just begun may have no slot yet.
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

  /// Whether another process may change the index concurrently.
  private func mayChange(_ isExclusive: Bool) -> Bool {
    index.isShared && !context.isSoleProcess && !isExclusive
  }

  /// Locations of all keys, including those whose record was damaged after opening: the caller must not
  /// mistake the rest for everything.
  func allLocations() throws(StoreError) -> [Location] {
    // The index also refers to damaged records.
    guard mayChange(false) else { return try locations() }
    var lost: [Location] = []
    let found = try locationsFromJournal { segment, range in
      if let place = lostLocation(range, in: segment) { lost.append(place) }
    }
    if !lost.isEmpty { recordDamageFound() }
    return found + lost
  }

  /// Location of the damaged record if it is still the current one of its key; nil if an intact record has
  /// replaced it.
  private func lostLocation(_ range: Range<Int>, in segment: Segment) -> Location? {
    let place = Location(segment: segment.number, offset: range.lowerBound)
    guard let key = DamagedRecord.key(in: range, of: segment) else { return place }
    guard !key.isEmpty, let found = find(key) else { return nil }
    return found.segment == segment.number && range.contains(found.offset) ? found : nil
  }

  /// Locations of all keys, by a pass over the journal. `lost` receives bytes that were damaged after
  /// opening.
  private func locationsFromJournal(
    lost: (Segment, Range<Int>) -> Void = { _, _ in }
  ) throws(StoreError) -> [Location] {
    let start = Location(segment: journal.segments.first?.number ?? 0, offset: SegmentHeader.length)
    return try liveLocations(from: start, options: .toleratesDamage, lost: lost) ?? []
  }

  /// How `liveLocations` treats damage and purged keys.
  struct LiveScanOptions: OptionSet {
    let rawValue: UInt8

    /// Damage found now goes to `lost` instead of throwing `.damaged`.
    static let toleratesDamage = Self(rawValue: 1)
    /// Includes the last records of keys purged since: they replace older ones.
    static let includesPurged = Self(rawValue: 2)
  }

  /// Locations of the current records after `start`, as far as this view has read; nil if there are more than
  /// `limit`.
  func liveLocations(
    from start: Location, options: LiveScanOptions = [], limit: Int = .max,
    lost: (Segment, Range<Int>) -> Void = { _, _ in }
  ) throws(StoreError) -> [Location]? {
    var places: [Location] = []
    // Keys that other processes have overwritten since: their latest record in this view.
    var overtaken: [[UInt8]: Location] = [:]
    let now = Stamp(milliseconds: context.environment.now() + Limits.clockDriftMilliseconds)
    let isComplete = !options.contains(.toleratesDamage)
    try visit(from: start, isComplete: isComplete, lost: lost) { record throws(StoreError) in
      guard record.isWrite, let shape = record.shape else { return true }
      let key = record.key(shape)
      // Whether the record is applied here, regardless of other processes and the index.
      func counts() -> Bool {
        guard let version = record.version else { return false }
        return applies(version, limit: now, waited: parked[key]?.contains(record.location) ?? false)
      }
      guard let place = find(key) else {
        if options.contains(.includesPurged), counts() { overtaken[key] = record.location }
        return true
      }
      if place.segment < SegmentHeader.compacted, place >= applied {
        if counts() { overtaken[key] = record.location }
      } else if place == record.location || isCopy(of: record, at: place) {
        // While a compaction is being installed, the index may refer to the copy of this record.
        places.append(place)
      }
      return places.count + overtaken.count <= limit
    }
    guard places.count + overtaken.count <= limit else { return nil }
    return places + overtaken.values
  }

  // MARK: Restoring from the checkpoint

  /// Restores this view from the index checkpoint instead of replaying the journal. False if the checkpoint
  /// does not fit the journal: then discard this view.
  mutating func restoreFromCheckpoint() throws(StoreError) -> Bool {
    assignSlots(mayAdd: false)
    let checkpoint = index.checkpoint
    let end = Location(packed: try index.hashIndex.applied)
    guard journal.index(of: end.segment) != nil, !checkpoint.isDamageFound else { return false }
    lastRef = try checkpoint.last
    // Appended records store positions as differences to others. A truncated segment has lost its last
    // record.
    if journal.segments.last?.defects.truncatedEnd == nil {
      guard let known = lastPosition(atRef: lastRef, before: end), try checkpoint.position >= known else {
        return false
      }
    }
    var (views, defined) = ([RecordView](), 0)
    let noted = try checkpoint.specialRecords()
    compaction.installed = noted.installedCompaction
    for place in noted.refs {
      let offset = SegmentTable.offset(ofRef: place)
      guard let segment = journal.table.segment(ofRef: place) else {
        return false
      }
      // Listed by a process that died before it was applied: replay will meet it again.
      if segment.header.compaction == 0, Location(segment: segment.number, offset: offset) >= end { continue }
      if segment.actors.defineLeading(at: offset) {
        defined += 1
        continue
      }
      guard let view = segment.record(at: offset, limit: segment.mapping.count) else { return false }
      views.append(view)
    }
    // While a compaction is being installed, some refs point to the original and some to the copy.
    func order(_ view: RecordView) -> (UInt64, UInt32, Int) {
      (view.position, view.segment.header.covered.lowerBound, view.offset)
    }
    views.sort { order($0) < order($1) }
    // The actor of a write that this one is compared with may be defined later in the journal.
    for view in views where view.kind == .actor { define(view) }
    var last: Location?
    for view in views where view.location != last {
      last = view.location
      restoreRecord(view)
    }
    specialRecords.countAtRewrite = views.count + defined
    position = try checkpoint.position
    state.restoreAuthor(sequence: try checkpoint.sequence, clock: try checkpoint.clock)
    applied = end
    compaction.deadBytesReviewThreshold = 0
    status.isRestored = true
    return true
  }

  /// Position of the last indexed record, which ends at `end`.
  ///
  /// Returns 0 for a record after `end`, still to be replayed: a writer publishes `last` before `applied`,
  /// and may be suspended or dead in between. Nil otherwise: then the index belongs to another journal, for
  /// example because an older one was copied here.
  private func lastPosition(atRef place: UInt64, before end: Location) -> UInt64? {
    if end.offset == SegmentHeader.length { return journal.segment(end.segment)?.header.basePosition }
    guard let segment = journal.table.segment(ofRef: place), segment.header.compaction == 0,
      case let offset = SegmentTable.offset(ofRef: place),
      let view = segment.record(at: offset, limit: segment.mapping.count, leavesEncrypted: true)
    else { return nil }
    if segment.number == end.segment, view.end == end.offset { return view.position }
    return view.location >= end ? 0 : nil
  }

  private func define(_ view: RecordView) {
    guard let shape = view.shape, let actor = ActorID(bytes: view.key(shape)) else { return }
    view.segment.actors.define(actor, as: view.actorNumber, at: view.offset)
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
        let limit = Stamp(milliseconds: context.environment.now() + Limits.clockDriftMilliseconds)
        // A due record may have been applied since it was listed; a reserved key is always listed.
        let mayWait = view.stamp > limit && !view.isReserved(shape)
        if mayWait || find(key).map({ !isAtOrAfter(view, $0) }) ?? true, view.version != nil {
          parked.add(view.location, to: key)
        } else if view.isReserved(shape) {
          reserved.insert(key)
        } else {
          specialRecords.isStale = true
        }
      }
    case .actor, .checkpoint, .epoch, .purge, nil: break
    }
  }

  /// Whether the record at `location` is this one or beats it.
  private func isAtOrAfter(_ view: RecordView, _ location: Location) -> Bool {
    guard let other = try? journal.record(at: location), let version = other.version, let own = view.version
    else { return false }
    return version >= own
  }

  /// Replaces the list of special records: those that are more than a key's current value. Only with the
  /// right to change the index.
  mutating func rewriteSpecialRecords() throws(StoreError) {
    // Another process may have installed a later copy than this one.
    let installed = try index.checkpoint.specialRecords().installedCompaction
    compaction.installed = max(compaction.installed, installed)
    var notes = IndexCheckpoint.SpecialRecords(installedCompaction: compaction.installed)
    func note(_ location: Location) {
      if let segment = journal.segment(location.segment), segment.slot != nil {
        notes.refs.append(segment.ref(at: location.offset))
      }
    }
    // This view may have replaced segments whose copy another process has installed only in part. Without
    // their definitions, a process that opens the store could not read what the index still refers to.
    let named = journal.segments + journal.uninstalled + journal.partlyReplaced(after: compaction.installed)
    for segment in named where segment.slot != nil {
      for offset in segment.actors.definitionOffsets {
        notes.refs.append(segment.ref(at: offset))
      }
    }
    let others = notes.refs.endIndex
    for location in localMetadata.locations { note(location) }
    for location in losers.locations { note(location) }
    for location in parked.locations { note(location) }
    for key in reserved { if let location = find(key) { note(location) } }
    // Sorted, so that every process stores the same list: hash tables iterate in random order.
    notes.refs[others...].sort()
    try index.checkpoint.replaceSpecialRecords(notes)
    specialRecords.countAtRewrite = notes.refs.count
    specialRecords.isStale = false
  }

  /// Adds one record to the list. Only with the right to change the index.
  mutating func addSpecialRecord(_ view: RecordView) throws(StoreError) {
    let count = try index.checkpoint.specialRecordCount
    if count >= max(Self.minSpecialRecordsToRewrite, 4 * specialRecords.countAtRewrite) {
      try rewriteSpecialRecords()
    }
    try index.checkpoint.addSpecialRecord(view.segment.ref(at: view.offset))
  }

  private static let minSpecialRecordsToRewrite = 1024
}

extension ReplicaState {
  /// Restores the sequence and clock last used by a process that has ended.
  mutating func restoreAuthor(sequence: UInt64, clock: Stamp) {
    author.sequence = max(author.sequence, sequence)
    author.clock.observe(clock)
  }
}
