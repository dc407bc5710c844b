/// One process's view of a store: the mapped journal, the index and the state of this copy, as far as the journal was
/// read. A struct under the store's lock.
///
/// Invariants: everything here can be rebuilt from the journal; it changes only by `absorb`, which reads committed bytes,
/// the same way for own writes, for those of other processes and at opening.
struct Engine {
  let environment: Environment
  let control: ControlPage
  let files: JournalIndex.Files
  /// Does no other process use the directory?
  let isSoleProcess: Bool
  /// What threads read from without the lock.
  let readers: EpochProtected
  var journal: Journal
  /// Up to where the journal was read.
  var applied = Location(segment: 0, offset: 0)
  var index: JournalIndex
  var state = ReplicaState()
  var localMetadata = LocalMetadata()
  /// Those of them that say which indexes of collections are complete: few, for snapshots keep them.
  var indexNotes: [[UInt8]: [UInt8]] = [:]
  /// Records stamped too far ahead, by key; not applied yet.
  var parked: [[UInt8]: [Location]] = [:]
  /// Up to which stamp some of them are due that could not be applied, as the disk was full; nil if none are, as far as this process has
  /// tried. Readers see them in place of what is applied, and so do writers (`shown`).
  var overdueParkedUpTo: Stamp?
  /// The beaten sides of conflicts.
  var losers: [Location] = []
  /// Which values those are: one that is delivered again is not kept again (F66). By what they are, not by their names: of two lives
  /// of one machine each may have given a name to another value.
  var loserDigests: Set<StateDigest> = []
  /// Keys whose greatest record has a deadline, and some that had one: their part of the digest depends on the time. Nil
  /// until somebody asks.
  var expiring: Set<[UInt8]>?
  /// Committed bytes that are no records, as far as the journal was read.
  var gaps: [JournalDamage] = []
  /// The same: there may be as many as a segment has records.
  var gapSet: Set<JournalDamage> = []
  /// Keys whose record stood in such a place, as far as that can be told.
  var damagedKeys: [[UInt8]: Location] = [:]
  /// Damage that the bytes alone do not attribute to a key.
  var unattributed: [JournalDamage] = []
  /// The keys that an index has named for some of it.
  var lostKeysByDamage: [JournalDamage: LostKeyFingerprints] = [:]
  /// What was last made of these.
  var possiblyLostKeysCache: PossiblyLostKeysCache?
  /// The last position in the journal.
  var position: UInt64 = 0
  /// What large batches have left to do for the single record that comes next.
  var batchBuffer: BatchBuffer?
  /// Keys of the store's own that are held: few, and looked through at every handshake.
  var reserved: Set<[UInt8]> = []
  var pins: [HeldPin] = []
  /// Tests lower it.
  var heldLimit = Limits.heldBytes
  /// About how many bytes of sealed segments do not count any more, and at how many it is looked at closely.
  var deadBytes = 0
  var deadBytesReviewThreshold = 0
  /// How many compactions of the directory this view has taken in.
  var compactions: UInt64
  var sortedIndex: SortedKeyIndex? {
    didSet { if sortedIndex == nil { orderInvalidations += 1 } }
  }
  /// How often the order was given up: one that is being made meanwhile must not take its place.
  private(set) var orderInvalidations = 0
  /// How many notes there were when they were last put together anew.
  var specialRecordsAtRewrite = 0
  /// May the notes name records that waited for their time, and were applied since?
  var specialRecordsAreStale = false
  /// Up to where the journal went when a compaction of others was last taken in: whatever that left out was beaten before.
  var compactionsAppliedAt = Location(segment: 0, offset: 0)
  /// Was the journal read before a writer had recovered it? What was read may be cut off then, and other segments have the names.
  var needsRecovery = false
  /// The last compaction that index and notes have taken in wholly.
  var installedCompaction: UInt32 = 0
  /// Is there a file of a segment that it has replaced, and that could not be removed?
  var hasUnremovedSegments = false
  /// What the index calls the last record that it has; 0 if that is not known.
  var lastRef: UInt64 = 0
  /// Was it made without reading the journal?
  var isRestored = false
  /// Is it the view of a store that is open? One that is being built shows itself to nobody.
  var isPublished = false
  /// Is it bringing the index up to date itself?
  var isWritingIndex = false
  /// Appends ordinary writes to the segment at the tail, as long as it `holds`.
  var writer: FastPathWriter?
  /// May an ordinary put go its short way? Tests compare it with the general one.
  var usesFastPath: Bool

  init(_ surroundings: EngineContext, journal: Journal, index: JournalIndex, compactions: UInt64) {
    (environment, control) = (surroundings.environment, surroundings.control)
    (files, isSoleProcess, readers) = (surroundings.files, surroundings.isSoleProcess, surroundings.readers)
    (self.journal, self.index, self.compactions) = (journal, index, compactions)
    usesFastPath = !environment.usesPwrite
  }

  /// What an engine works in.
  struct EngineContext {
    let environment: Environment
    let control: ControlPage
    let files: JournalIndex.Files
    let isSoleProcess: Bool
    let readers: EpochProtected
  }

  var context: EngineContext {
    EngineContext(
      environment: environment, control: control, files: files, isSoleProcess: isSoleProcess, readers: readers
    )
  }

  // MARK: Reading
  //
  // What a get or a put calls is `mutating` though it changes nothing: a method that is not gets a copy of the whole
  // engine, some 500 bytes, wherever the caller has it `inout`.

  /// The greatest applied record of a key in place, verified, its author known; nil if nothing is held.
  @inline(__always)
  mutating func view(of key: Span<UInt8>) throws(StoreError) -> RecordView? {
    try view(of: key, search(key))
  }

  @inline(__always)
  private mutating func view(of key: Span<UInt8>, _ search: Search) throws(StoreError) -> RecordView? {
    let location = search.found?.location
    if !gaps.isEmpty { try checkNotShadowedByDamage(key, found: location) }
    guard let location else { return nil }
    guard let segment = journal.segment(location.segment),
      let view = segment.record(at: location.offset, limit: segment.mapping.count)
    else { return try verifiedView(at: location) }
    return view.actor == nil ? try verifiedView(at: location) : view
  }

  /// The greatest applied record of a key, verified; nil if nothing is held.
  mutating func held(_ key: [UInt8]) throws(StoreError) -> Record? {
    guard let view = try view(of: key.span) else { return nil }
    guard let record = view.decoded() else { throw missingActorError(at: view.location) }
    try view.segment.checkUnchanged(at: view.offset)
    return record
  }

  /// The greatest applied record of a key that can be read, though one that is damaged may have been greater; nil if there is none. What
  /// comes from peers is measured by that: the lost one comes again by itself, and what can be read must not be lost beside it.
  mutating func readable(_ key: [UInt8]) -> Record? {
    guard let location = search(key.span).found?.location else { return nil }
    return try? record(at: location)
  }

  /// What a write of a key has to know of the record that it replaces. A damaged one can be overwritten.
  mutating func replaced(_ key: Span<UInt8>) -> ReplacedRecord? { replaced(key, search: search(key)) }

  /// The same for a key that was looked up.
  @inline(__always)
  mutating func replaced(_ key: Span<UInt8>, search: Search) -> ReplacedRecord? {
    if overdueParkedUpTo != nil, let shown = effectiveRecord(Array(copying: key)) { return shown.replaced }
    guard search.found != nil else { return nil }
    return (try? view(of: key, search))?.replaced
  }

  /// The record at a place, verified and decoded.
  func record(at location: Location) throws(StoreError) -> Record {
    try decoded(try journal.record(at: location))
  }

  /// The record of a view that `journal.record` gave.
  func decoded(_ view: RecordView) throws(StoreError) -> Record {
    guard let record = view.decoded() else { throw missingActorError(at: view.location) }
    try view.segment.checkUnchanged(at: view.offset)
    return record
  }

  /// The record at a place, or why it cannot be had.
  @inline(never)
  private mutating func verifiedView(at location: Location) throws(StoreError) -> RecordView {
    do throws(StoreError) {
      _ = try record(at: location)
      return try journal.record(at: location)
    } catch {
      if error.code == .damaged { recordDamageFound() }
      throw error
    }
  }

  private func missingActorError(at location: Location) -> StoreError {
    StoreError(
      .damaged,
      "the record at offset \(location.offset) lost the definition of its actor: run `Store.verify`",
      path: journal.path(of: location.segment))
  }

  /// The greatest held record of a key, parked or not: what the digest takes.
  func greatest(_ key: [UInt8], except excluded: Location? = nil) -> Record? {
    greatestWithPosition(key, except: excluded)?.record
  }

  /// The same, and its position.
  func greatestWithPosition(
    _ key: [UInt8], except excluded: Location? = nil
  ) -> (record: Record, position: UInt64)? {
    let places = [find(key)].compactMap { $0 } + (parked[key] ?? [])
    let placed = places.filter { $0 != excluded }.compactMap { place -> (record: Record, position: UInt64)? in
      guard let view = try? journal.record(at: place), let record = try? decoded(view) else { return nil }
      return (record, view.position)
    }
    return placed.max { $0.record.version < $1.record.version }
  }

  /// The key of the record at a place that was absorbed.
  func key(at location: Location) -> [UInt8] {
    guard let segment = journal.segment(location.segment) else { return [] }
    let view = RecordView(segment: segment, offset: location.offset)
    guard view.isReadable, let shape = view.shape else { return [] }
    return view.key(shape)
  }

  /// How many keys the index has, to set memory aside for; 0 if that cannot be told.
  var keyCount: UInt64 { (try? index.hashIndex.count).map { UInt64($0) } ?? 0 }

  /// Is the record at a place, whose key has this hash, the one that counts for its key, or parked?
  func isCurrent(at location: Location, _ hash: UInt64) -> Bool {
    guard let segment = journal.segment(location.segment) else { return false }
    if let slot = segment.slot {
      // Mostly the index names this very record: nobody need compare keys then.
      let place = SegmentTable.ref(slot: slot, offset: location.offset)
      if let found = try? index.hashIndex.find(hash, { $0 == place }), found == place { return true }
    }
    return (try? journal.record(at: location)).map { isCurrent($0) } ?? false
  }

  /// Is the record the one that counts for its key, or parked?
  func isCurrent(_ view: RecordView) -> Bool {
    guard let shape = view.shape else { return false }
    if let place = view.bytes.withSpan(shape.key, { find($0) }), isIndexed(view, at: place) { return true }
    guard !parked.isEmpty, let places = parked[view.key(shape)] else { return false }
    for place in places where isIndexed(view, at: place) { return true }
    return false
  }

  /// While a compaction is taken in, what is named may be the copy of this record.
  private func isIndexed(_ view: RecordView, at place: Location) -> Bool {
    place == view.location || isCopy(of: view, at: place)
  }

  /// A place at or before which the record of `position` lies.
  func start(of position: UInt64) -> Location {
    var (low, high) = (0, journal.segments.count)
    while low < high {
      let middle = (low + high) / 2
      if journal.segments[middle].header.basePosition < position { low = middle + 1 } else { high = middle }
    }
    guard low > 0 else {
      return Location(segment: journal.segments.first?.number ?? 0, offset: SegmentHeader.length)
    }
    let segment = journal.segments[low - 1]
    let limit =
      segment.number == applied.segment ? applied.offset : journal.closedLength(at: low - 1) ?? 0
    return Location(segment: segment.number, offset: segment.start(of: position, limit: limit))
  }

  /// Visits whole records from `location` on, up to what was absorbed. Damaged bytes are passed over; with `isComplete`
  /// only those that were known when the journal was read, any other is `.damaged`; without it `lost` hears of it.
  func visit(
    from location: Location, isComplete: Bool = false, lost: (Segment, Range<Int>) -> Void = { _, _ in },
    _ body: (RecordView) throws(StoreError) -> Bool
  ) throws(StoreError) {
    guard let first = journal.index(of: location.segment), let last = journal.index(of: applied.segment),
      first <= last
    else { return }
    for place in first...last {
      let segment = journal.segments[place]
      let limit = segment.number == applied.segment ? applied.offset : journal.closedLength(at: place) ?? 0
      let start = segment.number == location.segment ? location.offset : SegmentHeader.length
      guard start < limit else { continue }
      var walker = ResyncingRecordIterator(segment, from: start, limit: limit)
      while let step = walker.next() {
        switch step {
        case .record(let view):
          let goesOn = try body(view)
          try segment.checkUnchanged(at: view.offset)
          if !goesOn { return }
        case .gap(let range):
          if gapSet.contains(JournalDamage(segment: segment.number, bytes: range)) { continue }
          guard isComplete else {
            lost(segment, range)
            continue
          }
          if let error = segment.faultError { throw error }
          recordDamageFound()
          throw StoreError(
            .damaged, "bytes \(range) were damaged while in use: open the store again, which mends it",
            path: segment.file.path)
        }
      }
    }
  }

  // MARK: Writing

  /// Does this copy's vector cover the write?
  func covers(_ dot: Dot) -> Bool { state.covers(dot) }

  /// Composes an append that is made at `wall`, in milliseconds since 1970, of `limit` bytes at most.
  func transactionBuilder(wall: UInt64, limit: Int) -> TransactionBuilder {
    TransactionBuilder(
      state: state, wall: wall, position: position, limit: limit, hashSeed: index.hashIndex.seed)
  }

  // MARK: Keys

  /// Is the record at a place whose hash fits of this key? One that was damaged since counts as it: who reads it is told
  /// so, rather than that there is nothing (F37).
  @inline(__always)
  static func matches(_ key: Span<UInt8>, in segment: Segment, at offset: Int) -> Bool {
    let view = RecordView(segment: segment, offset: offset)
    if view.isReadable, let shape = view.shape, view.bytes.equals(shape.key, key) { return true }
    return segment.record(at: offset, limit: segment.mapping.count) == nil
  }
}
