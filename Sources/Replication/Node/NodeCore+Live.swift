internal import SyncStore

/// The review of members' rights while sessions catch up. Confined to the loop's thread.
struct RightsReview {
  /// Checks whether the journal has grown past `reviewedPosition`.
  var timer: UInt64?
  /// The journal position at the last review. Nil once a session has begun: its right was read earlier, and
  /// may have changed since.
  var reviewedPosition: UInt64?
}

/// Live sessions: which of two survives, what they follow, and when they must end.
extension NodeCore {
  /// The sessions that this node dialled or accepted.
  var drivers: [SessionDriver] { incoming.values.compactMap(\.driver) + outgoing.values.compactMap(\.driver) }

  /// Whether a live session with the device exists.
  func isLive(with device: DeviceID) -> Bool {
    incoming.values.contains { $0.device == device && $0.driver?.isLive == true }
      || outgoing.values.contains { $0.device == device && $0.driver?.isLive == true }
  }

  /// The surviving live session with the device; nil if there is none.
  func liveDriver(of device: DeviceID) -> SessionDriver? {
    outgoing.values.first { $0.device == device && $0.driver?.isLive == true }?.driver
      ?? incoming.values.first { $0.device == device && $0.driver?.isLive == true }?.driver
  }

  /// The devices with a live session, sorted.
  var connectedDevices: [DeviceID] {
    let sessions =
      outgoing.values.map { ($0.device, $0.driver) } + incoming.values.map { ($0.device, $0.driver) }
    return Set(sessions.compactMap { $1?.isLive == true ? $0 : nil }).sorted()
  }

  /// Whether a session that the device has dialled may stay open. Each pair keeps one (F70): if both have
  /// dialled, that of the smaller device. A silent one is taken for dead.
  func grantsLive(to device: DeviceID) -> Bool {
    guard !isStopping else { return false }
    let now = MonotonicClock.milliseconds()
    let isHeld = incoming.values.contains {
      guard $0.device == device, let driver = $0.driver, driver.isLive else { return false }
      return now - driver.lastHeard <= Self.supersedeMilliseconds
    }
    if isHeld { return false }
    let isDialled = outgoing.values.contains { $0.device == device && $0.mode == .live && $0.driver != nil }
    return !isDialled || device < context.identity.id
  }

  /// Begins to supervise a session that is about to start.
  func attach(_ driver: SessionDriver, number: UInt64) {
    driver.report(to: self, as: number)
    rights.reviewedPosition = nil
    superviseRights()
  }

  func wentLive(_ driver: SessionDriver) {
    let (number, device) = (driver.number, driver.remotePeer.device)
    // Of two live sessions only the newer one is known to be alive.
    let older =
      (incoming.filter { $0.key != number && $0.value.device == device }.compactMap(\.value.driver)
      + outgoing.filter { $0.key != number && $0.value.device == device }.compactMap(\.value.driver))
      .filter(\.isLive)
    if incoming[number] != nil {
      for other in older { recordDisplacement(device, by: Self.origin(of: driver), from: other) }
    }
    for other in older { displace(other, device: device, by: driver) }
    if incoming[number] != nil { context.log.emit(.info, "\(Self.name(of: device, self)) stays connected") }
    review(driver, of: device)
    superviseContacts()
    delegate?.sessionsChanged(with: device)
  }

  private static func name(of device: DeviceID, _ core: NodeCore) -> String {
    core.context.names.withLock { $0[device] } ?? "\(device)"
  }

  /// Ends the sessions of members whose right has changed (F81): other processes and other copies change
  /// members.
  func reviewRights() {
    guard !drivers.isEmpty, !isStopping else { return }
    rights.reviewedPosition = context.store.journalPosition
    let (context, loop, this) = (context, loop, LoopBound(self, to: loop))
    // Not on the session workers: the work queued there may be that of the revoked member.
    WorkerPool.handshakes.later {
      guard let members = try? Membership(context.store).members() else { return }
      let rights = Dictionary(uniqueKeysWithValues: members.map { ($0.device, $0.right) })
      let names = Dictionary(uniqueKeysWithValues: members.map { ($0.device, $0.name) })
      context.names.withLock { $0 = names }
      let epoch = (try? StoreKeys(context.store).groupKeys())?.current
      loop.execute { this.value.apply(rights, epoch: epoch) }
    }
  }

  private static let rightsMilliseconds = 1000

  /// Reviews rights when the journal has grown, while a session is catching up. Live sessions follow the
  /// journal anyway; one that catches up, or pretends to, for as long as its peer likes, does not.
  private func superviseRights() {
    guard rights.timer == nil, isAnyCatchingUp else { return }
    rights.timer = loop.schedule(after: Self.rightsMilliseconds) { [weak self] in
      guard let self else { return }
      rights.timer = nil
      // Without sessions the store may be closed by now.
      guard isAnyCatchingUp else { return }
      if context.store.journalPosition != rights.reviewedPosition { reviewRights() }
      superviseRights()
    }
  }

  private var isAnyCatchingUp: Bool { !isStopping && drivers.contains { !$0.isLive } }

  private static let newEpoch = "a new epoch of the group key has begun: connect again"

  /// Whether a live session encrypts under the key of an earlier epoch.
  private func isOlder(_ driver: SessionDriver, than epoch: UInt32?) -> Bool {
    guard let epoch, driver.isLive, let own = driver.epoch else { return false }
    return own < epoch
  }

  /// Ends a session that has gone live with the right, or the key epoch, from before a change that arrived
  /// while it was catching up.
  private func review(_ driver: SessionDriver, of device: DeviceID) {
    let (context, loop, this) = (context, loop, LoopBound((self, driver), to: loop))
    WorkerPool.handshakes.later {
      let right = try? Membership(context.store).member(device)?.right
      let epoch = (try? StoreKeys(context.store).groupKeys())?.current
      loop.execute {
        let (core, driver) = this.value
        if core.isOlder(driver, than: epoch) { driver.refuse(.tryAgain, reason: Self.newEpoch) }
        if let right { core.apply(right, to: driver) }
      }
    }
  }

  private func apply(_ right: Member.Right, to driver: SessionDriver) {
    guard !driver.isOver, right.inSession != driver.peerRight else { return }
    if right == .revoked {
      context.log.emit(.notice, "\(driver.peerName) was revoked: its session ends")
      driver.refuse(.notAMember, reason: "this copy was revoked: join again with a new one")
    } else {
      context.log.emit(.notice, "\(driver.peerName) is \(right) from now on: its session begins anew")
      driver.refuse(.unavailable, reason: "this copy is \(right) from now on: connect again")
    }
  }

  private func apply(_ rights: [DeviceID: Member.Right], epoch: UInt32?) {
    let older = drivers.filter { isOlder($0, than: epoch) }
    if !older.isEmpty {
      // New sessions encrypt under the new key; a peer that lacks it receives it with the next hello.
      context.log.emit(.notice, "a new epoch of the group key has begun: live sessions begin anew")
      for driver in older { driver.refuse(.tryAgain, reason: Self.newEpoch) }
    }
    for (device, driver) in incoming.values.map({ ($0.device, $0.driver) })
      + outgoing.values.map({ ($0.device, $0.driver) })
    {
      guard let device, let driver, let right = rights[device] else { continue }
      apply(right, to: driver)
    }
  }
}
