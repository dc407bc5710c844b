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
      try recovery.recoverFromDamage()
      return try summary(digestAt: time)
    }
  }

  private func summary(
    digestAt time: UInt64
  ) throws(StoreError) -> (summary: ReplicaSummary, digest: StateDigest, scanContext: DeltaScanContext?) {
    let (answer, tail) = try writes.readingExclusively { engine, isAlone throws(StoreError) in
      let state = engine.state
      var summary = try summary(of: engine)
      (summary.scopeExpansion, summary.abandonedActors) = (state.scopeExpansion, state.incarnations.abandoned)
      let (digest, current) = try engine.digest(at: time, keeps: isAlone)
      let few = environment.scanBatchPositions
      let scanContext = current.flatMap { DeltaScanContext(after: 0, few: few, $0, in: &engine) }
      return ((summary, digest, scanContext), engine.applied.packed)
    }
    if isWritable { try sync(upTo: tail) }
    return answer
  }

  /// The state of this copy, without what only sessions need of it.
  func summary(of engine: borrowing Engine) throws(StoreError) -> ReplicaSummary {
    let state = engine.state
    guard let actor = state.actor else { throw missingActorError }
    var summary = ReplicaSummary(
      store: id, actor: actor, sequence: state.sequence, vector: state.vector, floor: state.purged.floor,
      horizon: state.purged.horizon, position: engine.position)
    (summary.health, summary.scope) = (state.health, state.scope)
    return summary
  }

  /// How far the journal of `sender` has been received here.
  package func cursor(for sender: ActorID) throws(StoreError) -> Cursor? {
    try reading { engine throws(StoreError) in engine.state.cursors[sender] }
  }

  /// The digest of what is live at a time, in milliseconds since 1970.
  package func digest(at time: UInt64) throws(StoreError) -> StateDigest {
    try writes.readingExclusively { engine, isAlone throws(StoreError) in
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
    let known = blobTier.missingBlobsCache.withLock { $0 }
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
    blobTier.missingBlobsCache.withLock { $0 = found }
    return (missing, spare)
  }
}

extension Store {
  /// A batch that was appended.
  package struct AppliedBatch: Sendable {
    /// Blobs that its records refer to, that are absent, and that will be fetched.
    package var missing: [BlobReference]
    /// The positions after the first, up to the second, hold only records of the batch: its sender has them.
    /// Nil if this copy wrote something of its own with it.
    package var echo: (after: UInt64, upTo: UInt64)?
    var tail: UInt64
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
    try applier.applyBatch(batch, full, absent: try absent(of: batch), closing: close)
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
    try applier.finish(close, full, after: cursor)
  }

  /// The error for a vector that would name more actors than allowed.
  package var tooManyActors: StoreError { applier.tooManyActors }

  /// Becomes a new actor, because a peer knows more of this copy than it does itself (rule R9), or bears the
  /// same name.
  ///
  /// - Parameter side: which side of the connection this copy is on. A clone that draws the same random
  ///   numbers at the same time is on the other side.
  package func becomeNewActor(side: UInt8 = 0) throws(StoreError) { try applier.becomeNewActor(side: side) }

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
    try deltas.openRound(for: receiver, on: context)
  }

  /// The number of keys held here, reserved keys and tombstones included.
  package func heldKeyCount() throws(StoreError) -> UInt64 {
    try reading { engine throws(StoreError) in engine.keyCount }
  }
}
