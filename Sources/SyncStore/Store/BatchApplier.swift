/// The store's receiving side of a session: applying batches and closing rounds (rules R6, R7, R9, R10).
///
/// Each batch and each close is one append under the writers' mutex.
final class BatchApplier: WritingPart {
  let core: OpenStore
  let writes: WritePath
  let journalSync: JournalSync
  /// The session that holds the scope expansion.
  let scopeExpansion = LockedField(ScopeExpansionClaim())

  init(_ core: OpenStore, writes: WritePath, journalSync: JournalSync) {
    (self.core, self.writes, self.journalSync) = (core, writes, journalSync)
  }

  /// `Store.applyBatch`. Blobs of the batch that are `absent` here are recorded as such.
  func applyBatch(
    _ batch: IncomingBatch, _ full: FullState?, absent: [AbsentBlob], closing close: RoundClose?
  ) throws(StoreError) -> Store.AppliedBatch {
    if batch.previousCursor == nil { try prepareToApply(batch.scopeExpansion, in: batch.mark) }
    if full == nil, batch.scopeExpansion == nil, case .compact(let plain) = batch.records,
      let taken = try bulkInsert(
        plain, { builder throws(StoreError) in try advanceCursor(batch, close: close, &builder) })
    {
      return Store.AppliedBatch(missing: [], echo: taken.echo, tail: taken.tail)
    }
    let records = batch.records.list
    let (echo, tail) = try writes.append(limit: 2 * Limits.batchBytes) { builder throws(StoreError) in
      let own = builder.state.sequence
      let lacking = try batch.scopeExpansion.map { expansion throws(StoreError) in
        try requireOwn(expansion, in: batch.mark, after: batch.previousCursor, builder.state)
        return try missingScope(expansion, state: builder.state)
      }
      // The held records do not change until this is committed.
      let (held, parked, kept, position) = core.engine.withLock { engine in
        (engine.held(of: records), engine.parked(of: records), engine.losers.digests, engine.position)
      }
      for (index, item) in records.enumerated() {
        let record = item.record
        if record.dot.actor == builder.state.actor, record.dot.sequence > builder.state.sequence {
          throw StoreError(.rolledBack, "a peer has a write that this copy lacks: connect again", path: path)
        }
        if let full {
          let earlier = builder.record(of: record.key) ?? held[index]
          if builder.state.incarnations.isUnconfirmed(record.dot)
            || earlier.map({ builder.state.incarnations.isUnconfirmed($0.dot) }) ?? false
          {
            let waits = record.stamp > builder.stampLimit && !builder.state.isMine(record.dot)
            full.record(
              doubtful: record, against: earlier, isTaken: !waits && !builder.state.covers(record.dot))
          }
        }
        try builder.receive(
          record, held: held[index], parked: parked[record.key] ?? [], kept: kept, lacking: lacking)
      }
      for absent in absent { try builder.setLocal(absent.key, absent.value) }
      try advanceCursor(batch, close: close, &builder)
      return builder.state.sequence == own ? (position, position + builder.positions) : nil
    }
    full?.record(batch)
    return Store.AppliedBatch(
      missing: absent.filter { $0.reason == .awaited }.map(\.blob), echo: echo, tail: tail)
  }

  /// Advances the cursor past a batch, or closes its round.
  ///
  /// Checks the scope first: for keys that this copy has held only since, the cursor would claim that their
  /// records had been received.
  private func advanceCursor(
    _ batch: IncomingBatch, close: RoundClose?, _ builder: inout TransactionBuilder
  ) throws(StoreError) {
    try requireScope(batch.scope, state: builder.state)
    try requireExpectedState(batch.expectedState, of: batch.sender, builder.state)
    if let close { return try merge(close, &builder) }
    if let relay = batch.relay { return try record(relay, &builder) }
    let cursor = Cursor(position: batch.position, mark: batch.mark, closed: false)
    if let expansion = batch.scopeExpansion { return try recordCursor(cursor, of: expansion, &builder) }
    try builder.setLocal(StateKey.cursor(batch.sender), ReplicaState.encode(cursor))
  }

  /// `Store.finish`.
  func finish(
    _ close: RoundClose, _ full: FullState? = nil, after cursor: Cursor? = nil
  ) throws(StoreError) {
    try reading { engine throws(StoreError) in
      try requireExpectedState(close.expectedState, of: close.sender, engine.state)
      try requireOwnWrites(in: close.vector, engine.state)
    }
    if close.isFull || close.scopeExpansion != nil { try requirePossible(close.horizon) }
    if close.isFull { return try finish(full ?? FullState(), close: close) }
    if cursor == nil { try prepareToApply(close.scopeExpansion, in: close.mark) }
    let (_, tail) = try writes.append(limit: .max) { builder throws(StoreError) in
      if let expansion = close.scopeExpansion {
        try requireOwn(expansion, in: close.mark, after: cursor, builder.state)
      }
      try merge(close, &builder)
    }
    try journalSync.sync(upTo: tail)
  }

  /// Fails if a peer covers writes of this copy that it never made: another incarnation made them (rule
  /// R9).
  ///
  /// They may have been superseded at the peer, so that they are never sent.
  func requireOwnWrites(in vector: VersionVector, _ state: ReplicaState) throws(StoreError) {
    guard let actor = state.actor, vector[actor] > state.sequence else { return }
    throw StoreError(.rolledBack, "a peer covers writes that this copy lacks: connect again", path: path)
  }

  /// Fails if the peer's purge horizon is stamped so far ahead that adopting it would put all writes made
  /// here ahead as well: other members would park them (F50).
  private func requirePossible(_ horizon: Stamp) throws(StoreError) {
    let now = environment.now()
    // The clocks may differ by the drift limit.
    let lead = Limits.horizonLeadMilliseconds + Limits.clockDriftMilliseconds
    guard horizon > Stamp(milliseconds: now + lead) else { return }
    throw StoreError(
      .clock,
      "deletes that the peer has purged are stamped \(RestampPlan.lead(horizon, now)) ahead of this clock: put this clock right, or, if it "
        + "is, have the peer restamp what it wrote ahead (`Store.restampUnsent`)",
      path: path)
  }

  /// Fails if this copy is no longer the one that the session knows.
  ///
  /// A new actor may have reset its vector and all cursors so that everything is offered again (rule R9): a
  /// session begun before would restore its stale knowledge of either.
  func requireExpectedState(
    _ addressee: ExpectedReplicaState?, of sender: ActorID, _ state: ReplicaState
  ) throws(StoreError) {
    guard let addressee else { return }
    guard state.actor == addressee.actor else {
      throw StoreError(.overtaken, "this copy has taken a new actor meanwhile: connect again", path: path)
    }
    guard let cursor = addressee.cursor, state.cursors[sender] != cursor else { return }
    throw StoreError(
      .overtaken, "another session of the same two copies has gone on meanwhile: connect again", path: path)
  }

  /// Merges the sender's vector and closes the cursor.
  func merge(_ close: RoundClose, _ builder: inout TransactionBuilder) throws(StoreError) {
    try requireExpectedState(close.expectedState, of: close.sender, builder.state)
    try requireOwnWrites(in: close.vector, builder.state)
    if close.scopeExpansion != nil { return try finishScopeExpansion(close, &builder) }
    // If the scope has changed, this copy would seem to have records that were never sent.
    try requireScope(close.scope, state: builder.state)
    var vector = builder.state.vector
    // A recovering copy, which does not know what it covers, learns it only from a full state.
    if close.isFull || !builder.state.isRecovering { vector.merge(close.covered(by: builder.state)) }
    try requirePlaces(in: vector, builder.state)
    if vector != builder.state.vector {
      try builder.setLocal(StateKey.vector, ReplicaState.encode(vector))
    }
    if let relay = close.relay { return try record(relay, &builder) }
    let cursor = Cursor(position: close.position, mark: close.mark, closed: true)
    if builder.state.cursors[close.sender] != cursor {
      try builder.setLocal(StateKey.cursor(close.sender), ReplicaState.encode(cursor))
    }
  }

  /// Records what is known of a relay.
  func record(_ relay: RelayRecord, _ builder: inout TransactionBuilder) throws(StoreError) {
    guard builder.state.relays[relay.relay] != relay.progress else { return }
    try builder.setLocal(StateKey.relay(relay.relay), relay.progress.bytes)
  }

  /// Fails if adopting a vector leaves no room for this copy's own actor, if it has not written yet, and for
  /// the one after a rollback: otherwise other members could not read its vector any more. A vector that
  /// names no new actor is always accepted.
  func requirePlaces(in vector: VersionVector, _ state: ReplicaState) throws(StoreError) {
    let isNamed = state.actor.map { vector[$0] > 0 } ?? false
    guard vector.count > Limits.actors - (isNamed ? 1 : 2), vector.count > state.vector.count else { return }
    throw tooManyActors
  }

  /// The error for a vector that would name more actors than allowed.
  var tooManyActors: StoreError {
    StoreError(
      .outOfBounds,
      "all copies that this store ever had, each time that one was put back counted anew, are more than \(Limits.actors) together: make a "
        + "new store of what this one holds (`Store.importAll(from:)`), and have the members join that",
      path: path)
  }

  /// Becomes a new actor, because a peer knows more of this copy than it does itself (rule R9), or bears the
  /// same name.
  ///
  /// - Parameter side: which side of the connection this copy is on. A clone that draws the same random
  ///   numbers at the same time is on the other side.
  func becomeNewActor(side: UInt8 = 0) throws(StoreError) {
    try preserveOverwrittenForkValues()
    let actor = anotherActor(side: side)
    let (_, tail) = try writes.append(limit: .max) { builder throws(StoreError) in
      try builder.changeActor(.rolledBack, as: actor)
    }
    try journalSync.sync(upTo: tail)
  }

  /// A new actor ID, for a copy whose present one another copy bears, too. Mixes in the copy's own state, as
  /// a clone may draw the same random numbers.
  func anotherActor(side: UInt8 = 0) -> ActorID {
    var known = ByteWriter()
    known.write(side)
    known.write(environment.now())
    known.write(control.tail)
    return environment.newActor(mixing: known.bytes)
  }
}
