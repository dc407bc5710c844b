/// Which records a round has for its receiver, and of which it only says that they are held.
struct DeltaFilter: Sendable {
  /// Does it give full state (rule R8)?
  let isFull: Bool
  /// Nothing up to this position is looked at.
  let begin: UInt64
  /// Of a full state: up to here the receiver has had an earlier one.
  let start: UInt64
  private let covered: VersionVector
  private let scope: KeyScope?
  private let missingScope: MissingScope?

  /// What lies behind `begin`; in a full state, all.
  init(for receiver: RoundReceiver, behind begin: UInt64, isFull: Bool) {
    self.isFull = isFull
    self.begin = isFull ? 0 : begin
    (scope, missingScope) = (receiver.scope, receiver.missingScope)
    guard isFull else {
      (start, covered) = (0, receiver.covered)
      return
    }
    // A copy in doubt about its own records compares them with all that is held here.
    start = receiver.health == .unconfirmed ? 0 : receiver.cursor?.position ?? 0
    covered = receiver.health == .healthy ? receiver.covered : VersionVector()
  }

  /// Has the receiver got the write already, and is only told so? Nil if it is not for it at all. `key` is nil where it cannot be read.
  func isPresent(at position: UInt64, dot: Dot, key: @autoclosure () -> [UInt8]?) -> Bool? {
    if let missingScope {
      return position > begin && key().map { missingScope.contains($0) } ?? false ? false : nil
    }
    if !isFull { guard position > begin, !covered.covers(dot) else { return nil } }
    guard scope == nil || key().map({ scope.holds($0) }) ?? false else { return nil }
    return isFull && (position <= start || covered.covers(dot))
  }
}

/// What is to be known of the moment at which a survey begins.
package struct DeltaScanContext: Sendable {
  /// Compaction leaves what the journal has readable.
  let pin = SnapshotPin()
  /// The last position, and where the journal ends.
  let startPosition: UInt64
  let end: Location
  let keys: HashIndex
  /// How many keys there are.
  let keyCount: UInt64
  let actor: ActorID?
  let unconfirmedRanges: [ReplicaState.UnconfirmedRange]
  /// What waits for its time.
  fileprivate let parked: [DeltaScan.Successor]
  /// The journal behind the position where the survey is to begin.
  let slice: JournalSlice
  /// Which of all records the index names, where somebody has just looked.
  let current: LiveRecordBitmap?

  /// Nil if there are no more than `few` records behind the position, or if damage was met.
  init?(
    behind position: UInt64, few: UInt64, _ current: LiveRecordBitmap? = nil, in engine: inout Engine
  ) {
    guard engine.position > position, engine.position - position > few, engine.gaps.isEmpty,
      let stretch = engine.slice(behind: position)
    else { return nil }
    engine.retainSegments(for: pin)
    (startPosition, end) = (engine.position, engine.applied)
    (keys, keyCount) = (engine.index.hashIndex, engine.keyCount)
    (actor, unconfirmedRanges) = (engine.state.actor, engine.state.unconfirmedRanges)
    (self.slice, self.current) = (stretch, current)
    parked = engine.parked.values.joined().compactMap { place in
      guard let view = try? engine.journal.record(at: place), let version = view.version,
        let shape = view.shape
      else { return nil }
      return DeltaScan.Successor(view, shape: shape, version: version)
    }
  }
}

/// What a round will have, looked for before it is opened and beside those who write.
///
/// A record that was current when it was looked at is one of the round's unless something has superseded it by the time of the
/// snapshot. Whatever can do that is in the journal behind the place where the survey began, or had waited for its time until then
/// (`settle`). One that was not current when it was looked at had been superseded by a record that stood in the journal, and is no more
/// current at any later time. So what is left is exactly what is current in the snapshot (rule R10).
struct DeltaScan {
  let filter: DeltaFilter
  let context: DeltaScanContext
  /// Up to here the journal has been looked through.
  private(set) var reached: UInt64
  /// Several lists, of whole transactions each, one behind the other: to put a million of them together takes as long as to find a third of them.
  private(set) var items: [[DeltaStream.Item]] = []
  /// The number of the next transaction.
  private(set) var group: UInt32 = 0
  private var sources: [UInt32: JournalSlice.Source] = [:]

  /// Begins one.
  init(choice: DeltaFilter, ground: DeltaScanContext) {
    (self.filter, self.context, reached) = (choice, ground, choice.begin)
  }

  /// Looks through the journal as it was at the beginning. False if that cannot be done without the lock.
  mutating func scan(in store: Store) throws(StoreError) -> Bool {
    // Where a record lies that somebody else is just moving, nobody can say without asking.
    if let current = context.current, filter.begin == 0, try scan(through: context.slice, current, in: store)
    {
      return true
    }
    return try scan(through: context.slice, in: store)
  }

  /// Looks through the journal from where it has come to, to the end of `stretch`; what is `current` need not be asked for then, if
  /// that is known of all of it. False if that cannot be done without the lock.
  mutating func scan(
    through stretch: JournalSlice, _ current: LiveRecordBitmap? = nil, in store: Store
  ) throws(StoreError) -> Bool {
    guard stretch.sources.allSatisfy({ $0.slot != nil }) else { return false }
    // Tests have others do something at each turn: there is one thread then. Whole segments are of many sizes: whoever is done with a
    // small one takes another.
    let most = min(Background.processors, 4) * (current == nil ? 4 : 1)
    let parts = stretch.parts(store.environment.onScanYield == nil ? most : 1, current)
    let (choice, ground, reached, group) = (filter, context, reached, group)
    let found = Locked([Result<DeltaScanTask?, StoreError>](repeating: .success(nil), count: parts.count))
    Background.concurrentPerform(parts.count) { number in
      // Far from those of the parts beside it: only the transactions next to each other must not have one number.
      var part = DeltaScanTask(
        choice, ground: ground, current: current, reached: reached, group: group &+ UInt32(number) << 30,
        expected: Int(clamping: min(stretch.position - reached, ground.keyCount)) / parts.count)
      let result = Result { () throws(StoreError) in
        try part.scan(through: parts[number], in: store) ? part : nil
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

  // MARK: The snapshot

  /// What is to be known of the moment of the snapshot to settle the survey.
  struct SnapshotPoint {
    /// All that was appended since the survey began.
    fileprivate let appended: JournalSlice
    /// The positions of what waits for its time.
    fileprivate let parked: Set<UInt64>
  }

  /// The present moment; nil if what was found does not tell what is current at it: then all is to be looked through again.
  func snapshotPoint(isFull: Bool, in engine: borrowing Engine) -> SnapshotPoint? {
    guard !context.pin.isEnded, context.keys === engine.index.hashIndex, context.actor == engine.state.actor,
      context.unconfirmedRanges == engine.state.unconfirmedRanges, filter.isFull == isFull,
      engine.gaps.isEmpty,
      let appended = engine.slice(from: context.end),
      // A copy may lack what has superseded something and was superseded in its turn.
      appended.sources.allSatisfy({ $0.segment.header.compaction == 0 })
    else { return nil }
    return SnapshotPoint(appended: appended, parked: engine.positionsOfParked)
  }

  /// Leaves out what something had superseded by that moment. False if that cannot be told: bytes were damaged meanwhile.
  mutating func removeSuperseded(at moment: SnapshotPoint) throws(StoreError) -> Bool {
    for source in moment.appended.sources { sources[source.segment.number] = source }
    var successors: [UInt64: [Successor]] = [:]
    var purged: Set<UInt64> = []
    let keys = context.keys
    func note(_ successor: Successor) {
      guard !moment.parked.contains(successor.position) else { return }
      let hash = keys.hash(successor.key.span)
      successors[hash, default: []].append(successor)
      if successor.isPurge { purged.insert(hash) }
    }
    let isWhole = try moment.appended.visit { source, view throws(StoreError) in
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
      // What was purged while it waited for its time has superseded nothing. Of any other the purge itself tells.
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

  /// What may have superseded a record of its key.
  fileprivate struct Successor {
    let key: [UInt8]
    let version: Version
    let position: UInt64
    let isPurge: Bool
    /// Of a purge: is it of that very version alone?
    let isExact: Bool

    init(_ view: RecordView, shape: RecordView.Shape, version: Version) {
      (key, position, self.version) = (view.key(shape), view.position, version)
      (isPurge, isExact) = (view.kind == .purge, view.flags.contains(.parked))
    }

    /// Has it superseded a record of its key, that was current and has this version and place? A purge takes what there was, and a
    /// write may have been appended again.
    func supersedes(_ other: Version, at position: UInt64) -> Bool {
      if isPurge { return self.position > position && (isExact ? version == other : version >= other) }
      return version > other || version == other && self.position > position
    }
  }
}

extension Engine {
  /// The positions of what waits for its time.
  fileprivate var positionsOfParked: Set<UInt64> {
    guard !parked.isEmpty else { return [] }
    return Set(
      parked.values.joined().compactMap { journal.segment($0.segment)?.extent(at: $0.offset).position })
  }
}

extension Store {
  /// How often the journal is looked through anew for what was appended meanwhile.
  private static let maxPasses = 8

  /// Looks for what a round will have, beside those who write. Nil if there is so little to look through that they can wait for it, or if
  /// the journal is damaged.
  func deltaScan(
    for receiver: RoundReceiver, behind begin: UInt64, isLive: Bool
  ) throws(StoreError) -> DeltaScan? {
    let few = environment.scanBatchPositions
    // A live session asks for each write.
    let last = control.position
    if isLive { guard last > begin, last - begin > few else { return nil } }
    let begun = try reading { engine throws(StoreError) -> (DeltaFilter, DeltaScanContext)? in
      let isFull = Self.givesFullState(engine.state, to: receiver, isLive: isLive)
      let choice = DeltaFilter(for: receiver, behind: begin, isFull: isFull)
      return DeltaScanContext(behind: choice.begin, few: few, in: &engine).map { (choice, $0) }
    }
    return try begun.flatMap { choice, ground throws(StoreError) in try deltaScan(choice, ground: ground) }
  }

  /// The same for who has the ground of it; nil as well if that is not for this receiver.
  func deltaScan(
    for receiver: RoundReceiver, behind begin: UInt64, on ground: DeltaScanContext
  ) throws(StoreError) -> DeltaScan? {
    let isFull = try reading { engine throws(StoreError) in
      Self.givesFullState(engine.state, to: receiver, isLive: false)
    }
    let choice = DeltaFilter(for: receiver, behind: begin, isFull: isFull)
    return choice.begin == 0 ? try deltaScan(choice, ground: ground) : nil
  }

  private func deltaScan(_ choice: DeltaFilter, ground: DeltaScanContext) throws(StoreError) -> DeltaScan? {
    let few = environment.scanBatchPositions
    var survey = DeltaScan(choice: choice, ground: ground)
    guard try survey.scan(in: self) else { return nil }
    for _ in 1..<Self.maxPasses {
      let reached = survey.reached
      let more = try reading { engine throws(StoreError) in
        engine.position > reached && engine.position - reached > few ? engine.slice(behind: reached) : nil
      }
      guard let more else { break }
      guard try survey.scan(through: more, in: self) else { return nil }
    }
    return survey
  }
}
