internal import SyncStore

/// Does what the inviter's side of a pairing asks for. Belongs to its loop's thread.
final class InviterDriver {
  private var inviter: Inviter
  private let link: PeerLink
  private let desk: InvitationDesk
  private let loop: EventLoop
  private let worker: WorkerQueue
  private let onEnd: (PairingOutcome) -> Void
  private var timer: UInt64?

  /// A pairing over a link whose handshake is done.
  init(
    proof: PairingProof, link: PeerLink, desk: InvitationDesk, worker: WorkerQueue, loop: EventLoop,
    onEnd: @escaping (PairingOutcome) -> Void
  ) {
    inviter = Inviter(proof: proof)
    (self.link, self.desk, self.worker, self.loop, self.onEnd) = (link, desk, worker, loop, onEnd)
  }

  /// Begins. The link keeps the driver alive until it has ended.
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
    let (desk, loop) = (desk, loop)
    worker.async {
      let event = desk.answer(action)
      loop.execute { this.value.handle(event) }
    }
  }
}

/// Where invitations are redeemed: looks them up, and makes members. One for each node; all of it blocks.
final class InvitationDesk: Sendable {
  private let store: Store
  private let identity: DeviceIdentity
  private let throttle = LockedField(JoinThrottle())
  // Two who join at once must not be given the same name.
  private let membership: LockedField<Membership>

  /// The desk of a node.
  init(store: Store, identity: DeviceIdentity) {
    (self.store, self.identity) = (store, identity)
    membership = LockedField(Membership(store))
  }

  /// Does what the action asks for, and gives the answer.
  func answer(_ action: PairingAction) -> PairingEvent {
    do throws(ReplicationError) {
      switch action {
      case .lookUp(let id):
        guard throttle.withLock({ $0.admit(at: MonotonicClock.milliseconds()) }) else { return .throttled }
        return .found(try InvitationBook(store: store).find(id), at: store.environment.now())
      case .redeem(let invitation, let joiner, let name):
        return try redeem(invitation, by: joiner, called: name)
      case .send, .setTimer, .joined, .close: return .failed(.protocolViolation, "not for the store")
      }
    } catch {
      return .failed(error.code, error.message)
    }
  }

  private func redeem(
    _ invitation: StandingInvitation, by joiner: DeviceID, called wish: String
  ) throws(ReplicationError) -> PairingEvent {
    guard try InvitationBook(store: store).redeem(invitation, by: joiner) else { return .alreadyRedeemed }
    let ring = try StoreKeys(store).groupKeys()
    let (inviter, name) = try membership.withLock { membership throws(ReplicationError) in
      let plain = StoreIdentity.isName(wish) ? wish : "device"
      let name = try membership.freeName(plain, for: joiner)
      try membership.put(
        Member(
          device: joiner, name: name, right: Member.Right(invitation.right), addresses: [],
          joined: store.environment.now()))
      return (try membership.member(identity.id)?.name ?? store.name, name)
    }
    return .redeemed(
      JoinAccept(
        mac: [], store: store.id, storeName: store.name, inviterName: inviter, memberName: name,
        right: invitation.right, groupKeys: Array(ring.text.utf8)))
  }
}
