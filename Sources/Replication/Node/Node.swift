public import SyncStore

/// A copy of a store on the network: serves the members, and synchronizes with them.
///
/// Thread-safe. All connections of a process share one thread (`EventLoop`); the work of the store runs on a
/// few more. The path of a sync: `synchronize` → `NodeCore.dial` → `PeerLink` (TLS) → `SessionDriver` →
/// `Session` (decides) → `SessionStore` (executes). docs/replication-path.md walks through it.
public final class Node: Sendable {
  /// Settings of a node.
  public struct Configuration: Sendable {
    /// Receives log lines. Called on any thread; it must not block.
    public var log: @Sendable (LogLevel, String) -> Void

    /// Whether reading a large value that is not here fetches it while the reader waits. Otherwise the read
    /// throws `.blobUnavailable`, and the next session fetches the value.
    public var fetchesOnRead: Bool

    /// Seconds without a received byte after which a session sends a ping, at least 1. If nothing is written
    /// and the kernel does not notice, a dead connection is detected after about this time plus
    /// `Limits.unacknowledgedSeconds`.
    public var pingSeconds: Int

    /// Opens the objects of relays; by default only of those in directories.
    public var opensRelay: Node.RelayOpener = Node.opensDirectories

    /// By default nothing is logged.
    public init(
      fetchesOnRead: Bool = true, pingSeconds: Int = Limits.pingSeconds,
      log: @escaping @Sendable (LogLevel, String) -> Void = { _, _ in }
    ) {
      (self.fetchesOnRead, self.pingSeconds, self.log) = (fetchesOnRead, pingSeconds, log)
    }
  }

  /// Milliseconds that `stop` grants sessions before it ends them.
  package static let drainMilliseconds = 4_000
  /// Upper bound on session restarts that the other side requests (rule R9, F62, F70).
  private static let attempts = 8
  static let listenKey = Array("listen".utf8)

  /// The store that the node serves.
  public let store: Store
  /// The identity of this installation.
  public var device: DeviceID { context.identity.id }

  let context: NodeContext
  let core: LoopBound<NodeCore>
  let supervisor: LoopBound<PeerSupervisor>
  let statePublisher = StatePublisher()
  private let isStopped = LockedField(false)
  /// Open while this node holds the listen lock: invitations name its address.
  let listening = Locked<(any StorageFile)?>(nil)
  let opensRelay: RelayOpener
  let relayClients = LockedField<StringDictionary<(description: RelayDescription, client: RelayClient)>>([:])
  let relays: RelayKeeper
  /// Enforces the limits of large values periodically.
  let upkeep = LockedField<Task<Void, Never>?>(nil)

  /// A node for a store that was prepared (`prepare`) or joined.
  ///
  /// - Throws: `.cryptography` if the store's keys are missing or unusable.
  public convenience init(store: Store, configuration: Configuration = Configuration())
    throws(ReplicationError)
  {
    try self.init(store: store, configuration: configuration, loop: try EventLoop.shared(), workers: .shared)
  }

  /// A node on a given loop and workers, for tests.
  package init(
    store: Store, configuration: Configuration, loop: EventLoop, workers: WorkerPool
  ) throws(ReplicationError) {
    self.store = store
    context = try NodeContext(
      store: store, loop: loop, workers: workers,
      pingSeconds: configuration.pingSeconds, log: configuration.log)
    let core = NodeCore(context)
    self.core = LoopBound(core, to: loop)
    opensRelay = configuration.opensRelay
    relays = RelayKeeper(context: context, board: statePublisher)
    supervisor = LoopBound(PeerSupervisor(core: core, board: statePublisher), to: loop)
    if configuration.fetchesOnRead { fetchOnRead() }
  }

  /// Prepares a new store for members: makes its device key, its group key, and the record of its first
  /// member, called `name`. Keeps what exists already. Blocks.
  ///
  /// - Throws: `.cryptography` if keys cannot be made, or existing ones are unusable; `.store` if the store
  ///   cannot be read or written.
  public static func prepare(_ store: Store, name: String) throws(ReplicationError) {
    let keys = StoreKeys(store)
    let identity = try keys.makeIdentity()
    _ = try keys.makeGroupKeys()
    let membership = Membership(store)
    // An unreadable record exists, too: this copy must not grant itself a right.
    guard try membership.member(identity.id) == nil else { return }
    try membership.put(
      Member(
        device: identity.id, name: try membership.freeName(name, for: identity.id), right: .readWrite,
        addresses: [],
        joined: store.environment.now()))
  }

  // MARK: Serving

  /// Listens and serves members until `stop`; returns the address with the actual port.
  ///
  /// - Parameter endpoint: where to listen; an empty host is every address, port 0 any free port.
  /// - Throws: `.network` if listening there is not possible.
  public func start(listen endpoint: Endpoint) async throws(ReplicationError) -> Endpoint {
    let addresses = try await context.workers.run { () throws(ReplicationError) in
      try SocketAddress.resolve(endpoint, listening: true)
    }
    let core = core
    let address = try await onLoop { () throws(ReplicationError) in try core.value.listen(addresses) }
    let bound = Endpoint(host: address.host, port: address.port)
    try await recordAddress(bound)
    statePublisher.change { $0.listening = bound }
    startEnforcingBlobLimits()
    return bound
  }

  /// Accepts no more connections, lets running sessions finish for at most 4 s, ends the rest, and makes
  /// everything durable. What an ended session has moved is kept. The store stays open.
  public func stop() async {
    guard isStopped.withLock({ stopped in !exchange(&stopped, with: true) }) else { return }
    upkeep.withLock { $0?.cancel() }
    store.setBlobFetching(nil)
    listening.withLock { $0 = nil }
    let (core, keeper) = (core, supervisor)
    await relays.stop()
    let contacts = try? await onLoop { () throws(ReplicationError) in core.value.drainNewContacts() }
    await withCheckedContinuation { continuation in
      context.loop.execute {
        keeper.value.stop()
        core.value.stop(drain: Self.drainMilliseconds) { continuation.resume() }
      }
    }
    statePublisher.end()
    let (store, log) = (store, context.log)
    do {
      try await context.workers.run { () throws(ReplicationError) in
        try Contacts(store).record(contacts ?? [])
        try mappingStoreErrors { () throws(StoreError) in try store.sync() }
      }
    } catch {
      log.emit(.error, "stopping: \(error.message)")
    }
  }

  func onLoop<Answer: Sendable>(
    _ body: @escaping @Sendable () throws(ReplicationError) -> Answer
  ) async throws(ReplicationError) -> Answer {
    let result = await withCheckedContinuation { continuation in
      context.loop.execute {
        continuation.resume(returning: Result { () throws(ReplicationError) in try body() })
      }
    }
    return try result.get()
  }

  // MARK: One-shot sessions

  /// Synchronizes this copy with a peer, and returns when everything requested is durable at its destination.
  ///
  /// - Parameters:
  ///   - peer: a member's name, the name of a peer or of a relay of this copy, or `host:port` of any member.
  ///   - direction: which way records move.
  ///   - progress: called about ten times a second, on the event loop: it must not block.
  /// - Throws: `.notAMember` if there is no such peer, or it presented another key; `.network` or `.timeout`
  ///   if it cannot be reached; `.unavailable` if it is busy, or lacks blobs; `.clockSkew`, `.notAllowed`,
  ///   `.digestsDiffer`, `.store` …
  public func synchronize(
    with peer: String, direction: SyncDirection = .both,
    progress: @escaping @Sendable (SessionProgress) -> Void = { _ in }
  ) async throws(ReplicationError) -> SessionReport {
    if let relay = try await relayClient(named: peer) {
      return try await synchronize(with: relay, direction: direction)
    }
    let begin = MonotonicClock.milliseconds()
    var (repairedKeys, repaired): (Int, [[UInt8]]) = (0, [])
    let plan = DialPlan(direction: direction.inSession, progress: progress)
    let end = try await runToEnd(with: peer, plan) { figures in
      repairedKeys += figures.repairedKeys
      repaired += figures.repaired
    }
    var report = try await report(end, direction: direction, since: begin)
    report.repairedKeys = repairedKeys
    report.repaired = repaired.prefix(WireLimits.repairNames).compactMap { try? Key(bytes: $0) }
    return report
  }

  /// What a dialled session does.
  struct DialPlan: Sendable {
    var direction: SessionDirection
    var mode = SessionMode.once
    /// Called about ten times a second, on the event loop.
    var progress: @Sendable (SessionProgress) -> Void = { _ in }
    /// Called on the event loop when a session starts.
    var begun: @Sendable (SessionDriver) -> Void = { _ in }
  }

  /// Runs sessions with a peer until one is done, while the other side requests to start again. `tried` gets
  /// the figures of each.
  func runToEnd(
    with peer: String, _ plan: DialPlan, tried: (SessionFigures) -> Void = { _ in }
  ) async throws(ReplicationError) -> DialEnd {
    let store = store
    let (target, endpoints) = try await context.workers.run { () throws(ReplicationError) in
      try Route.resolve(peer, in: store)
    }
    var backoff = Backoff(base: 50, cap: 2_000)
    while true {
      let end = try await dial(target, endpoints: endpoints, plan)
      tried(end.end.figures)
      switch end.end.outcome {
      case .done: return end
      case .failed(let code, let message):
        if end.end.wasRevoked {
          let context = context
          try await context.workers.run { () throws(ReplicationError) in context.recordRevocation() }
        }
        throw end.end.failure.map { ReplicationError($0) } ?? ReplicationError(code, message)
      case .reconnect(let why):
        context.log.emit(.notice, "\(end.peer): \(why)")
        let random = UInt64.random(in: 0 ... .max)
        let pause = backoff.failed(random: random)
        guard backoff.failures < Self.attempts else {
          throw ReplicationError(
            .unavailable, "\(end.peer) said to try again \(backoff.failures) times: \(why)")
        }
        try? await Task.sleep(for: .milliseconds(pause))
      }
    }
  }

  private func dial(
    _ target: DialTarget, endpoints: [Endpoint], _ plan: DialPlan
  ) async throws(ReplicationError) -> DialEnd {
    var failure = ReplicationError(
      .network, "\(target.name) has no address here: give host:port, or name it with `Membership.add`")
    for endpoint in endpoints {
      let core = core
      let result = await withCheckedContinuation { continuation in
        context.loop.execute {
          var last: UInt64 = 0
          core.value.dial(
            target, endpoint: endpoint, direction: plan.direction, mode: plan.mode, begun: plan.begun
          ) { figures in
            let now = MonotonicClock.milliseconds()
            guard now - last >= 100 else { return }
            last = now
            plan.progress(SessionProgress(figures))
          } completion: {
            continuation.resume(returning: $0)
          }
        }
      }
      switch result {
      case .success(let end):
        plan.progress(SessionProgress(end.end.figures))
        return end
      case .failure(let error): failure = error
      }
    }
    throw failure
  }

  private func report(
    _ dialled: DialEnd, direction: SyncDirection, since begin: UInt64
  ) async throws(ReplicationError) -> SessionReport {
    let (end, figures, store) = (dialled.end, dialled.end.figures, store)
    let context = context
    try await context.workers.run { () throws(ReplicationError) in
      if let contact = end.contact { try Contacts(store).record([(dialled.device, contact)]) }
      context.acknowledge()
    }
    let (position, digest): (UInt64, StateDigest)
    if let receipt = figures.receipt {
      (position, digest) = (receipt.received, receipt.state.digest)
    } else {
      (position, digest) = try await context.workers.run { () throws(ReplicationError) in
        try mappingStoreErrors { () throws(StoreError) in
          let (summary, digest, _) = try store.replicaSummary(digestAt: store.environment.now())
          return (summary.position, digest)
        }
      }
    }
    var report = SessionReport(
      peer: dialled.peer, sentRecords: figures.sentRecords, receivedRecords: figures.receivedRecords,
      sentBlobs: figures.sentBlobs, receivedBlobs: figures.receivedBlobs, sentBytes: end.sentBytes,
      receivedBytes: end.receivedBytes, roundTrips: figures.roundTrips,
      seconds: Double(MonotonicClock.milliseconds() - begin) / 1000, position: position, digest: digest)
    report.leavesBlobsOut = direction != .pull && end.peerLeavesOut
    return report
  }
}
