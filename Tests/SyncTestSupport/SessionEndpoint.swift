package import Replication
private import SyncStore

/// One side of a simulated connection: a session, its replica and the data in transit.
package final class SessionEndpoint {
  /// The replica.
  package let replica: MemoryReplica
  /// The outcome, once the session has ended.
  package private(set) var outcome: SessionOutcome?
  /// Number of bytes in transit to the other side.
  package var outgoing: Int { sent.count - transmitted }
  private var sent: [UInt8] = []
  private var transmitted = 0
  /// Store actions requested and not yet performed, in order.
  package private(set) var pending: [SessionAction] = []
  /// Every action ever requested.
  package private(set) var trace: [SessionAction] = []
  package private(set) var isPaused = false
  private var session: Session
  private var round: MemoryReplica.Round?
  private var followed: UInt64?
  private var seen = 0
  /// Records per batch.
  package var batchRecords = 3

  package init(
    _ role: Session.Role, _ replica: MemoryReplica, right: MemberRight = .readWrite,
    mode: SessionMode = .once, capabilities: SessionCapabilities = []
  ) {
    self.replica = replica
    session = Session(
      role: role, peerName: "peer", peerRight: right, mode: mode, capabilities: capabilities)
    perform(session.start())
  }

  package var figures: SessionFigures { session.figures }
  /// Whether it is live with nothing in transit.
  package var isAtRest: Bool { session.isAtRest }
  /// Whether it has caught up and stays open.
  package var isLive: Bool { session.isLive }
  /// Whether the session is waiting for an action.
  package var hasGrown: Bool {
    outcome == nil && followed.map { $0 < replica.position || seen < replica.closings } ?? false
  }

  /// Tells the session that the journal has grown.
  package func grow() {
    followed = nil
    handle(.journalGrown)
  }

  /// Delivers an event to the session.
  package func handle(_ event: SessionEvent) { perform(session.handle(event)) }

  /// Removes up to `count` bytes from those in transit.
  package func transmit(_ count: Int) -> [UInt8] {
    let bytes = Array(sent[transmitted...].prefix(count))
    transmitted += bytes.count
    if transmitted == sent.count { (sent, transmitted) = ([], 0) }
    handle(.sent(bytes.count))
    return bytes
  }

  /// Performs the pending action with this index. Blob reads keep their order among each other, and so do
  /// batches.
  package func work(_ number: Int) {
    let chosen = pending[number]
    let index = pending.firstIndex { $0.mayNotOvertake(chosen) } ?? number
    if let event = answer(pending.remove(at: index)) { handle(event) }
  }

  /// Breaks the connection. Pending store actions may or may not still complete.
  package func disconnect(finishing: Bool) {
    handle(.disconnected)
    if finishing { for action in pending { _ = answer(action) } }
    pending = []
  }

  private func perform(_ actions: [SessionAction]) {
    trace += actions
    for action in actions {
      switch action {
      case .send(let bytes): sent += bytes
      case .pauseReading: isPaused = true
      case .resumeReading: isPaused = false
      case .close(let outcome): self.outcome = outcome
      case .becomeNewActor: replica.becomeNewActor()
      case .setTimer, .cancelTimer, .mergeGroupKeys: break
      case .followJournal(let position): followed = position
      case .loadReplica, .loadCursor, .openRound, .openLiveUpdate, .nextBatch, .applyBatch, .applyLast,
        .finishRound,
        .readBlob, .storeBlobRanges, .storeBlobs, .makeRecipe, .matchRecipe, .assembleBlob, .digestState,
        .readGroupKeys,
        .digestBuckets, .fingerprint, .exchangeRecords, .repair, .stateKeys, .compareKeys, .stateHoldings,
        .decryptBlobRange:
        pending.append(action)
      }
    }
  }

  private func answer(_ action: SessionAction) -> SessionEvent? {
    do {
      switch action {
      case .loadReplica(let peer, _):
        return .replica(
          Replica(
            summary: replica.summary, digest: replica.digest, wallMilliseconds: replica.wall,
            cursor: peer.flatMap { replica.cursors[$0] }, missingBlobs: replica.missingBlobs))
      case .loadCursor(let actor): return .cursor(replica.cursors[actor])
      case .openRound(let receiver):
        let round = try replica.openRound(since: receiver.cursor, covered: receiver.covered)
        self.round = round
        return .roundOpened(records: UInt64(round.count), close: round.close)
      case .nextBatch:
        guard var round, let payload = replica.next(&round, limit: batchRecords) else {
          return .roundExhausted
        }
        self.round = round
        return .batchEncrypted(
          RecordCodec.encode(payload), position: payload.position, records: payload.records.count)
      case .applyBatch(let sender, let mark, _, let encrypted, _, _):
        let payload = try RecordCodec.decode(encrypted)
        let missing = try replica.apply(
          IncomingBatch(sender: sender, mark: mark, position: payload.position, records: payload.records))
        return .batchApplied(position: payload.position, records: payload.records.count, missing: missing)
      case .applyLast(let sender, let mark, _, let encrypted, let close):
        let payload = try RecordCodec.decode(encrypted)
        let missing = try replica.apply(
          IncomingBatch(sender: sender, mark: mark, position: payload.position, records: payload.records))
        replica.finish(close)
        return .batchApplied(position: payload.position, records: payload.records.count, missing: missing)
      case .openLiveUpdate(let cursor, let begin, let covered, _):
        seen = replica.closings
        guard var round = try replica.openLiveUpdate(since: cursor, after: begin, covered: covered) else {
          return .liveUpdateEmpty(position: replica.position)
        }
        let payload = replica.next(&round, limit: batchRecords)
        self.round = round
        return .liveUpdateOpened(
          LiveUpdateOpening(
            records: UInt64(round.count), close: round.close,
            first: payload.map {
              .init(encrypted: RecordCodec.encode($0), position: $0.position, records: $0.records.count)
            }, isWhole: payload?.records.count ?? 0 == round.count))
      case .finishRound(let close):
        replica.finish(close)
        return .roundFinished
      case .readBlob(let hash, let size, let offset, let count):
        guard let blob = replica.blobs[hash], blob.count == size else { return .blobUnavailable(hash) }
        return .blobRead(
          hash: hash, offset: offset, encrypted: Array(blob[Int(offset)..<(Int(offset) + count)]))
      case .storeBlobRanges(let ranges, let size):
        let hash = ranges[0].hash
        guard let stored = replica.store(ranges.flatMap(\.encrypted), of: hash, size: size) else {
          return .blobRejected(hash)
        }
        return .blobStored(hash: hash, held: stored.held, isComplete: stored.isComplete)
      case .storeBlobs(let ranges, let sizes):
        return .blobsStored(
          zip(ranges, sizes).map { range, size in
            replica.store(range.encrypted, of: range.hash, size: size)?.isComplete == true
          })
      case .makeRecipe(let hash, let size, let offset):
        guard let chunks = replica.recipe(of: hash, size: size, from: offset) else {
          return .recipeUnavailable(hash)
        }
        return .recipeMade(EncryptedRecipe(hash: hash, offset: offset, encrypted: RecipeCodec.encode(chunks)))
      case .matchRecipe(let recipe, let size):
        let opened = try RecipeCodec.decode(recipe.encrypted, offset: recipe.offset, size: size)
        return .recipeMatched(
          hash: recipe.hash, end: opened.end, missing: replica.match(opened, of: recipe.hash))
      case .assembleBlob(let hash, let size, let end):
        guard let stored = replica.assemble(hash, size: size, upTo: end) else { return .blobRejected(hash) }
        return .blobStored(hash: hash, held: stored.held, isComplete: stored.isComplete)
      case .digestState(let at): return .stateDigested(replica.digested(at: at))
      default: return nil
      }
    } catch let failure as MemoryReplica.Failure {
      return failure.isRolledBack
        ? .rolledBack(failure.description) : .failed(.unavailable, failure.description)
    } catch {
      return .failed(.protocolViolation, "\(error)")
    }
  }
}

extension SessionAction {
  fileprivate func mayNotOvertake(_ other: SessionAction) -> Bool {
    switch (self, other) {
    case (.readBlob, .readBlob), (.applyBatch, .applyBatch), (.applyBatch, .applyLast): true
    default: false
    }
  }
}

/// A connection between two endpoints, with steps in seeded random order.
package struct SessionNetwork {
  private var random: SplitMix64

  package init(seed: UInt64) { random = SplitMix64(seed: seed) }

  /// Runs until both ends are closed or nothing is left to do; with `steps`, the connection breaks after that
  /// many. Returns the number of steps taken.
  @discardableResult
  package mutating func run(
    _ client: SessionEndpoint, _ server: SessionEndpoint, breakAfter steps: Int = .max
  ) -> Int {
    var taken = 0
    while taken < steps {
      guard step(client, server) else { return taken }
      taken += 1
    }
    client.disconnect(finishing: random.chance(50))
    server.disconnect(finishing: random.chance(50))
    return taken
  }

  /// Takes at most `steps` steps; the connection stays up.
  package mutating func run(_ client: SessionEndpoint, _ server: SessionEndpoint, steps: Int) {
    for _ in 0..<steps { guard step(client, server) else { return } }
  }

  private mutating func step(_ client: SessionEndpoint, _ server: SessionEndpoint) -> Bool {
    var choices: [() -> Void] = []
    for (from, to) in [(client, server), (server, client)] {
      if from.outgoing > 0, !to.isPaused {
        let most = random.chance(50) ? from.outgoing : Int.random(in: 1...from.outgoing, using: &random)
        choices.append {
          let bytes = from.transmit(most)
          if to.outcome == nil { to.handle(.received(bytes)) }
        }
      } else if from.outcome != nil, to.outcome == nil, from.outgoing == 0 {
        choices.append { to.handle(.disconnected) }
      }
      if from.hasGrown { choices.append { from.grow() } }
      if from.outcome == nil, !from.pending.isEmpty {
        let number = Int.random(in: 0..<from.pending.count, using: &random)
        choices.append { from.work(number) }
      }
    }
    guard let choice = choices.randomElement(using: &random) else { return false }
    choice()
    return true
  }
}
