package import SyncStore

/// What a session asks of the store, done: rounds opened, batches sealed, opened and applied, blobs read and stored. All
/// of it blocks and runs on workers; the kinds that `SessionAction` allows side by side may run side by side.
package final class SessionStore: Sendable {
  /// Bytes of records in a batch: large enough for one sync at the receiver to be cheap, small enough that reading,
  /// sealing, sending and applying overlap.
  static let batchBytes = 1 << 20
  /// The same of the first two of a round that has several; the next two are twice as large. The receiver waits for the first, and until
  /// that is acknowledged nobody knows whether deflating is worth its time.
  private static let firstBatchBytes = 96 << 10

  let store: Store
  let keys: StoreKeys
  let state = LockedField(State())
  /// Who the session is with; nil in tests that have no members.
  let remotePeer: RemotePeer?
  /// What was opened and is not yet applied, in bytes of memory.
  let decryptedBytes = LockedField(0)
  private let isCancelled = LockedField(false)

  struct State {
    var ring: GroupKeyRing?
    /// Keys that the other side gave, to be kept when its round is closed: by then it is known who was revoked.
    var receivedKeys: GroupKeyRing?
    var choice = CompressionChoice()
    /// Batches that are sealed and not acknowledged, with the time of their sealing.
    var underway: [(CompressionChoice.Measure, UInt64)] = []
    var lastAcknowledged: UInt64 = 0
    /// What the first round is found on, from the handshake until it is opened.
    var ground: DeltaScanContext?
    var round: DeltaStream?
    /// What the other side has said of its full state, in which round.
    var full: (mark: RoundMark, state: FullState)?
    /// The own actor, as it was said at the handshake.
    var actor: ActorID?
    /// By how many milliseconds the wall clock was ahead of the clock that is never set when the two copies compared their wall
    /// clocks; nil where there is none.
    var clockLead: Int64?
    /// The keys that this copy held then; nil for all.
    var scope: KeyScope?
    var failure: StoreError?
    /// The number that the next batch of the round has that may be appended; nil once one could not be.
    var nextBatchIndex: UInt32? = 0
    /// Is the session live? Then what others do for the same two copies must be noticed.
    var isLive = false
    /// The cursor for the other side as this session has left it.
    var cursor: Cursor?
    /// The cursor for the keys that were lacking, as the round under way has left it; nil if it has brought nothing yet.
    var missingKeysCursor: Cursor?
    /// The marks of the live round under way and of the one before it, which the other side has wholly.
    var marks: [RoundMark] = []
    /// Who is given live rounds.
    var peer: ActorID?
    /// What the last batch brought, of the positions of the own journal.
    var lastAppliedRange: (behind: UInt64, upTo: UInt64)?
    /// The blob whose last range did not shrink, and up to where the next ones are sent as they are.
    var unshrinking: (hash: BlobHash, end: UInt64)?
    /// Does this copy cover more since the last round was closed?
    var coverageGrew = false
    /// What is being put right.
    var repair = RepairWork()
    /// Where the blob that is put together of chunks finds them here.
    var match: (hash: BlobHash, match: BlobMatch)?
  }

  /// The store's side of one session.
  package convenience init(_ store: Store) { self.init(store, remotePeer: nil) }

  init(_ store: Store, remotePeer: RemotePeer?) {
    (self.store, self.remotePeer) = (store, remotePeer)
    keys = StoreKeys(store)
  }

  deinit {
    // Where it ends is not where the other side has heard everything: the next session with it knows more.
    state.withLock { state in
      if let peer = state.peer { store.retainLiveMarks(state.marks, with: peer) }
    }
  }

  /// The store's own error, if it had one.
  package var failure: StoreError? { state.withLock { $0.failure } }

  /// The session is over: what takes long is given up.
  func cancel() { isCancelled.withLock { $0 = true } }

  /// Is nobody interested any more?
  var isOver: Bool { isCancelled.withLock { $0 } }

  /// The same, but where another thread is making the journal durable its answer is given by that thread: `then` is called
  /// once, before this returns or later.
  func answer(
    _ action: SessionAction, peer: ActorID?, then tell: @escaping @Sendable (SessionEvent?) -> Void
  ) {
    if case .openLiveUpdate(let cursor, let begin, let covered, let scope) = action {
      let receiver = RoundReceiver(cursor: cursor, covered: covered, scope: scope)
      openLiveUpdate(receiver, after: begin, to: peer, then: tell)
    } else {
      tell(answer(action, peer: peer))
    }
  }

  /// Does what the action asks for, and gives the answer; nil for an action that is not the store's. `peer` is the other
  /// side's actor, once it is known.
  package func answer(_ action: SessionAction, peer: ActorID?) -> SessionEvent? {
    do {
      switch action {
      case .loadReplica(let sender, let time):
        let replica = try loadReplica(sender, at: time)
        return try changedRight() ?? .replica(replica)
      case .loadCursor(let sender):
        let cursor = try store.cursor(for: sender)
        state.withLock { $0.cursor = cursor }
        return .cursor(cursor)
      case .openRound(let receiver): return try openRound(for: receiver)
      case .nextBatch(_, let index): return try nextBatch(index)
      case .applyBatch, .applyLast:
        return StagedBatch(action).flatMap { awaitDurability(append(decrypt($0))) }
      case .finishRound(let close):
        let covered = try store.versionVector()
        let lacking = state.withLock { $0.missingKeysCursor.take() }
        if close.scopeExpansion != nil { try store.claimScopeExpansion(for: self) }
        var own = close
        own.expectedState = expectedReplicaState
        try store.finish(own, close.isFull ? full(of: close.mark) : nil, behind: lacking)
        if close.scopeExpansion != nil { store.endScopeExpansion() }
        let coversMore = try store.versionVector() != covered
        state.withLock { ($0.full, $0.coverageGrew) = (nil, coversMore) }
        try closed(close)
        if let widening = close.scopeExpansion, try store.scope != widening.scope { return .keysStillMissing }
        return .roundFinished
      case .openLiveUpdate(let cursor, let begin, let covered, let scope):
        let receiver = RoundReceiver(cursor: cursor, covered: covered, scope: scope)
        let (event, tail) = try prepareLiveUpdate(receiver, after: begin, to: peer)
        if let tail { try store.sync(upTo: tail) }
        return event
      case .readGroupKeys(let epochs):
        // In this order: an epoch that begins after a revocation is not in what was read before the member was looked up.
        let text = try ring().only(epochs).text
        if let changed = try changedRight() { return changed }
        return .groupKeys(Array(text.utf8))
      case .mergeGroupKeys(let text):
        try mergeGroupKeys(GroupKeyRing(text: String(decoding: text, as: UTF8.self)))
        return nil
      case .readBlob(let hash, let size, let offset, let count):
        return try readBlob(BlobReference(hash: hash, size: size), offset: offset, count: count)
      case .storeBlobRanges(let ranges, let size):
        guard let peer, let hash = ranges.first?.hash else { return nil }
        return try storeBlob(ranges, blob: BlobReference(hash: hash, size: size), from: peer)
      case .storeBlobs(let ranges, let sizes):
        guard let peer else { return nil }
        return try storeBlobs(ranges, sizes: sizes, from: peer)
      case .makeRecipe(let hash, let size, let offset):
        return try makeRecipe(BlobReference(hash: hash, size: size), offset: offset)
      case .matchRecipe(let recipe, let size):
        guard let peer else { return nil }
        return try match(recipe, size: size, from: peer)
      case .assembleBlob(let hash, let size, let end):
        return try assemble(BlobReference(hash: hash, size: size), upTo: end)
      case .digestState(let time): return .stateDigested(try digestState(at: time))
      case .digestBuckets(let time): return .bucketsDigested(try store.bucketDigests(at: time))
      case .fingerprint(let buckets, let scope): return try fingerprint(buckets, scope: scope)
      case .exchangeRecords(let hashes, let theirs, let scope, let index):
        return try exchangeRecords(hashes, sealed: theirs, from: peer, scope: scope, index: index)
      case .repair(let hashes, let theirs, let scope, let index):
        return try repair(hashes, sealed: theirs, from: peer, scope: scope, index: index)
      case .stateHoldings(let wanted): return try stateHoldings(wanted)
      case .decryptBlobRange(let range):
        guard let peer else { return nil }
        return try decrypt(range, from: peer)
      case .becomeNewActor(_, let side):
        try store.becomeNewActor(side: side)
        return nil
      case .send, .pauseReading, .resumeReading, .setTimer, .cancelTimer, .close, .followJournal: return nil
      }
    } catch {
      return event(of: error)
    }
  }

  /// What the session is told of an error.
  func event(of error: any Error) -> SessionEvent {
    switch error {
    case let error as StoreError:
      if error.code == .rolledBack { return .rolledBack(error.message) }
      if error.code == .overtaken { return .stale(error.message) }
      state.withLock { $0.failure = error }
      return .failed(.store, ReplicationError(error).message, because: error.code)
    case let error as ReplicationError:
      if let failure = error.store { state.withLock { $0.failure = failure } }
      return .failed(error.code, error.message, because: error.store?.code)
    default: return .failed(.protocolViolation, "\(error)")
    }
  }

  /// The epoch of the keys that the session has; nil before it has read them.
  var epoch: UInt32? { state.withLock { $0.ring?.current } }

  func ring() throws -> GroupKeyRing {
    if let ring = state.withLock({ $0.ring }) { return ring }
    let ring = try keys.groupKeys()
    state.withLock { $0.ring = ring }
    return ring
  }

  private func loadReplica(_ sender: ActorID?, at time: UInt64?) throws -> Replica {
    let wall = store.environment.now()
    let (summary, digest, ground) = try store.replicaSummary(digestAt: time ?? wall)
    let cursor = try sender.flatMap { try store.cursor(for: $0) }
    let lead = clockLead
    state.withLock { state in
      (state.actor, state.scope, state.cursor, state.ground) = (summary.actor, summary.scope, cursor, ground)
      state.clockLead = lead
    }
    // Others could not read it.
    guard max(summary.vector.count, summary.floor.count) <= Limits.actors else { throw store.tooManyActors }
    var replica = Replica(
      summary: summary, digest: digest, wallMilliseconds: wall, cursor: cursor,
      missingBlobs: try missingBlobs(), epochs: try ring().checks, repairs: store.isWritable)
    replica.leavesOut = try !store.blobPolicy.takesAll
    return replica
  }

  private func missingBlobs() throws(StoreError) -> [BlobNeed] {
    let missing = try store.blobsToFetch()
    var needs = try needs(missing.blobs)
    for index in needs.indices { needs[index].isSpare = missing.spare.contains(needs[index].hash) }
    return needs
  }

  func needs(_ blobs: [BlobReference]) throws(StoreError) -> [BlobNeed] {
    var needs: [BlobNeed] = []
    for (blob, held) in zip(blobs, try store.blobs.partialSizes(blobs.map(\.hash))) {
      var offset = held
      if offset >= blob.size, offset > 0 {
        if try completes(blob) { continue }
        offset = 0
      }
      needs.append(
        BlobNeed(
          hash: blob.hash, size: blob.size, offset: offset,
          hasKin: try store.blobs.mayShareChunks(size: blob.size)))
    }
    return needs
  }

  /// All bytes of the blob have come, but an earlier session ended before they were put in their place. False if they
  /// are not the blob's: they are thrown away, and it is fetched from the start.
  private func completes(_ blob: BlobReference) throws(StoreError) -> Bool {
    do throws(StoreError) {
      try store.blobs.complete(blob, durable: true)
      return true
    } catch {
      guard error.code == .damaged || error.code == .outOfBounds else { throw error }
      try store.blobs.discardPartial(blob.hash)
      return false
    }
  }

  private func digestState(at time: UInt64?) throws -> DigestedState {
    let time = time ?? store.environment.now()
    let (summary, digest, _) = try store.replicaSummary(digestAt: time)
    return DigestedState(position: summary.position, vector: summary.vector, digest: digest, at: time)
  }

  // MARK: Rounds

  private func openRound(for receiver: RoundReceiver) throws -> SessionEvent {
    try requireRightClock()
    let ground = state.withLock { $0.ground.take() }
    let opened = Result { try openRound(believing: receiver, on: ground) }
    // Asked behind it: the marks of who this copy was are gone, which is no sign of having been put back.
    if let why = try renewed() { return .stale(why) }
    let round = try opened.get()
    state.withLock { $0.round = round }
    return .roundOpened(records: UInt64(round.count), close: round.close)
  }

  private func nextBatch(_ index: UInt32) throws -> SessionEvent {
    guard let round = state.withLock({ $0.round }), let next = try nextBatch(of: round, index) else {
      state.withLock { $0.round = nil }
      return .roundExhausted
    }
    return .batchEncrypted(next.sealed, position: next.batch.position, records: next.batch.users)
  }

  /// The next batch of a round, sealed; nil at its end.
  func nextBatch(of round: DeltaStream, _ index: UInt32) throws -> (batch: BatchSummary, sealed: [UInt8])? {
    let left = round.bytesLeft
    let growing = min(Self.firstBatchBytes << min(Int(index / 2), 8), Self.batchBytes)
    let most = left > Self.batchBytes ? growing : Self.batchBytes
    var encoder = RecordCodec.Encoder(capacity: min(left, most) + 4096)
    guard let batch = try round.next(maximumBytes: most, into: &encoder) else { return nil }
    let payload = encoder.finish(position: batch.position, present: batch.present)
    return (batch, try encrypt(payload, of: round.close, index))
  }

  func encrypt(_ payload: [UInt8], of round: RoundClose, _ index: UInt32) throws -> [UInt8] {
    let context = BatchContext.records(
      store: store.id, sender: round.sender, mark: round.mark, index: UInt64(index))
    let deflates = state.withLock { $0.choice.deflates(payload.count) }
    let begin = MonotonicClock.nanoseconds()
    let sealed = try BatchCodec.encrypt(
      payload, as: context, keys: ring(), randomness: SecureRandom.bytes(BatchCodec.randomnessBytes),
      deflating: deflates)
    let end = MonotonicClock.nanoseconds()
    state.withLock { state in
      state.underway.append(
        (
          CompressionChoice.Measure(
            payload: payload.count, encrypted: sealed.count, deflateTime: deflates ? end - begin : nil,
            transferTime: 0),
          end
        ))
    }
    return sealed
  }

  /// The other side has acknowledged so many batches since it was last told.
  func acknowledged(_ count: Int) {
    let now = MonotonicClock.nanoseconds()
    state.withLock { state in
      for _ in 0..<min(count, state.underway.count) {
        var (measure, sent) = state.underway.removeFirst()
        measure.transferTime = now - min(now, max(sent, state.lastAcknowledged))
        // Several at once say nothing of each.
        if count == 1 { state.choice.acknowledged(measure) }
      }
      state.lastAcknowledged = now
    }
  }

  /// What the other side has said of its full state; fails if that is more than it can have to say.
  func full(of mark: RoundMark) throws -> FullState {
    let full = state.withLock { state in
      if let full = state.full, full.mark == mark { return full.state }
      let full = FullState()
      state.full = (mark, full)
      return full
    }
    let bytes = full.bytes
    guard bytes > WireLimits.fullStateBytes else { return full }
    let (keys, more) = (try store.heldKeyCount(), bytes - WireLimits.fullStateBytes)
    guard more / WireLimits.fullStateBytesPerKey > keys else { return full }
    throw ReplicationError(
      .protocolViolation,
      "the other side's full state names far more writes than can concern the \(CountText.of(keys, noun: "key")) held here: its program may be damaged"
    )
  }
}
