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
    case .applyBatch(let sender, let mark, let index, let sealed, let isFull, let expansion):
      (self.sender, self.mark, self.index, self.isFull, close) = (sender, mark, index, isFull, nil)
      self.expansion = expansion
      stage = .encrypted(sealed)
    case .applyLast(let sender, let mark, let index, let sealed, let close):
      (self.sender, self.mark, self.index, isFull, self.close) = (sender, mark, index, false, close)
      expansion = nil
      stage = .encrypted(sealed)
    default: return nil
    }
  }
}

extension SessionStore {
  /// Decrypts a batch: needs the group keys only, not the store.
  func decrypt(_ intake: StagedBatch) -> StagedBatch {
    guard case .encrypted(let sealed) = intake.stage else { return intake }
    var bytes = 0
    var opened = step(intake) {
      let context = BatchContext.records(
        store: store.id, sender: intake.sender, mark: intake.mark, index: UInt64(intake.index))
      let payload = try BatchCodec.decrypt(sealed, expecting: context, keys: ring())
      let reading = try RecordCodec.read(payload)
      bytes = payload.count + reading.memoryBytes
      return .decrypted(reading)
    }
    opened.decryptedBytes = bytes
    self.decryptedBytes.withLock { $0 += bytes }
    return opened
  }

  /// Appends a batch after all earlier batches of the round: if one of them failed, no later one is appended.
  func append(_ intake: StagedBatch) -> StagedBatch {
    guard case .decrypted(let payload) = intake.stage else {
      state.withLock { $0.nextBatchIndex = nil }
      return intake
    }
    return step(intake) {
      let isNext = state.withLock { state in
        let isNext = intake.index == 0 || state.nextBatchIndex == intake.index
        state.nextBatchIndex = nil
        return isNext
      }
      guard isNext else {
        return .failed(.failed(.protocolViolation, "a batch before batch \(intake.index) was not taken in"))
      }
      if intake.expansion != nil { try store.claimScopeExpansion(for: self) }
      var batch = IncomingBatch(
        sender: intake.sender, mark: intake.mark, position: payload.position, records: payload.records,
        present: payload.present, scope: state.withLock { $0.scope }, expansion: intake.expansion)
      batch.expectedState = expectedReplicaState
      if intake.expansion != nil, intake.index > 0 { batch.behind = state.withLock { $0.missingKeysCursor } }
      let taken = try store.applyBatch(
        batch, intake.isFull ? full(of: intake.mark) : nil, closing: intake.close)
      let event = SessionEvent.batchApplied(
        position: payload.position, records: payload.records.userCount, missing: try needs(taken.missing))
      state.withLock { state in
        state.nextBatchIndex = intake.index + 1
        state.lastAppliedRange = taken.echo
        // Missing keys have a cursor of their own.
        let cursor = Cursor(position: payload.position, mark: intake.mark, closed: false)
        if intake.expansion == nil { state.cursor = cursor } else { state.missingKeysCursor = cursor }
      }
      return .appended(taken, event)
    }
  }

  /// Waits until the batch is durable, and returns the event for the session.
  func awaitDurability(_ intake: StagedBatch) -> SessionEvent {
    defer { decryptedBytes.withLock { $0 -= intake.decryptedBytes } }
    switch intake.stage {
    case .encrypted, .decrypted:
      preconditionFailure("a batch is opened and appended before it is made durable")
    case .failed(let event): return event
    case .appended(let taken, let event):
      do {
        try store.awaitDurability(of: taken)
        if let close = intake.close { try closed(close) }
        return event
      } catch {
        return self.event(of: error)
      }
    }
  }

  private func step(_ intake: StagedBatch, _ body: () throws -> StagedBatch.Stage) -> StagedBatch {
    var intake = intake
    do { intake.stage = try body() } catch { intake.stage = .failed(event(of: error)) }
    return intake
  }
}
