extension Store {
  /// Takes a durable snapshot of what a receiver lacks: current records after its cursor that it does not
  /// cover. A full state (rule R8) also names everything else that is held here.
  ///
  /// - Parameters:
  ///   - receiver: what the receiver covers and needs.
  ///   - context: an existing context for the delta scan, if there is one.
  /// - Throws: `.rolledBack` if the receiver knows a round or a write of this copy that this copy does not
  ///   know; `.unsettled` if full state is needed and this copy cannot give it.
  package func openRound(
    for receiver: RoundReceiver, on context: DeltaScanContext? = nil
  ) throws(StoreError) -> DeltaStream {
    let begin = receiver.cursor?.position ?? 0
    if try isInDoubt {
      _ = try givesFullState(engine.withLock { $0.state }, to: receiver, isLive: false)
      try reissueUnknown(to: receiver.covered, after: begin)
    }
    let scan = try context.flatMap { context throws(StoreError) in
      try deltaScan(for: receiver, after: begin, on: context)
    }
    let (round, tail) = try makeRound(for: receiver, after: begin, isLive: false, scan: scan)
    // The mark and all records of the snapshot must be durable before any of them is sent (rules R7, R9).
    try sync(upTo: tail)
    return round
  }

  /// Makes a round of what lies after a position, which may exceed the cursor's; a live session has no full
  /// state.
  ///
  /// Nothing of the round may be sent before everything up to `tail` is durable. Its mark is in use until
  /// `releaseLiveMark`. A large delta scan is done beforehand (by the caller as `scan`, or here): writers
  /// wait only while the records appended since are scanned.
  func makeRound(
    for receiver: RoundReceiver, after begin: UInt64, isLive: Bool, scan prepared: DeltaScan? = nil
  ) throws(StoreError) -> (round: DeltaStream, tail: UInt64) {
    var scan = prepared
    for _ in 0..<Self.maxScans {
      if scan == nil { scan = try self.deltaScan(for: receiver, after: begin, isLive: isLive) }
      guard let found = scan else { break }
      if let composed = try makeRound(for: receiver, after: begin, isLive: isLive, using: found) {
        return composed
      }
      scan = nil
    }
    guard let composed = try makeRound(for: receiver, after: begin, isLive: isLive, using: nil) else {
      preconditionFailure("without a scan nothing can make it worthless")
    }
    return composed
  }

  /// After this many unusable scans, the journal is scanned while writers wait.
  private static let maxScans = 2

  /// The parts of a round that are fixed under the writers' mutex.
  private struct RoundSnapshot {
    var close: RoundClose
    /// Items after the position that the scan reached.
    var items: [DeltaStream.Item]
    /// Full state only: the receiver got everything up to this position in an earlier round.
    var start: UInt64
    var snapshotPoint: DeltaScan.SnapshotPoint?
  }

  /// Nil if the scan cannot tell what is current now.
  private func makeRound(
    for receiver: RoundReceiver, after begin: UInt64, isLive: Bool, using scan: DeltaScan?
  ) throws(StoreError) -> (round: DeltaStream, tail: UInt64)? {
    let pin = scan?.context.pin ?? SnapshotPin()
    var used: RoundMark?
    // If no round is returned, its mark must not remain in use.
    defer { if let used { liveSessions.release(used) } }
    let (opening, tail) = try append { builder throws(StoreError) -> RoundSnapshot? in
      let state = builder.state
      guard let actor = state.actor else { preconditionFailure("a writable store has an actor") }
      let isFull = try givesFullState(state, to: receiver, isLive: isLive)
      // Check before the mark is made: writes that a peer may have received cannot be restamped.
      if isFull || receiver.missingScope != nil { try checkHorizon(state.horizon, at: builder.wall) }
      let choice = DeltaFilter(for: receiver, after: begin, isFull: isFull)
      let found = try reading {
        engine throws(StoreError) -> ([DeltaStream.Item], DeltaScan.SnapshotPoint?)? in
        guard let scan else {
          engine.retainSegments(for: pin)
          return (try Self.items(choice, in: engine), nil)
        }
        guard let point = scan.snapshotPoint(isFull: isFull, in: engine) else { return nil }
        return (try Self.items(choice, after: scan.reached, in: engine, group: scan.group), point)
      }
      guard let (items, point) = found else { return nil }
      let (position, digest) = engine.withLock { ($0.position, $0.runningDigest) }
      let mark = try self.mark(&builder, position: position, digest: digest, isLive: isLive)
      // Under the mutex: otherwise the mark could be released, or replaced by another one, before it is in
      // use.
      if isLive {
        liveSessions.use(mark)
        used = mark
      }
      let close = RoundClose(
        sender: actor, mark: mark, position: position, vector: state.advertisedVector,
        floor: state.floor, horizon: state.horizon, kind: isFull ? .fullState : .delta)
      return RoundSnapshot(close: close, items: items, start: choice.start, snapshotPoint: point)
    }
    guard let opening else { return nil }
    var items = opening.items.isEmpty ? [] : [opening.items]
    if var scan, let point = opening.snapshotPoint {
      guard try scan.removeSuperseded(at: point) else { return nil }
      items = scan.items + items
    }
    let round = DeltaStream(store: self, close: opening.close, items: items, start: opening.start, pin: pin)
    used = nil
    return (round, tail)
  }

  /// Whether the round must be a full state (rule R8).
  static func givesFullState(_ state: ReplicaState, to receiver: RoundReceiver, isLive: Bool) -> Bool {
    let needsFullState =
      receiver.health != .healthy || state.scope == nil && !receiver.covered.covers(state.floor)
    return !isLive && receiver.missingScope == nil && needsFullState
  }

  /// Whether the round must be a full state, after checking that this copy was not rolled back and can give
  /// what the receiver needs.
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
    // While recovering, a copy advertises less than it covers: a receiver that took over a floor above that
    // could give no copy the full state, not even this one.
    guard !state.isRecovering, state.advertisedVector.covers(state.floor),
      receiver.health != .recovering || canMend
    else {
      throw StoreError(
        .unsettled,
        "a peer needs the full state, and this copy waits for the full state of another one itself: let both synchronize with "
          + "another member", path: path)
    }
  }

  /// Refuses to hand over a horizon far ahead of this clock. The receiver stamps everything it writes from
  /// then on above the horizon; other copies would park those writes until that time (F50).
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

  /// Items that are current and selected, after a position if one is given, at most `limit`. `group` numbers
  /// the first transaction.
  static func items(
    _ choice: DeltaFilter, after reached: UInt64? = nil, in engine: borrowing Engine,
    group first: UInt32 = 0,
    limit: Int = .max
  ) throws(StoreError) -> [DeltaStream.Item] {
    var items: [DeltaStream.Item] = []
    let position = reached ?? choice.begin
    // Local records take no position: thousands of sessions are woken without anything to send.
    guard engine.position > position else { return items }
    items.reserveCapacity(Int(clamping: min(engine.position - position, engine.keyCount, UInt64(limit))))
    var group = first
    // Index lookups in batches, so that their cache misses overlap.
    let keys = engine.index.hashIndex
    var waiting: [(hash: UInt64, item: DeltaStream.Item)] = []
    waiting.reserveCapacity(lookupBatch)
    func ask() {
      for (hash, item) in waiting where items.count < limit && engine.isCurrent(at: item.location, hash) {
        items.append(item)
      }
      waiting.removeAll(keepingCapacity: true)
    }
    // A skipped record would be one that the receiver believes it has (rule R6).
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

/// One transfer to a peer: the changes between two positions, or the full state, closed by the sender's
/// vector (rule R10). The snapshot is taken when the round is opened; later writes belong to the next round.
package final class DeltaStream: Sendable {
  struct Item: Sendable {
    var location: Location
    var position: UInt64
    /// Same number for records of one transaction, another one for its neighbours; a transaction is sent in
    /// one batch.
    var group: UInt32
    /// Length of the record in the journal.
    var bytes: UInt32
    /// Whether the receiver already has the record and is only told that it is held here.
    var isPresent: Bool
  }

  /// The message that closes the round.
  package let close: RoundClose
  private let store: Store
  /// Consecutive lists of whole transactions, none of them empty.
  let items: [[Item]]
  /// Full state only: the receiver got everything up to this position in an earlier round.
  private let start: UInt64
  private let progress = LockedField(Progress())
  /// Keeps the segments of the items mapped across compaction.
  private let pin: SnapshotPin

  private struct Progress {
    /// Current list, and number of its items already sent.
    var list = 0
    var next = 0
    /// Reader of the segment of the last item.
    var source: DeltaSegmentReader?
  }

  init(store: Store, close: RoundClose, items: [[Item]], start: UInt64, pin: SnapshotPin) {
    (self.store, self.close, self.items, self.start, self.pin) = (store, close, items, start, pin)
  }

  /// Number of records to send.
  package var count: Int {
    // Only a full state has items that are merely named.
    items.reduce(0) { $0 + (close.isFull ? $1.count { !$0.isPresent } : $1.count) }
  }

  /// Approximate number of record bytes still to be sent from the current list.
  package var bytesLeft: Int {
    let (list, next) = progress.withLock { ($0.list, $0.next) }
    guard list < items.count else { return 0 }
    // Counts at most 8192 items; callers need no more.
    return items[list][next...].prefix(1 << 13).reduce(0) { $0 + Int($1.bytes) }
  }

  /// Upper bound of the writes that one batch of a full state names.
  private static let maxPresent = 1 << 15

  /// Writes the next batch of whole transactions, about `maximumBytes` bytes of records unless one
  /// transaction is larger; nil at the end. After an error, discard what `writer` has received.
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

  /// The items of the next batch, whole transactions of them, as alternating runs of records to send and
  /// records that the receiver has.
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
