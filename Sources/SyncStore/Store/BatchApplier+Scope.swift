/// Applying the rounds of a scope expansion.
extension BatchApplier {
  /// The keys that a scope expansion round brings, if this copy still wants them.
  func missingScope(_ expansion: ScopeExpansion, state: ReplicaState) throws(StoreError) -> MissingScope {
    guard let held = state.scope, let present = state.scopeExpansion, present.scope == expansion.scope else {
      throw scopeChangedError
    }
    return MissingScope(wanted: expansion.scope, held: held)
  }

  /// Records the progress of a scope expansion.
  func recordCursor(_ cursor: Cursor, of expansion: ScopeExpansion, _ builder: inout TransactionBuilder)
    throws(StoreError)
  {
    var expansion = expansion
    expansion.cursor = cursor
    try builder.setLocal(StateKey.scopeExpansion, expansion.bytes)
  }

  /// Fails unless what was received of the missing scope comes from this round, or from where this round
  /// resumed.
  ///
  /// Another round, with another peer or in another process, may have begun since and discarded what this
  /// one had brought: closing this one would then claim keys whose records are absent.
  func requireOwn(
    _ expansion: ScopeExpansion, in mark: RoundMark, after cursor: Cursor?, _ state: ReplicaState
  ) throws(StoreError) {
    let present = state.scopeExpansion?.cursor
    let isOwn =
      if let expected = cursor ?? expansion.cursor { present == expected } else {
        present == nil || present?.mark == mark
      }
    guard isOwn else { throw scopeChangedError }
  }

  /// Prepares for the first batch of a scope expansion round. A round that does not resume an earlier one
  /// begins from nothing and discards what was received: some of it may have been deleted since, and the
  /// tombstones purged.
  func prepareToApply(_ expansion: ScopeExpansion?, in mark: RoundMark) throws(StoreError) {
    guard let expansion, expansion.cursor == nil else { return }
    let isUnderWay = try reading { engine throws(StoreError) in
      engine.state.scopeExpansion?.cursor?.mark == mark
    }
    if !isUnderWay { try discardPartialExpansion() }
  }

  /// Discards what was received under keys that this copy does not hold yet. If interrupted, the next round
  /// repeats it.
  func discardPartialExpansion() throws(StoreError) {
    try writes.append { builder throws(StoreError) in try builder.restartScopeExpansion() }
    let pin = SnapshotPin()
    let (places, parked) = try writes.readingExclusively { engine, isAlone throws(StoreError) in
      engine.retainSegments(for: pin)
      return (try engine.locations(isExclusive: isAlone), engine.dueParked(upTo: .maximum))
    }
    try discard(places, isParked: false, pin)
    try discard(parked, isParked: true, pin)
  }

  private static let discardsPerStep = 256

  /// Discards the applied or parked records at these locations whose keys this copy does not hold.
  private func discard(_ places: [Location], isParked: Bool, _ pin: SnapshotPin) throws(StoreError) {
    for start in stride(from: 0, to: places.count, by: Self.discardsPerStep) {
      let doomed = try reading { engine throws(StoreError) in
        try pin.check(path)
        var doomed: [TransactionBuilder.RecordToPurge] = []
        for place in places[start..<min(start + Self.discardsPerStep, places.count)] {
          guard let record = try? engine.record(at: place), !engine.state.scope.holds(record.key) else {
            continue
          }
          doomed.append(
            TransactionBuilder.RecordToPurge(
              key: record.key, version: record.version, isParked: isParked, hadValue: !record.isTombstone,
              held: isParked ? engine.readable(record.key) : nil))
        }
        return doomed
      }
      yieldEngineLock()
      guard !doomed.isEmpty else { continue }
      try writes.append(limit: .max) { builder throws(StoreError) in try builder.dropDeadRecords(doomed) }
    }
  }

  /// Closes a scope expansion round.
  ///
  /// The copy holds the keys from now on if the sender covers everything that this copy covers: otherwise
  /// there may be writes under those keys that another member must send. This copy's own writes are not
  /// considered: it has none under keys that it does not hold.
  func finishScopeExpansion(_ close: RoundClose, _ builder: inout TransactionBuilder) throws(StoreError) {
    guard let closing = close.scopeExpansion else { return }
    _ = try missingScope(closing, state: builder.state)
    let state = builder.state
    var others = state.vector
    if let actor = state.actor { others[actor] = 0 }
    guard state.isHealthy, close.vector.covers(others), state.vector.covers(close.floor) else {
      return try recordCursor(
        Cursor(position: close.position, mark: close.mark, closed: true), of: closing, &builder)
    }
    // Purges of the sender under those keys apply here as well (rule R8).
    try builder.raiseFloor(to: close.floor, horizon: close.horizon)
    try builder.resetCursors()
    try builder.setLocal(StateKey.scope, closing.scope?.bytes)
    try builder.setLocal(StateKey.scopeExpansion, nil)
  }

  /// Fails if the scope has changed since the session began: the sender has sent nothing of any other keys.
  func requireScope(_ scope: KeyScope?, state: ReplicaState) throws(StoreError) {
    guard scope == state.scope else { throw StoreError(.overtaken, Self.otherKeys, path: path) }
  }

  private var scopeChangedError: StoreError { StoreError(.busy, Self.otherKeys, path: path) }

  private static let otherKeys =
    "this copy holds other keys than when the session began, or is to hold others: begin another one"

  /// Claims the scope expansion for a session. Throws `.busy` if another live session of this process has it:
  /// two at once would keep discarding what the other has brought.
  func claimScopeExpansion(for session: any AnyObject & Sendable) throws(StoreError) {
    try scopeExpansion.withLock { claim throws(StoreError) in
      if let other = claim.session, other !== session {
        throw StoreError(
          .busy, "another session brings the keys that this copy lacks: wait for it", path: path)
      }
      claim.session = session
    }
  }

  /// Releases the claim.
  func endScopeExpansion() { scopeExpansion.withLock { $0.session = nil } }

  struct ScopeExpansionClaim {
    weak var session: (any AnyObject & Sendable)?
  }
}

extension TransactionBuilder {
  /// Resets the cursors of all senders to the beginning.
  ///
  /// Records before a cursor were received for the old scope only. For the new keys this copy covers them
  /// only if it has merged the sender's vector for those keys, which is not so in the middle of a round, nor
  /// with a sender of limited scope. The marks stay: they identify a sender that was rolled back.
  mutating func resetCursors() throws(StoreError) {
    for (sender, cursor) in state.cursors.sorted(by: { $0.key < $1.key }) where cursor.position > 0 {
      let start = Cursor(position: 0, mark: cursor.mark, closed: false)
      try setLocal(StateKey.cursor(sender), ReplicaState.encode(start))
    }
  }
}

extension RoundClose {
  /// The vector that a receiver in this state covers additionally once the round is closed. Of a sender with
  /// limited scope only its own writes count, and only if the receiver covers everything else that the sender
  /// covers.
  func covered(by state: ReplicaState) -> VersionVector {
    guard kind == .narrowDelta else { return vector }
    var rest = vector
    rest[sender] = 0
    guard state.vector.covers(rest), state.vector.covers(floor) else { return VersionVector() }
    return VersionVector([sender: vector[sender]])
  }
}
