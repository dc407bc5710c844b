internal import SyncStore

extension Node {
  /// Opens the objects of a relay. A directory is opened by `Node` itself; buckets by what
  /// `Configuration.opensRelay` is set to.
  public typealias RelayOpener =
    @Sendable (_ relay: RelayDescription) throws(ReplicationError) -> any ObjectStore

  /// Opens relays in directories, and refuses others.
  public static let opensDirectories: RelayOpener = { relay throws(ReplicationError) in
    guard let path = relay.directory else {
      throw ReplicationError(
        .unavailable,
        "\(relay.name): this program opens no \(relay.location): set `opensRelay` in the configuration of the node"
      )
    }
    do throws(ObjectStoreError) { return try DirectoryStore(at: path) } catch {
      throw ReplicationError(.network, "\(relay.name): \(error.message)")
    }
  }

  /// The client of a relay of this copy; nil if there is none of that name. One client per relay and node: it
  /// remembers what it has read.
  func relayClient(named name: String) async throws(ReplicationError) -> RelayClient? {
    try await context.workers.run { [self] () throws(ReplicationError) in
      guard let relay = try Membership(store).relay(named: name) else { return nil }
      if let known = relayClients.withLock({ $0[name] }), known.description == relay { return known.client }
      let client = try RelayClient(
        store: store, objects: try opensRelay(relay), name: name, workers: context.workers)
      relayClients.withLock { $0[name] = (relay, client) }
      return client
    }
  }

  /// `synchronize` with a relay.
  func synchronize(
    with client: RelayClient, direction: SyncDirection
  ) async throws(ReplicationError) -> SessionReport {
    let relay = try await counting(client) { () throws(ReplicationError) in
      switch direction {
      case .push: try await client.push()
      case .pull: try await client.pull()
      case .both: try await client.sync()
      }
    }
    for remark in relay.remarks { context.log.emit(.warning, "\(client.name): \(remark)") }
    for object in relay.setAside {
      context.log.emit(.warning, "\(client.name): \(object.object) is set aside: \(object.reason)")
    }
    let (store, workers) = (store, context.workers)
    let digest = try await workers.run { () throws(ReplicationError) in
      try mappingStoreErrors { () throws(StoreError) in try store.digest(at: store.environment.now()) }
    }
    var report = SessionReport(
      peer: client.name, sentRecords: relay.sentRecords, receivedRecords: relay.receivedRecords,
      sentBlobs: relay.sentBlobs, receivedBlobs: relay.receivedBlobs, sentBytes: relay.figures.sentBytes,
      receivedBytes: relay.figures.receivedBytes, roundTrips: Int(clamping: relay.figures.total),
      seconds: relay.seconds, position: relay.position, digest: digest)
    report.relay = relay
    return report
  }
}

extension ObjectStoreFigures {
  /// All requests.
  public var total: UInt64 { requests.values.reduce(0, +) }
}

extension Node {
  /// The contents of a relay, and how far each member has read.
  ///
  /// - Throws: `.notAMember` if no relay has that name; `.network` if it cannot be reached; `.notAllowed` if
  ///   it refuses.
  public func status(ofRelay name: String) async throws(ReplicationError) -> RelayStatus {
    let relay = try await requireRelay(named: name)
    var status = try await relay.client.status(location: relay.description.location)
    let store = store
    status.usage = try await context.workers.run { () throws(ReplicationError) in
      try RelayHistories(store: store)[name].usage
    }
    status.prices = relay.description.prices
    return status
  }

  /// Tries every right that a relay needs, with an object that is deleted again.
  ///
  /// - Throws: `.notAMember` if no relay has that name; `.network` if its place does not exist.
  public func check(relay name: String) async throws(ReplicationError) -> [RelayCheck] {
    await (try await requireRelay(named: name)).client.check()
  }

  /// Deletes the objects that a relay need not keep: entries of this copy that all members have read and a
  /// checkpoint covers, older checkpoints, and objects that nothing refers to, a day after they were named as
  /// doomed.
  ///
  /// - Parameter isDryRun: only count.
  /// - Throws: as `status(ofRelay:)`; `.unavailable` if the relay has entries that cannot be read yet, or
  ///   does not state the time.
  public func collect(relay name: String, isDryRun: Bool = false) async throws(ReplicationError)
    -> RelayReport
  {
    let client = try await requireRelay(named: name).client
    let report = try await counting(client) { () throws(ReplicationError) in
      try await client.collect(isDryRun: isDryRun)
    }
    guard !isDryRun else { return report }
    let store = store
    try await context.workers.run { () throws(ReplicationError) in
      let schedule = CollectionSchedule(interval: KeepPolicy().collectMilliseconds)
      try RelayHistories(store: store).recordCollection(name, schedule)
    }
    return report
  }

  /// Makes an invitation that one device can redeem through a relay, with no two members online at once: any
  /// member with the right to write answers its request when it next looks into the relay. Returns the token.
  ///
  /// - Parameters:
  ///   - name: the relay's name on this copy. The token says where it is, without credentials.
  ///   - lifetime: seconds until it expires, 1 to 30 days.
  ///   - right: the right of the new member.
  /// - Throws: `.invalidInvitation` if a parameter is out of bounds or `Limits.invitations` are open;
  ///   `.notAMember` if no relay has that name; `.network` if it cannot be reached; `.notAllowed` if it
  ///   refuses, or if this copy is revoked or read-only.
  public func invite(
    throughRelay name: String, lifetime: UInt64 = 86_400, right: Member.Right = .readWrite
  ) async throws(ReplicationError) -> String {
    let store = store
    let granted = try await context.workers.run { () throws(ReplicationError) in
      try Node.checked(lifetime, right, in: store)
    }
    let (description, client) = try await requireRelay(named: name)
    let secret = SecureRandom.bytes(Invitation.secretBytes)
    guard let ticket = try await client.ticket(for: description, secret: secret) else {
      throw ReplicationError(.network, "\(name): the relay could not be made: see `relay check`")
    }
    let invitation = Invitation(
      addresses: [], inviter: client.identity.id, secret: secret,
      expires: store.environment.now() + lifetime * 1000, right: granted, storeName: store.name,
      relay: ticket)
    try await context.workers.run { () throws(ReplicationError) in
      try InvitationStore(store: store).add(invitation.pending)
    }
    try await counting(client) { () throws(ReplicationError) in try await client.offer(invitation.pending) }
    return invitation.text
  }

  /// Withdraws an invitation of this copy: in its relay, if it has one, and here. No member answers it
  /// afterwards; a device that has redeemed it stays a member.
  ///
  /// - Parameter id: as in `OpenInvitation.id`.
  /// - Returns: false if no invitation has this id, or it has expired.
  /// - Throws: `.network` or `.notAllowed` if the relay cannot be written: then it is not withdrawn, as other
  ///   members may answer it; `.store` if the store cannot be written.
  public func withdraw(invitation id: String) async throws(ReplicationError) -> Bool {
    let store = store
    let invitations = try await context.workers.run { () throws(ReplicationError) in
      try Membership(store).invitations()
    }
    if let name = invitations.first(where: { $0.id == id })?.relay,
      let client = try await relayClient(named: name), let bytes = Hex.bytes(of: id[...])
    {
      try await counting(client) { () throws(ReplicationError) in try await client.withdraw(bytes) }
    }
    return try await context.workers.run { () throws(ReplicationError) in
      try Membership(store).withdrawInvitation(id)
    }
  }

  /// Runs requests of `client`, and adds them to the history of the relay, also if they fail.
  private func counting<Answer: Sendable>(
    _ client: RelayClient, _ body: () async throws(ReplicationError) -> Answer
  ) async throws(ReplicationError) -> Answer {
    do throws(ReplicationError) {
      let answer = try await body()
      await context.recordUsage(of: client)
      return answer
    } catch {
      await context.recordUsage(of: client)
      throw error
    }
  }

  private func requireRelay(
    named name: String
  ) async throws(ReplicationError) -> (description: RelayDescription, client: RelayClient) {
    guard let client = try await relayClient(named: name), let relay = relayClients.withLock({ $0[name] })
    else {
      throw ReplicationError(
        .notAMember, "no relay is called \(name.printable): see `Membership.relays`, or add it")
    }
    return (relay.description, client)
  }
}

extension NodeContext {
  /// Adds to the history of a relay what `client` has counted. Without it the relay works as well.
  func recordUsage(of client: RelayClient) async {
    do throws(ReplicationError) {
      try await workers.run { () throws(ReplicationError) in try client.recordUsage() }
    } catch {
      guard error.store?.code != .closed else { return }
      log.emit(.debug, "requests to \(client.name) are not counted: \(error.message)")
    }
  }
}
