package import SyncStore

/// Executes the store actions of a session: opens rounds, encrypts, decrypts and applies batches, reads and
/// stores blobs. All calls block and run on workers; actions that `SessionAction` allows to overlap may run
/// concurrently.
package final class SessionStore: Sendable {
  /// Bytes of records in a batch: large enough that one sync per batch is cheap for the receiver, small
  /// enough that reading, encrypting, sending and applying overlap.
  static let batchBytes = 1 << 20
  /// Bytes of records in each of the first two batches of a round with several; the next two are twice as
  /// large. The receiver waits for the first, and until that is acknowledged it is unknown whether deflating
  /// is worth its time.
  private static let firstBatchBytes = 96 << 10

  let store: Store
  let keys: StoreKeys
  let state = LockedField(State(), rank: .session)
  /// The peer of the session; nil in tests without members.
  let remotePeer: RemotePeer?
  /// Memory in bytes of batches that are decrypted and not applied yet.
  let decryptedBytes = LockedField(0)
  private let isCancelled = LockedField(false)

  /// The store's side of one session.
  package convenience init(_ store: Store) { self.init(store, remotePeer: nil) }

  init(_ store: Store, remotePeer: RemotePeer?) {
    (self.store, self.remotePeer) = (store, remotePeer)
    keys = StoreKeys(store)
  }

  deinit {
    // The other side may not have completed the last round: the next session with it knows more, and needs
    // the marks.
    state.withLock { state in
      let rounds = state.outgoing
      if let peer = rounds.peer { store.retainLiveMarks(rounds.marks, with: peer) }
    }
  }

  /// The own store's error, if there was one.
  package var failure: StoreError? { state.withLock { $0.failure } }

  /// Cancels long operations: the session is over.
  func cancel() { isCancelled.withLock { $0 = true } }

  /// Whether the session was cancelled.
  var isOver: Bool { isCancelled.withLock { $0 } }

  /// Executes an action as `answer(_:peer:)`. If another thread is syncing the journal, that thread gives the
  /// answer: `then` is called once, before this returns or later.
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

  /// Executes the action and returns its event; nil for an action that is not the store's. `peer` is the
  /// other side's actor, once known.
  package func answer(_ action: SessionAction, peer: ActorID?) -> SessionEvent? {
    do {
      switch action {
      case .loadReplica(let sender, let time):
        let replica = try loadReplica(sender, at: time)
        return try changedRight() ?? .replica(replica)
      case .loadCursor(let sender):
        let cursor = try store.cursor(for: sender)
        state.withLock { $0.incoming.cursor = cursor }
        return .cursor(cursor)
      case .openRound(let receiver): return try openRound(for: receiver)
      case .nextBatch(_, let index): return try nextBatch(index)
      case .applyBatch, .applyLast:
        return StagedBatch(action).flatMap { awaitDurability(append(decrypt($0))) }
      case .finishRound(let close):
        let covered = try store.versionVector()
        let lacking = state.withLock { $0.incoming.missingKeysCursor.take() }
        if close.scopeExpansion != nil { try store.claimScopeExpansion(for: self) }
        var own = close
        own.expectedState = expectedReplicaState
        try store.finish(own, close.isFull ? full(of: close.mark) : nil, after: lacking)
        if close.scopeExpansion != nil { store.endScopeExpansion() }
        let coversMore = try store.versionVector() != covered
        state.withLock { ($0.incoming.full, $0.incoming.coverageGrew) = (nil, coversMore) }
        try closed(close)
        if let expansion = close.scopeExpansion, try store.scope != expansion.scope {
          return .keysStillMissing
        }
        return .roundFinished
      case .openLiveUpdate(let cursor, let begin, let covered, let scope):
        let receiver = RoundReceiver(cursor: cursor, covered: covered, scope: scope)
        let (event, tail) = try prepareLiveUpdate(receiver, after: begin, to: peer)
        if let tail { try store.sync(upTo: tail) }
        return event
      case .readGroupKeys(let epochs):
        // The order matters: keys are read before the member is looked up, so that they cannot include an
        // epoch that began after its revocation.
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
        return try exchangeRecords(hashes, encrypted: theirs, from: peer, scope: scope, index: index)
      case .repair(let hashes, let theirs, let scope, let index):
        return try repair(hashes, encrypted: theirs, from: peer, scope: scope, index: index)
      case .stateKeys(let prints, let scope, let index):
        return try stateKeys(prints, scope: scope, index: index)
      case .compareKeys(let states, let covered, let scope, let index):
        return try compareKeys(states, from: peer, covered: covered, scope: scope, index: index)
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

  /// The session event for an error.
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

  /// The epoch of the session's keys; nil before it has read them.
  var epoch: UInt32? { state.withLock { $0.keys.ring?.current } }

  func ring() throws -> GroupKeyRing {
    if let ring = state.withLock({ $0.keys.ring }) { return ring }
    let ring = try keys.groupKeys()
    state.withLock { $0.keys.ring = ring }
    return ring
  }

  private func loadReplica(_ sender: ActorID?, at time: UInt64?) throws -> Replica {
    let wall = store.environment.now()
    let (summary, digest, context) = try store.replicaSummary(digestAt: time ?? wall)
    let cursor = try sender.flatMap { try store.cursor(for: $0) }
    let lead = clockLead
    state.withLock { state in
      state.handshake = HandshakeState(actor: summary.actor, scope: summary.scope, clockLead: lead)
      state.incoming.cursor = cursor
      state.outgoing.scanContext = context
    }
    // Other copies could not decode a larger summary.
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

  /// Completes a blob whose bytes an earlier session received entirely, before it ended without installing
  /// it. False if the bytes do not match: they are discarded, and the blob is fetched from the start.
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
    let scanContext = state.withLock { $0.outgoing.scanContext.take() }
    let opened = Result { try openRound(believing: receiver, on: scanContext) }
    // Checked after opening: a new actor has dropped the marks of the old one, which must not be taken for a
    // restored copy.
    if let why = try renewed() { return .stale(why) }
    let round = try opened.get()
    state.withLock { $0.outgoing.round = round }
    return .roundOpened(records: UInt64(round.count), close: round.close)
  }

  private func nextBatch(_ index: UInt32) throws -> SessionEvent {
    guard let round = state.withLock({ $0.outgoing.round }), let next = try nextBatch(of: round, index) else {
      state.withLock { $0.outgoing.round = nil }
      return .roundExhausted
    }
    return .batchEncrypted(next.encrypted, position: next.batch.position, records: next.batch.users)
  }

  /// The next batch of a round, encrypted; nil at its end.
  func nextBatch(of round: DeltaStream, _ index: UInt32) throws
    -> (batch: BatchSummary, encrypted: [UInt8])?
  {
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
    let deflates = state.withLock { $0.compression.deflates(payload.count) }
    let begin = MonotonicClock.nanoseconds()
    let encrypted = try BatchCodec.encrypt(
      payload, as: context, keys: ring(), randomness: SecureRandom.bytes(BatchCodec.randomnessBytes),
      deflating: deflates)
    let end = MonotonicClock.nanoseconds()
    let measure = CompressionChoice.Measure(
      payload: payload.count, encrypted: encrypted.count, deflateTime: deflates ? end - begin : nil,
      transferTime: 0)
    state.withLock { $0.compression.encrypted(measure, at: end) }
    return encrypted
  }

  /// Records that the other side has acknowledged `count` further batches.
  func acknowledged(_ count: Int) {
    let now = MonotonicClock.nanoseconds()
    state.withLock { $0.compression.acknowledged(count, at: now) }
  }

  /// The part of the other side's full state that has arrived; throws if it exceeds any legitimate size.
  func full(of mark: RoundMark) throws -> FullState {
    let full = state.withLock { state in
      if let full = state.incoming.full, full.mark == mark { return full.state }
      let full = FullState()
      state.incoming.full = (mark, full)
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
