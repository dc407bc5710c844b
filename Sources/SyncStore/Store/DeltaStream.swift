extension Store {
  /// Fixes a durable snapshot of what a receiver lacks: what lies behind its cursor, is current and is not covered. Who must
  /// have full state (rule R8) is also told what else is held here.
  ///
  /// `ground` is what to find it on, if somebody has that already.
  ///
  /// - Throws: `.rolledBack` if the receiver knows a round or a write of this copy that it does not know itself;
  ///   `.unsettled` if full state is needed and this copy cannot give it.
  package func openRound(
    for receiver: RoundReceiver, on ground: DeltaScanContext? = nil
  ) throws(StoreError) -> DeltaStream {
    let begin = receiver.cursor?.position ?? 0
    if try isInDoubt {
      _ = try givesFullState(engine.withLock { $0.state }, to: receiver, isLive: false)
      try reissueUnknown(to: receiver.covered, behind: begin)
    }
    let surveyed = try ground.flatMap { ground throws(StoreError) in
      try deltaScan(for: receiver, behind: begin, on: ground)
    }
    let (round, tail) = try makeRound(for: receiver, behind: begin, isLive: false, surveyed: surveyed)
    // The mark and all records of the snapshot are durable before any of them leaves (rules R7, R9).
    try sync(upTo: tail)
    return round
  }

  /// The same for what lies behind a position that may be greater than the cursor's. A live session has no full state. Nothing of
  /// the round may leave before all up to `tail` is durable, and its mark is in use until `releaseLiveMark`.
  ///
  /// Where much is to be looked through, that is done beforehand (`surveyed`, or else here): writers wait only for what was appended since.
  func makeRound(
    for receiver: RoundReceiver, behind begin: UInt64, isLive: Bool, surveyed: DeltaScan? = nil
  ) throws(StoreError) -> (round: DeltaStream, tail: UInt64) {
    var survey = surveyed
    for _ in 0..<Self.maxScans {
      if survey == nil { survey = try self.deltaScan(for: receiver, behind: begin, isLive: isLive) }
      guard let found = survey else { break }
      if let composed = try makeRound(for: receiver, behind: begin, isLive: isLive, beside: found) {
        return composed
      }
      survey = nil
    }
    guard let composed = try makeRound(for: receiver, behind: begin, isLive: isLive, beside: nil) else {
      preconditionFailure("without a survey nothing can make it worthless")
    }
    return composed
  }

  /// After so many surveys that came to nothing, all is looked through while writers wait.
  private static let maxScans = 2

  /// What of a round is fixed under the writers' mutex.
  private struct RoundSnapshot {
    var close: RoundClose
    /// What lies behind the place up to which was surveyed.
    var items: [DeltaStream.Item]
    /// Of a full state: up to here the receiver has had an earlier one.
    var start: UInt64
    var snapshotPoint: DeltaScan.SnapshotPoint?
  }

  /// Nil if the survey does not tell what is current at this moment.
  private func makeRound(
    for receiver: RoundReceiver, behind begin: UInt64, isLive: Bool, beside survey: DeltaScan?
  ) throws(StoreError) -> (round: DeltaStream, tail: UInt64)? {
    let pin = survey?.context.pin ?? SnapshotPin()
    var used: RoundMark?
    // Until the round is there its mark is not given to anybody.
    defer { if let used { liveSessions.release(used) } }
    let (opening, tail) = try append { composer throws(StoreError) -> RoundSnapshot? in
      let state = composer.state
      guard let actor = state.actor else { preconditionFailure("a writable store has an actor") }
      let isFull = try givesFullState(state, to: receiver, isLive: isLive)
      // Before there is a mark: what a peer may have been given cannot be restamped.
      if isFull || receiver.missingScope != nil { try checkHorizon(state.horizon, at: composer.wall) }
      let choice = DeltaFilter(for: receiver, behind: begin, isFull: isFull)
      let found = try reading {
        engine throws(StoreError) -> ([DeltaStream.Item], DeltaScan.SnapshotPoint?)? in
        guard let survey else {
          engine.retainSegments(for: pin)
          return (try Self.items(choice, in: engine), nil)
        }
        guard let moment = survey.snapshotPoint(isFull: isFull, in: engine) else { return nil }
        return (try Self.items(choice, behind: survey.reached, in: engine, group: survey.group), moment)
      }
      guard let (items, moment) = found else { return nil }
      let (position, digest) = engine.withLock { ($0.position, $0.runningDigest) }
      let mark = try self.mark(&composer, position: position, digest: digest, isLive: isLive)
      // While nobody else can let go of it, or make another one.
      if isLive {
        liveSessions.use(mark)
        used = mark
      }
      let close = RoundClose(
        sender: actor, mark: mark, position: position, vector: state.advertisedVector,
        floor: state.floor, horizon: state.horizon, isFull: isFull)
      return RoundSnapshot(close: close, items: items, start: choice.start, snapshotPoint: moment)
    }
    guard let opening else { return nil }
    var items = opening.items.isEmpty ? [] : [opening.items]
    if var survey, let moment = opening.snapshotPoint {
      guard try survey.removeSuperseded(at: moment) else { return nil }
      items = survey.items + items
    }
    let round = DeltaStream(store: self, close: opening.close, items: items, start: opening.start, pin: pin)
    used = nil
    return (round, tail)
  }

  /// Does this copy give the receiver full state (rule R8)?
  static func givesFullState(_ state: ReplicaState, to receiver: RoundReceiver, isLive: Bool) -> Bool {
    let isBehind =
      receiver.health != .healthy || state.scope == nil && !receiver.covered.covers(state.floor)
    return !isLive && receiver.missingScope == nil && isBehind
  }

  /// The same, once it is sure that it can give what the receiver needs, and was not rolled back.
  private func givesFullState(
    _ state: ReplicaState, to receiver: RoundReceiver, isLive: Bool
  ) throws(StoreError) -> Bool {
    if let cursor = receiver.cursor, state.marks[cursor.mark] == nil {
      throw StoreError(
        .rolledBack, "a peer has received a round that this copy knows nothing of: connect again", path: path)
    }
    try requireOwnWrites(in: receiver.covered, state)
    let isFull = Self.givesFullState(state, to: receiver, isLive: isLive)
    if receiver.missingScope != nil, state.scope != nil { throw Self.partialScopeError }
    if isFull { try checkGivesFullState(state, to: receiver) }
    return isFull
  }

  private func checkGivesFullState(
    _ state: ReplicaState, to receiver: RoundReceiver
  ) throws(StoreError) {
    guard state.scope == nil else { throw Self.partialScopeError }
    let canMend = state.isHealthy && state.vector.covers(receiver.floor)
    // In doubt, it gives less than it covers: who took over a floor above that could give nobody the full state, this copy neither.
    guard !state.isRecovering, state.advertisedVector.covers(state.floor),
      receiver.health != .recovering || canMend
    else {
      throw StoreError(
        .unsettled,
        "a peer needs the full state, and this copy waits for the full state of another one itself: let both synchronize with "
          + "another member", path: path)
    }
  }

  /// Whoever takes over what was purged stamps all that it writes from then on above that. Purged by a clock that ran far ahead, this
  /// would have the others let those writes wait until then (F50).
  private func checkHorizon(_ horizon: Stamp, at wall: UInt64) throws(StoreError) {
    guard horizon > Stamp(milliseconds: wall + Limits.horizonLeadMilliseconds) else { return }
    throw StoreError(
      .clock,
      "deletes that were purged here are stamped \(RestampPlan.lead(horizon, wall)) ahead of this clock, and a peer that "
        + "was told so would write as far ahead: put this clock right, or, if it is, have what was written ahead restamped "
        + "(`Store.restampUnsent`)", path: path)
  }

  private static let partialScopeError = StoreError(
    .unsettled, "a peer needs what only a copy of all keys can give: let it synchronize with one")

  /// What is current and for the receiver, behind a position if one is given, at most so many. `group` numbers the first transaction.
  static func items(
    _ choice: DeltaFilter, behind reached: UInt64? = nil, in engine: borrowing Engine,
    group first: UInt32 = 0,
    limit: Int = .max
  ) throws(StoreError) -> [DeltaStream.Item] {
    var items: [DeltaStream.Item] = []
    let position = reached ?? choice.begin
    // Local records take no position: thousands of sessions are told in vain that the journal has grown.
    guard engine.position > position else { return items }
    items.reserveCapacity(Int(clamping: min(engine.position - position, engine.keyCount, UInt64(limit))))
    var group = first
    // The index is asked for several at once: the cache misses of all then overlap.
    let keys = engine.index.hashIndex
    var waiting: [(hash: UInt64, item: DeltaStream.Item)] = []
    waiting.reserveCapacity(lookupBatch)
    func ask() {
      for (hash, item) in waiting where items.count < limit && engine.isCurrent(at: item.location, hash) {
        items.append(item)
      }
      waiting.removeAll(keepingCapacity: true)
    }
    // A record passed over here would be one that the receiver believes it has (rule R6).
    try engine.visit(from: engine.start(of: position + 1), isComplete: true) { view throws(StoreError) in
      defer { if !view.flags.contains(.continues) { group &+= 1 } }
      guard view.position > position, view.isWrite, let dot = view.dot,
        let isPresent = choice.isPresent(at: view.position, dot: dot, key: view.keyBytes),
        !engine.state.isUnconfirmed(dot),
        let shape = view.shape
      else { return true }
      let hash = view.bytes.withSpan(shape.key) { keys.hash($0) }
      keys.prefetch(hash)
      let item = DeltaStream.Item(
        location: view.location, position: view.position, group: group, bytes: UInt32(view.end - view.offset),
        isPresent: isPresent)
      waiting.append((hash, item))
      if waiting.count == min(lookupBatch, limit) { ask() }
      return items.count < limit
    }
    ask()
    return items
  }

  private static let lookupBatch = 16
}

/// One transfer to a peer: what changed between two positions, or all that is held, closed by the sender's vector (rule
/// R10). The snapshot is fixed when it is opened; what is written later goes with the next round.
package final class DeltaStream: Sendable {
  struct Item: Sendable {
    var location: Location
    var position: UInt64
    /// Records of one transaction share it, and those next to it do not; they leave in one batch.
    var group: UInt32
    /// What the record takes up in the journal.
    var bytes: UInt32
    /// Has the receiver got it already, and is only told that it is held here?
    var isPresent: Bool
  }

  /// What will close the round.
  package let close: RoundClose
  private let store: Store
  /// Lists of whole transactions, one behind the other, none of them empty.
  let items: [[Item]]
  /// Of a full state: up to here the receiver has had an earlier one.
  private let start: UInt64
  private let progress = LockedField(Progress())
  /// Compaction leaves the places of the items readable.
  private let pin: SnapshotPin

  private struct Progress {
    /// The list, and how many of it were given.
    var list = 0
    var next = 0
    /// The segment in which the last one lies.
    var source: DeltaSegmentReader?
  }

  init(store: Store, close: RoundClose, items: [[Item]], start: UInt64, pin: SnapshotPin) {
    (self.store, self.close, self.items, self.start, self.pin) = (store, close, items, start, pin)
  }

  /// How many records it has.
  package var count: Int {
    // Nothing but a full state says what is held.
    items.reduce(0) { $0 + (close.isFull ? $1.count { !$0.isPresent } : $1.count) }
  }

  /// About how many bytes the records take up that come next, of those that were not given yet.
  package var bytesLeft: Int {
    let (list, next) = progress.withLock { ($0.list, $0.next) }
    guard list < items.count else { return 0 }
    // Counted no further than anybody wants to know.
    return items[list][next...].prefix(1 << 13).reduce(0) { $0 + Int($1.bytes) }
  }

  /// Writes that a batch of a full state names beside its records.
  private static let maxPresent = 1 << 15

  /// Gives `writer` the records of the next batch of whole transactions, of about `maximumBytes` bytes of records unless one
  /// transaction has more; nil at the end. What `writer` was given before an error does not count.
  package func next(
    maximumBytes: Int, into writer: inout some BatchWriter
  ) throws(StoreError) -> BatchSummary? {
    try progress.withLock { progress throws(StoreError) in
      guard progress.list < items.count else { return nil }
      let items = items[progress.list]
      let (runs, end) = Self.runs(of: items, from: progress.next, maximumBytes: maximumBytes)
      var batch = BatchSummary(position: max(start, items[end - 1].position))
      for run in runs {
        if items[run.lowerBound].isPresent {
          batch.present += try store.dots(items[run], pin: pin)
        } else {
          batch.records += run.count
          batch.users += try store.write(items[run], pin: pin, from: &progress.source, into: &writer)
        }
      }
      batch.present.sort()
      (progress.list, progress.next) = end < items.count ? (progress.list, end) : (progress.list + 1, 0)
      return batch
    }
  }

  /// The next items that go together, whole transactions of them: by turns those that are to be sent, and those that the receiver has.
  private static func runs(
    of items: [Item], from first: Int, maximumBytes: Int
  ) -> (list: [Range<Int>], end: Int) {
    var list: [Range<Int>] = []
    var (present, bytes, end) = (0, 0, first)
    while end < items.count, present < maxPresent {
      var partEnd = end + 1
      let isPresent = items[end].isPresent
      if isPresent {
        while partEnd < items.count, items[partEnd].isPresent, partEnd - end < maxPresent - present {
          partEnd += 1
        }
        present += partEnd - end
      } else {
        var size = Int(items[end].bytes)
        while partEnd < items.count, items[partEnd].group == items[end].group, !items[partEnd].isPresent {
          size += Int(items[partEnd].bytes)
          partEnd += 1
        }
        if bytes > 0, bytes + size > maximumBytes { break }
        bytes += size
      }
      if let last = list.last, items[last.lowerBound].isPresent == isPresent {
        list[list.count - 1] = last.lowerBound..<partEnd
      } else {
        list.append(end..<partEnd)
      }
      end = partEnd
    }
    return (list, end)
  }
}
