package import SyncStore

/// What a session asks of the store, done: rounds opened, batches sealed, opened and applied, blobs read and stored. All
/// of it blocks and runs on workers; the kinds that `SessionAction` allows side by side may run side by side.
package final class SessionStore: Sendable {
  /// Bytes of records in a batch: large enough for one sync at the receiver to be cheap, small enough that reading,
  /// sealing, sending and applying overlap.
  private static let batchBytes = 1 << 20

  let store: Store
  private let keys: StoreKeys
  private let state = Locked(State())

  private struct State {
    var ring: GroupKeyRing?
    var round: OutgoingRound?
    /// The own actor, as it was said at the handshake.
    var actor: ActorID?
    var failure: StoreError?
  }

  /// The store's side of one session.
  package init(_ store: Store) {
    self.store = store
    keys = StoreKeys(store)
  }

  /// The store's own error, if it had one.
  package var failure: StoreError? { state.withLock { $0.failure } }

  /// Does what the action asks for, and gives the answer; nil for an action that is not the store's. `peer` is the other
  /// side's actor, once it is known.
  package func answer(_ action: SessionAction, peer: ActorID?) -> SessionEvent? {
    do {
      switch action {
      case .loadReplica(let sender, let time): return .replica(try loadReplica(sender, at: time))
      case .loadCursor(let sender): return .cursor(try store.cursor(for: sender))
      case .openRound(let cursor, let covered): return try openRound(since: cursor, covered: covered)
      case .nextBatch(_, let index): return try nextBatch(index)
      case .applyBatch(let sender, let mark, let index, let sealed):
        return try apply(sealed, .records(store: store.id, sender: sender, mark: mark, index: UInt64(index)))
      case .finishRound(let close):
        try store.finish(close)
        return .roundFinished
      case .readBlob(let hash, let size, let offset, let count):
        return try readBlob(BlobReference(hash: hash, size: size), offset: offset, count: count)
      case .storeBlobRange(let range, let size):
        guard let peer else { return nil }
        return try storeBlob(range, BlobReference(hash: range.hash, size: size), from: peer)
      case .judgeState(let time): return .stateJudged(try judge(at: time))
      case .becomeNewActor:
        try store.becomeNewActor()
        return nil
      case .send, .pauseReading, .resumeReading, .setTimer, .cancelTimer, .close: return nil
      }
    } catch let error as StoreError {
      if error.code == .rolledBack { return .rolledBack(error.message) }
      state.withLock { $0.failure = error }
      return .failed(.store, error.description)
    } catch let error as ReplicationError {
      if let failure = error.store { state.withLock { $0.failure = failure } }
      return .failed(error.code, error.message)
    } catch {
      return .failed(.protocolViolation, "\(error)")
    }
  }

  private func ring() throws -> GroupKeyRing {
    if let ring = state.withLock({ $0.ring }) { return ring }
    let ring = try keys.groupKeys()
    state.withLock { $0.ring = ring }
    return ring
  }

  private func loadReplica(_ sender: ActorID?, at time: UInt64?) throws -> Replica {
    let wall = store.environment.now()
    let (summary, digest) = try store.replicaSummary(digestAt: time ?? wall)
    state.withLock { $0.actor = summary.actor }
    return Replica(
      summary: summary, digest: digest, wallMilliseconds: wall,
      cursor: try sender.flatMap { try store.cursor(for: $0) }, missingBlobs: try needs(store.missingBlobs()))
  }

  private func needs(_ blobs: [BlobReference]) throws -> [BlobNeed] {
    try blobs.compactMap { blob in
      let offset = try store.blobs.partialSize(blob.hash)
      if offset >= blob.size, offset > 0, try completes(blob) { return nil }
      return BlobNeed(hash: blob.hash, size: blob.size, offset: try store.blobs.partialSize(blob.hash))
    }
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

  private func judge(at time: UInt64?) throws -> JudgedState {
    let time = time ?? store.environment.now()
    let (summary, digest) = try store.replicaSummary(digestAt: time)
    return JudgedState(position: summary.position, vector: summary.vector, digest: digest, at: time)
  }

  // MARK: Rounds

  private func openRound(since cursor: Cursor?, covered: VersionVector) throws -> SessionEvent {
    let round = try store.openRound(since: cursor, covered: covered)
    state.withLock { $0.round = round }
    return .roundOpened(records: UInt64(round.count), close: round.close)
  }

  private func nextBatch(_ index: UInt32) throws -> SessionEvent {
    guard let round = state.withLock({ $0.round }), let batch = try round.next(maximumBytes: Self.batchBytes)
    else {
      state.withLock { $0.round = nil }
      return .roundExhausted
    }
    let payload = RecordCodec.encode(RecordCodec.Payload(position: batch.position, records: batch.records))
    let context = BatchContext.records(
      store: store.id, sender: batch.sender, mark: batch.mark, index: UInt64(index))
    let sealed = try BatchCodec.seal(
      payload, as: context, keys: ring(), randomness: SecureRandom.bytes(BatchCodec.randomnessBytes))
    return .batchSealed(sealed, position: batch.position, records: batch.records.count)
  }

  private func apply(_ sealed: [UInt8], _ context: BatchContext) throws -> SessionEvent {
    let payload = try RecordCodec.decode(try BatchCodec.open(sealed, expecting: context, keys: ring()))
    let missing = try store.apply(
      IncomingBatch(
        sender: context.sender, mark: context.mark, position: payload.position, records: payload.records))
    return .batchApplied(
      position: payload.position, records: payload.records.count, missing: try needs(missing))
  }

  // MARK: Blobs

  private func readBlob(_ blob: BlobReference, offset: UInt64, count: Int) throws -> SessionEvent {
    guard let actor = state.withLock({ $0.actor }), try store.blobs.has(blob) else {
      return .blobUnavailable(blob.hash)
    }
    let bytes = try store.blobs.read(blob.hash, offset: offset, count: count)
    guard bytes.count == count else { return .blobUnavailable(blob.hash) }
    let context = BatchContext.blobRange(store: store.id, sender: actor, offset: offset)
    let sealed = try BatchCodec.seal(
      bytes, as: context, keys: ring(), randomness: SecureRandom.bytes(BatchCodec.randomnessBytes))
    return .blobRead(hash: blob.hash, offset: offset, sealed: sealed)
  }

  private func storeBlob(_ range: BlobRange, _ blob: BlobReference, from sender: ActorID) throws
    -> SessionEvent
  {
    let context = BatchContext.blobRange(store: store.id, sender: sender, offset: range.offset)
    let bytes = try BatchCodec.open(range.sealed, expecting: context, keys: ring())
    guard !bytes.isEmpty || blob.size == 0, range.offset + UInt64(bytes.count) <= blob.size else {
      throw DecodingFailure("a range of blob \(blob.hash) is empty, or goes beyond its end")
    }
    let blobs = try store.blobs
    // Another session may have been faster, here or in another process.
    if try blobs.has(blob) { return .blobStored(hash: blob.hash, held: blob.size, isComplete: true) }
    do throws(StoreError) {
      try blobs.append(bytes, to: blob.hash, at: range.offset)
    } catch {
      guard error.code == .outOfBounds else { throw error }
      return .blobStored(hash: blob.hash, held: try blobs.partialSize(blob.hash), isComplete: false)
    }
    let held = range.offset + UInt64(bytes.count)
    guard held == blob.size else { return .blobStored(hash: blob.hash, held: held, isComplete: false) }
    do throws(StoreError) {
      try blobs.complete(blob, durable: true)
    } catch {
      guard error.code == .damaged else { throw error }
      return .blobRejected(blob.hash)
    }
    return .blobStored(hash: blob.hash, held: held, isComplete: true)
  }
}
