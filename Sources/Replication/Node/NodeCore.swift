internal import SyncStore

/// Receives what the connections of a node report. Called on the loop's thread.
protocol NodeCoreDelegate: AnyObject {
  /// A session with the device has gone live, or has ended.
  func sessionsChanged(with device: DeviceID)
  /// Addresses or links have come back.
  func networkReturned()
  /// The device was found to be used twice.
  func identityConflict(of device: DeviceID, message: String)
  /// An unknown device was rejected: a member may have invited it since.
  func unknownDeviceRejected()
}

/// The connections of a node. Confined to its loop's thread.
///
/// Invariants:
/// - an incoming connection is in `incoming` from its arrival to its end, and in `admission` until its device
///   is authenticated, or its descriptor is closed;
/// - a device has at most one incoming session at a time. Another one is told to come back, so that one
///   identity on two machines never goes unnoticed (F62), unless the earlier one has been silent so long that
///   it is taken for dead, or is live: then the other one is served concurrently, and does not stay open;
/// - when two nodes dial each other at once, the connection that the smaller device dialled survives, on both
///   sides (F70).
final class NodeCore {
  /// Milliseconds of silence after which the next connection of a device replaces its last.
  static let supersedeMilliseconds: UInt64 = 5_000
  /// Milliseconds to answer a ping before a session is given up for another connection of its device.
  static let answerMilliseconds: UInt64 = 5_000

  struct Outgoing {
    var link: PeerLink?
    var device: DeviceID?
    var driver: SessionDriver?
    var mode = SessionMode.once
    /// Called when the session's figures have changed.
    var onProgress: (SessionFigures) -> Void = { _ in }
    /// Called with each part of a comparison.
    var onDifferences: ([KeyDifference]) -> Void = { _ in }
  }

  struct Incoming {
    var connection: TCPConnection
    var link: PeerLink?
    var device: DeviceID?
    var driver: SessionDriver?
  }

  /// The callbacks of one dialled session.
  private struct DialHandlers {
    /// Called when the session starts.
    let begun: (SessionDriver) -> Void
    /// Called when the session's figures have changed.
    let progress: (SessionFigures) -> Void
    /// Called once: how the session ended, or why there was none.
    let completion: (Result<DialEnd, ReplicationError>) -> Void
  }

  /// Incoming connections without a session. Confined to the loop's thread.
  private struct Unauthenticated {
    var admission = Admission()
    /// Connections that only send what is left.
    let finishing = FinishingConnections()
    private var timer: UInt64?

    /// Calls `tick` later, if a connection waits for a place. It must call `ticked` first.
    mutating func scheduleTick(on loop: EventLoop, _ tick: @escaping () -> Void) {
      guard timer == nil, admission.waitingCount > 0 else { return }
      timer = loop.schedule(after: TransportLimits.admissionTickMilliseconds, tick)
    }

    mutating func ticked() { timer = nil }
  }

  let context: NodeContext
  var loop: EventLoop { context.loop }
  weak var delegate: (any NodeCoreDelegate)?
  private var listener: TCPListener?
  private var unauthenticated = Unauthenticated()
  var admission: Admission { unauthenticated.admission }
  private(set) var incoming: [UInt64: Incoming] = [:]
  private var lastNumber: UInt64 = 0
  private(set) var outgoing: [UInt64: Outgoing] = [:]
  private(set) var isStopping = false
  let watch: JournalWatch
  var rights = RightsReview()
  /// Fetches blobs that readers wait for, and asks members which they hold.
  private(set) lazy var blobFetches = BlobFetchCoordinator(self)
  var duplicateIdentities = DuplicateIdentityDetector()
  private var network: NetworkWatch?
  var contactTimer: UInt64?
  /// Sessions that have ended, and what they moved.
  var counters = NodeCounters()

  /// No connections yet.
  init(_ context: NodeContext) {
    self.context = context
    watch = JournalWatch(context)
    watch.onGrowth = { [weak self] in self?.reviewRights() }
  }

  // MARK: Listening

  /// Listens on the first usable one of the addresses, and returns it.
  func listen(_ addresses: [SocketAddress]) throws(ReplicationError) -> SocketAddress {
    watchNetwork()
    guard listener == nil else {
      throw ReplicationError(.unavailable, "cannot listen: this node listens already: stop it first")
    }
    var failure = ReplicationError(.network, "cannot listen: the address was not found: give host:port")
    for address in addresses {
      do throws(ReplicationError) {
        let log = context.log
        let listener = try TCPListener(at: address, loop: loop, log: { log.emitRateLimited($0, $1) }) {
          [weak self] socket, remote in
          self?.arrived(socket, from: remote)
        }
        self.listener = listener
        return listener.address
      } catch {
        failure = error
      }
    }
    throw failure
  }

  /// Starts watching addresses and links, unless it does already.
  func watchNetwork() {
    guard network == nil, !isStopping else { return }
    network = NetworkWatch(loop) { [weak self] in self?.networkChanged($0) }
  }

  private func arrived(_ socket: consuming Socket, from remote: SocketAddress) {
    lastNumber += 1
    let number = lastNumber
    let connection = TCPConnection(socket, remote: remote, loop: loop)
    let isWatched = connection.waitForFirstBytes { [weak self] in
      guard let self else { return }
      act(unauthenticated.admission.spoke(number, at: MonotonicClock.milliseconds()))
    }
    guard isWatched else { return }
    incoming[number] = Incoming(connection: connection)
    act(unauthenticated.admission.arrived(number, from: remote.network, at: MonotonicClock.milliseconds()))
  }

  private func act(_ actions: [Admission.Action]) {
    for action in actions {
      switch action {
      case .start(let number): handshake(number)
      case .drop(let number):
        unauthenticated.finishing.close(number)
        guard let dropped = incoming.removeValue(forKey: number) else { continue }
        context.log.emitRateLimited(
          .warning,
          "dropped \(dropped.connection.remote): it did not prove who it is in time, or too many wait to")
        dropped.link?.close()
        dropped.connection.close()
      }
    }
    unauthenticated.scheduleTick(on: loop) { [weak self] in
      guard let self else { return }
      unauthenticated.ticked()
      act(unauthenticated.admission.tick(at: MonotonicClock.milliseconds()))
    }
  }

  private func leaveAdmission(_ number: UInt64) {
    act(unauthenticated.admission.left(number, at: MonotonicClock.milliseconds()))
  }

  private func handshake(_ number: UInt64) {
    guard let connection = incoming[number]?.connection else { return }
    let gate = PeerAuthorizer(store: context.store)
    do throws(ReplicationError) {
      let engine = try HandshakeEngine(
        context.serverTLS, protocols: [WireLimits.sessionProtocol, WireLimits.joinProtocol],
        accept: { gate.authorizes($0, applicationProtocol: $1) })
      let link = PeerLink(connection, engine: engine, worker: WorkerPool.handshakes.queue(), loop: loop)
      incoming[number]?.link = link
      link.onEnd = { [weak self, context] error in
        if let error { context.log.emitRateLimited(.warning, "\(connection.remote): \(error.message)") }
        self?.ended(number)
        if gate.rejectedUnknownDevice { self?.delegate?.unknownDeviceRejected() }
      }
      link.onEstablished = { [weak self] in self?.established(number, with: $0, gate: gate) }
      link.start()
    } catch {
      context.log.emit(.error, error.message)
      connection.close()
      ended(number)
    }
  }

  private func ended(_ number: UInt64) {
    let gone = incoming.removeValue(forKey: number)
    watch.cancel(number)
    if let connection = gone?.connection {
      unauthenticated.finishing.add(number, connection: connection) { [weak self] in
        self?.leaveAdmission(number)
      }
      act(unauthenticated.admission.finishes(number, at: MonotonicClock.milliseconds()))
    } else {
      leaveAdmission(number)
    }
    if let device = gone?.device { delegate?.sessionsChanged(with: device) }
  }

  private func established(_ number: UInt64, with other: PeerLink.Established, gate: PeerAuthorizer) {
    guard let link = incoming[number]?.link else { return }
    if other.applicationProtocol == WireLimits.joinProtocol {
      // A joiner has proven nothing yet: it keeps its admission slot until it has.
      pair(number, link: link, joiner: other.device)
    } else {
      // A device whose key could not be looked up has proven nothing either.
      if gate.failure == nil { leaveAdmission(number) }
      serve(number, link: link, device: other.device, gate: gate)
    }
  }

  // MARK: Inbound sessions

  private func serve(_ number: UInt64, link: PeerLink, device: DeviceID, gate: PeerAuthorizer) {
    if let failure = gate.failure {
      context.log.emitRateLimited(.error, "cannot look up who comes from \(link.remote): \(failure.message)")
      return refuse(number, link: link, reason: "this copy cannot read its store at the moment")
    }
    if let name = gate.revokedMember {
      context.log.emitRateLimited(.notice, "\(name), which was revoked, came from \(link.remote): told so")
      return refuse(
        number, link: link, reason: "this copy was revoked: join again with a new one", code: .notAMember)
    }
    guard let member = gate.member, let right = member.right.inSession else {
      link.close()
      return ended(number)
    }
    if isStopping { return refuse(number, link: link, reason: "this node shuts down") }
    // A live session stays: other programs of the same device push and pull concurrently with it.
    let rivals = incoming.values.filter { $0.device == device && $0.driver != nil }
    if let rival = rivals.first(where: { $0.driver?.isLive == false }) {
      let silence = MonotonicClock.milliseconds() - (rival.driver?.lastMoved ?? 0)
      guard silence > Self.supersedeMilliseconds else {
        context.log.emitRateLimited(
          .warning, "\(member.name) came from \(link.remote) while it is connected already: told to wait")
        recordDisplacement(
          device, by: DuplicateIdentityDetector.Origin(host: link.remote.host), from: rival.driver)
        rival.driver?.probe(within: Int(Self.answerMilliseconds))
        return refuse(
          number, link: link,
          reason: "\(member.name) is connected already: if it is not, its key is used twice")
      }
      context.log.emitRateLimited(
        .warning, "\(member.name) came again from \(link.remote): its silent connection was given up")
      rival.driver?.abandon()
    }
    // One that answers is as good as the new one; one that does not gives way to the next.
    for rival in rivals { rival.driver?.probe(within: Int(Self.answerMilliseconds)) }
    // A session that moves no records cannot replace the one that the device has dialled.
    if context.identity.id < device,
      outgoing.values.contains(where: {
        $0.device == device && $0.mode.movesRecords && $0.driver?.isLive == false
      })
    {
      return refuse(number, link: link, reason: "both sides dialled at once: the other connection goes on")
    }
    let driver = SessionDriver(
      role: .server, peerName: member.name, remotePeer: context.remotePeer(device, right: right),
      mode: grantsLive(to: device) ? .live : .once, link: link, context: context
    ) { [weak self, context] end in
      context.report(end, of: member.name)
      self?.counters.ended(end, with: device, wasDialled: false, at: context.store.environment.now())
      self?.recordRivalSessions(of: number, device)
      if end.wasRevoked { context.workers.later { context.recordRevocation() } }
      if case .done = end.outcome { context.workers.later { context.acknowledge() } }
      self?.recordContact(device, driver: self?.incoming[number]?.driver)
      self?.ended(number)
    }
    incoming[number]?.device = device
    incoming[number]?.driver = driver
    attach(driver, number: number)
    context.names.withLock { $0[device] = member.name }
    context.log.emit(.debug, "\(member.name) connected from \(link.remote)")
    driver.start()
  }

  private func refuse(_ number: UInt64, link: PeerLink, reason why: String, code: Refusal.Code = .tryAgain) {
    link.send(Message.refuse(Refusal(code, why)).frame.bytes)
    link.finish()
    ended(number)
  }

  private func pair(_ number: UInt64, link: PeerLink, joiner: DeviceID) {
    do throws(ReplicationError) {
      let proof = PairingProof(exporter: try link.exporter(), inviter: context.identity.id, joiner: joiner)
      let remote = link.remote
      let driver = InviterDriver(
        proof: proof, link: link, invitations: context.invitations, worker: WorkerPool.handshakes.queue(),
        loop: loop
      ) { [weak self, context] outcome in
        switch outcome {
        case .done: context.log.emit(.notice, "a new member joined from \(remote)")
        case .failed(_, let why): context.log.emitRateLimited(.warning, "\(remote) tried to join: \(why)")
        }
        self?.ended(number)
      }
      driver.start()
    } catch {
      context.log.emitRateLimited(.warning, "\(link.remote): \(error.message)")
      link.close()
      ended(number)
    }
  }

  // MARK: Outbound sessions

  /// Connects to a peer, authenticates it, and runs one session. Calls `completion` once.
  func dial(
    _ target: DialTarget, endpoint: Endpoint, direction: SessionDirection, mode: SessionMode = .once,
    begun: @escaping (SessionDriver) -> Void = { _ in }, progress: @escaping (SessionFigures) -> Void,
    completion: @escaping (Result<DialEnd, ReplicationError>) -> Void
  ) {
    guard !isStopping else {
      return completion(.failure(ReplicationError(.unavailable, "this node shuts down: start it again")))
    }
    lastNumber += 1
    let number = lastNumber
    outgoing[number] = Outgoing()
    let finish: (Result<DialEnd, ReplicationError>) -> Void = { [weak self, context] result in
      switch result {
      case .success(let end):
        self?.counters.ended(
          end.end, with: end.device, wasDialled: true, at: context.store.environment.now())
      case .failure(let error): self?.counters.count(.failed(error.code), wasDialled: true)
      }
      let device = self?.outgoing.removeValue(forKey: number)?.device
      self?.watch.cancel(number)
      completion(result)
      if let device { self?.delegate?.sessionsChanged(with: device) }
    }
    TCPConnector.connect(to: endpoint, loop: loop) { [self] result in
      switch result {
      case .failure(let error): finish(.failure(error))
      case .success(let connection):
        do throws(ReplicationError) {
          try runSession(
            number, target: target, over: connection, direction: direction, mode: mode,
            handlers: DialHandlers(begun: begun, progress: progress, completion: finish))
        } catch {
          connection.close()
          finish(.failure(error))
        }
      }
    }
  }

  /// Calls `body` with each part of the comparison that the dialled session makes.
  func observeDifferences(of driver: SessionDriver, _ body: @escaping ([KeyDifference]) -> Void) {
    outgoing[driver.number]?.onDifferences = body
  }

  private func runSession(
    _ number: UInt64, target: DialTarget, over connection: TCPConnection, direction: SessionDirection,
    mode: SessionMode, handlers: DialHandlers
  ) throws(ReplicationError) {
    let gate = PeerAuthorizer(store: context.store, target: target)
    let engine = try HandshakeEngine(
      context.clientTLS, protocols: [WireLimits.sessionProtocol],
      accept: { gate.authorizes($0, applicationProtocol: $1) })
    let link = PeerLink(connection, engine: engine, worker: WorkerPool.handshakes.queue(), loop: loop)
    link.onEnd = { error in
      handlers.completion(
        .failure(
          gate.failure ?? error
            ?? ReplicationError(.network, "\(connection.remote) closed the connection: look into its log")
        ))
    }
    link.onEstablished = { [weak self, context] other in
      guard let self, let member = gate.member, let right = member.right.inSession else {
        link.close()
        return handlers.completion(
          .failure(
            ReplicationError(.notAMember, "\(connection.remote) is not a member here: \(TLSEngine.cure)")))
      }
      let driver = SessionDriver(
        role: .client(direction), peerName: member.name,
        remotePeer: context.remotePeer(other.device, right: right), mode: mode, link: link, context: context
      ) { end in
        handlers.completion(.success(DialEnd(peer: member.name, device: other.device, end: end)))
      }
      outgoing[number] = Outgoing(
        link: link, device: other.device, driver: driver, mode: mode, onProgress: handlers.progress)
      attach(driver, number: number)
      driver.start()
      handlers.begun(driver)
    }
    outgoing[number]?.link = link
    link.start()
  }

  // MARK: Shutdown

  /// Accepts no more connections, gives sessions `drain` milliseconds to end, then ends them. Calls
  /// `completion` when none is left.
  func stop(drain: Int, completion: @escaping () -> Void) {
    isStopping = true
    network?.stop()
    network = nil
    blobFetches.stop()
    listener?.close()
    listener = nil
    for (number, connection) in incoming where connection.driver == nil {
      connection.link?.close()
      connection.connection.close()
      ended(number)
    }
    waitForEnd(rest: drain, completion)
  }

  private func waitForEnd(rest: Int, _ completion: @escaping () -> Void) {
    // Live ones never end by themselves.
    for driver in drivers where driver.isAtRest { driver.stop() }
    guard !drivers.isEmpty else { return completion() }
    if rest <= 0 {
      for driver in drivers { driver.stop() }
      return completion()
    }
    let step = 20
    _ = loop.schedule(after: step) { [self] in waitForEnd(rest: rest - step, completion) }
  }
}
