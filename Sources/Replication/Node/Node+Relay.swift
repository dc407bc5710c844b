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
    let relay =
      switch direction {
      case .push: try await client.push()
      case .pull: try await client.pull()
      case .both: try await client.sync()
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
    return try await relay.client.status(location: relay.description.location)
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
    try await (try await requireRelay(named: name)).client.collect(isDryRun: isDryRun)
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
