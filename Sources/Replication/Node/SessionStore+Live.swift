internal import SyncStore

/// Store operations of live sessions.
extension SessionStore {
  /// Opens a round for the journal's growth, and returns its first batch with it.
  ///
  /// If another thread is syncing the journal, prepares the batch concurrently; `answer` is called, by the
  /// thread that synced, once the whole round is durable (rule R7): only then may it leave.
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

  /// The event of a live round, valid once the journal is durable up to `tail`, if given.
  func prepareLiveUpdate(
    _ receiver: RoundReceiver, after begin: UInt64, to peer: ActorID?
  ) throws -> (event: SessionEvent, tail: UInt64?) {
    if let why = try renewed() { return (.stale(why), nil) }
    try requireRightClock()
    let update = try store.openLiveUpdate(for: receiver, after: begin)
    guard let round = update.round else { return (.liveUpdateEmpty(position: update.position), nil) }
    // The other side confirms a round before the next one opens: its cursor bears the mark of the last round,
    // or of this one. It is past the marks of earlier sessions, too: an ordinary round was sent since.
    let left = peer.map { store.claimLiveMarks(retainedWith: $0) } ?? []
    let passed = state.withLock { $0.outgoing.beginLiveUpdate(round.close.mark, left: left, to: peer) }
    for mark in passed { store.releaseLiveMark(mark) }
    let first = try nextBatch(of: round, 0)
    let isWhole = first.map { $0.batch.records == round.count } ?? true
    state.withLock { $0.outgoing.round = isWhole ? nil : round }
    let opening = first.map {
      LiveUpdateOpening.Batch(encrypted: $0.encrypted, position: $0.batch.position, records: $0.batch.users)
    }
    let event = SessionEvent.liveUpdateOpened(
      LiveUpdateOpening(records: UInt64(round.count), close: round.close, first: opening, isWhole: isWhole))
    return (event, update.tail)
  }

  /// The positions of the own journal that only the last batch filled, if known. Returned once.
  func takeLastAppliedRange() -> (after: UInt64, upTo: UInt64)? {
    state.withLock { $0.incoming.lastAppliedRange.take() }
  }

  /// Whether this copy covers more since the last round was closed. True is returned once.
  func takeCoverageGrew() -> Bool {
    state.withLock { exchange(&$0.incoming.coverageGrew, with: false) }
  }

  /// The session goes live: from now on it checks whether others act for the same two copies.
  package func goLive() { state.withLock { ($0.isLive, $0.outgoing.scanContext) = (true, nil) } }

  /// The replica state that this session expects when it applies something. If it differs, another session
  /// has received from the same copy, or this copy has become another actor (rule R9), and both copies must
  /// start with a new handshake.
  var expectedReplicaState: ExpectedReplicaState? {
    state.withLock { state in
      state.handshake.actor.map {
        ExpectedReplicaState(actor: $0, cursor: state.isLive ? state.incoming.cursor : nil)
      }
    }
  }

  func renewed() throws -> String? {
    guard let actor = state.withLock({ $0.handshake.actor }), try store.actor != actor else { return nil }
    return "this copy has taken a new actor meanwhile"
  }

  /// A round was closed: records the cursor, and stores group keys that arrived before it.
  func closed(_ close: RoundClose) throws {
    let given = state.withLock { state in
      // Missing keys have a cursor of their own.
      if close.scopeExpansion == nil {
        state.incoming.cursor = Cursor(position: close.position, mark: close.mark, closed: true)
      }
      return state.keys.received.take()
    }
    guard let given else { return }
    try keys.merge(given)
  }

  /// Merges group keys from the other side, for the rest of this session.
  func mergeGroupKeys(_ given: GroupKeyRing) throws {
    var ring = try ring()
    try ring.merge(given)
    let merged = ring
    state.withLock { state in
      state.keys = Keys(ring: merged, received: given)
    }
  }
}
