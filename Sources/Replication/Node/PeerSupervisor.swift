internal import SyncStore

/// Keeps peers in step: dials, waits, dials again. Confined to its loop's thread.
///
/// Invariants: each peer has at most one attempt or session at a time; two attempts of one peer are never
/// closer than the back-off allows (F71), unless the last session was live for a while, or was a one-shot
/// session that completed; a connected peer is not dialled (F70).
final class PeerSupervisor: NodeCoreDelegate {
  private struct SupervisedPeer {
    var known: Route.Known
    var state: PeerState
    var backoff: Backoff
    /// An attempt or a session of this node is in progress.
    var isBusy = false
    var driver: SessionDriver?
    var timer: UInt64?
    var liveSince: UInt64?
    /// Index of the address to try.
    var address = 0
    /// The peer has said that this copy may not send: this copy learns its right from what it pulls.
    var mayOnlyPull = false
    /// A live session ended by itself: the peer may keep its side for a moment, and not let the next one
    /// stay.
    var wasLiveSessionLost = false
  }

  /// Milliseconds between two reads of the peers: other processes name them.
  private static let refreshMilliseconds = 3_000
  /// A session that was live for this many milliseconds was a success.
  private static let steadyMilliseconds: UInt64 = 5_000
  /// Seconds until the next session with a peer that does not stay connected.
  private static let syncIntervalSeconds = 30
  /// Milliseconds between two reports of progress.
  private static let progressMilliseconds: UInt64 = 100

  private let core: NodeCore
  private let statePublisher: StatePublisher
  private var context: NodeContext { core.context }
  private var loop: EventLoop { core.loop }
  private var policy: KeepPolicy?
  private var supervised: StringDictionary<SupervisedPeer> = [:]
  private var right = Member.Right.readWrite
  private var refreshTimer: UInt64?
  private var isRefreshing = false
  /// The devices that were members at the last refresh.
  private var members: Set<DeviceID> = []
  private var lastUnknownDeviceRetry: UInt64 = 0

  init(core: NodeCore, board: StatePublisher) {
    (self.core, self.statePublisher) = (core, board)
    core.delegate = self
  }

  /// Starts, or continues with another policy.
  func start(_ policy: KeepPolicy) {
    self.policy = policy
    core.watchNetwork()
    for name in Array(supervised.keys) {
      supervised[name]?.backoff = Backoff(base: policy.retry.lowerBound, cap: policy.retry.upperBound)
    }
    refresh()
  }

  func networkReturned() { retryNow() }

  func identityConflict(of device: DeviceID, message: String) {
    statePublisher.change { $0.identityConflicts[device] = message }
  }

  /// Tries all waiting peers at once, with their back-off reset: the network may have come back.
  func retryNow() {
    for name in supervised.keys.sorted() where supervised[name]?.isBusy == false {
      supervised[name]?.backoff.succeeded()
      attempt(name)
    }
  }

  /// An unknown device was rejected. The member that invited it can identify it, so peers that are
  /// synchronized on a schedule are synchronized now, at most once per `syncIntervalSeconds`: strangers may
  /// connect at will.
  func unknownDeviceRejected() {
    let now = MonotonicClock.milliseconds()
    guard case .every? = policy?.schedule,
      now - lastUnknownDeviceRetry >= UInt64(Self.syncIntervalSeconds) * 1000
    else {
      return
    }
    lastUnknownDeviceRetry = now
    for name in supervised.keys.sorted() where supervised[name]?.state.failures == 0 { attempt(name) }
  }

  /// Ends all supervision.
  func stop() {
    policy = nil
    if let refreshTimer { loop.cancel(refreshTimer) }
    refreshTimer = nil
    for name in Array(supervised.keys) { drop(name) }
    publish()
  }

  private func drop(_ name: String) {
    guard let gone = supervised.removeValue(forKey: name) else { return }
    if let timer = gone.timer { loop.cancel(timer) }
    gone.driver?.stop()
  }

  // MARK: Peer resolution

  private func refresh() {
    guard policy != nil, !isRefreshing, !core.isStopping else { return }
    isRefreshing = true
    let (context, loop, this) = (context, loop, LoopBound(self, to: loop))
    context.workers.later {
      context.acknowledge()
      let all = Result { () throws(ReplicationError) in
        try Route.all(in: context.store, own: context.identity.id)
      }
      loop.execute { this.value.refreshed(all) }
    }
  }

  private func refreshed(_ result: Result<Route.All, ReplicationError>) {
    isRefreshing = false
    guard let policy else { return }
    refreshTimer = loop.schedule(after: Self.refreshMilliseconds) { [weak self] in
      self?.refreshTimer = nil
      self?.refresh()
    }
    switch result {
    case .failure(let error): context.log.emit(.error, "who the peers are cannot be read: \(error.message)")
    case .success(let all):
      if right != all.right { rightChanged(to: all.right) }
      membersChanged(to: all.members)
      let wanted = all.known.filter { policy.peers?.contains($0.name) ?? true }
      for name in Array(supervised.keys) where !wanted.contains(where: { $0.name == name }) { drop(name) }
      for known in wanted {
        if supervised[known.name] != nil {
          supervised[known.name]?.known = known
        } else {
          supervised[known.name] = SupervisedPeer(
            known: known, state: PeerState(name: known.name, device: known.target.device),
            backoff: Backoff(base: policy.retry.lowerBound, cap: policy.retry.upperBound))
          attempt(known.name)
        }
      }
      publish()
    }
  }

  /// The right of this copy has changed: running sessions ask for more, or less, than it now allows.
  private func rightChanged(to right: Member.Right) {
    self.right = right
    for name in Array(supervised.keys) {
      supervised[name]?.mayOnlyPull = false
      supervised[name]?.driver?.refuse(.tryAgain, reason: "what this copy may do has changed: connect again")
    }
  }

  /// Retries peers that failed because one side did not know the other, once more members are known.
  private func membersChanged(to members: Set<DeviceID>) {
    defer { self.members = members }
    guard !members.isSubset(of: self.members) else { return }
    for name in supervised.keys.sorted() where supervised[name]?.state.lastError?.code == .notAMember {
      supervised[name]?.backoff.succeeded()
      attempt(name)
    }
  }

  // MARK: Dialling

  /// Dials a peer, unless it is connected or being dialled.
  private func attempt(_ name: String) {
    guard let policy, let peer = supervised[name], !peer.isBusy, !core.isStopping else { return }
    if let timer = peer.timer { loop.cancel(timer) }
    supervised[name]?.timer = nil
    if let device = peer.state.device, isConnected(name, device: device) { return }
    guard !peer.known.endpoints.isEmpty else {
      return failed(
        name, error: ReplicationError(.network, "\(name) has no address here: name it with `Membership.add`"))
    }
    let endpoint = peer.known.endpoints[peer.address % peer.known.endpoints.count]
    supervised[name]?.isBusy = true
    change(name) { state in
      (state.phase, state.retryAfter, state.nextTry, state.isAccepted) = (.connecting, nil, nil, false)
    }
    var (last, lastReceived): (UInt64, UInt64?) = (0, nil)
    core.dial(
      peer.known.target, endpoint: endpoint,
      direction: right == .readOnly || peer.mayOnlyPull ? .pull : .sync,
      mode: policy.schedule == .live ? .live : .once
    ) { [weak self] driver in
      // Dropped while the connection was being made.
      guard self?.supervised[name]?.isBusy == true else { return driver.stop() }
      self?.supervised[name]?.driver = driver
      self?.change(name) { $0.phase = .catchingUp }
    } progress: { [weak self] figures in
      let now = MonotonicClock.milliseconds()
      guard let self else { return }
      let received = supervised[name]?.driver?.acknowledgedPosition
      guard now - last >= Self.progressMilliseconds || received != lastReceived else { return }
      (last, lastReceived) = (now, received)
      moved(name, figures: figures)
    } completion: { [weak self] in
      self?.ended(name, result: $0)
    }
  }

  /// Whether the peer has a live session with this node, whichever side dialled it. If so, publishes that
  /// session's state.
  private func isConnected(_ name: String, device: DeviceID) -> Bool {
    guard let driver = core.liveDriver(of: device) else { return false }
    if supervised[name]?.liveSince == nil { supervised[name]?.liveSince = MonotonicClock.milliseconds() }
    let isAccepted = supervised[name]?.driver == nil
    recovered(name)
    change(name) { state in
      (state.phase, state.retryAfter, state.nextTry) = (.live, nil, nil)
      state.lastSuccess = wall
      state.isAccepted = isAccepted
      state.received = driver.acknowledgedPosition
      state.clockOffset = driver.clockOffset
      state.progress = SessionProgress(driver.figures)
    }
    return true
  }

  private func moved(_ name: String, figures: SessionFigures) {
    guard let driver = supervised[name]?.driver else { return }
    change(name) { state in
      state.progress = SessionProgress(figures)
      state.received = driver.acknowledgedPosition ?? state.received
      state.clockOffset = driver.clockOffset ?? state.clockOffset
    }
  }

  /// A session with the device has gone live, or has ended.
  func sessionsChanged(with device: DeviceID) {
    let connected = core.connectedDevices
    statePublisher.change { $0.connected = connected }
    for name in Array(supervised.keys) {
      guard let peer = supervised[name] else { continue }
      // A peer named by address only is now known by its key.
      if let driver = peer.driver, peer.state.device == nil, core.liveDriver(of: device) === driver {
        supervised[name]?.state.device = device
      }
      guard supervised[name]?.state.device == device else { continue }
      if isConnected(name, device: device) { continue }
      if peer.state.phase == .live, !peer.isBusy { wait(name, milliseconds: nextBackoff(name, failed: true)) }
    }
  }

  private func ended(_ name: String, result: Result<DialEnd, ReplicationError>) {
    // Stored also for a peer that is no longer supervised: it may have received more than was known.
    if case .success(let end) = result, let contact = end.end.contact { saveContact(contact, of: end.device) }
    guard supervised[name] != nil else { return }
    supervised[name]?.isBusy = false
    supervised[name]?.driver = nil
    switch result {
    case .failure(let error):
      supervised[name]?.address += 1
      failed(name, error: error)
    case .success(let end):
      supervised[name]?.state.device = end.device
      if end.end.wasRevoked { context.workers.later { [context] in context.recordRevocation() } }
      change(name) { $0.progress = SessionProgress(end.end.figures) }
      switch end.end.outcome {
      case .done:
        // A session that was to stay open and did not is no success, however politely it ended: `nextBackoff`
        // checks how long it was live.
        if !end.end.wasLive { supervised[name]?.backoff.succeeded() }
        recovered(name)
        change(name) { $0.lastSuccess = wall }
        if isConnected(name, device: end.device) { return }
        wait(name, milliseconds: end.end.wasLive ? nextBackoff(name, failed: true) : delayUntilNextSync(name))
      case .reconnect(let why):
        if supervised[name]?.state.lastError?.message != why { context.log.emit(.notice, "\(name): \(why)") }
        if end.end.wasLive && why.contains(DuplicateIdentityDetector.displacedText)
          || why.contains(DuplicateIdentityDetector.conflictText)
        {
          core.ownConnectionDisplaced(end.device, reason: why)
        }
        if isConnected(name, device: end.device) { return }
        wait(name, milliseconds: nextBackoff(name, failed: true))
      case .failed(let code, let message):
        failed(name, error: end.end.failure.map { ReplicationError($0) } ?? ReplicationError(code, message))
      }
    }
  }

  /// Milliseconds since 1970.
  private var wall: UInt64 { context.store.environment.now() }

  /// Logs the end of a failure; `failed` logs its beginning.
  private func recovered(_ name: String) {
    guard let state = supervised[name]?.state, state.lastError != nil || state.failures > 0 else { return }
    context.log.emit(
      .notice,
      "\(name): reached again, after \(state.failures) failed attempt\(state.failures == 1 ? "" : "s")")
    change(name) { ($0.lastError, $0.failures) = (nil, 0) }
  }

  private func failed(_ name: String, error: ReplicationError) {
    let isNew = supervised[name]?.state.lastError?.code != error.code
    context.log.emit(isNew ? .warning : .debug, "\(name): \(error.message)")
    if error.code == .notAllowed { supervised[name]?.mayOnlyPull = true }
    if supervised[name]?.liveSince != nil { supervised[name]?.wasLiveSessionLost = true }
    let pause = nextBackoff(name, failed: true)
    let failures = (supervised[name]?.state.failures ?? 0) + 1
    change(name) { state in
      state.lastError = PeerState.Failure(code: error.code, message: error.message)
      state.failures = failures
    }
    if let device = supervised[name]?.state.device, isConnected(name, device: device) { return }
    wait(name, milliseconds: pause)
  }

  private func nextBackoff(_ name: String, failed: Bool) -> UInt64 {
    if let since = supervised[name]?.liveSince,
      MonotonicClock.milliseconds() - since >= Self.steadyMilliseconds
    {
      supervised[name]?.backoff.succeeded()
    }
    supervised[name]?.liveSince = nil
    let random = UInt64.random(in: 0 ... .max)
    return supervised[name]?.backoff.failed(random: random) ?? 1_000
  }

  /// Randomized, so that peers do not all connect at the same moment. After a lost live session, the delay
  /// lets the peer detect the loss first (`NodeCore.answerMilliseconds`), so that the new session can stay
  /// open.
  private func delayUntilNextSync(_ name: String) -> UInt64 {
    if policy?.schedule == .live, supervised[name]?.wasLiveSessionLost == true {
      supervised[name]?.wasLiveSessionLost = false
      return NodeCore.answerMilliseconds + 500 + UInt64.random(in: 0...1000)
    }
    let seconds =
      if case .every(let seconds)? = policy?.schedule { max(1, seconds) } else { Self.syncIntervalSeconds }
    let milliseconds = UInt64(seconds) * 1000
    return milliseconds - milliseconds / 10 + UInt64.random(in: 0...milliseconds / 5)
  }

  private func wait(_ name: String, milliseconds: UInt64) {
    guard policy != nil, supervised[name] != nil, !core.isStopping else { return }
    if let timer = supervised[name]?.timer { loop.cancel(timer) }
    supervised[name]?.timer = loop.schedule(after: Int(clamping: milliseconds)) { [weak self] in
      self?.supervised[name]?.timer = nil
      self?.attempt(name)
    }
    change(name) { state in
      (state.phase, state.retryAfter, state.nextTry) = (.waiting, milliseconds, wall + milliseconds)
    }
  }

  private func saveContact(_ contact: Contact, of device: DeviceID) {
    let context = context
    context.workers.later {
      do throws(ReplicationError) { try Contacts(context.store).record([(device, contact)]) } catch {
        guard error.store?.code != .closed else { return }
        context.log.emit(.warning, "what was learned of a peer is not kept: \(error.message)")
      }
    }
  }

  // MARK: Published state

  private func change(_ name: String, _ body: (inout PeerState) -> Void) {
    guard var state = supervised[name]?.state else { return }
    let before = state
    body(&state)
    guard state != before else { return }
    supervised[name]?.state = state
    publish()
  }

  private func publish() {
    let peers = supervised.values.map(\.state).sorted { $0.name < $1.name }
    statePublisher.change { $0.peers = peers }
  }
}
