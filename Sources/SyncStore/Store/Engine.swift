/// One process's view of a store: the mapped journal, the index and the state of this copy, as far as the journal was
/// read. A struct under the store's lock.
///
/// Invariants: everything here can be rebuilt from the journal; it changes only by `absorb`, which reads committed bytes,
/// the same way for own writes, for those of other processes and at opening.
struct Engine {
  let environment: Environment
  var journal: Journal
  /// Up to where the journal was read.
  private(set) var applied = Location(segment: 0, offset: 0)
  private(set) var index = KeyIndex()
  private(set) var state = ReplicaState()
  private(set) var locals: [[UInt8]: [UInt8]] = [:]
  /// Records stamped too far ahead, by key; not applied yet.
  private(set) var parked: [[UInt8]: [Location]] = [:]
  /// The beaten sides of conflicts.
  private(set) var losers: [Location] = []
  /// Which writes those are: one that is delivered again is not kept again (F66).
  private(set) var keptLosers: Set<Dot> = []
  /// Keys whose greatest record has a deadline: their part of the digest depends on the time.
  private(set) var expiring: Set<[UInt8]> = []
  /// Committed bytes that are no records, as far as the journal was read.
  private(set) var gaps: [JournalDamage] = []
  /// Keys whose record stood in such a place, as far as that can be told.
  private(set) var damagedKeys: [[UInt8]: Location] = [:]
  private var unattributed: [Location] = []
  /// The last position in the journal.
  private(set) var position: UInt64 = 0
  /// Keys of the store's own that are held: few, and looked through at every handshake.
  private(set) var reserved: Set<[UInt8]> = []
  private var samples: [(position: UInt64, location: Location)] = []
  private var nextSample: UInt64 = 0
  private var digest: StateDigest?
  private var ordered: [Location]?
  /// Not to be guessed by who chooses the keys.
  let hashSeed: UInt64
  /// May an ordinary put go its short way? Tests compare it with the general one.
  var takesShortWay = true

  private static let samplingInterval: UInt64 = 128

  init(environment: Environment, journal: Journal) {
    (self.environment, self.journal) = (environment, journal)
    hashSeed = environment.randomWord()
  }

  // MARK: Reading
  //
  // What a get or a put calls is `mutating` though it changes nothing: a method that is not gets a copy of the whole
  // engine, some 500 bytes, wherever the caller has it `inout`.

  /// Where the greatest applied record of a key is.
  func find(_ key: [UInt8]) -> Location? {
    Self.search(key.span, index, journal.segments, seed: hashSeed).found?.location
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
    Self.search(key, index, journal.segments, seed: hashSeed)
  }

  @inline(__always)
  private static func search(
    _ key: Span<UInt8>, _ index: KeyIndex, _ segments: [Segment], seed: UInt64
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
    guard let segment = Journal.segment(location.segment, in: journal.segments),
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
  private func greatest(_ key: [UInt8]) -> Record? {
    let records = ([find(key)].compactMap { $0 } + (parked[key] ?? [])).compactMap { try? record(at: $0) }
    return records.max { $0.version < $1.version }
  }

  /// Applied records in the order of their keys.
  mutating func orderedLocations() -> [Location] {
    if let ordered { return ordered }
    let keyed = index.locations.map { (key: key(at: $0), location: $0) }
    let sorted = keyed.sorted { $0.key.lexicographicallyPrecedes($1.key) }.map(\.location)
    ordered = sorted
    return sorted
  }

  /// The key of the record at a place that was absorbed.
  func key(at location: Location) -> [UInt8] {
    guard let segment = journal.segment(location.segment),
      let shape = RecordView(segment: segment, offset: location.offset).shape
    else { return [] }
    return segment.mapping.bytes(shape.key)
  }

  /// Is the record the one that counts for its key, or parked?
  func isCurrent(_ view: RecordView) -> Bool {
    guard let shape = view.shape else { return false }
    let key = view.key(shape)
    return find(key) == view.location || parked[key]?.contains(view.location) == true
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
    for (place, segment) in journal.segments.enumerated()
    where segment.number >= location.segment && segment.number <= applied.segment {
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

  // MARK: Taking in

  /// Reads the journal on, up to `end`, which lies in a mapped segment.
  mutating func absorb(upTo end: Location) {
    if applied.segment == 0, let first = journal.segments.first {
      applied = Location(segment: first.number, offset: SegmentHeader.length)
    }
    let limit = Stamp(milliseconds: environment.now() + Limits.clockDriftMilliseconds)
    while applied < end, let segment = journal.segment(applied.segment) {
      let place = Int(segment.number - journal.segments[0].number)
      let stop = segment.number == end.segment ? end.offset : journal.sealedLength(at: place) ?? 0
      var walker = SegmentWalker(segment, from: applied.offset, limit: stop)
      while let step = walker.next() {
        switch step {
        case .record(let view): absorb(view, limit: limit)
        case .gap(let range): noteGap(range, in: segment)
        }
      }
      applied =
        segment.number == end.segment
        ? end : Location(segment: segment.number + 1, offset: SegmentHeader.length)
    }
  }

  /// Takes in what this process has just appended, up to `end`: as any other records, but that its checksums, computed a
  /// moment ago from the same bytes, are not computed again.
  mutating func absorb(own end: Location, wall: UInt64) {
    let limit = Stamp(milliseconds: wall + Limits.clockDriftMilliseconds)
    if applied.segment != end.segment {
      absorb(upTo: Location(segment: end.segment, offset: SegmentHeader.length))
    }
    guard let segment = journal.segment(end.segment) else { return }
    var offset = applied.offset
    while offset < end.offset {
      let view = RecordView(segment: segment, offset: offset)
      offset = view.end
      absorb(view, limit: limit)
    }
    applied = end
  }

  /// The same for one write, with what is known of it without reading it again. `search` was made of its key, and nothing
  /// was changed since.
  @inline(__always)
  mutating func absorb(
    own write: Write, in segment: Segment, _ bytes: Range<Int>, _ search: Search, wall: UInt64
  ) {
    let limit = Stamp(milliseconds: wall + Limits.clockDriftMilliseconds)
    position = max(position, write.position)
    take(write, at: RecordView(segment: segment, offset: bytes.lowerBound), search, limit: limit)
    applied = Location(segment: segment.number, offset: bytes.upperBound)
  }

  private mutating func noteGap(_ range: Range<Int>, in segment: Segment) {
    note(JournalDamage(segment: segment.number, bytes: range), of: DamagedRecord.key(in: range, of: segment))
  }

  private mutating func note(_ damage: JournalDamage, of key: [UInt8]?) {
    guard !gaps.contains(damage) else { return }
    gaps.append(damage)
    let location = damage.place
    if let key {
      damagedKeys[key] = max(damagedKeys[key] ?? location, location)
    } else {
      unattributed.append(location)
    }
  }

  /// Fails if a damaged record may have been a newer one of this key: better no answer than a wrong one (F37).
  private mutating func checkCertain(_ key: Span<UInt8>, _ found: Location?) throws(StoreError) {
    let suspects = unattributed + [damagedKeys[Array(copying: key)]].compactMap { $0 }
    guard
      let gap = suspects.first(where: { gap in
        gap > found ?? Location(packed: 0) && !state.resolved.contains(gap)
      })
    else { return }
    throw StoreError(
      .damaged,
      "a damaged record at offset \(gap.offset) may hold this key's latest value: run `verify --repair`",
      path: journal.path(of: gap.segment))
  }

  private mutating func absorb(_ view: RecordView, limit: Stamp) {
    position = max(position, view.position)
    switch view.kind {
    case .actor:
      guard let shape = view.shape, let actor = ActorID(bytes: view.key(shape)) else { return }
      view.segment.define(actor, as: view.actorNumber)
    case .local:
      guard let shape = view.shape else { return }
      let (key, value) = (view.key(shape), view.value(shape))
      state.absorb(local: key, value)
      locals[key] = value
    case .localRemoval:
      guard let shape = view.shape else { return }
      let key = view.key(shape)
      state.absorb(local: key, nil)
      locals[key] = nil
    case .value, .blob, .tombstone:
      if view.flags.contains(.loser) {
        losers.append(view.location)
        if let dot = view.dot { keptLosers.insert(dot) }
      } else {
        absorb(write: view, limit: limit)
      }
    case .checkpoint, nil: break
    }
  }

  private mutating func absorb(write view: RecordView, limit: Stamp) {
    guard let shape = view.shape else { return }
    guard let version = view.version else {
      // Both definitions of its author's number are lost, and with them whether it beats what is held.
      return note(
        JournalDamage(segment: view.segment.number, bytes: view.offset..<view.end), of: view.key(shape))
    }
    let search = view.segment.mapping.withSpan(shape.key) { self.search($0) }
    let write = Write(
      version: version, position: view.position, hasDeadline: shape.deadline != nil,
      isReserved: view.isReserved(shape))
    take(write, at: view, search, limit: limit)
  }

  /// What is taken in of a write.
  struct Write {
    var version: Version
    var position: UInt64
    var hasDeadline: Bool
    var isReserved: Bool
  }

  /// Takes in a write which stands at `view`; `search` is what the index knows of its key.
  @inline(__always)
  private mutating func take(_ write: Write, at view: RecordView, _ search: Search, limit: Stamp) {
    if write.position >= nextSample {
      samples.append((write.position, view.location))
      nextSample = write.position + Self.samplingInterval
    }
    // Own writes are never parked: their author sees them at once, even after its clock was put back.
    let applies = write.version.stamp <= limit || state.isMine(write.version.dot)
    state.absorb(write.version, applied: applies)
    if applies, digest == nil, !write.hasDeadline, expiring.isEmpty {
      hold(write.version, isReserved: write.isReserved, at: view, search)
    } else {
      takeNotingChange(write, at: view, search, applies: applies)
    }
  }

  @inline(never)
  private mutating func takeNotingChange(
    _ write: Write, at view: RecordView, _ search: Search, applies: Bool
  ) {
    guard let shape = view.shape else { return }
    let key = view.key(shape)
    let before = digest == nil ? nil : greatest(key)
    if applies {
      hold(write.version, isReserved: write.isReserved, at: view, search)
    } else {
      parked[key, default: []].append(view.location)
    }
    noteChange(of: key, from: before, deadline: write.hasDeadline)
  }

  private mutating func hold(
    _ version: Version, isReserved: Bool, at view: RecordView, _ search: Search
  ) {
    if let found = search.found {
      if let segment = Journal.segment(found.location.segment, in: journal.segments),
        let old = RecordView(segment: segment, offset: found.location.offset).version, old >= version,
        (try? journal.record(at: found.location)) != nil
      {
        return
      }
      index.move(found.slot, to: view.location)
    } else {
      let (segments, seed) = (journal.segments, hashSeed)
      index.insert(search.hash, view.location) { Self.hash(at: $0, in: segments, seed: seed) }
      if isReserved, let shape = view.shape { reserved.insert(view.key(shape)) }
    }
    if ordered != nil { ordered = nil }
  }

  private mutating func noteChange(of key: [UInt8], from before: Record?, deadline: Bool) {
    if deadline {
      expiring.insert(key)
    } else if expiring.contains(key), greatest(key)?.deadline == nil {
      expiring.remove(key)
    }
    guard digest != nil else { return }
    if let before, Self.counts(before) { digest?.remove(before) }
    if let after = greatest(key), Self.counts(after) { digest?.add(after) }
  }

  /// Does the record count in the running part of the digest? What has a deadline is added when a time is known.
  private static func counts(_ record: Record) -> Bool {
    !record.isReserved && !record.isTombstone && record.deadline == nil
  }

  /// The digest of what is live at `time`, in milliseconds since 1970. Computed from all keys when first asked for, then
  /// kept running.
  mutating func digest(at time: UInt64) throws(StoreError) -> StateDigest {
    var running: StateDigest
    if let digest {
      running = digest
    } else {
      running = StateDigest()
      for location in index.locations {
        let record = try record(at: location)
        if parked[record.key] == nil, Self.counts(record) { running.add(record) }
      }
      for key in parked.keys {
        if let record = greatest(key), Self.counts(record) { running.add(record) }
      }
      digest = running
    }
    for key in expiring {
      guard let record = greatest(key), let deadline = record.deadline, deadline > time, !record.isTombstone,
        !record.isReserved
      else { continue }
      running.add(record)
    }
    return running
  }

  // MARK: Parked records

  /// Parked records whose time has come by `limit`, in the order of their versions.
  func due(upTo limit: Stamp) -> [Location] {
    var due: [(Version, Location)] = []
    for location in parked.values.joined() {
      guard let version = try? journal.record(at: location).version, version.stamp <= limit else { continue }
      due.append((version, location))
    }
    return due.sorted { $0.0 < $1.0 }.map(\.1)
  }

  /// Applies a record that was parked; it is not parked any more.
  mutating func release(_ location: Location) throws(StoreError) {
    let view = try journal.record(at: location)
    guard let shape = view.shape, let version = view.version else { return }
    let key = view.key(shape)
    let before = digest == nil ? nil : greatest(key)
    let left = (parked[key] ?? []).filter { $0 != location }
    parked[key] = left.isEmpty ? nil : left
    state.absorb(version, applied: true)
    hold(version, isReserved: view.isReserved(shape), at: view, search(key.span))
    noteChange(of: key, from: before, deadline: shape.deadline != nil)
  }

  // MARK: Keys

  private static func hash(of key: Range<Int>, in segment: Segment, seed: UInt64) -> UInt64 {
    segment.mapping.withBytes(key) { XXH3.hash64($0, seed: seed) }
  }

  /// The hash of the key of the record at a place that was absorbed.
  private static func hash(at location: Location, in segments: [Segment], seed: UInt64) -> UInt64 {
    guard let segment = Journal.segment(location.segment, in: segments),
      let shape = RecordView(segment: segment, offset: location.offset).shape
    else { return 0 }
    return hash(of: shape.key, in: segment, seed: seed)
  }

  /// Is the record at a place whose hash fits of this key? One that was damaged since counts as it: who reads it is told
  /// so, rather than that there is nothing (F37).
  @inline(__always)
  private static func matches(_ key: Span<UInt8>, _ location: Location, in segments: [Segment]) -> Bool {
    guard let segment = Journal.segment(location.segment, in: segments) else { return false }
    if let shape = RecordView(segment: segment, offset: location.offset).shape,
      segment.mapping.equals(shape.key, key)
    {
      return true
    }
    return segment.record(at: location.offset, limit: segment.mapping.count) == nil
  }
}
