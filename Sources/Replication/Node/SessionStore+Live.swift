internal import SyncStore

/// What live sessions ask of the store.
extension SessionStore {
  /// Opens a round for the journal's growth, and gives its first batch with it. While another thread makes the journal durable,
  /// the batch is made ready; the answer, with which it leaves, is given when all of the round is durable (rule R7), by
  /// whoever made it so.
  func openLiveUpdate(
    _ receiver: RoundReceiver, after begin: UInt64, to peer: ActorID?,
    then answer: @escaping @Sendable (SessionEvent) -> Void
  ) {
    do {
      let (event, tail) = try prepareLiveUpdate(receiver, after: begin, to: peer)
      guard let tail else { return answer(event) }
      store.whenDurable(upTo: tail) { [self] error in answer(error.map { self.event(of: $0) } ?? event) }
    } catch {
      answer(event(of: error))
    }
  }

  /// What the session is told of a round once the journal is durable up to the tail, if one is given.
  func prepareLiveUpdate(
    _ receiver: RoundReceiver, after begin: UInt64, to peer: ActorID?
  ) throws -> (event: SessionEvent, tail: UInt64?) {
    if let why = try renewed() { return (.stale(why), nil) }
    try requireRightClock()
    let burst = try store.openLiveUpdate(for: receiver, behind: begin)
    guard let round = burst.round else { return (.liveUpdateEmpty(position: burst.position), nil) }
    // Rounds follow each other only on the other side's word: its cursor has the mark of the last one, or this one's. It is past those of
    // earlier sessions, too: it was given a round of the ordinary kind since.
    let left = peer.map { store.claimLiveMarks(retainedWith: $0) } ?? []
    let passed = state.withLock { state in
      let marks = left + state.marks + [round.close.mark]
      (state.marks, state.peer) = (marks.suffix(2), peer)
      return marks.dropLast(2)
    }
    for mark in passed { store.releaseLiveMark(mark) }
    let first = try nextBatch(of: round, 0)
    let isWhole = first.map { $0.batch.records == round.count } ?? true
    state.withLock { $0.round = isWhole ? nil : round }
    let opening = first.map {
      LiveUpdateOpening.Batch(encrypted: $0.sealed, position: $0.batch.position, records: $0.batch.users)
    }
    let event = SessionEvent.liveUpdateOpened(
      LiveUpdateOpening(records: UInt64(round.count), close: round.close, first: opening, isWhole: isWhole))
    return (event, burst.tail)
  }

  /// The positions of the own journal that the last batch alone has filled, if they are known and this was not asked before.
  func takeLastAppliedRange() -> (behind: UInt64, upTo: UInt64)? {
    state.withLock { state in
      defer { state.lastAppliedRange = nil }
      return state.lastAppliedRange
    }
  }

  /// Does this copy cover more since the last round was closed, and was this not asked before?
  func takeCoverageGrew() -> Bool {
    state.withLock { state in
      defer { state.coverageGrew = false }
      return state.coverageGrew
    }
  }

  /// The session goes on live: from now on it is noticed what others do for the same two copies.
  package func goLive() { state.withLock { ($0.isLive, $0.ground) = (true, nil) } }

  /// What this session must find in place of what it brings: else another one has received from the same copy, or the own copy is another
  /// one now (rule R9), and both copies find out what holds when they greet each other anew.
  var expectedReplicaState: ExpectedReplicaState? {
    state.withLock { state in
      state.actor.map { ExpectedReplicaState(actor: $0, cursor: state.isLive ? state.cursor : nil) }
    }
  }

  func renewed() throws -> String? {
    guard let actor = state.withLock({ $0.actor }), try store.actor != actor else { return nil }
    return "this copy has taken a new actor meanwhile"
  }

  /// A round was closed: the cursor is known, and group keys that came before it are kept.
  func closed(_ close: RoundClose) throws {
    let given = state.withLock { state in
      // Keys that were lacking have a cursor of their own.
      if close.scopeExpansion == nil {
        state.cursor = Cursor(position: close.position, mark: close.mark, closed: true)
      }
      defer { state.receivedKeys = nil }
      return state.receivedKeys
    }
    guard let given else { return }
    try keys.merge(given)
  }

  /// Keys that the other side gave: for what follows in this session.
  func mergeGroupKeys(_ given: GroupKeyRing) throws {
    var ring = try ring()
    try ring.merge(given)
    let merged = ring
    state.withLock { state in
      state.ring = merged
      state.receivedKeys = given
    }
  }
}
