internal import SyncStore

/// Sessions when the network changes, and when one device connects twice.
extension NodeCore {
  /// Milliseconds in which sessions must answer once an address or a link has come back.
  private static let afterReturnMilliseconds = 2_000

  /// Handles addresses that went or came: drops connections whose local address is gone, probes the others,
  /// and dials waiting peers.
  func networkChanged(_ change: NetworkWatch.Change) {
    guard !isStopping else { return }
    if change.hasGone {
      for link in incoming.values.compactMap(\.link) + outgoing.values.compactMap(\.link) {
        guard !link.local.isLoopback, !change.present.contains(link.local.host) else { continue }
        link.fail(
          ReplicationError(
            .network,
            "the connection to \(link.remote) broke: this machine has no address \(link.local.host) any more: try again"
          ))
      }
    }
    guard change.hasCome else { return }
    context.log.emit(.debug, "the network has changed: connections are looked at")
    // Unacknowledged data is retransmitted with exponential backoff: a new connection is faster.
    for driver in drivers { driver.probe(within: Self.afterReturnMilliseconds) }
    delegate?.networkReturned()
  }

  // MARK: Duplicate connections

  static func origin(of driver: SessionDriver) -> DuplicateIdentityDetector.Origin {
    DuplicateIdentityDetector.Origin(host: driver.link.remote.host, actor: driver.peer?.summary.actor)
  }

  /// Records that a connection of the device displaced another one, or was rejected because of it.
  func recordDisplacement(
    _ device: DeviceID, by new: DuplicateIdentityDetector.Origin, from other: SessionDriver?
  ) {
    guard let other,
      let hosts = duplicateIdentities.displaced(
        device, by: new, from: Self.origin(of: other), at: MonotonicClock.milliseconds())
    else { return }
    let text = DuplicateIdentityDetector.conflictMessage(other.peerName, hosts: hosts)
    context.log.emit(.warning, text)
    delegate?.identityConflict(of: device, message: text)
    notifyDuplicate(other, device: device)
  }

  /// Ends a session with the finding that two running copies have the identity of its device, once for each
  /// of the two; the next session of that copy is not ended for it.
  func notifyDuplicate(_ driver: SessionDriver, device: DeviceID) {
    guard let actor = driver.peer?.summary.actor, duplicateIdentities.shouldNotify(actor, of: device) else {
      return
    }
    let hosts = Set(incoming.values.compactMap { $0.device == device ? $0.driver?.link.remote.host : nil })
    driver.refuse(
      .tryAgain, reason: DuplicateIdentityDetector.conflictMessage(driver.peerName, hosts: hosts.sorted()))
  }

  /// Called when a session that another device has dialled is over: counts a displacement if it ran
  /// concurrently with a live one of another incarnation.
  func recordRivalSessions(of number: UInt64, _ device: DeviceID) {
    guard let driver = incoming[number]?.driver, !driver.isLive else { return }
    for (other, rival) in incoming
    where other != number && rival.device == device && rival.driver?.isLive == true {
      recordDisplacement(device, by: Self.origin(of: driver), from: rival.driver)
    }
  }

  /// Ends a session that another session of its device replaces.
  func displace(_ older: SessionDriver, device: DeviceID, by newer: SessionDriver?) {
    guard older.isAtRest else { return older.abandon() }
    guard let newer, incoming.values.contains(where: { $0.driver === older }) else { return older.stop() }
    let host = newer.link.remote.host
    let why =
      duplicateIdentities.isConflict(device)
      ? ": "
        + DuplicateIdentityDetector.conflictMessage(
          older.peerName, hosts: Set([host, older.link.remote.host]).sorted()) : ""
    older.refuse(
      .tryAgain, reason: "\(DuplicateIdentityDetector.displacedText), from \(host), has taken its place\(why)"
    )
  }

  /// A member has reported that another connection took the place of this copy's.
  func ownConnectionDisplaced(_ peer: DeviceID, reason why: String) {
    let own = context.identity.id
    guard duplicateIdentities.reportedDisplaced(own, reason: why, at: MonotonicClock.milliseconds()) else {
      return
    }
    let text = DuplicateIdentityDetector.ownConflictMessage(why)
    context.log.emit(.warning, text)
    delegate?.identityConflict(of: own, message: text)
  }

  // MARK: Contacts from sessions

  /// Milliseconds between two checks for new acknowledgements of live sessions: each that finds some costs a
  /// sync.
  private static let contactMilliseconds = 3_000
  /// Upper bound on the contacts stored with one append.
  private static let contactsAtOnce = 256

  /// Stores what a session has learned of the device's copy.
  func recordContact(_ device: DeviceID, driver: SessionDriver?) {
    guard let driver, let contact = driver.contact else { return }
    driver.savedAcknowledged = contact.received
    saveContacts([(device, contact)])
  }

  /// While sessions are live, stores acknowledgements as they arrive: a session may not end in good order.
  func superviseContacts() {
    guard contactTimer == nil, !isStopping, drivers.contains(where: \.isLive) else { return }
    contactTimer = loop.schedule(after: Self.contactMilliseconds) { [weak self] in
      guard let self else { return }
      contactTimer = nil
      let news = drainNewContacts(limit: Self.contactsAtOnce)
      if !news.isEmpty { saveContacts(news) }
      superviseContacts()
    }
  }

  /// Acknowledgements of sessions that were not stored yet.
  func drainNewContacts(limit: Int = .max) -> [(device: DeviceID, contact: Contact)] {
    var news: [(device: DeviceID, contact: Contact)] = []
    let sessions =
      incoming.values.map { ($0.device, $0.driver) } + outgoing.values.map { ($0.device, $0.driver) }
    for case (let device?, let driver?) in sessions where news.count < limit {
      guard let contact = driver.contact, contact.received > driver.savedAcknowledged else { continue }
      driver.savedAcknowledged = contact.received
      news.append((device, contact))
    }
    return news
  }

  private func saveContacts(_ contacts: [(device: DeviceID, contact: Contact)]) {
    let context = context
    context.workers.later {
      do throws(ReplicationError) { try Contacts(context.store).record(contacts) } catch {
        guard error.store?.code != .closed else { return }
        context.log.emit(.warning, "what was learned of a peer is not kept: \(error.message)")
      }
    }
  }
}
