internal import SyncStore

/// State and services that all connections of a node share.
struct NodeContext: Sendable {
  let store: Store
  let identity: DeviceIdentity
  let serverTLS: TLSContext
  let clientTLS: TLSContext
  let loop: EventLoop
  let workers: WorkerPool
  let invitations: InvitationService
  let log: NodeLog
  /// Devices for which large values are being read through.
  let scans = HoldingsScans()
  /// Bytes held by all sessions of the node.
  let budget: LoopBound<FlowBudget>
  /// Bounds how often peers make this copy a new actor.
  let renewals = Locked(RenewalThrottle())
  /// Seconds without a received byte before a session sends a ping.
  let pingSeconds: Int
  /// Names of the devices among the members, for the log.
  let names = Locked<[DeviceID: String]>([:])

  /// Reads the keys of the store. `.cryptography` if there are none.
  init(
    store: Store, loop: EventLoop, workers: WorkerPool, pingSeconds: Int = Limits.pingSeconds,
    log: @escaping @Sendable (LogLevel, String) -> Void
  ) throws(ReplicationError) {
    let identity = try StoreKeys(store).identity()
    (self.store, self.identity, self.loop, self.workers) = (store, identity, loop, workers)
    serverTLS = try TLSContext(role: .server, identity: identity)
    clientTLS = try TLSContext(role: .client, identity: identity)
    invitations = InvitationService(store: store, identity: identity)
    budget = LoopBound(FlowBudget(), to: loop)
    self.log = NodeLog(log)
    self.pingSeconds = pingSeconds
  }

  /// Calls `Membership.recordOwnRight` with the right of the current member record. Blocks.
  func recordOwnRight() throws(ReplicationError) {
    let membership = Membership(store)
    guard let right = try membership.member(identity.id)?.right else { return }
    try membership.recordOwnRight(right)
  }

  /// Records that a member has told this copy of its revocation. Blocks.
  func recordRevocation() {
    do throws(StoreError) { try store.setWriteDenial(.revoked) } catch {
      guard error.code != .closed else { return }
      log.emit(.warning, "that this copy was revoked is not kept: \(error.message)")
    }
  }

  /// The peer of a session, admitted with this right.
  func remotePeer(_ device: DeviceID, right: MemberRight) -> RemotePeer {
    RemotePeer(device: device, right: right, scans: scans, renewals: renewals)
  }

  /// Publishes what this member has seen, if that lets others purge. A failure is retried at the next
  /// session. Blocks.
  func acknowledge() {
    do throws(ReplicationError) {
      try recordOwnRight()
      // Other copies reject a record of a copy that may not write.
      guard try Membership(store).member(identity.id)?.right == .readWrite else { return }
      try mappingStoreErrors { () throws(StoreError) in _ = try store.acknowledgeIfDue(as: identity.id) }
    } catch {
      // Closed after a last session.
      guard error.store?.code != .closed else { return }
      log.emit(.warning, "what this copy has seen is not said to the others: \(error.message)")
    }
  }

  /// Logs how a session that the peer dialled ended.
  func report(_ end: SessionDriver.End, of peer: String) {
    let figures = end.figures
    switch end.outcome {
    case .done:
      log.emit(
        .info,
        "\(peer): received \(CountText.of(figures.receivedRecords, noun: "record")) and \(CountText.of(figures.receivedBlobs, noun: "blob")), "
          + "sent \(figures.sentRecords) and \(figures.sentBlobs)")
    // The node itself has logged this, once.
    case .reconnect(let why) where why.contains(DuplicateIdentityDetector.conflictText):
      log.emit(.debug, "\(peer): \(why)")
    case .reconnect(let why): log.emit(.warning, "\(peer): \(why)")
    case .failed(let code, let why):
      log.emitRateLimited(code == .store ? .error : .warning, "\(peer): \(why)")
    }
  }
}

/// How a session that this node dialled ended.
struct DialEnd: Sendable {
  /// The peer's name.
  var peer: String
  /// Its key.
  var device: DeviceID
  /// The end.
  var end: SessionDriver.End
}
