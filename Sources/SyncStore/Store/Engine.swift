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
  var index = KeyIndex()
  private(set) var state = ReplicaState()
  private(set) var locals: [[UInt8]: [UInt8]] = [:]
  /// Where the records of those are.
  var localPlaces: [[UInt8]: Location] = [:]
  /// Records stamped too far ahead, by key; not applied yet.
  var parked: [[UInt8]: [Location]] = [:]
  /// The beaten sides of conflicts.
  var losers: [Location] = []
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
  var pins: [HeldPin] = []
  /// About how many bytes of sealed segments do not count any more, and at how many it is looked at closely.
  var deadBytes = 0
  var reviewAt = 0
  var samples: [(position: UInt64, location: Location)] = []
  /// How many compactions of the directory this view has taken in.
  var compactions: UInt64
  private var digest: StateDigest?
  var ordered: OrderedView?
  private let hashSeed: UInt64

  static let samplingInterval: UInt64 = 128

  struct HeldPin {
    weak var pin: SnapshotPin?
  }

  init(environment: Environment, journal: Journal, compactions: UInt64) {
    (self.environment, self.journal, self.compactions) = (environment, journal, compactions)
    hashSeed = environment.randomWord()
  }

  // MARK: Reading

  /// Where the greatest applied record of a key is.
  func find(_ key: [UInt8]) -> Location? {
    index.find(hash(key)) { matches(key, $0) }?.location
  }

  /// The greatest applied record of a key, verified; nil if nothing is held.
  func held(_ key: [UInt8]) throws(StoreError) -> Record? {
    let location = find(key)
    try checkCertain(key, location)
    guard let location else { return nil }
    return try record(at: location)
  }

  /// The record at a place, verified and decoded.
  func record(at location: Location) throws(StoreError) -> Record {
    let view = try journal.record(at: location)
    guard let record = view.decoded() else {
      throw StoreError(
        .damaged,
        "the record at offset \(location.offset) lost the definition of its actor: run `verify --repair`",
        path: journal.path(of: location.segment))
    }
    return record
  }

  /// The greatest held record of a key, parked or not: what the digest takes.
  private func greatest(_ key: [UInt8]) -> Record? {
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
  func key(at location: Location) -> [UInt8] { Self.key(at: location, in: journal) }

  private static func key(at location: Location, in journal: Journal) -> [UInt8] {
    guard let segment = journal.segment(location.segment),
      let shape = RecordView(segment: segment, offset: location.offset).shape
    else { return [] }
    return segment.mapping.bytes(shape.key)
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

  // MARK: Taking in

  /// Reads the journal on, up to `end`, which lies in a mapped segment.
  mutating func absorb(upTo end: Location) {
    if applied.segment == 0, let first = journal.segments.first {
      applied = Location(segment: first.number, offset: SegmentHeader.length)
    }
    guard var place = journal.place(of: applied.segment), let last = journal.place(of: end.segment) else {
      return
    }
    let limit = Stamp(milliseconds: environment.now() + Limits.clockDriftMilliseconds)
    while place <= last {
      let segment = journal.segments[place]
      // A position is never given again, though compaction may have dropped the record that had it.
      position = max(position, segment.header.basePosition)
      let stop = place == last ? end.offset : journal.sealedLength(at: place) ?? 0
      var walker = SegmentWalker(segment, from: applied.offset, limit: stop)
      while let step = walker.next() {
        switch step {
        case .record(let view): absorb(view, limit: limit)
        case .gap(let range): noteGap(range, in: segment)
        }
      }
      place += 1
      applied =
        place > last
        ? end : Location(segment: journal.segments[place].number, offset: SegmentHeader.length)
    }
  }

  private mutating func noteGap(_ range: Range<Int>, in segment: Segment) {
    note(JournalDamage(segment: segment.number, bytes: range), of: DamagedRecord.key(in: range, of: segment))
  }

  private mutating func note(_ damage: JournalDamage, of key: [UInt8]?) {
    guard !gaps.contains(damage) else { return }
    gaps.append(damage)
    let location = damage.place
    if let key {
      // The journal is read in its order: this is the latest place.
      damagedKeys[key] = location
    } else {
      unattributed.append(location)
    }
  }

  /// Fails if a damaged record may have been a newer one of this key: better no answer than a wrong one (F37).
  private func checkCertain(_ key: [UInt8], _ found: Location?) throws(StoreError) {
    guard !gaps.isEmpty else { return }
    let suspects = unattributed + [damagedKeys[key]].compactMap { $0 }
    guard
      let gap = suspects.first(where: { gap in
        found.map { journal.precedes($0, gap) } ?? true && !state.resolved.contains(gap)
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
      view.segment.liveBytes += view.end - view.offset
      supersede(localPlaces.updateValue(view.location, forKey: key))
    case .localRemoval:
      guard let shape = view.shape else { return }
      let key = view.key(shape)
      state.absorb(local: key, nil)
      locals[key] = nil
      supersede(localPlaces.removeValue(forKey: key))
    case .value, .blob, .tombstone:
      view.segment.liveBytes += view.end - view.offset
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
    if view.position >= (samples.last?.position ?? 0) + Self.samplingInterval || samples.isEmpty {
      samples.append((view.position, view.location))
    }
    let key = view.key(shape)
    let before = digest == nil ? nil : greatest(key)
    // Own writes are never parked: their author sees them at once, even after its clock was put back.
    let applies = version.stamp <= limit || state.mine.contains(version.dot.actor)
    state.absorb(version, applied: applies)
    if applies {
      hold(view, key: key, version: version)
    } else {
      parked[key, default: []].append(view.location)
    }
    noteChange(of: key, from: before, deadline: shape.deadline != nil)
  }

  private mutating func hold(_ view: RecordView, key: [UInt8], version: Version) {
    let hash = hash(key)
    if let found = index.find(hash, { matches(key, $0) }) {
      guard let segment = journal.segment(found.location.segment),
        let old = RecordView(segment: segment, offset: found.location.offset).version, old >= version,
        (try? journal.record(at: found.location)) != nil
      else {
        index.move(found.slot, to: view.location)
        return supersede(found.location)
      }
      supersede(view.location)
    } else {
      let (journal, seed) = (journal, hashSeed)
      index.insert(hash, view.location) { XXH3.hash64(Self.key(at: $0, in: journal), seed: seed) }
      if ReservedKey.isReserved(key) { reserved.insert(key) }
    }
  }

  /// The record there does not count any more.
  private mutating func supersede(_ location: Location?) {
    guard let location, let segment = journal.segment(location.segment) else { return }
    let view = RecordView(segment: segment, offset: location.offset)
    let bytes = view.end - view.offset
    segment.liveBytes -= bytes
    if segment.number != journal.segments.last?.number { deadBytes += bytes }
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
    ordered = nil
    hold(view, key: key, version: version)
    noteChange(of: key, from: before, deadline: shape.deadline != nil)
  }

  // MARK: Keys

  func hash(_ key: [UInt8]) -> UInt64 { XXH3.hash64(key, seed: hashSeed) }

  /// Is the record at a place whose hash fits of this key? One that was damaged since counts as it: who reads it is told
  /// so, rather than that there is nothing (F37).
  func matches(_ key: [UInt8], _ location: Location) -> Bool {
    guard let segment = journal.segment(location.segment) else { return false }
    if let shape = RecordView(segment: segment, offset: location.offset).shape,
      segment.mapping.equals(shape.key, key)
    {
      return true
    }
    return segment.record(at: location.offset, limit: segment.mapping.count) == nil
  }
}
