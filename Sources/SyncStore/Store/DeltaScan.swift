/// Selects the records of a round for its receiver, and those that a full state only names as held.
struct DeltaFilter: Sendable {
  /// Whether the round is a full state (rule R8).
  let isFull: Bool
  /// Records up to this position are skipped.
  let begin: UInt64
  /// Full state only: the receiver got everything up to this position in an earlier round.
  let start: UInt64
  private let covered: VersionVector
  private let scope: KeyScope?
  private let missingScope: MissingScope?

  /// Selects the records after `begin`; for a full state, all records.
  init(for receiver: RoundReceiver, after begin: UInt64, isFull: Bool) {
    self.isFull = isFull
    self.begin = isFull ? 0 : begin
    (scope, missingScope) = (receiver.scope, receiver.missingScope)
    guard isFull else {
      (start, covered) = (0, receiver.covered)
      return
    }
    // A copy with unconfirmed writes of its own must compare them with everything held here.
    start = receiver.health == .unconfirmed ? 0 : receiver.cursor?.position ?? 0
    covered = receiver.health == .healthy ? receiver.covered : VersionVector()
  }

  /// Whether the receiver already has the write and a full state only names it; nil if the round leaves the
  /// write out. `key` is nil where it cannot be read.
  func isPresent(at position: UInt64, dot: Dot, key: @autoclosure () -> [UInt8]?) -> Bool? {
    if let missingScope {
      return position > begin && key().map { missingScope.contains($0) } ?? false ? false : nil
    }
    if !isFull { guard position > begin, !covered.covers(dot) else { return nil } }
    guard scope == nil || key().map({ scope.holds($0) }) ?? false else { return nil }
    return isFull && (position <= start || covered.covers(dot))
  }
}

/// State of the store at the start of a delta scan.
package struct DeltaScanContext: Sendable {
  /// Keeps the scanned segments mapped across compaction.
  let pin = SnapshotPin()
  /// Last position and end of the journal at the start of the scan.
  let startPosition: UInt64
  let end: Location
  let keys: HashIndex
  /// Number of keys in the index.
  let keyCount: UInt64
  let actor: ActorID?
  let unconfirmedRanges: [Incarnations.UnconfirmedRange]
  /// Records parked at the start.
  fileprivate let parked: [DeltaScan.Successor]
  /// The part of the journal after the position where the scan begins.
  let slice: JournalSlice
  /// The live records, if the caller has just computed them.
  let current: LiveRecordBitmap?

  /// Nil if there are at most `few` records after the position, or if the journal is damaged.
  init?(
    after position: UInt64, few: UInt64, _ current: LiveRecordBitmap? = nil, in engine: inout Engine
  ) {
    guard engine.position > position, engine.position - position > few, engine.damage.gaps.isEmpty,
      let stretch = engine.slice(after: position)
    else { return nil }
    engine.retainSegments(for: pin)
    (startPosition, end) = (engine.position, engine.applied)
    (keys, keyCount) = (engine.index.hashIndex, engine.keyCount)
    (actor, unconfirmedRanges) = (engine.state.actor, engine.state.incarnations.unconfirmedRanges)
    (self.slice, self.current) = (stretch, current)
    parked = engine.parked.locations.compactMap { place in
      guard let view = try? engine.journal.record(at: place), let version = view.version,
        let shape = view.shape
      else { return nil }
      return DeltaScan.Successor(view, shape: shape, version: version)
    }
  }
}

/// Finds the records of a round before it is opened, concurrently with writers.
///
/// A record that was current when it was scanned belongs to the round unless something has superseded it by
/// the time of the snapshot. Everything that can supersede it is in the journal after the position where the
/// scan began, or was parked until then (`removeSuperseded(at:)`). A record that was not current when it was
/// scanned had been superseded by a record already in the journal, and never becomes current again. What
/// remains is exactly what is current in the snapshot (rule R10).
struct DeltaScan {
  let filter: DeltaFilter
  let context: DeltaScanContext
  /// The journal was scanned up to this position.
  private(set) var reached: UInt64
  /// Consecutive lists, each of whole transactions. Kept separate: concatenating a million items takes as
  /// long as finding a third of them.
  private(set) var items: [[DeltaStream.Item]] = []
  /// Number of the next transaction.
  private(set) var group: UInt32 = 0
  private var sources: [UInt32: JournalSlice.Source] = [:]

  /// Begins a scan.
  init(choice: DeltaFilter, context: DeltaScanContext) {
    (self.filter, self.context, reached) = (choice, context, choice.begin)
  }

  /// Scans the journal as it was at the start of the scan. False if that needs the engine lock.
  mutating func scan(in deltas: DeltaSource) throws(StoreError) -> Bool {
    // The bitmap cannot decide for a record that another process is moving; if so, scan with index lookups.
    if let current = context.current, filter.begin == 0, try scan(through: context.slice, current, in: deltas)
    {
      return true
    }
    return try scan(through: context.slice, in: deltas)
  }

  /// Scans from the current position to the end of `stretch`. `current`, if given, must cover all of it and
  /// replaces the index lookups. False if the scan needs the engine lock.
  mutating func scan(
    through stretch: JournalSlice, _ current: LiveRecordBitmap? = nil, in deltas: DeltaSource
  ) throws(StoreError) -> Bool {
    guard stretch.sources.allSatisfy({ $0.slot != nil }) else { return false }
    // Tests run code at each yield and therefore need a single thread. Segments vary in size: with more parts
    // than threads, a thread that finishes a small one takes another.
    let most = min(Background.processors, 4) * (current == nil ? 4 : 1)
    let parts = stretch.parts(deltas.environment.onScanYield == nil ? most : 1, current)
    let (choice, context, reached, group) = (filter, context, reached, group)
    let found = Locked([Result<DeltaScanTask?, StoreError>](repeating: .success(nil), count: parts.count))
    Background.concurrentPerform(parts.count) { number in
      // Ranges of transaction numbers far apart: adjacent transactions must not share a number.
      var part = DeltaScanTask(
        choice, context: context, current: current, reached: reached, group: group &+ UInt32(number) << 30,
        expected: Int(clamping: min(stretch.position - reached, context.keyCount)) / parts.count)
      let result = Result { () throws(StoreError) in
        try part.scan(through: parts[number], in: deltas) ? part : nil
      }
      found.withLock { $0[number] = result }
    }
    var looked: [DeltaScanTask] = []
    for result in found.withLock({ $0 }) {
      guard let part = try result.get() else { return false }
      looked.append(part)
    }
    if let current, looked.reduce(0, { $0 + $1.named }) != current.count { return false }
    for part in looked where !part.items.isEmpty { items.append(part.items) }
    for source in stretch.sources { sources[source.segment.number] = source }
    self.group = looked.last?.group ?? group
    self.reached = stretch.position
    return true
  }

  // MARK: Snapshot

  /// State at the snapshot, for `removeSuperseded(at:)`.
  struct SnapshotPoint {
    /// Everything appended since the scan began.
    fileprivate let appended: JournalSlice
    /// Positions of the parked records.
    fileprivate let parked: Set<UInt64>
  }

  /// The present state as the snapshot; nil if the scan cannot tell what is current now and must be
  /// repeated.
  func snapshotPoint(isFull: Bool, in engine: borrowing Engine) -> SnapshotPoint? {
    guard !context.pin.isEnded, context.keys === engine.index.hashIndex, context.actor == engine.state.actor,
      context.unconfirmedRanges == engine.state.incarnations.unconfirmedRanges, filter.isFull == isFull,
      engine.damage.gaps.isEmpty,
      let appended = engine.slice(from: context.end),
      // A compacted segment may lack a record that superseded another one and was superseded itself.
      appended.sources.allSatisfy({ $0.segment.header.compaction == 0 })
    else { return nil }
    return SnapshotPoint(appended: appended, parked: engine.positionsOfParked)
  }

  /// Removes the records that were superseded by the snapshot. False if damage found during the scan makes
  /// that undecidable.
  mutating func removeSuperseded(at point: SnapshotPoint) throws(StoreError) -> Bool {
    for source in point.appended.sources { sources[source.segment.number] = source }
    var successors: [UInt64: [Successor]] = [:]
    var purged: Set<UInt64> = []
    let keys = context.keys
    func note(_ successor: Successor) {
      guard !point.parked.contains(successor.position) else { return }
      let hash = keys.hash(successor.key.span)
      successors[hash, default: []].append(successor)
      if successor.isPurge { purged.insert(hash) }
    }
    let isWhole = try point.appended.visit { source, view throws(StoreError) in
      guard view.position > context.startPosition, view.kind == .purge || view.isOfKey,
        let dot = source.dot(of: view),
        let shape = view.shape
      else { return }
      note(Successor(view, shape: shape, version: Version(stamp: view.stamp, dot: dot)))
    }
    guard isWhole else { return false }
    for parked in context.parked { note(parked) }
    guard !successors.isEmpty else { return true }
    for hash in purged {
      // A record purged while it was parked has superseded nothing. For any other, the purge itself decides.
      guard let list = successors[hash] else { continue }
      successors[hash] = list.filter { write in
        write.isPurge
          || !list.contains {
            $0.isPurge && $0.key == write.key && $0.supersedes(write.version, at: write.position)
          }
      }
    }
    let sources = sources
    func isSuperseded(_ item: DeltaStream.Item) -> Bool {
      guard let source = sources[item.location.segment] else { return false }
      let view = RecordView(segment: source.segment, offset: item.location.offset)
      guard view.isReadable, let shape = view.shape,
        let candidates = view.bytes.withSpan(shape.key, { successors[keys.hash($0)] }),
        let dot = source.dot(of: view)
      else { return false }
      let (key, version) = (view.key(shape), Version(stamp: view.stamp, dot: dot))
      return candidates.contains { $0.key == key && $0.supersedes(version, at: item.position) }
    }
    for list in items.indices { items[list].removeAll(where: isSuperseded) }
    items.removeAll(where: \.isEmpty)
    return true
  }

  /// A record that may have superseded another record of its key.
  fileprivate struct Successor {
    let key: [UInt8]
    let version: Version
    let position: UInt64
    let isPurge: Bool
    /// Purges only: whether it removes exactly this version.
    let isExact: Bool

    init(_ view: RecordView, shape: RecordShape, version: Version) {
      (key, position, self.version) = (view.key(shape), view.position, version)
      (isPurge, isExact) = (view.kind == .purge, view.flags.contains(.parked))
    }

    /// Whether this record superseded a record of the same key that was current, with this version and
    /// position. A purge removes what preceded it; a write may have been appended again.
    func supersedes(_ other: Version, at position: UInt64) -> Bool {
      if isPurge { return self.position > position && (isExact ? version == other : version >= other) }
      return version > other || version == other && self.position > position
    }
  }
}

extension Engine {
  /// Positions of the parked records.
  fileprivate var positionsOfParked: Set<UInt64> {
    guard !parked.isEmpty else { return [] }
    return Set(
      parked.locations.compactMap { journal.segment($0.segment)?.extent(at: $0.offset).position })
  }
}
