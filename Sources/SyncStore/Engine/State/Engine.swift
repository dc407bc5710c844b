/// One process's view of a store: the mapped journal, the index and the replica state, as far as the journal
/// was replayed. A struct under the store's lock.
///
/// Invariants: everything here can be rebuilt from the journal. It changes only by replay, which reads
/// committed bytes, in the same way for own writes, for those of other processes and at opening.
struct Engine {
  /// What the view works with; fixed for its lifetime.
  let context: Context
  var journal: Journal
  /// The journal was replayed up to here.
  var applied = Location(segment: 0, offset: 0)
  /// The last position in the journal.
  var position: UInt64 = 0
  /// Record ref of the last indexed record; 0 if unknown.
  var lastRef: UInt64 = 0
  var index: JournalIndex
  var state = ReplicaState()
  var localMetadata = LocalMetadata()
  var parked = ParkedRecords()
  var losers = ConflictLosers()
  /// Keys whose greatest record has a deadline, and some that had one: their part of the digest depends on
  /// the time. Nil until first needed.
  var expiring: Set<[UInt8]>?
  /// Reserved keys that are held: few, and searched at every handshake.
  var reserved: Set<[UInt8]> = []
  var damage = KnownDamage()
  /// State of a run of large batches; the next single record has to finish it.
  var batchBuffer: BatchBuffer?
  var pinned = PinnedMappings()
  var compaction: CompactionProgress
  var sortedKeys = CachedKeyOrder()
  var specialRecords = SpecialRecordList()
  var status = Status()
  var fastPath: FastPath

  init(_ context: Context, journal: Journal, index: JournalIndex, compactions: UInt64) {
    (self.context, self.journal, self.index) = (context, journal, index)
    compaction = CompactionProgress(count: compactions)
    fastPath = FastPath(isOn: !context.environment.usesPwrite)
  }

  /// The environment in which an engine works.
  struct Context {
    let environment: Environment
    let control: ControlPage
    let files: JournalIndex.Files
    /// Whether this is the only process that uses the directory.
    let isSoleProcess: Bool
    /// The view that threads read without the lock.
    let readers: EpochProtected
  }

  /// Pins of readers, which keep replaced segments mapped.
  struct PinnedMappings {
    var all: [HeldPin] = []
    /// Bytes of replaced segments that pins may keep mapped. Tests lower it.
    var limit = Limits.heldBytes
  }

  /// How far compactions of the directory have been applied, and when the next one is due.
  struct CompactionProgress {
    /// Number of compactions of the directory that this view has applied.
    var count: UInt64
    /// End of the journal when compactions of other processes were last applied: every record they dropped
    /// was beaten before it.
    var appliedAt = Location(segment: 0, offset: 0)
    /// The last compaction that is completely installed in index and special records.
    var installed: UInt32 = 0
    /// Whether the file of a replaced segment could not be removed.
    var hasUnremovedSegments = false
    /// Approximate number of dead bytes in closed segments, and the value at which they are recounted.
    var deadBytes = 0
    var deadBytesReviewThreshold = 0
  }

  /// All keys in order, as of the last scan.
  struct CachedKeyOrder {
    var index: SortedKeyIndex? {
      didSet { if index == nil { invalidations += 1 } }
    }
    /// How often the index was invalidated: an order being built concurrently must not be installed after
    /// that.
    private(set) var invalidations = 0
  }

  /// The list of special records in the index checkpoint.
  struct SpecialRecordList {
    /// Their number when the list was last rewritten.
    var countAtRewrite = 0
    /// Whether the list may name parked records that were applied since.
    var isStale = false
  }

  struct Status {
    /// Whether the journal was read before a writer had recovered it: what was read may yet be truncated and
    /// segments renamed.
    var needsRecovery = false
    /// Whether this view was restored from the checkpoint, without replay.
    var isRestored = false
    /// Whether this is the view of an open store. A view under construction must not be published.
    var isPublished = false
    /// Whether this view is writing the index.
    var isWritingIndex = false
  }

  struct FastPath {
    /// Appends simple records to the active segment, as long as `FastPathWriter.isValid` holds.
    var writer: FastPathWriter?
    /// Whether puts may take the fast path. Tests turn it off to compare it with the general path.
    var isOn: Bool
  }

  // MARK: Reading
  //
  // The functions that a get or a put calls are `mutating` although they change nothing: a non-mutating
  // method gets a copy of the whole engine, some 500 bytes, wherever the caller has it `inout`.

  /// The greatest applied record of a key in place, verified, with known actor; nil if there is none.
  @inline(__always)
  mutating func view(of key: Span<UInt8>) throws(StoreError) -> RecordView? {
    try view(of: key, search(key))
  }

  @inline(__always)
  private mutating func view(of key: Span<UInt8>, _ search: Search) throws(StoreError) -> RecordView? {
    let location = search.found?.location
    if !damage.gaps.isEmpty { try checkNotShadowedByDamage(key, found: location) }
    guard let location else { return nil }
    guard let segment = journal.segment(location.segment),
      let view = segment.record(at: location.offset, limit: segment.mapping.count)
    else { return try verifiedView(at: location) }
    return view.actor == nil ? try verifiedView(at: location) : view
  }

  /// The greatest applied record of a key, verified; nil if there is none.
  mutating func held(_ key: [UInt8]) throws(StoreError) -> Record? {
    guard let view = try view(of: key.span) else { return nil }
    guard let record = view.decoded() else { throw missingActorError(at: view.location) }
    try view.segment.checkUnchanged(at: view.offset)
    return record
  }

  /// The greatest applied record of a key that is readable, even if a damaged one may have been greater; nil
  /// if there is none. Records from peers are compared with it: the lost record will come again by itself,
  /// but a readable one must not be lost too.
  mutating func readable(_ key: [UInt8]) -> Record? {
    guard let location = search(key.span).found?.location else { return nil }
    return try? record(at: location)
  }

  /// The facts about the replaced record that a write needs. A damaged record may be overwritten.
  mutating func replaced(_ key: Span<UInt8>) -> ReplacedRecord? { replaced(key, search: search(key)) }

  /// The facts about the replaced record that a write needs, for a key already looked up.
  @inline(__always)
  mutating func replaced(_ key: Span<UInt8>, search: Search) -> ReplacedRecord? {
    if parked.overdueUpTo != nil, let shown = effectiveRecord(Array(copying: key)) { return shown.replaced }
    guard search.found != nil else { return nil }
    return (try? view(of: key, search))?.replaced
  }

  /// The record at a location, verified and decoded.
  func record(at location: Location) throws(StoreError) -> Record {
    try decoded(try journal.record(at: location))
  }

  /// Decodes a view obtained from `journal.record`.
  func decoded(_ view: RecordView) throws(StoreError) -> Record {
    guard let record = view.decoded() else { throw missingActorError(at: view.location) }
    try view.segment.checkUnchanged(at: view.offset)
    return record
  }

  /// The verified record at a location, or the reason why it cannot be read.
  @inline(never)
  private mutating func verifiedView(at location: Location) throws(StoreError) -> RecordView {
    do throws(StoreError) {
      _ = try record(at: location)
      return try journal.record(at: location)
    } catch {
      if error.code == .damaged, !missesInstall { recordDamageFound() }
      throw error
    }
  }

  private func missingActorError(at location: Location) -> StoreError {
    StoreError(
      .damaged,
      "the record at offset \(location.offset) lost the definition of its actor: run `Store.verify`",
      path: journal.path(of: location.segment))
  }

  /// The greatest record of a key, parked or not, as the digest counts it.
  func greatest(_ key: [UInt8], except excluded: Location? = nil) -> Record? {
    greatestWithPosition(key, except: excluded)?.record
  }

  /// The greatest record of a key, parked or not, with its position.
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

  /// The key of a replayed record at a location.
  func key(at location: Location) -> [UInt8] {
    guard let segment = journal.segment(location.segment) else { return [] }
    let view = RecordView(segment: segment, offset: location.offset)
    guard view.isReadable, let shape = view.shape else { return [] }
    return view.key(shape)
  }

  /// Number of keys in the index, for reserving capacity; 0 if unknown.
  var keyCount: UInt64 { (try? index.hashIndex.count).map { UInt64($0) } ?? 0 }

  /// Whether the record at a location, whose key has this hash, is the current one of its key, or parked.
  func isCurrent(at location: Location, _ hash: UInt64) -> Bool {
    guard let segment = journal.segment(location.segment) else { return false }
    if let slot = segment.slot {
      // Usually the index refers to this very record: no keys need to be compared.
      let place = SegmentTable.ref(slot: slot, offset: location.offset)
      if let found = try? index.hashIndex.find(hash, { $0 == place }), found == place { return true }
    }
    return (try? journal.record(at: location)).map { isCurrent($0) } ?? false
  }

  /// Whether a record is the current one of its key, or parked.
  func isCurrent(_ view: RecordView) -> Bool {
    guard let shape = view.shape else { return false }
    if let place = view.bytes.withSpan(shape.key, { find($0) }), isIndexed(view, at: place) { return true }
    guard !parked.isEmpty, let places = parked[view.key(shape)] else { return false }
    for place in places where isIndexed(view, at: place) { return true }
    return false
  }

  /// While a compaction is being installed, the index may refer to the copy of this record.
  private func isIndexed(_ view: RecordView, at place: Location) -> Bool {
    place == view.location || isCopy(of: view, at: place)
  }

  /// A location at or before the record with `position`.
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

  /// Visits intact records from `location` up to the replayed end, skipping damaged bytes. With `isComplete`,
  /// damage not already known when the journal was replayed throws `.damaged`; without it, `lost` receives
  /// it.
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
          if damage.gapSet.contains(JournalDamage(segment: segment.number, bytes: range)) { continue }
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

  /// Whether this copy's vector covers the write.
  func covers(_ dot: Dot) -> Bool { state.covers(dot) }

  /// A transaction builder for an append at `wall`, in milliseconds since 1970, of at most `limit` bytes.
  func transactionBuilder(wall: UInt64, limit: Int) -> TransactionBuilder {
    TransactionBuilder(
      state: state, wall: wall, position: position, limit: limit, hashSeed: index.hashIndex.seed)
  }

  // MARK: Keys

  /// Whether the record at a location with matching hash has this key. A record damaged since counts as a
  /// match: reading it then fails, instead of reporting the key as absent (F37).
  @inline(__always)
  static func matches(_ key: Span<UInt8>, in segment: Segment, at offset: Int) -> Bool {
    let view = RecordView(segment: segment, offset: offset)
    if view.isReadable, let shape = view.shape, view.bytes.equals(shape.key, key) { return true }
    return segment.record(at: offset, limit: segment.mapping.count) == nil
  }
}
