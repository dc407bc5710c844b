internal import SyncStore

/// Sessions that stay open: which of two goes on, what they follow, and when they must end.
extension NodeCore {
  /// Sessions of this node, of both kinds.
  var drivers: [SessionDriver] { incoming.values.compactMap(\.driver) + outgoing.values.compactMap(\.driver) }

  /// Is there a live session with the device?
  func isLive(with device: DeviceID) -> Bool {
    incoming.values.contains { $0.device == device && $0.driver?.isLive == true }
      || outgoing.values.contains { $0.device == device && $0.driver?.isLive == true }
  }

  /// The session that goes on live with the device; nil if none does.
  func liveDriver(of device: DeviceID) -> SessionDriver? {
    outgoing.values.first { $0.device == device && $0.driver?.isLive == true }?.driver
      ?? incoming.values.first { $0.device == device && $0.driver?.isLive == true }?.driver
  }

  /// The devices with which a session is live, in their order.
  var connectedDevices: [DeviceID] {
    let sessions =
      outgoing.values.map { ($0.device, $0.driver) } + incoming.values.map { ($0.device, $0.driver) }
    return Set(sessions.compactMap { $1?.isLive == true ? $0 : nil }).sorted()
  }

  /// May a session that the device has dialled stay open? There is one for each pair (F70): that of the smaller device if
  /// both have dialled. A silent one is taken for dead.
  func grantsLive(to device: DeviceID) -> Bool {
    guard !isStopping else { return false }
    let now = MonotonicClock.milliseconds()
    let isHeld = incoming.values.contains {
      guard $0.device == device, let driver = $0.driver, driver.isLive else { return false }
      return now - driver.lastHeard <= Self.supersedeMilliseconds
    }
    if isHeld { return false }
    let isDialled = outgoing.values.contains { $0.device == device && $0.staysOpen && $0.driver != nil }
    return !isDialled || device < context.identity.id
  }

  /// Sets up what a session needs beside its link.
  func attach(_ driver: SessionDriver, number: UInt64, device: DeviceID) {
    driver.onFollowJournal = { [weak self, weak driver] position in
      self?.watch.notify(number, after: position) { driver?.journalGrew() }
    }
    driver.onLive = { [weak self] in self?.wentLive(number, device: device) }
    reviewedPosition = nil
    superviseRights()
    blobFetches.attach(driver, device: device)
    driver.onRepaired = { [context, name = driver.peerName] in
      context.log.emit(.warning, Self.repaired($0, keys: $1, peer: name))
    }
    driver.onClosed = { [weak self, weak driver] in
      guard let self else { return }
      for other in drivers where other !== driver && other.isLive { other.journalGrew() }
    }
  }

  private func wentLive(_ number: UInt64, device: DeviceID) {
    // Of two that are live only the newer one is known to be alive.
    let older =
      (incoming.filter { $0.key != number && $0.value.device == device }.compactMap(\.value.driver)
      + outgoing.filter { $0.key != number && $0.value.device == device }.compactMap(\.value.driver))
      .filter(\.isLive)
    let driver = incoming[number]?.driver ?? outgoing[number]?.driver
    if let driver, incoming[number] != nil {
      for other in older { recordDisplacement(device, by: Self.origin(of: driver), from: other) }
    }
    for other in older { displace(other, device: device, by: driver) }
    if incoming[number] != nil { context.log.emit(.info, "\(Self.name(of: device, self)) stays connected") }
    if let driver { review(driver, of: device) }
    superviseContacts()
    onChange(device)
  }

  /// What the log says of keys that had two contents (F61).
  private static func repaired(_ count: Int, keys: ArraySlice<[UInt8]>, peer: String) -> String {
    let names = keys.prefix(20).map { "\"\(String(decoding: $0, as: UTF8.self).printable)\"" }
    let more = count > names.count ? " and \(count - names.count) more" : ""
    return "\(peer): \(count == 1 ? "a key" : "\(count) keys") had two contents under one write"
      + " (\(names.joined(separator: ", "))\(more)): a machine was cloned or put back unnoticed: both values are kept,"
      + " the greater ones were issued again: look at the conflicts"
  }

  private static func name(of device: DeviceID, _ core: NodeCore) -> String {
    core.context.names.withLock { $0[device] } ?? "\(device)"
  }

  /// Ends the sessions of those whose right has changed (F81): members are changed by other processes and other copies.
  func reviewRights() {
    guard !drivers.isEmpty, !isStopping else { return }
    reviewedPosition = context.store.journalPosition
    let (context, loop, this) = (context, loop, LoopBound(self, to: loop))
    // Not queued after the work of sessions: one of them may be that of the revoked member.
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

  /// Rights are reviewed when the journal has grown. Sessions that are live follow it; one that catches up, or pretends
  /// to, for as long as its peer likes, does not.
  private func superviseRights() {
    guard rightsTimer == nil, isAnyCatchingUp else { return }
    rightsTimer = loop.schedule(after: Self.rightsMilliseconds) { [weak self] in
      guard let self else { return }
      rightsTimer = nil
      // Without sessions the store may be closed by now.
      guard isAnyCatchingUp else { return }
      if context.store.journalPosition != reviewedPosition { reviewRights() }
      superviseRights()
    }
  }

  private var isAnyCatchingUp: Bool { !isStopping && drivers.contains { !$0.isLive } }

  private static let newEpoch = "a new epoch of the group key has begun: connect again"

  /// Is it live, and seals under the key of an epoch before this one?
  private func isOlder(_ driver: SessionDriver, than epoch: UInt32?) -> Bool {
    guard let epoch, driver.isLive, let own = driver.epoch else { return false }
    return own < epoch
  }

  /// Ends a session that has gone live with the right, or the keys of an epoch, of before a change that came while it
  /// was catching up.
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
      // What follows is sealed under the new key; who lacks it gets it with the next hello.
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
