/// One process's view of a store: the mapped journal, the index and the state of this copy, as far as the journal was
/// read. A struct under the store's lock.
///
/// Invariants: everything here can be rebuilt from the journal; it changes only by `absorb`, which reads committed bytes,
/// the same way for own writes, for those of other processes and at opening.
struct Engine {
  let environment: Environment
  var journal: Journal
  /// Up to where the journal was read.
  var applied = Location(segment: 0, offset: 0)
  var index = KeyIndex()
  var state = ReplicaState()
  var locals: [[UInt8]: [UInt8]] = [:]
  /// Where the records of those are.
  var localPlaces: [[UInt8]: Location] = [:]
  /// Records stamped too far ahead, by key; not applied yet.
  var parked: [[UInt8]: [Location]] = [:]
  /// The beaten sides of conflicts.
  var losers: [Location] = []
  /// Which writes those are: one that is delivered again is not kept again (F66).
  var keptLosers: Set<Dot> = []
  /// Keys whose greatest record has a deadline: their part of the digest depends on the time.
  var expiring: Set<[UInt8]> = []
  /// Committed bytes that are no records, as far as the journal was read.
  var gaps: [JournalDamage] = []
  /// Keys whose record stood in such a place, as far as that can be told.
  var damagedKeys: [[UInt8]: Location] = [:]
  var unattributed: [Location] = []
  /// The last position in the journal.
  var position: UInt64 = 0
  /// Keys of the store's own that are held: few, and looked through at every handshake.
  var reserved: Set<[UInt8]> = []
  var pins: [HeldPin] = []
  /// About how many bytes of sealed segments do not count any more, and at how many it is looked at closely.
  var deadBytes = 0
  var reviewAt = 0
  var samples: [(position: UInt64, location: Location)] = []
  var nextSample: UInt64 = 0
  /// How many compactions of the directory this view has taken in.
  var compactions: UInt64
  var digest: StateDigest?
  var ordered: OrderedView?
  /// Not to be guessed by who chooses the keys.
  let hashSeed: UInt64
  /// May an ordinary put go its short way? Tests compare it with the general one.
  var takesShortWay = true

  static let samplingInterval: UInt64 = 128

  struct HeldPin {
    weak var pin: SnapshotPin?
  }

  init(environment: Environment, journal: Journal, compactions: UInt64) {
    (self.environment, self.journal, self.compactions) = (environment, journal, compactions)
    hashSeed = environment.randomWord()
  }

  // MARK: Reading
  //
  // What a get or a put calls is `mutating` though it changes nothing: a method that is not gets a copy of the whole
  // engine, some 500 bytes, wherever the caller has it `inout`.

  /// Where the greatest applied record of a key is.
  func find(_ key: [UInt8]) -> Location? {
    Self.search(key.span, index, journal.table, seed: hashSeed).found?.location
  }

  /// What the index knows of a key, until the engine is changed.
  struct Search {
    var hash: UInt64
    /// Where the greatest applied record is; nil if nothing is held.
    var found: (slot: Int, location: Location)?
  }

  /// Looks a key up in the index.
  @inline(__always)
  mutating func search(_ key: Span<UInt8>) -> Search {
    Self.search(key, index, journal.table, seed: hashSeed)
  }

  @inline(__always)
  private static func search(
    _ key: Span<UInt8>, _ index: KeyIndex, _ segments: SegmentTable, seed: UInt64
  ) -> Search {
    let hash = XXH3.hash64(key, seed: seed)
    return Search(hash: hash, found: index.find(hash) { Self.matches(key, $0, in: segments) })
  }

  /// The greatest applied record of a key in place, verified, its author known; nil if nothing is held.
  @inline(__always)
  mutating func view(of key: Span<UInt8>) throws(StoreError) -> RecordView? {
    try view(of: key, search(key))
  }

  @inline(__always)
  private mutating func view(of key: Span<UInt8>, _ search: Search) throws(StoreError) -> RecordView? {
    let location = search.found?.location
    if !gaps.isEmpty { try checkCertain(key, location) }
    guard let location else { return nil }
    guard let segment = journal.segment(location.segment),
      let view = segment.record(at: location.offset, limit: segment.mapping.count)
    else { return try whole(at: location) }
    return view.actor == nil ? try whole(at: location) : view
  }

  /// The greatest applied record of a key, verified; nil if nothing is held.
  mutating func held(_ key: [UInt8]) throws(StoreError) -> Record? {
    guard let view = try view(of: key.span) else { return nil }
    guard let record = view.decoded() else { throw lostAuthor(at: view.location) }
    return record
  }

  /// What a write of a key has to know of the record that it replaces. A damaged one can be overwritten.
  mutating func replaced(_ key: Span<UInt8>) -> Replaced? { replaced(key, search(key)) }

  /// The same for a key that was looked up.
  @inline(__always)
  mutating func replaced(_ key: Span<UInt8>, _ search: Search) -> Replaced? {
    guard search.found != nil else { return nil }
    return (try? view(of: key, search))?.replaced
  }

  /// The record at a place, verified and decoded.
  func record(at location: Location) throws(StoreError) -> Record {
    let view = try journal.record(at: location)
    guard let record = view.decoded() else { throw lostAuthor(at: location) }
    return record
  }

  /// The record at a place, or why it cannot be had.
  @inline(never)
  private mutating func whole(at location: Location) throws(StoreError) -> RecordView {
    _ = try record(at: location)
    return try journal.record(at: location)
  }

  private func lostAuthor(at location: Location) -> StoreError {
    StoreError(
      .damaged,
      "the record at offset \(location.offset) lost the definition of its actor: run `verify --repair`",
      path: journal.path(of: location.segment))
  }

  /// The greatest held record of a key, parked or not: what the digest takes.
  func greatest(_ key: [UInt8]) -> Record? {
    let records = ([find(key)].compactMap { $0 } + (parked[key] ?? [])).compactMap { try? record(at: $0) }
    return records.max { $0.version < $1.version }
  }

  /// Applied records in the order of their keys.
  mutating func orderedView() throws(StoreError) -> OrderedView {
    if var view = ordered, view.upTo != applied {
      var changes: [Location] = []
      try visit(from: view.upTo) { record throws(StoreError) in
        if record.isWrite, let shape = record.shape, find(record.key(shape)) == record.location {
          changes.append(record.location)
        }
        return changes.count <= view.locations.count / 4
      }
      // Merging copies the view; from some number of changes on, sorting all is no slower.
      if changes.count <= view.locations.count / 4 {
        ordered = nil
        view.merge(changes, upTo: applied, in: journal)
        ordered = view
        return view
      }
    } else if let ordered {
      return ordered
    }
    let view = OrderedView(index.locations, upTo: applied, in: journal)
    ordered = view
    return view
  }

  /// The key of the record at a place that was absorbed.
  func key(at location: Location) -> [UInt8] {
    guard let segment = journal.segment(location.segment) else { return [] }
    let view = RecordView(segment: segment, offset: location.offset)
    guard view.isReadable, let shape = view.shape else { return [] }
    return view.key(shape)
  }

  /// Is the record the one that counts for its key, or parked?
  func isCurrent(_ view: RecordView) -> Bool {
    guard let shape = view.shape else { return false }
    let key = view.key(shape)
    // While a compaction is taken in, what is named may be the copy of this record.
    let isNamed = { (place: Location) in place == view.location || isCopy(of: view, at: place) }
    return find(key).map(isNamed) ?? false || parked[key]?.contains(where: isNamed) ?? false
  }

  /// A place at or before which the record of `position` lies.
  func start(of position: UInt64) -> Location {
    var low = 0
    var high = samples.count
    while low < high {
      let middle = (low + high) / 2
      if samples[middle].position <= position { low = middle + 1 } else { high = middle }
    }
    guard low > 0 else {
      return Location(segment: journal.segments.first?.number ?? 0, offset: SegmentHeader.length)
    }
    return samples[low - 1].location
  }

  /// Visits whole records from `location` on, up to what was absorbed. Damaged bytes are passed over; with `isComplete`
  /// only those that were known when the journal was read, any other is `.damaged`.
  func visit(
    from location: Location, isComplete: Bool = false, _ body: (RecordView) throws(StoreError) -> Bool
  ) throws(StoreError) {
    guard let first = journal.place(of: location.segment), let last = journal.place(of: applied.segment),
      first <= last
    else { return }
    for place in first...last {
      let segment = journal.segments[place]
      let limit = segment.number == applied.segment ? applied.offset : journal.sealedLength(at: place) ?? 0
      let start = segment.number == location.segment ? location.offset : SegmentHeader.length
      guard start < limit else { continue }
      var walker = SegmentWalker(segment, from: start, limit: limit)
      while let step = walker.next() {
        switch step {
        case .record(let view): if try !body(view) { return }
        case .gap(let range):
          guard isComplete, !gaps.contains(JournalDamage(segment: segment.number, bytes: range)) else {
            continue
          }
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
  func composer(wall: UInt64, limit: Int) -> Composer {
    Composer(state: state, wall: wall, limit: limit, hashSeed: hashSeed)
  }

  // MARK: Keys

  /// Is the record at a place whose hash fits of this key? One that was damaged since counts as it: who reads it is told
  /// so, rather than that there is nothing (F37).
  @inline(__always)
  private static func matches(_ key: Span<UInt8>, _ location: Location, in segments: SegmentTable) -> Bool {
    guard let segment = segments[location.segment] else { return false }
    let view = RecordView(segment: segment, offset: location.offset)
    if view.isReadable, let shape = view.shape, view.bytes.equals(shape.key, key) { return true }
    return segment.record(at: location.offset, limit: segment.mapping.count) == nil
  }
}
