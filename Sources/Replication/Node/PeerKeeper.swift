internal import SyncStore

/// Keeps peers in step: dials, waits, dials again. Belongs to its loop's thread.
///
/// Invariants: of each peer at most one attempt or session is under way; no two attempts of one peer are closer than the
/// back-off says (F71), unless the last session had been live for a while, or was a meeting that did all it was for; nobody is
/// dialled who is connected already (F70).
final class PeerKeeper {
  private struct Kept {
    var known: Route.Known
    var state: PeerState
    var backoff: Backoff
    /// An attempt or a session of this node's own is under way.
    var isBusy = false
    var driver: SessionDriver?
    var timer: UInt64?
    var liveSince: UInt64?
    /// Which of the addresses is tried.
    var address = 0
  }

  /// Milliseconds between two looks at who the peers are: other processes name them.
  private static let refreshMilliseconds = 3_000
  /// A session that has been live for so many milliseconds was a success.
  private static let steadyMilliseconds: UInt64 = 5_000
  /// Seconds after which a peer that does not stay connected is met again.
  private static let meetingSeconds = 30
  /// Milliseconds between two reports of progress.
  private static let progressMilliseconds: UInt64 = 100

  private let core: NodeCore
  private let board: StateBoard
  private var context: NodeContext { core.context }
  private var loop: EventLoop { core.loop }
  private var policy: KeepPolicy?
  private var kept: [String: Kept] = [:]
  private var right = Member.Right.readWrite
  private var refreshTimer: UInt64?
  private var isRefreshing = false

  init(_ core: NodeCore, _ board: StateBoard) {
    (self.core, self.board) = (core, board)
    core.onChange = { [weak self] in self?.changed($0) }
  }

  /// Begins, or goes on by another policy.
  func start(_ policy: KeepPolicy) {
    self.policy = policy
    for name in Array(kept.keys) {
      kept[name]?.backoff = Backoff(base: policy.retry.lowerBound, cap: policy.retry.upperBound)
    }
    refresh()
  }

  /// Ends.
  func stop() {
    policy = nil
    if let refreshTimer { loop.cancel(refreshTimer) }
    refreshTimer = nil
    for name in Array(kept.keys) { drop(name) }
    publish()
  }

  private func drop(_ name: String) {
    guard let gone = kept.removeValue(forKey: name) else { return }
    if let timer = gone.timer { loop.cancel(timer) }
    gone.driver?.stop()
  }

  // MARK: Who they are

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

  private func refreshed(_ result: Result<(known: [Route.Known], right: Member.Right), ReplicationError>) {
    isRefreshing = false
    guard let policy else { return }
    refreshTimer = loop.schedule(after: Self.refreshMilliseconds) { [weak self] in
      self?.refreshTimer = nil
      self?.refresh()
    }
    switch result {
    case .failure(let error): context.log.own(.error, "who the peers are cannot be read: \(error.message)")
    case .success(let (all, right)):
      self.right = right
      let wanted = all.filter { policy.peers?.contains($0.name) ?? true }
      for name in Array(kept.keys) where !wanted.contains(where: { $0.name == name }) { drop(name) }
      for known in wanted {
        if kept[known.name] != nil {
          kept[known.name]?.known = known
        } else {
          kept[known.name] = Kept(
            known: known, state: PeerState(name: known.name, device: known.target.device),
            backoff: Backoff(base: policy.retry.lowerBound, cap: policy.retry.upperBound))
          attempt(known.name)
        }
      }
      publish()
    }
  }

  // MARK: One peer

  /// Dials it, unless it is connected or being dialled.
  private func attempt(_ name: String) {
    guard let policy, let peer = kept[name], !peer.isBusy, !core.isStopping else { return }
    if let timer = peer.timer { loop.cancel(timer) }
    kept[name]?.timer = nil
    if let device = peer.state.device, isConnected(name, device) { return }
    guard !peer.known.endpoints.isEmpty else {
      return failed(
        name, ReplicationError(.network, "\(name) has no address here: name it with `Membership.add`"))
    }
    let endpoint = peer.known.endpoints[peer.address % peer.known.endpoints.count]
    kept[name]?.isBusy = true
    change(name) { state in
      (state.phase, state.retryAfter, state.isAccepted) = (.connecting, nil, false)
    }
    var (last, lastReceived): (UInt64, UInt64?) = (0, nil)
    core.dial(
      peer.known.target, endpoint, direction: right == .readOnly ? .pull : .sync,
      staysOpen: policy.schedule == .live
    ) { [weak self] driver in
      // Let go while the connection was being made.
      guard self?.kept[name]?.isBusy == true else { return driver.stop() }
      self?.kept[name]?.driver = driver
      self?.change(name) { $0.phase = .catchingUp }
    } progress: { [weak self] figures in
      let now = MonotonicClock.milliseconds()
      guard let self else { return }
      let received = kept[name]?.driver?.received
      guard now - last >= Self.progressMilliseconds || received != lastReceived else { return }
      (last, lastReceived) = (now, received)
      moved(name, figures)
    } completion: { [weak self] in
      self?.ended(name, $0)
    }
  }

  /// Has the peer a live session with this node already, whoever dialled it? Then that is what is shown.
  private func isConnected(_ name: String, _ device: DeviceID) -> Bool {
    guard let driver = core.liveDriver(of: device) else { return false }
    if kept[name]?.liveSince == nil { kept[name]?.liveSince = MonotonicClock.milliseconds() }
    let isAccepted = kept[name]?.driver == nil
    change(name) { state in
      (state.phase, state.retryAfter, state.lastError, state.failures) = (.live, nil, nil, 0)
      state.isAccepted = isAccepted
      state.received = driver.received
      state.clockOffset = driver.clockOffset
      state.progress = SessionProgress(driver.figures)
    }
    return true
  }

  private func moved(_ name: String, _ figures: SessionFigures) {
    guard let driver = kept[name]?.driver else { return }
    change(name) { state in
      state.progress = SessionProgress(figures)
      state.received = driver.received ?? state.received
      state.clockOffset = driver.clockOffset ?? state.clockOffset
    }
  }

  /// A session with the device has gone live, or has ended.
  private func changed(_ device: DeviceID) {
    let connected = core.connectedDevices
    board.change { $0.connected = connected }
    for name in Array(kept.keys) {
      guard let peer = kept[name] else { continue }
      // Who was named by an address alone is known by its key now.
      if let driver = peer.driver, peer.state.device == nil, core.liveDriver(of: device) === driver {
        kept[name]?.state.device = device
      }
      guard kept[name]?.state.device == device else { continue }
      if isConnected(name, device) { continue }
      if peer.state.phase == .live, !peer.isBusy { wait(name, milliseconds: pause(name, failed: true)) }
    }
  }

  private func ended(_ name: String, _ result: Result<DialEnd, ReplicationError>) {
    guard kept[name] != nil else { return }
    kept[name]?.isBusy = false
    kept[name]?.driver = nil
    switch result {
    case .failure(let error):
      kept[name]?.address += 1
      failed(name, error)
    case .success(let end):
      kept[name]?.state.device = end.device
      if let contact = end.end.contact { note(contact, of: end.device) }
      change(name) { $0.progress = SessionProgress(end.end.figures) }
      switch end.end.outcome {
      case .done:
        // One that was to stay open and did not is no success, however politely it ended: `pause` looks how long it lasted.
        if !end.end.wasLive { kept[name]?.backoff.succeeded() }
        change(name) { ($0.lastError, $0.failures) = (nil, 0) }
        if isConnected(name, end.device) { return }
        wait(name, milliseconds: end.end.wasLive ? pause(name, failed: true) : untilNextMeeting)
      case .reconnect(let why):
        context.log.own(.notice, "\(name): \(why)")
        if isConnected(name, end.device) { return }
        wait(name, milliseconds: pause(name, failed: true))
      case .failed(let code, let message):
        failed(name, end.end.failure.map { ReplicationError($0) } ?? ReplicationError(code, message))
      }
    }
  }

  private func failed(_ name: String, _ error: ReplicationError) {
    let isNew = kept[name]?.state.lastError?.message != error.message
    context.log.own(isNew ? .warning : .debug, "\(name): \(error.message)")
    let pause = pause(name, failed: true)
    let failures = kept[name]?.backoff.failures ?? 0
    change(name) { state in
      state.lastError = PeerState.Failure(code: error.code, message: error.message)
      state.failures = failures
    }
    if let device = kept[name]?.state.device, isConnected(name, device) { return }
    wait(name, milliseconds: pause)
  }

  private func pause(_ name: String, failed: Bool) -> UInt64 {
    if let since = kept[name]?.liveSince, MonotonicClock.milliseconds() - since >= Self.steadyMilliseconds {
      kept[name]?.backoff.succeeded()
    }
    kept[name]?.liveSince = nil
    let random = UInt64.random(in: 0 ... .max)
    return kept[name]?.backoff.failed(random: random) ?? 1_000
  }

  /// Not all at the same moment.
  private var untilNextMeeting: UInt64 {
    let seconds =
      if case .every(let seconds)? = policy?.schedule { max(1, seconds) } else { Self.meetingSeconds }
    let milliseconds = UInt64(seconds) * 1000
    return milliseconds - milliseconds / 10 + UInt64.random(in: 0...milliseconds / 5)
  }

  private func wait(_ name: String, milliseconds: UInt64) {
    guard policy != nil, kept[name] != nil, !core.isStopping else { return }
    if let timer = kept[name]?.timer { loop.cancel(timer) }
    kept[name]?.timer = loop.schedule(after: Int(clamping: milliseconds)) { [weak self] in
      self?.kept[name]?.timer = nil
      self?.attempt(name)
    }
    change(name) { state in (state.phase, state.retryAfter) = (.waiting, milliseconds) }
  }

  private func note(_ contact: Contact, of device: DeviceID) {
    let context = context
    context.workers.later {
      do throws(ReplicationError) { try Contacts(context.store).note(contact, of: device) } catch {
        context.log.own(.warning, "what was learned of a peer is not kept: \(error.message)")
      }
    }
  }

  // MARK: What is shown

  private func change(_ name: String, _ body: (inout PeerState) -> Void) {
    guard var state = kept[name]?.state else { return }
    let before = state
    body(&state)
    guard state != before else { return }
    kept[name]?.state = state
    publish()
  }

  private func publish() {
    let peers = kept.values.map(\.state).sorted { $0.name < $1.name }
    board.change { $0.peers = peers }
  }
}
