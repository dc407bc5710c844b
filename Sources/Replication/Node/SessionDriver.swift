internal import SyncStore

/// Performs the actions of a session: sends, keeps its timers, hands store work to workers and their answers
/// back. Confined to its loop's thread.
///
/// Invariants: events are handled one at a time in the order in which they occurred, each with all its
/// actions done before the next; `onEnd` is called once, after a requested new actor is durable.
final class SessionDriver {
  /// Called with a journal position; `journalGrew` must be called once the journal has records after it.
  var onFollowJournal: (UInt64) -> Void = { _ in }
  /// Called when figures have changed.
  var onProgress: (SessionFigures) -> Void = { _ in }

  /// The other side's name for this session.
  let peerName: String
  let remotePeer: RemotePeer
  var peerRight: MemberRight { remotePeer.right }
  private var session: Session
  let link: PeerLink
  private let store: SessionStore
  private let loop: EventLoop
  private let onEnd: (End) -> Void
  // Separate queues: each half of the session waits for its own work only.
  private let sendingWorker: WorkerQueue
  private let receivingWorker: WorkerQueue
  // Received batches are decrypted, appended and made durable as a pipeline, up to three at once.
  private let decryptionWorker: WorkerQueue
  private let durabilityWorker: WorkerQueue
  /// Reads large values through for the other side, concurrently with everything else and never on workers
  /// that others wait for.
  private let scanningWorker = WorkerPool.scans.queue()
  private var batchesInProgress = 0
  /// A small last batch of a live round is being applied: journal growth is reported to the session only
  /// after it.
  private var isApplyingLast = false
  private var hasDeferredGrowth = false
  /// The journal position at which the session last asked to follow, and the position after which growth is
  /// reported.
  private var followed: (from: UInt64, after: UInt64)?
  /// Bytes held by all sessions of the node; `held` is the part of this session.
  private let budget: FlowBudget
  private var held = 0
  private var events: [SessionEvent] = []
  private var isProcessingEvents = false
  private var timers: [SessionTimer: UInt64] = [:]
  private var outcome: SessionOutcome?
  private var isRenewing = false
  private var hasEnded = false
  /// When the other side last sent anything, by the loop's clock.
  private(set) var lastHeard = MonotonicClock.milliseconds()
  /// When it last sent or accepted anything: a peer that is receiving a large value sends nothing
  /// during that time.
  private(set) var lastMoved = MonotonicClock.milliseconds()

  /// A session over a link whose handshake is done.
  init(
    role: Session.Role, peerName: String, remotePeer: RemotePeer, mode: SessionMode, link: PeerLink,
    context: NodeContext, onEnd: @escaping (End) -> Void
  ) {
    session = Session(
      role: role, peerName: peerName, peerRight: remotePeer.right, mode: mode, capabilities: .all,
      pingSeconds: context.pingSeconds)
    (self.peerName, self.remotePeer) = (peerName, remotePeer)
    (self.link, self.onEnd) = (link, onEnd)
    (loop, budget) = (context.loop, context.budget.value)
    store = SessionStore(context.store, remotePeer: remotePeer)
    let workers = context.workers
    (sendingWorker, receivingWorker) = (workers.queue(), workers.queue())
    (decryptionWorker, durabilityWorker) = (workers.queue(), workers.queue())
  }

  /// The acknowledged position at the last save of the contact.
  var savedAcknowledged: UInt64 = 0

  /// Called when a round that came in parts was closed and this copy covers more: the journal has not grown
  /// by it.
  var onClosed: () -> Void = {}
  /// Called when keys with two contents for one write were repaired: their number, and the first of them.
  var onRepaired: (Int, ArraySlice<[UInt8]>) -> Void = { _, _ in }
  /// Called once, when the session has caught up and stays open.
  var onLive: () -> Void = {}
  /// Called with the outcome of requests made outside the session's plan.
  var onNotifications: ([SessionNotification]) -> Void = { _ in }
  /// Called once, when the other side's hello has arrived.
  var onHello: () -> Void = {}
  /// `onOpen` is called once, when blobs can be requested; `onOver` when the session is over.
  var onOpen: () -> Void = {}, onOver: () -> Void = {}
  private var wasOpen = false
  /// Whether blobs, and who holds them, can be requested in this session.
  var canFetch: Bool { outcome == nil && session.canFetch }
  var canAsk: Bool { outcome == nil && session.canAsk }

  /// The epoch of the group key under which the session encrypts; nil before it has read the keys.
  var epoch: UInt32? { store.epoch }

  /// Fetches blobs; `onNotifications` reports the outcome of each.
  func want(_ needs: [BlobNeed]) { if outcome == nil { handle(.wanted(needs)) } }

  /// Requests parts of a blob; `onNotifications` delivers them.
  func want(_ parts: BlobPartsWanted) { if outcome == nil { handle(.wantedParts(parts)) } }

  /// Asks what the other side holds; `onNotifications` delivers the answer.
  func ask(_ wanted: HoldingsWanted) { if outcome == nil { handle(.asked(wanted)) } }

  /// Starts. The link keeps the driver alive until the session has ended.
  func start() {
    link.onPlaintext = { [self] bytes in
      lastHeard = MonotonicClock.milliseconds()
      lastMoved = lastHeard
      handle(.received(bytes))
    }
    link.onSent = { [self] count in
      lastMoved = MonotonicClock.milliseconds()
      handle(.sent(count))
    }
    link.onEnd = { [self] error in
      // A side that is not admitted learns so only after its own handshake is done.
      if let error, error.code != .network {
        handle(.failed(error.code, error.message, because: error.store?.code))
      } else {
        handle(.disconnected)
      }
    }
    isProcessingEvents = true
    perform(session.start())
    isProcessingEvents = false
    processEvents()
  }

  /// Whether the session has caught up and stays open.
  var isLive: Bool { session.isLive }
  /// Whether the session is live, with nothing in progress.
  var isAtRest: Bool { session.isAtRest }
  /// The other side's hello.
  var peer: Hello? { session.peer }
  /// When the other side's hello came, by the wall clock, in milliseconds since 1970.
  private(set) var helloReceivedAt: UInt64?
  /// Milliseconds by which the other side's clock is ahead of the own one, once its hello has come.
  private(set) var clockOffset: Int64?
  private var helloSentAt: UInt64?
  private var acknowledged = 0
  private var repaired = (count: 0, named: 0)
  private(set) var wasLive = false
  /// The position of the own journal up to which the other side has everything.
  var acknowledgedPosition: UInt64? { session.figures.acknowledged > 0 ? session.figures.acknowledged : nil }
  /// Figures of what was moved so far.
  var figures: SessionFigures { session.figures }

  /// Tells the session that the journal has grown, or may have. While a batch is being applied this is
  /// deferred: the growth is most likely that batch, and the other side waits for its answer.
  func journalGrew() {
    guard outcome == nil else { return }
    if isApplyingLast { hasDeferredGrowth = true } else { handle(.journalGrown) }
  }

  /// Handles growth that was deferred while a batch was applied.
  private func deliverDeferredGrowth() {
    isApplyingLast = false
    guard hasDeferredGrowth else { return }
    hasDeferredGrowth = false
    guard outcome == nil else { return }
    // The other side need not be told of its own records. After `mostUnseen` records the session checks
    // nevertheless: it scans the journal from its last position.
    guard let echo = store.takeLastAppliedRange(), let followed, followed.after == echo.after,
      echo.upTo - followed.from <= Self.mostUnseen
    else { return handle(.journalGrown) }
    followJournal(from: followed.from, after: echo.upTo)
  }

  private static let mostUnseen: UInt64 = 256

  private func followJournal(from start: UInt64, after position: UInt64) {
    followed = (start, position)
    onFollowJournal(position)
  }

  /// Fires a timer now: for tests, which cannot wait.
  func expire(_ timer: SessionTimer) { if outcome == nil { handle(.timer(timer)) } }

  /// Whether the session is over.
  var isOver: Bool { outcome != nil }

  /// Asks the session to end, because the node shuts down.
  func stop() { handle(.stop) }

  /// Sends a ping. If nothing arrives within `milliseconds`, the connection is taken for dead and abandoned.
  func probe(within milliseconds: Int) {
    // Answers are not received while this side has paused reading.
    guard outcome == nil, !link.isPaused else { return }
    let asked = MonotonicClock.milliseconds()
    handle(.probe)
    _ = loop.schedule(after: milliseconds) { [weak self] in
      guard let self, outcome == nil, !link.isPaused, lastHeard < asked else { return }
      abandon()
    }
  }

  /// Ends the session, and tells the other side why.
  func refuse(_ code: Refusal.Code, reason why: String) {
    if outcome == nil { handle(.refuse(Refusal(code, why))) }
  }

  /// Closes the link without another message.
  func abandon() {
    link.close()
    handle(.disconnected)
  }

  private func handle(_ event: SessionEvent) {
    events.append(event)
    processEvents()
  }

  private func processEvents() {
    guard !isProcessingEvents else { return }
    isProcessingEvents = true
    var next = 0
    while next < events.count {
      let event = events[next]
      next += 1
      session.isCrowded = budget.isCrowded
      session.decryptedBytes = store.decryptedBytes.withLock { $0 }
      session.mayBecomeNewActor = remotePeer.renewals.withLock {
        $0.admits(at: MonotonicClock.milliseconds())
      }
      perform(session.handle(event))
    }
    if !hasEnded { count(session.heldBytes) }
    events.removeAll(keepingCapacity: next < 16)
    isProcessingEvents = false
    if helloReceivedAt == nil, session.peer != nil {
      recordHello()
      onHello()
    }
    if session.acknowledgedBatches > acknowledged {
      store.acknowledged(session.acknowledgedBatches - acknowledged)
      acknowledged = session.acknowledgedBatches
    }
    if !wasLive, session.isLive {
      wasLive = true
      onLive()
    }
    if session.figures.repairedKeys > repaired.count { reportRepairs() }
    if !wasOpen, canFetch || canAsk {
      wasOpen = true
      onOpen()
    }
    let news = session.drainNotifications()
    if !news.isEmpty { onNotifications(news) }
    if outcome == nil { onProgress(session.figures) }
  }

  private func count(_ bytes: Int) {
    budget.held += bytes - held
    held = bytes
  }

  private func reportRepairs() {
    let figures = session.figures
    onRepaired(figures.repairedKeys - repaired.count, figures.repaired[repaired.named...])
    repaired = (figures.repairedKeys, figures.repaired.count)
  }

  private func perform(_ actions: [SessionAction]) {
    var unsent: [UInt8] = []
    for action in actions {
      // Consecutive messages are sent in one piece.
      if case .send(let bytes) = action {
        if helloSentAt == nil, helloReceivedAt == nil, session.peer == nil {
          helloSentAt = MonotonicClock.milliseconds()
        }
        if unsent.isEmpty {
          unsent = bytes
        } else if max(unsent.count, bytes.count) < Frame.pieceBytes {
          unsent += bytes
        } else {
          link.send(unsent)
          unsent = bytes
        }
        continue
      }
      if !unsent.isEmpty { link.send(unsent) }
      unsent = []
      switch action {
      case .send: break
      case .followJournal(let position):
        store.goLive()
        followJournal(from: position, after: position)
      case .pauseReading: link.pause()
      case .resumeReading: link.resume()
      case .setTimer(let timer, let seconds): set(timer, seconds: seconds)
      case .cancelTimer(let timer): cancel(timer)
      case .close(let outcome): close(outcome)
      case .openRound, .openLiveUpdate, .nextBatch, .readBlob, .makeRecipe, .readGroupKeys:
        work(action, on: sendingWorker)
      case .applyBatch, .applyLast: applyBatch(action)
      case .mergeGroupKeys:
        // Later batches are decrypted with these keys.
        batchesInProgress += 1
        work(action, on: decryptionWorker)
      case .loadReplica, .loadCursor, .finishRound, .storeBlobRanges, .storeBlobs, .matchRecipe,
        .assembleBlob, .digestState, .digestBuckets, .fingerprint, .exchangeRecords, .repair,
        .decryptBlobRange:
        work(action, on: receivingWorker)
      case .stateHoldings: work(action, on: scanningWorker)
      case .becomeNewActor:
        isRenewing = true
        remotePeer.renewals.withLock { $0.count(at: MonotonicClock.milliseconds()) }
        work(action, on: receivingWorker)
      }
    }
    if !unsent.isEmpty { link.send(unsent) }
  }

  /// Estimates the other side's clock offset from its hello. If this side sent its hello first, the other
  /// clock was read half a round trip ago; otherwise a moment ago.
  private func recordHello() {
    let now = store.store.environment.now()
    helloReceivedAt = now
    guard let peer = session.peer else { return }
    let begun = helloSentAt.map { MonotonicClock.milliseconds() - $0 } ?? 0
    clockOffset = Int64(peer.wallMilliseconds) - Int64(now - min(now, begun / 2))
  }

  private func work(_ action: SessionAction, on worker: WorkerQueue) {
    let this = LoopBound(self, to: loop)
    let (store, loop, peer) = (store, loop, session.peer?.summary.actor)
    worker.async(turn(of: action)) {
      store.answer(action, peer: peer) { event in loop.execute { this.value.worked(action, event: event) } }
    }
  }

  /// Applies a batch: a single one in one step; several overlap, step by step.
  private func applyBatch(_ action: SessionAction) {
    guard let staged = StagedBatch(action) else { return }
    batchesInProgress += 1
    if case .applyLast = action, turn(of: action) == .prompt { isApplyingLast = true }
    guard batchesInProgress > 1 else { return work(action, on: receivingWorker) }
    let this = LoopBound(self, to: loop)
    let (store, loop, receiver, syncer) = (store, loop, receivingWorker, durabilityWorker)
    decryptionWorker.async {
      let opened = store.decrypt(staged)
      receiver.async {
        let taken = store.append(opened)
        syncer.async {
          let event = store.awaitDurability(taken)
          loop.execute { this.value.worked(action, event: event) }
        }
      }
    }
  }

  private func worked(_ action: SessionAction, event: SessionEvent?) {
    switch action {
    case .applyBatch, .applyLast, .mergeGroupKeys: batchesInProgress -= 1
    default: break
    }
    if case .becomeNewActor = action {
      isRenewing = false
      endIfOver()
    } else if let event {
      handle(event)
      if case .roundFinished = event, store.takeCoverageGrew() { onClosed() }
    }
    if case .applyLast = action { deliverDeferredGrowth() }
  }

  private func set(_ timer: SessionTimer, seconds: Int) {
    cancel(timer)
    timers[timer] = loop.schedule(after: seconds * 1000) { [weak self] in
      guard let self else { return }
      timers[timer] = nil
      handle(.timer(timer))
    }
  }

  private func cancel(_ timer: SessionTimer) {
    if let number = timers.removeValue(forKey: timer) { loop.cancel(number) }
  }

  private func close(_ outcome: SessionOutcome) {
    guard self.outcome == nil else { return }
    self.outcome = outcome
    store.cancel()
    for timer in SessionTimer.allCases { cancel(timer) }
    link.finish()
    endIfOver()
  }

  private func endIfOver() {
    guard let outcome, !isRenewing, !hasEnded else { return }
    hasEnded = true
    count(0)
    onProgress(session.figures)
    (onProgress, onFollowJournal) = ({ _ in }, { _ in })
    (onLive, onClosed, onHello, onOpen, onNotifications) = ({}, {}, {}, {}, { _ in })
    let over = onOver
    onOver = {}
    defer { over() }
    onEnd(
      End(
        outcome: outcome, figures: session.figures, failure: store.failure, sentBytes: link.sentBytes,
        receivedBytes: link.receivedBytes, contact: contact, peerLeavesOut: session.peerLeavesOut,
        wasLive: wasLive, wasRevoked: session.wasRevoked))
  }
}
