internal import SyncStore

/// A received batch in the pipeline: decrypted, appended, made durable. The steps of several batches may
/// overlap; each step takes the batches in order.
struct StagedBatch: Sendable {
  fileprivate let sender: ActorID
  fileprivate let mark: RoundMark
  fileprivate let index: UInt32
  fileprivate let isFull: Bool
  fileprivate let expansion: ScopeExpansion?
  fileprivate let close: RoundClose?
  fileprivate var stage: Stage
  /// Bytes of memory that the decrypted batch takes.
  fileprivate var decryptedBytes = 0

  fileprivate enum Stage: Sendable {
    case encrypted([UInt8])
    case decrypted(RecordCodec.DecodedBatch)
    case appended(Store.AppliedBatch, SessionEvent)
    case failed(SessionEvent)
  }

  /// Nil unless the action is to apply a batch.
  init?(_ action: SessionAction) {
    switch action {
    case .applyBatch(let sender, let mark, let index, let encrypted, let isFull, let expansion):
      (self.sender, self.mark, self.index, self.isFull, close) = (sender, mark, index, isFull, nil)
      self.expansion = expansion
      stage = .encrypted(encrypted)
    case .applyLast(let sender, let mark, let index, let encrypted, let close):
      (self.sender, self.mark, self.index, isFull, self.close) = (sender, mark, index, false, close)
      expansion = nil
      stage = .encrypted(encrypted)
    default: return nil
    }
  }
}

extension SessionStore {
  /// Decrypts a batch: needs the group keys only, not the store.
  func decrypt(_ staged: StagedBatch) -> StagedBatch {
    guard case .encrypted(let encrypted) = staged.stage else { return staged }
    var bytes = 0
    var opened = step(staged) {
      let context = BatchContext.records(
        store: store.id, sender: staged.sender, mark: staged.mark, index: UInt64(staged.index))
      let payload = try BatchCodec.decrypt(encrypted, expecting: context, keys: ring())
      let reading = try RecordCodec.read(payload)
      bytes = payload.count + reading.memoryBytes
      return .decrypted(reading)
    }
    opened.decryptedBytes = bytes
    self.decryptedBytes.withLock { $0 += bytes }
    return opened
  }

  /// Appends a batch after all earlier batches of the round: if one of them failed, no later one is appended.
  func append(_ staged: StagedBatch) -> StagedBatch {
    guard case .decrypted(let payload) = staged.stage else {
      state.withLock { $0.incoming.failAppend() }
      return staged
    }
    return step(staged) {
      guard state.withLock({ $0.incoming.beginAppend(staged.index) }) else {
        return .failed(.failed(.protocolViolation, "a batch before batch \(staged.index) was not taken in"))
      }
      if staged.expansion != nil { try store.claimScopeExpansion(for: self) }
      var batch = IncomingBatch(
        sender: staged.sender, mark: staged.mark, position: payload.position, records: payload.records,
        present: payload.present, scope: state.withLock { $0.handshake.scope }, expansion: staged.expansion)
      batch.expectedState = expectedReplicaState
      if staged.expansion != nil, staged.index > 0 {
        batch.previousCursor = state.withLock { $0.incoming.missingKeysCursor }
      }
      let taken = try store.applyBatch(
        batch, staged.isFull ? full(of: staged.mark) : nil, closing: staged.close)
      let event = SessionEvent.batchApplied(
        position: payload.position, records: payload.records.userCount, missing: try needs(taken.missing))
      let cursor = Cursor(position: payload.position, mark: staged.mark, closed: false)
      state.withLock {
        $0.incoming.appended(
          staged.index, reaching: cursor, isScopeExpansion: staged.expansion != nil, range: taken.echo)
      }
      return .appended(taken, event)
    }
  }

  /// Waits until the batch is durable, and returns the event for the session.
  func awaitDurability(_ staged: StagedBatch) -> SessionEvent {
    defer { decryptedBytes.withLock { $0 -= staged.decryptedBytes } }
    switch staged.stage {
    case .encrypted, .decrypted:
      preconditionFailure("a batch is opened and appended before it is made durable")
    case .failed(let event): return event
    case .appended(let taken, let event):
      do {
        try store.awaitDurability(of: taken)
        if let close = staged.close { try closed(close) }
        return event
      } catch {
        return self.event(of: error)
      }
    }
  }

  private func step(_ staged: StagedBatch, _ body: () throws -> StagedBatch.Stage) -> StagedBatch {
    var staged = staged
    do { staged.stage = try body() } catch { staged.stage = .failed(event(of: error)) }
    return staged
  }
}
