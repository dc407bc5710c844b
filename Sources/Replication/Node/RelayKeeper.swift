internal import SyncStore

/// Keeps relays in step: publishes new records soon after they were written, looks into each relay again and
/// again, and once a day deletes there what no member needs any more. One task per relay.
final class RelayKeeper: Sendable {
  private struct Kept {
    var relay: RelayDescription
    var alarm: RelayAlarm
    var task: Task<Void, Never>
  }

  private struct State {
    var policy: KeepPolicy?
    var watch: Task<Void, Never>?
    var kept: StringDictionary<Kept> = [:]
  }

  /// Milliseconds between two reads of the relays that are known: other processes name them.
  private static let refreshMilliseconds: UInt64 = 3_000
  /// Milliseconds between two statements of what was read, while nothing is published.
  private static let acknowledgeMilliseconds: UInt64 = 600_000

  let context: NodeContext
  private let statePublisher: StatePublisher
  private let state = LockedField(State())

  init(context: NodeContext, board: StatePublisher) { (self.context, statePublisher) = (context, board) }

  /// Starts, or continues with another policy.
  func start(_ policy: KeepPolicy, _ node: Node) {
    let alarms = state.withLock { state in
      state.policy = policy
      if state.watch == nil {
        // Held weakly, as the keeper belongs to the node.
        state.watch = Task { [weak node] in
          weak let node = node
          await self.watch { node }
        }
      }
      return state.kept.values.map(\.alarm)
    }
    for alarm in alarms { alarm.ring() }
  }

  /// Looks into all relays at once.
  func retryNow() {
    for alarm in state.withLock({ $0.kept.values.map(\.alarm) }) { alarm.ring() }
  }

  /// Ends all of it, after the operations that run.
  func stop() async { for task in halt() { await task.value } }

  /// Ends all of it. Returns the tasks, whose present operations end first.
  @discardableResult
  func halt() -> [Task<Void, Never>] {
    let (watch, kept) = state.withLock { state in
      defer { (state.watch, state.policy, state.kept) = (nil, nil, [:]) }
      return (state.watch, state.kept)
    }
    watch?.cancel()
    for one in kept.values { one.task.cancel() }
    statePublisher.change { $0.relays = [] }
    return kept.values.map(\.task)
  }

  // MARK: Which relays

  private func watch(_ node: @escaping @Sendable () -> Node?) async {
    let pause = RelayAlarm(context.loop)
    while !Task.isCancelled, node() != nil {
      let store = context.store
      do throws(ReplicationError) {
        let relays = try await context.workers.run { () throws(ReplicationError) in
          try Membership(store).relays()
        }
        keep(relays, node)
      } catch {
        guard error.store?.code != .closed else { return }
        context.log.emit(.error, "which relays there are cannot be read: \(error.message)")
      }
      await pause.wait(milliseconds: Self.refreshMilliseconds)
    }
  }

  /// Begins with relays that are new, and ends with those that are gone or have changed.
  private func keep(_ relays: [RelayDescription], _ node: @escaping @Sendable () -> Node?) {
    let ended = state.withLock { state -> [Kept] in
      guard let policy = state.policy else { return [] }
      let wanted = relays.filter { policy.peers?.contains($0.name) ?? true }
      let ended = state.kept.values.filter { !wanted.contains($0.relay) }
      for one in ended { state.kept[one.relay.name] = nil }
      for relay in wanted where state.kept[relay.name] == nil {
        let alarm = RelayAlarm(context.loop)
        let task = Task { await self.keep(relay, alarm, node) }
        state.kept[relay.name] = Kept(relay: relay, alarm: alarm, task: task)
      }
      return ended
    }
    for one in ended {
      one.task.cancel()
      statePublisher.change { state in
        state.relays.removeAll { $0.name == one.relay.name }
      }
    }
  }

  // MARK: One relay

  private func keep(
    _ relay: RelayDescription, _ alarm: RelayAlarm, _ node: @escaping @Sendable () -> Node?
  ) async {
    guard !Task.isCancelled else { return }
    statePublisher.change { state in
      state.relays.append(RelayState(relay))
      state.relays.sort { $0.name < $1.name }
    }
    var turn = Turn(policy: state.withLock { $0.policy } ?? KeepPolicy())
    var upkeep = Upkeep()
    var watch: DirectoryWatch?
    defer { withExtendedLifetime(watch) {} }
    while !Task.isCancelled, let policy = state.withLock({ $0.policy }) {
      if turn.policy != policy { turn = Turn(policy: policy) }
      let now = MonotonicClock.milliseconds()
      let isLook = alarm.takeUrgency() || now >= turn.nextLook
      change(relay) { $0.isBusy = true }
      do throws(ReplicationError) {
        guard let client = try await node()?.relayClient(named: relay.name) else { break }
        upkeep.client = client
        if watch == nil { watch = (client.objects as? DirectoryStore)?.watch { alarm.ring(after: 200) } }
        let acknowledges = isLook && now >= turn.nextAcknowledgement
        let report =
          isLook ? try await client.sync(acknowledges: acknowledges) : try await client.publish()
        if acknowledges { turn.nextAcknowledgement = now + Self.acknowledgeMilliseconds }
        // Nothing to publish costs no request, and says nothing of the relay.
        if isLook || report.figures.total > 0 {
          turn.succeeded(isLook: isLook, random: UInt64.random(in: 0 ... .max))
        }
        let figures = client.objects.figures
        change(relay) { $0.figures = figures }
        succeeded(relay, report, isLook: isLook)
        await watchJournal(alarm, seconds: policy.publishSeconds)
        if isLook { await collectIfDue(relay, client, every: policy.collectMilliseconds) }
      } catch {
        guard !Task.isCancelled else { break }
        turn.failed(random: UInt64.random(in: 0 ... .max))
        failed(relay, error)
      }
      await showUsage(relay, &upkeep, every: policy.collectMilliseconds / 24)
      let pause = turn.nextLook - min(turn.nextLook, MonotonicClock.milliseconds())
      let next = context.store.environment.now() + pause
      change(relay) { ($0.isBusy, $0.nextTry) = (false, next) }
      await alarm.wait(milliseconds: pause)
    }
    await endUsage(relay, upkeep)
  }

  /// When a relay is looked at. A value but for the clock.
  private struct Turn {
    var policy: KeepPolicy
    var backoff: Backoff
    var nextLook: UInt64 = 0
    var nextAcknowledgement: UInt64 = 0

    init(policy: KeepPolicy) {
      self.policy = policy
      backoff = Backoff(base: policy.retry.lowerBound, cap: policy.retry.upperBound)
    }

    mutating func succeeded(isLook: Bool, random: UInt64) {
      backoff.succeeded()
      guard isLook else { return }
      // Between 80 and 120 %: members that began together do not ask together.
      let pause = UInt64(max(1, policy.pollSeconds)) * 1000
      nextLook = MonotonicClock.milliseconds() + pause * 4 / 5 + random % (pause * 2 / 5)
    }

    mutating func failed(random: UInt64) {
      nextLook = MonotonicClock.milliseconds() + backoff.failed(random: random)
    }
  }

  func change(_ relay: RelayDescription, _ body: (inout RelayState) -> Void) {
    statePublisher.change { state in
      guard let index = state.relays.firstIndex(where: { $0.name == relay.name }) else { return }
      body(&state.relays[index])
    }
  }

  func succeeded(_ relay: RelayDescription, _ report: RelayReport, isLook: Bool) {
    let now = context.store.environment.now()
    for remark in report.remarks { context.log.emit(.warning, "\(relay.name): \(remark)") }
    var (failures, known): (Int, [RelayReport.SetAside]) = (0, [])
    change(relay) { state in
      known = state.setAside
      if isLook || report.figures.total > 0 {
        failures = state.failures
        (state.failures, state.lastError) = (0, nil)
      }
      if isLook {
        (state.lastSuccess, state.waitingEntries) = (now, report.waitingEntries)
        state.setAside = report.setAside
      }
      state.published = max(report.position, state.published ?? 0)
      state.sentRecords += report.sentRecords
      state.receivedRecords += report.receivedRecords
    }
    for object in report.setAside where !known.contains(object) {
      context.log.emit(.warning, "\(relay.name): \(object.object) is set aside: \(object.reason)")
    }
    if failures > 0 {
      context.log.emit(
        .notice, "\(relay.name): reached again, after \(CountText.of(failures, noun: "failed attempt"))")
    }
  }

  private func failed(_ relay: RelayDescription, _ error: ReplicationError) {
    var isNew = false
    change(relay) { state in
      isNew = state.lastError?.code != error.code
      state.failures += 1
      state.lastError = PeerState.Failure(code: error.code, message: error.message)
    }
    context.log.emit(isNew ? .warning : .debug, error.message)
  }

  /// Rings the alarm some seconds after the journal has grown, unless that was arranged before.
  private func watchJournal(_ alarm: RelayAlarm, seconds: Int) async {
    guard alarm.beginWatching() else { return }
    let (store, loop) = (context.store, context.loop)
    let position = store.journalPosition
    let wake = { @Sendable in
      guard alarm.endWatching() else { return }
      loop.execute { _ = loop.schedule(after: max(1, seconds) * 1000) { alarm.ring(urgently: false) } }
    }
    let isArmed = try? await context.workers.run { () throws(ReplicationError) in
      store.notifyWhenGrown(after: position, wake)
    }
    // For want of descriptors or memory: the next look publishes.
    if isArmed != true { _ = alarm.endWatching() }
  }
}

/// Wakes the task of one relay.
final class RelayAlarm: Sendable {
  private struct State {
    var waiter: CheckedContinuation<Void, Never>?
    var number: UInt64 = 0
    var isRung = false
    var isUrgent = false
    var isWatching = false
    var isSoon = false
  }

  private let loop: EventLoop
  private let state = LockedField(State())

  init(_ loop: EventLoop) { self.loop = loop }

  /// Ends the present wait, or the next one. `urgently`: the relay is looked at; otherwise what is new here
  /// is published.
  func ring(urgently: Bool = true) {
    let waiter = state.withLock { state in
      state.isRung = true
      if urgently { state.isUrgent = true }
      return exchange(&state.waiter, with: nil)
    }
    waiter?.resume()
  }

  /// Rings after some milliseconds, once however often it is called until then: a publication is several
  /// changes.
  func ring(after milliseconds: Int) {
    guard state.withLock({ !exchange(&$0.isSoon, with: true) }) else { return }
    let loop = loop
    loop.execute {
      _ = loop.schedule(after: milliseconds) {
        self.state.withLock { $0.isSoon = false }
        self.ring()
      }
    }
  }

  /// Whether it was rung urgently since the last call.
  func takeUrgency() -> Bool { state.withLock { exchange(&$0.isUrgent, with: false) } }

  /// Waits until it rings, at most so long. A cancelled task does not wait.
  func wait(milliseconds: UInt64) async {
    await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        let number: UInt64? = state.withLock { state in
          guard !state.isRung else { return nil }
          state.waiter = continuation
          state.number += 1
          return state.number
        }
        guard let number else { return continuation.resume() }
        let loop = loop
        loop.execute { _ = loop.schedule(after: Int(clamping: milliseconds)) { self.expire(number) } }
      }
    } onCancel: {
      ring(urgently: false)
    }
    state.withLock { $0.isRung = false }
  }

  private func expire(_ number: UInt64) {
    let waiter = state.withLock { state in
      state.number == number ? exchange(&state.waiter, with: nil) : nil
    }
    waiter?.resume()
  }

  /// Whether the caller is to arrange that it rings when the journal grows.
  func beginWatching() -> Bool { state.withLock { !exchange(&$0.isWatching, with: true) } }

  /// Whether it was being watched for.
  func endWatching() -> Bool { state.withLock { exchange(&$0.isWatching, with: false) } }
}
