/// The store's sending side of a session: rounds of what a receiver lacks (rules R6, R7, R9, R10).
///
/// A round is fixed under the writers' mutex; its records are read later, in steps, each under the engine's
/// lock.
final class DeltaSource: WritingPart {
  let core: OpenStore
  let writes: WritePath
  let journalSync: JournalSync
  private let applier: BatchApplier
  /// State shared by sessions that stay open.
  let live = LiveSessions()

  init(_ core: OpenStore, applier: BatchApplier) {
    (self.core, self.applier) = (core, applier)
    (writes, journalSync) = (applier.writes, applier.journalSync)
  }

  /// `Store.openRound`.
  func openRound(
    for receiver: RoundReceiver, on context: DeltaScanContext? = nil
  ) throws(StoreError) -> DeltaStream {
    let begin = receiver.cursor?.position ?? 0
    if try applier.isInDoubt {
      _ = try givesFullState(core.engine.withLock { $0.state }, to: receiver, isLive: false)
      try applier.reissueUnknown(to: receiver.covered, after: begin)
    }
    let scan = try context.flatMap { context throws(StoreError) in
      try deltaScan(for: receiver, after: begin, on: context)
    }
    let (round, tail) = try makeRound(for: receiver, after: begin, isLive: false, scan: scan)
    // The mark and all records of the snapshot must be durable before any of them is sent (rules R7, R9).
    try journalSync.sync(upTo: tail)
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
    defer { if let used { live.release(used) } }
    let (opening, tail) = try writes.append { builder throws(StoreError) -> RoundSnapshot? in
      let state = builder.state
      guard let actor = state.actor else { preconditionFailure("a writable store has an actor") }
      let isFull = try givesFullState(state, to: receiver, isLive: isLive)
      // Check before the mark is made: writes that a peer may have received cannot be restamped.
      if isFull || receiver.missingScope != nil { try checkHorizon(state.purged.horizon, at: builder.wall) }
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
      let (position, digest) = core.engine.withLock { ($0.position, $0.runningDigest) }
      let mark = try self.mark(&builder, position: position, digest: digest, isLive: isLive)
      if let publication = receiver.publication { try applier.record(publication, &builder) }
      // Under the mutex: otherwise the mark could be released, or replaced by another one, before it is in
      // use.
      if isLive {
        live.use(mark)
        used = mark
      }
      let close = RoundClose(
        sender: actor, mark: mark, position: position, vector: state.advertisedVector,
        floor: state.purged.floor, horizon: state.purged.horizon, kind: isFull ? .fullState : .delta)
      return RoundSnapshot(close: close, items: items, start: choice.start, snapshotPoint: point)
    }
    guard let opening else { return nil }
    var items = opening.items.isEmpty ? [] : [opening.items]
    if var scan, let point = opening.snapshotPoint {
      guard try scan.removeSuperseded(at: point) else { return nil }
      items = scan.items + items
    }
    let round = DeltaStream(source: self, close: opening.close, items: items, start: opening.start, pin: pin)
    used = nil
    return (round, tail)
  }

  /// Whether the round must be a full state (rule R8).
  static func givesFullState(_ state: ReplicaState, to receiver: RoundReceiver, isLive: Bool) -> Bool {
    let needsFullState =
      receiver.health != .healthy || state.scope == nil && !receiver.covered.covers(state.purged.floor)
    return !isLive && receiver.missingScope == nil && receiver.publication == nil && needsFullState
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
    try applier.requireOwnWrites(in: receiver.covered, state)
    let isFull = Self.givesFullState(state, to: receiver, isLive: isLive)
    if receiver.missingScope != nil, state.scope != nil { throw Self.partialScopeError }
    if isFull { try checkGivesFullState(state, to: receiver) }
    if receiver.publication != nil { try checkIsSound(state) }
    return isFull
  }

  /// Throws `.unsettled` unless everything that this copy states about itself is certain (rule L7).
  private func checkIsSound(_ state: ReplicaState) throws(StoreError) {
    if state.isSound { return }
    throw StoreError(
      .unsettled,
      "this copy was damaged or put back, and does not know yet what it has lost: let it read from a member or a relay first",
      path: path)
  }

  private func checkGivesFullState(
    _ state: ReplicaState, to receiver: RoundReceiver
  ) throws(StoreError) {
    guard state.scope == nil else { throw Self.partialScopeError }
    let canMend = state.isHealthy && state.vector.covers(receiver.floor)
    // While recovering, a copy advertises less than it covers: a receiver that took over a floor above that
    // could give no copy the full state, not even this one.
    guard !state.isRecovering, state.advertisedVector.covers(state.purged.floor),
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
        !engine.state.incarnations.isUnconfirmed(dot),
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

  /// The current mark, or a new one if anything was written since it was made. `digest` is
  /// `Engine.runningDigest`.
  func mark(
    _ builder: inout TransactionBuilder, position: UInt64, digest: StateDigest?, isLive: Bool = false
  ) throws(StoreError) -> RoundMark {
    if let last = builder.state.marks.last, let made = builder.state.marks[last], made.position == position,
      made.isLive ? isLive && live.isOwn(last) : !isLive
    {
      return last
    }
    let mark = environment.newMark(mixing: incarnationFingerprint(builder.state, digest: digest))
    if let oldest = builder.state.marks.oldest(inPlaceOf: mark, used: live.isUsed) {
      try builder.setLocal(StateKey.mark(oldest), nil)
    }
    let made = ReplicaState.Mark(
      position: position, sequence: builder.state.sequence, isLive: isLive,
      clock: builder.state.author.clock.last)
    try builder.setLocal(StateKey.mark(mark), ReplicaState.encode(made))
    if isLive {
      // After the new mark: there must always be a last one that states how far this copy had written.
      for idle in live.idle(of: builder.state.marks) {
        try builder.setLocal(StateKey.mark(idle), nil)
      }
      live.register(mark)
    }
    return mark
  }

  /// Distinguishes this copy from another incarnation of it: the time, and how far and what it has written.
  /// The running digest is maintained once a session has requested it; without it the ends must do.
  private func incarnationFingerprint(_ state: ReplicaState, digest: StateDigest?) -> [UInt8] {
    var known = ByteWriter()
    known.write(environment.now())
    known.write(control.tail)
    known.write(state.sequence)
    known.write(state.author.clock.last.rawValue)
    known.write(raw: digest?.bytes ?? [])
    return known.bytes
  }
}

/// Live rounds.
extension DeltaSource {
  /// `Store.openLiveUpdate`.
  func openLiveUpdate(for receiver: RoundReceiver, after begin: UInt64) throws(StoreError)
    -> Store.LiveUpdate
  {
    if try applier.isInDoubt { try applier.reissueUnknown(to: receiver.covered, after: begin) }
    let scan = try deltaScan(for: receiver, after: begin, isLive: true)
    let (isAny, position) = try reading { engine throws(StoreError) in
      // Thousands of sessions keep the vector: let them share its memory.
      engine.state.foldOwnWrites()
      let choice = DeltaFilter(for: receiver, after: begin, isFull: false)
      let isFound =
        if let scan, !scan.items.isEmpty {
          true
        } else {
          try !Self.items(choice, after: scan?.reached, in: engine, limit: 1).isEmpty
        }
      // A write that was beaten before it was sent is covered, but not sent.
      let isAny = isFound || !engine.state.isRecovering && !receiver.covered.covers(engine.state.vector)
      return (isAny, engine.position)
    }
    guard isAny else { return Store.LiveUpdate(position: position, tail: 0) }
    let (round, tail) = try makeRound(for: receiver, after: begin, isLive: true, scan: scan)
    return Store.LiveUpdate(round: round, position: round.close.position, tail: tail)
  }

  /// Appends the mark of the round that will carry the write just made, so that one sync makes both durable.
  ///
  /// A mark must be durable before any record of its round is sent (R9). Only the first write of a burst
  /// appends one.
  @inline(never)
  func appendingMark(to target: UInt64) -> UInt64 {
    guard live.clearAwaited() else { return target }
    // A mark implies that its clock may be known elsewhere. A clock that is ahead is not sent with any round
    // before it was restamped.
    if let ahead = try? stampsAreAhead, ahead { return target }
    let appended = try? writes.append(pacing: false) { builder throws(StoreError) in
      let (position, digest) = core.engine.withLock { ($0.position, $0.runningDigest) }
      _ = try mark(&builder, position: position, digest: digest, isLive: true)
    }
    // If this fails, the session makes the mark itself.
    return appended?.1 ?? target
  }
}
