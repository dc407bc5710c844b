internal import SyncStore

/// Performs the actions of the inviter's side of a pairing. Confined to its loop's thread.
final class InviterDriver {
  private var inviter: Inviter
  private let link: PeerLink
  private let invitations: InvitationService
  private let loop: EventLoop
  private let worker: WorkerQueue
  private let onEnd: (PairingOutcome) -> Void
  private var timer: UInt64?

  /// A pairing over a link whose handshake is done.
  init(
    proof: PairingProof, link: PeerLink, invitations: InvitationService, worker: WorkerQueue, loop: EventLoop,
    onEnd: @escaping (PairingOutcome) -> Void
  ) {
    inviter = Inviter(proof: proof)
    (self.link, self.invitations, self.worker, self.loop, self.onEnd) = (
      link, invitations, worker, loop, onEnd
    )
  }

  /// Starts. The link keeps the driver alive until it has ended.
  func start() {
    link.onPlaintext = { [self] in handle(.received($0)) }
    link.onEnd = { [self] _ in handle(.disconnected) }
    perform(inviter.start())
  }

  private func handle(_ event: PairingEvent) { perform(inviter.handle(event)) }

  private func perform(_ actions: [PairingAction]) {
    for action in actions {
      switch action {
      case .send(let bytes): link.send(bytes)
      case .setTimer(let seconds):
        timer = loop.schedule(after: seconds * 1000) { [weak self] in self?.handle(.timer) }
      case .lookUp, .redeem: work(action)
      case .countWrongProof(let id): invitations.count(wrongProofFor: id, from: link.remote.network)
      case .joined: break
      case .close(let outcome):
        if let timer { loop.cancel(timer) }
        link.finish()
        onEnd(outcome)
      }
    }
  }

  private func work(_ action: PairingAction) {
    let this = LoopBound(self, to: loop)
    let (desk, loop, network) = (invitations, loop, link.remote.network)
    worker.async {
      let event = desk.answer(action, from: network)
      loop.execute { this.value.handle(event) }
    }
  }
}

/// Redeems invitations: looks them up, and makes members. One per node; all calls block.
final class InvitationService: Sendable {
  private let store: Store
  private let identity: DeviceIdentity
  private let throttle = LockedField(JoinThrottle())

  /// The invitation service of a node.
  init(store: Store, identity: DeviceIdentity) { (self.store, self.identity) = (store, identity) }

  /// Performs the action for a peer in this network, and returns the answer.
  func answer(_ action: PairingAction, from network: String) -> PairingEvent {
    do throws(ReplicationError) {
      switch action {
      case .lookUp(let id):
        let found = try InvitationStore(store: store).lookUp(id)
        let now = MonotonicClock.milliseconds()
        if found != nil, !throttle.withLock({ $0.admits(id, from: network, at: now) }) { return .throttled }
        return .found(found, at: store.environment.now())
      case .redeem(let invitation, let joiner, let name):
        return try InvitationStore(store: store).accept(invitation, by: joiner, called: name, as: identity.id)
          .map { .redeemed($0) } ?? .alreadyRedeemed
      case .send, .setTimer, .countWrongProof, .joined, .close:
        return .failed(.protocolViolation, "not for the store")
      }
    } catch {
      return .failed(error.code, error.message, because: error.store?.code)
    }
  }

  /// Counts a wrong proof from this network.
  func count(wrongProofFor id: [UInt8], from network: String) {
    let now = MonotonicClock.milliseconds()
    throttle.withLock { $0.failed(id, from: network, at: now) }
  }
}
