/// The store's side of a session: outgoing rounds and incoming batches (rules R6, R7, R9, R10). All calls
/// block.
extension Store {
  /// The handshake summary of this copy; all of it is durable when this returns.
  package func replicaSummary() throws(StoreError) -> ReplicaSummary {
    try replicaSummary(digestAt: environment.now()).summary
  }

  /// The handshake summary and the digest of what is live at `time` (milliseconds since 1970), both of one
  /// moment.
  ///
  /// All of it is durable when this returns. If the digest had to be computed, the context for a first delta
  /// scan is returned with it. A writable store that finds a damaged record here replays the journal and
  /// requests everything again: a session then brings back what was lost.
  package func replicaSummary(
    digestAt time: UInt64
  ) throws(StoreError) -> (summary: ReplicaSummary, digest: StateDigest, scanContext: DeltaScanContext?) {
    do throws(StoreError) { return try summary(digestAt: time) } catch {
      guard error.code == .damaged, isWritable else { throw error }
      try recoverFromDamage()
      return try summary(digestAt: time)
    }
  }

  private func summary(
    digestAt time: UInt64
  ) throws(StoreError) -> (summary: ReplicaSummary, digest: StateDigest, scanContext: DeltaScanContext?) {
    let (answer, tail) = try readingExclusively { engine, isAlone throws(StoreError) in
      let state = engine.state
      guard let actor = state.actor else { throw missingActorError }
      var summary = ReplicaSummary(
        store: id, actor: actor, sequence: state.sequence, vector: state.vector, floor: state.floor,
        horizon: state.horizon, position: engine.position)
      (summary.health, summary.scope) = (state.health, state.scope)
      (summary.scopeExpansion, summary.abandonedActors) = (state.scopeExpansion, state.abandonedActors)
      let (digest, current) = try engine.digest(at: time, keeps: isAlone)
      let few = environment.scanBatchPositions
      let scanContext = current.flatMap { DeltaScanContext(after: 0, few: few, $0, in: &engine) }
      return ((summary, digest, scanContext), engine.applied.packed)
    }
    if isWritable { try sync(upTo: tail) }
    return answer
  }

  /// How far the journal of `sender` has been received here.
  package func cursor(for sender: ActorID) throws(StoreError) -> Cursor? {
    try reading { engine throws(StoreError) in engine.state.cursors[sender] }
  }

  /// The current mark, or a new one if anything was written since it was made. `digest` is
  /// `Engine.runningDigest`.
  func mark(
    _ builder: inout TransactionBuilder, position: UInt64, digest: StateDigest?, isLive: Bool = false
  ) throws(StoreError) -> RoundMark {
    if let last = builder.state.lastMark, let made = builder.state.marks[last], made.position == position,
      made.isLive ? isLive && liveSessions.isOwn(last) : !isLive
    {
      return last
    }
    let mark = environment.newMark(mixing: incarnationFingerprint(builder.state, digest: digest))
    if let oldest = builder.state.marks.oldest(inPlaceOf: mark, used: liveSessions.isUsed) {
      try builder.setLocal(StateKey.mark(oldest), nil)
    }
    let made = ReplicaState.Mark(
      position: position, sequence: builder.state.sequence, isLive: isLive,
      clock: builder.state.author.clock.last)
    try builder.setLocal(StateKey.mark(mark), ReplicaState.encode(made))
    if isLive {
      // After the new mark: there must always be a last one that states how far this copy had written.
      for idle in liveSessions.idle(of: builder.state.marks) {
        try builder.setLocal(StateKey.mark(idle), nil)
      }
      liveSessions.register(mark)
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

  /// A batch that was appended.
  package struct AppliedBatch: Sendable {
    /// Blobs that its records refer to, that are absent, and that will be fetched.
    package var missing: [BlobReference]
    /// The positions after the first, up to the second, hold only records of the batch: its sender has them.
    /// Nil if this copy wrote something of its own with it.
    package var echo: (after: UInt64, upTo: UInt64)?
    fileprivate var tail: UInt64
  }

  /// Applies a batch and advances the cursor, in one atomic append. It must not be acknowledged before
  /// `awaitDurability` has returned.
  ///
  /// - Parameters:
  ///   - full: for a full state, records what the sender holds.
  ///   - close: closes the round in the same step (`finish`), if it is an increment and this its last batch.
  /// - Throws: `.rolledBack` if a record bears a sequence of this copy's actor that it never wrote;
  ///   `.overtaken` if this copy is no longer in the state that the session expects.
  package func applyBatch(
    _ batch: IncomingBatch, _ full: FullState? = nil, closing close: RoundClose? = nil
  ) throws(StoreError) -> AppliedBatch {
    let absent = try absent(of: batch)
    if batch.previousCursor == nil { try prepareToApply(batch.scopeExpansion, in: batch.mark) }
    if full == nil, batch.scopeExpansion == nil, case .compact(let plain) = batch.records,
      let taken = try bulkInsert(
        plain, { builder throws(StoreError) in try advanceCursor(batch, close: close, &builder) })
    {
      return AppliedBatch(missing: [], echo: taken.echo, tail: taken.tail)
    }
    let records = batch.records.list
    let (echo, tail) = try append(limit: 2 * Limits.batchBytes) { builder throws(StoreError) in
      let own = builder.state.sequence
      let lacking = try batch.scopeExpansion.map { expansion throws(StoreError) in
        try requireOwn(expansion, in: batch.mark, after: batch.previousCursor, builder.state)
        return try missingScope(expansion, state: builder.state)
      }
      // The held records do not change until this is committed.
      let (held, parked, kept, position) = engine.withLock { engine in
        (engine.held(of: records), engine.parked(of: records), engine.losers.digests, engine.position)
      }
      for (index, item) in records.enumerated() {
        let record = item.record
        if record.dot.actor == builder.state.actor, record.dot.sequence > builder.state.sequence {
          throw StoreError(.rolledBack, "a peer has a write that this copy lacks: connect again", path: path)
        }
        if let full {
          let earlier = builder.record(of: record.key) ?? held[index]
          if builder.state.isUnconfirmed(record.dot)
            || earlier.map({ builder.state.isUnconfirmed($0.dot) }) ?? false
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
    return AppliedBatch(missing: absent.filter { $0.reason == .awaited }.map(\.blob), echo: echo, tail: tail)
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
    let cursor = Cursor(position: batch.position, mark: batch.mark, closed: false)
    if let expansion = batch.scopeExpansion { return try recordCursor(cursor, of: expansion, &builder) }
    try builder.setLocal(StateKey.cursor(batch.sender), ReplicaState.encode(cursor))
  }

  /// Waits until a batch appended by `applyBatch` is durable.
  package func awaitDurability(of taken: AppliedBatch) throws(StoreError) { try sync(upTo: taken.tail) }

  /// Closes a round that was received completely: only now is the sender's vector merged (rule R6). Durable
  /// on return.
  ///
  /// - Parameters:
  ///   - full: what the batches of this round recorded, if it was the sender's full state.
  ///   - cursor: the cursor that the last batch left, if it was a scope expansion round and had any batch.
  package func finish(
    _ close: RoundClose, _ full: FullState? = nil, after cursor: Cursor? = nil
  ) throws(StoreError) {
    try reading { engine throws(StoreError) in
      try requireExpectedState(close.expectedState, of: close.sender, engine.state)
      try requireOwnWrites(in: close.vector, engine.state)
    }
    if close.isFull || close.scopeExpansion != nil { try requirePossible(close.horizon) }
    if close.isFull { return try finish(full ?? FullState(), close: close) }
    if cursor == nil { try prepareToApply(close.scopeExpansion, in: close.mark) }
    let (_, tail) = try append(limit: .max) { builder throws(StoreError) in
      if let expansion = close.scopeExpansion {
        try requireOwn(expansion, in: close.mark, after: cursor, builder.state)
      }
      try merge(close, &builder)
    }
    try sync(upTo: tail)
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
    let cursor = Cursor(position: close.position, mark: close.mark, closed: true)
    if builder.state.cursors[close.sender] != cursor {
      try builder.setLocal(StateKey.cursor(close.sender), ReplicaState.encode(cursor))
    }
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
  package var tooManyActors: StoreError {
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
  package func becomeNewActor(side: UInt8 = 0) throws(StoreError) {
    try preserveOverwrittenForkValues()
    let actor = anotherActor(side: side)
    let (_, tail) = try append(limit: .max) { builder throws(StoreError) in
      try builder.changeActor(.rolledBack, as: actor)
    }
    try sync(upTo: tail)
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

  /// The digest of what is live at a time, in milliseconds since 1970.
  package func digest(at time: UInt64) throws(StoreError) -> StateDigest {
    try readingExclusively { engine, isAlone throws(StoreError) in
      try engine.digest(at: time, keeps: isAlone).digest
    }
  }

  // MARK: Missing blobs

  private static let minMissingToCache = 1000

  /// Absent blobs that are referred to, as of a journal position; those only beaten values refer to are
  /// `spare`.
  struct MissingBlobs {
    fileprivate let position: UInt64
    fileprivate let hashes: Set<BlobHash>
    fileprivate let spare: Set<BlobHash>
  }

  /// Blobs that records here refer to, that have not arrived, and that sessions must request. Forgets those
  /// that have arrived.
  package func missingBlobs() throws(StoreError) -> [BlobReference] { try blobsToFetch().blobs }

  /// `missingBlobs()`, and those among them that only beaten values refer to: these are fetched as long as
  /// any member has them.
  package func blobsToFetch() throws(StoreError) -> (blobs: [BlobReference], spare: Set<BlobHash>) {
    var missing: [BlobReference] = []
    var arrived: [BlobHash] = []
    for blob in try absentBlobs(.awaited) {
      // A blob that arrived and could not be made durable is requested again: a power loss would remove it,
      // and no absence record would name it.
      let isHere = try isWritable ? blobs.retainDurably(blob.hash) : blobs.has(blob.hash)
      if isHere { arrived.append(blob.hash) } else { missing.append(blob) }
    }
    if !arrived.isEmpty { try recordArrived(arrived) }
    // A few that do not arrive may belong to values overwritten everywhere since: no member has them any
    // more.
    guard isWritable, !missing.isEmpty, missing.count <= Self.minMissingToCache else { return (missing, []) }
    // Scanning a large journal takes longer than a peer may wait: the next attempt uses this cached result.
    let (position, hashes) = (journalPosition, Set(missing.map(\.hash)))
    let known = missingBlobsCache.withLock { $0 }
    if let known, known.position == position, hashes.isSubset(of: known.hashes) {
      return (missing, known.spare.intersection(hashes))
    }
    let references: BlobReferences
    do throws(StoreError) { references = try pruneAbsenceRecords() } catch {
      // The references of damaged records are unknown: everything is requested.
      guard error.code == .damaged else { throw error }
      return (missing, [])
    }
    missing.removeAll { references.all[$0.hash] == nil }
    let spare = Set(missing.map(\.hash).filter { references.all[$0] == references.beaten[$0] })
    let found = MissingBlobs(position: position, hashes: Set(missing.map(\.hash)), spare: spare)
    missingBlobsCache.withLock { $0 = found }
    return (missing, spare)
  }

  /// Records that a blob must be fetched again, because it was found damaged or missing.
  package func want(_ blob: BlobReference) throws(StoreError) {
    let absent = AbsentBlob(blob, .awaited)
    try setLocal(absent.key, absent.value)
  }

  // MARK: Local keys

  /// The value of a local key, which is never replicated.
  package func local(_ key: [UInt8]) throws(StoreError) -> [UInt8]? {
    try reading { engine throws(StoreError) in engine.localMetadata[key] }
  }

  /// A snapshot of all local keys, which can be read without a lock.
  var localMetadata: LocalMetadata {
    get throws(StoreError) { try reading { engine throws(StoreError) in engine.localMetadata } }
  }

  /// Local keys that begin with `prefix`, in order.
  package func locals(prefix: [UInt8]) throws(StoreError) -> [(key: [UInt8], value: [UInt8])] {
    try localMetadata.all(beginning: prefix).sorted { $0.key.lexicographicallyPrecedes($1.key) }
  }

  /// Sets a local key, durably; nil removes it.
  package func setLocal(_ key: [UInt8], _ value: [UInt8]?) throws(StoreError) {
    try updateLocal(key) { _ in value }
  }

  /// Changes a local key atomically and durably: `change` gets its value and returns the new one. Returns the
  /// previous value.
  @discardableResult
  package func updateLocal(
    _ key: [UInt8], _ change: ([UInt8]?) -> [UInt8]?
  ) throws(StoreError) -> [UInt8]? {
    precondition(
      !StateKey.isInternal(key) && key.count <= Limits.keyBytes, "the store keeps these keys itself")
    let (before, tail) = try append { builder throws(StoreError) in
      let before = engine.withLock { $0.localMetadata[key] }
      let after = change(before)
      if after != before { try builder.setLocal(key, after) }
      return before
    }
    try sync(upTo: tail)
    return before
  }
}
