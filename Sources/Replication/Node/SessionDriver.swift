internal import SyncStore

/// Performs the actions of a session: sends, keeps its timers, hands store work to workers and their answers
/// back. Confined to its loop's thread.
///
/// Invariants: events are handled one at a time in the order in which they occurred, each with all its
/// actions done before the next; `onEnd` is called once, after a requested new actor is durable.
final class SessionDriver {
  /// The other side's name for this session.
  var peerName: String { session.peerName }
  let remotePeer: RemotePeer
  var peerRight: MemberRight { remotePeer.right }
  /// The number under which the delegate keeps the session.
  private(set) var number: UInt64 = 0
  private weak var delegate: (any SessionDriverDelegate)?

  private var session: Session
  let link: PeerLink
  private let store: SessionStore
  private var queues: SessionWorkQueues
  private var events = SessionEventQueue()
  private var timers: SessionTimers
  private var loop: EventLoop { timers.loop }
  private var following = JournalFollowing()
  /// Bytes held by this session, of those of the node.
  private var memory: FlowBudget.Share
  private var activity = PeerActivity()
  private var helloTimes = HelloTimes()
  private var reported = ReportedProgress()
  private var ending: SessionEnding

  /// A session over a link whose handshake is done.
  init(
    role: Session.Role, peerName: String, remotePeer: RemotePeer, mode: SessionMode, link: PeerLink,
    context: NodeContext, onEnd: @escaping (End) -> Void
  ) {
    session = Session(
      role: role, peerName: peerName, peerRight: remotePeer.right, mode: mode, capabilities: .all,
      pingSeconds: context.pingSeconds)
    (self.remotePeer, self.link) = (remotePeer, link)
    store = SessionStore(context.store, remotePeer: remotePeer)
    queues = SessionWorkQueues(context.workers)
    timers = SessionTimers(context.loop)
    memory = FlowBudget.Share(of: context.budget.value)
    ending = SessionEnding(onEnd)
  }

  /// Reports to `delegate` from now on, which knows the session by `number`.
  func report(to delegate: any SessionDriverDelegate, as number: UInt64) {
    (self.delegate, self.number) = (delegate, number)
  }

  private var outcome: SessionOutcome? { ending.outcome }
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
      activity.heard()
      handle(.received(bytes))
    }
    link.onSent = { [self] count in
      activity.accepted()
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
    _ = events.begin()
    perform(session.start())
    drainEvents()
  }

  /// Whether the session has caught up and stays open.
  var isLive: Bool { session.isLive }
  /// Whether the session is live, with nothing in progress.
  var isAtRest: Bool { session.isAtRest }
  /// The other side's hello.
  var peer: Hello? { session.peer }
  /// When the other side's hello came, by the wall clock, in milliseconds since 1970.
  var helloReceivedAt: UInt64? { helloTimes.receivedAt }
  /// Milliseconds by which the other side's clock is ahead of the own one, once its hello has come.
  var clockOffset: Int64? { helloTimes.clockOffset }
  /// Whether the session has gone live, even if it is over now.
  var wasLive: Bool { reported.wasLive }
  /// When the other side last sent anything, by the loop's clock.
  var lastHeard: UInt64 { activity.lastHeard }
  /// When it last sent or accepted anything.
  var lastMoved: UInt64 { activity.lastMoved }
  /// The acknowledged position at the last save of the contact.
  var savedAcknowledged: UInt64 {
    get { reported.savedAcknowledged }
    set { reported.savedAcknowledged = newValue }
  }
  /// The position of the own journal up to which the other side has everything.
  var acknowledgedPosition: UInt64? { session.figures.acknowledged > 0 ? session.figures.acknowledged : nil }
  /// Figures of what was moved so far.
  var figures: SessionFigures { session.figures }

  /// Tells the session that the journal has grown, or may have.
  func journalGrew() {
    if outcome == nil, following.grew() { handle(.journalGrown) }
  }

  /// Handles growth that was deferred while a batch was applied.
  private func deliverDeferredGrowth() {
    guard following.endDeferring(), outcome == nil else { return }
    // After `JournalFollowing.mostUnseen` records the session checks nevertheless: it scans the journal from
    // its last position.
    guard let echo = store.takeLastAppliedRange(), let start = following.start(skipping: echo) else {
      return handle(.journalGrown)
    }
    followJournal(from: start, after: echo.upTo)
  }

  private func followJournal(from start: UInt64, after position: UInt64) {
    following.follow(from: start, after: position)
    delegate?.session(self, followsJournalAfter: position)
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
    if events.begin() { drainEvents() }
  }

  /// Handles the events, and reports what has changed.
  private func drainEvents() {
    while let event = events.popFirst() {
      session.isCrowded = memory.isCrowded
      session.decryptedBytes = store.decryptedBytes.withLock { $0 }
      session.mayBecomeNewActor = remotePeer.renewals.withLock {
        $0.admits(at: MonotonicClock.milliseconds())
      }
      perform(session.handle(event))
    }
    if !ending.hasEnded { memory.set(session.heldBytes) }
    events.end()
    if helloTimes.receivedAt == nil, let peer = session.peer {
      helloTimes.received(peer, at: store.store.environment.now())
      delegate?.sessionReceivedHello(self)
    }
    let acknowledged = session.acknowledgedBatches
    if acknowledged > reported.acknowledgedBatches {
      store.acknowledged(acknowledged - reported.acknowledgedBatches)
      reported.acknowledgedBatches = acknowledged
    }
    if !reported.wasLive, session.isLive {
      reported.wasLive = true
      delegate?.sessionWentLive(self)
    }
    reportRepairs()
    if !reported.wasOpen, canFetch || canAsk {
      reported.wasOpen = true
      delegate?.sessionOpened(self)
    }
    let news = session.drainNotifications()
    if !news.isEmpty { delegate?.session(self, notifies: news) }
    if outcome == nil { delegate?.sessionProgressed(self) }
  }

  private func reportRepairs() {
    guard session.figures.repairedKeys > reported.repaired.count else { return }
    let (figures, before) = (session.figures, reported.repaired)
    reported.repaired = (figures.repairedKeys, figures.repaired.count)
    delegate?.session(
      self, repaired: figures.repairedKeys - before.count, keys: figures.repaired[before.named...])
  }

  private func perform(_ actions: [SessionAction]) {
    var unsent: [UInt8] = []
    for action in actions {
      // Consecutive messages are sent in one piece.
      if case .send(let bytes) = action {
        if helloTimes.isOpen, session.peer == nil { helloTimes.sent() }
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
      case .cancelTimer(let timer): timers.cancel(timer)
      case .close(let outcome): close(outcome)
      case .openRound, .openLiveUpdate, .nextBatch, .readBlob, .makeRecipe, .readGroupKeys:
        work(action, on: queues.sending)
      case .applyBatch, .applyLast: applyBatch(action)
      case .mergeGroupKeys:
        // Later batches are decrypted with these keys.
        _ = queues.beginBatch()
        work(action, on: queues.decryption)
      case .loadReplica, .loadCursor, .finishRound, .storeBlobRanges, .storeBlobs, .matchRecipe,
        .assembleBlob, .digestState, .digestBuckets, .fingerprint, .exchangeRecords, .repair,
        .stateKeys, .compareKeys, .decryptBlobRange:
        work(action, on: queues.receiving)
      case .stateHoldings: work(action, on: queues.scanning)
      case .becomeNewActor:
        ending.beginRenewal()
        remotePeer.renewals.withLock { $0.count(at: MonotonicClock.milliseconds()) }
        work(action, on: queues.receiving)
      }
    }
    if !unsent.isEmpty { link.send(unsent) }
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
    let isAlone = queues.beginBatch()
    if case .applyLast = action, turn(of: action) == .prompt { following.beginDeferring() }
    if isAlone { return work(action, on: queues.receiving) }
    let this = LoopBound(self, to: loop)
    let (store, loop, receiver, syncer) = (store, loop, queues.receiving, queues.durability)
    queues.decryption.async {
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
    queues.worked(action)
    if case .becomeNewActor = action {
      ending.endRenewal()
      endIfOver()
    } else if let event {
      handle(event)
      if case .roundFinished = event, store.takeCoverageGrew() {
        delegate?.sessionExtendedCoverage(self)
      }
    }
    if case .applyLast = action { deliverDeferredGrowth() }
  }

  private func set(_ timer: SessionTimer, seconds: Int) {
    timers.set(timer, seconds: seconds) { [weak self] in
      guard let self else { return }
      timers.fired(timer)
      handle(.timer(timer))
    }
  }

  private func close(_ outcome: SessionOutcome) {
    guard ending.close(outcome) else { return }
    store.cancel()
    timers.cancelAll()
    link.finish()
    endIfOver()
  }

  private func endIfOver() {
    guard let outcome = ending.takeOutcome() else { return }
    memory.set(0)
    // A repair may be what ended the session.
    reportRepairs()
    delegate?.sessionProgressed(self)
    let delegate = delegate
    self.delegate = nil
    defer { delegate?.sessionIsOver(self) }
    ending.completion(
      End(
        outcome: outcome, figures: session.figures, failure: store.failure, sentBytes: link.sentBytes,
        receivedBytes: link.receivedBytes, contact: contact, peerLeavesOut: session.peerLeavesOut,
        wasLive: wasLive, wasRevoked: session.wasRevoked))
  }
}
