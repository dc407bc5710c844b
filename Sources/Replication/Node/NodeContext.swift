internal import SyncStore

/// What all connections of a node share.
struct NodeContext: Sendable {
  let store: Store
  let identity: DeviceIdentity
  let serverTLS: TLSContext
  let clientTLS: TLSContext
  let loop: EventLoop
  let workers: WorkerPool
  let invitations: InvitationService
  let log: NodeLog
  /// For whom large values are being read through.
  let scans = HoldingsScans()
  /// How often peers have made this copy a new actor.
  let renewals = Locked(RenewalThrottle())
  /// Seconds without a byte before a session sends a ping.
  let pingSeconds: Int
  /// What devices are called among the members, for the log.
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
    self.log = NodeLog(log)
    self.pingSeconds = pingSeconds
  }

  /// As `Membership.recordOwnRight`, of what the record says now. Blocks.
  func recordOwnRight() throws(ReplicationError) {
    let membership = Membership(store)
    guard let right = try membership.member(identity.id)?.right else { return }
    try membership.recordOwnRight(right)
  }

  /// A member has said that this copy was revoked. Blocks.
  func recordRevocation() {
    do throws(StoreError) { try store.setWriteDenial(.revoked) } catch {
      guard error.code != .closed else { return }
      log.emit(.warning, "that this copy was revoked is not kept: \(error.message)")
    }
  }

  /// Who a session is with, let in with this right.
  func remotePeer(_ device: DeviceID, right: MemberRight) -> RemotePeer {
    RemotePeer(device: device, right: right, scans: scans, renewals: renewals)
  }

  /// Says what this member has seen, if that lets others purge. What fails is tried again at the next session. Blocks.
  func acknowledge() {
    do throws(ReplicationError) {
      try recordOwnRight()
      // Nobody would take it from one who may not write.
      guard try Membership(store).member(identity.id)?.right == .readWrite else { return }
      try mappingStoreErrors { () throws(StoreError) in _ = try store.acknowledgeIfDue(as: identity.id) }
    } catch {
      // Closed behind a last session.
      guard error.store?.code != .closed else { return }
      log.emit(.warning, "what this copy has seen is not said to the others: \(error.message)")
    }
  }

  /// Writes to the log how a session that the peer dialled ended.
  func report(_ end: SessionDriver.End, of peer: String) {
    let figures = end.figures
    switch end.outcome {
    case .done:
      log.emit(
        .info,
        "\(peer): received \(CountText.of(figures.receivedRecords, noun: "record")) and \(CountText.of(figures.receivedBlobs, noun: "blob")), "
          + "sent \(figures.sentRecords) and \(figures.sentBlobs)")
    // The node has said so itself, once.
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
