package import SyncStore

/// Executes what `RelayReader` and `RelayPublisher` decide, for one copy and one relay: reads and writes
/// objects, applies and makes entries.
///
/// At most one task of all processes works on a copy's relays at a time (`Store.claimRelays`). Objects that
/// cannot be read are set aside and named in the report; the rest is read. `docs/relay-path.md` walks through
/// a push and a pull.
package final class RelayClient: RelayUser {
  /// What earlier calls have read of the relay.
  struct Memory {
    var format: RelayFormat?
    /// The heads, and the versions in which they were read.
    var heads: [StreamID: (head: RelayHead, version: ObjectVersion?)] = [:]
    /// Own streams whose heads cannot be read: deleted once another stream has taken their place.
    var damagedHeads: Set<StreamID> = []
    /// Runs and tables of checkpoints, which never change.
    var view = RelayView()
    /// The state of the copy in which nothing was left to publish.
    var published: Published?
    /// Group keys for members that are in the relay.
    var keysThere = StringSet()
    /// Epochs of group keys that heads were encrypted under and that are not here.
    var unknownEpochs: Set<UInt32> = []
    /// Objects of large values that are in the relay.
    var blobsThere = StringSet()
    /// Large values that neither this copy nor the relay has.
    var wanted: [BlobReference] = []
    /// Looks since the heads were last listed. A new process lists them at its first look.
    var quietLooks = RelayLimits.quietLooks
    /// Invitations for which the relay has a request to join.
    var joinRequests: Set<[UInt8]> = []
    /// Whether the bell was rung for what the own head asks for.
    var hasAsked = false
    /// Whether this copy can read on only with a full state that no checkpoint gives.
    var needsFullState = false
    /// Whether the own head has something to ask for.
    var asks: Bool { needsFullState || !wanted.isEmpty }
  }

  /// A state of a copy. Its vector may grow without a new position, as when a round is closed all of whose
  /// records were known or beaten.
  struct Published: Equatable {
    var position: UInt64
    var vector: VersionVector
    var floor: VersionVector
  }

  let store: Store
  let objects: any ObjectStore
  /// The name of the relay on this copy.
  package let name: String
  let workers: WorkerPool
  let identity: DeviceIdentity
  /// The public key with which others encrypt group keys for this copy.
  let wrappingKey: [UInt8]
  let memory = LockedField(Memory(), rank: .session)
  /// Figures of `objects` that are in the history of the relay.
  let recorded = LockedField(ObjectStoreFigures(), rank: .session)
  private static let claimMilliseconds: UInt64 = 60_000

  /// A client of the relay in `objects` for a store that was prepared for members. Nothing is read yet.
  ///
  /// - Throws: `.cryptography` if the store has no device key.
  package init(
    store: Store, objects: any ObjectStore, name: String, workers: WorkerPool = .shared
  ) throws(ReplicationError) {
    (self.store, self.objects, self.name, self.workers) = (store, objects, name, workers)
    identity = try StoreKeys(store).identity()
    wrappingKey = try identity.wrappingKey().publicKey
  }

  /// Runs `body` while no other task works on a relay of this copy.
  func claiming<Answer: Sendable>(
    _ body: (inout RelayReport) async throws(ReplicationError) -> Answer
  ) async throws(ReplicationError) -> RelayReport {
    let begin = MonotonicClock.milliseconds()
    var claim: (any StorageFile)?
    while true {
      claim = try await storeWork { store throws(StoreError) in try store.claimRelays() }
      guard claim == nil else { break }
      guard MonotonicClock.milliseconds() - begin < Self.claimMilliseconds, !Task.isCancelled else {
        throw ReplicationError(
          .unavailable, "\(name): another process works on a relay of this store: try again later")
      }
      try? await Task.sleep(for: .milliseconds(50))
    }
    let before = objects.figures
    var report = RelayReport(relay: name)
    _ = try await body(&report)
    withExtendedLifetime(claim) {}
    report.figures = objects.figures.since(before)
    report.seconds = Double(MonotonicClock.milliseconds() - begin) / 1000
    return report
  }

  /// Runs blocking work of the store on a worker.
  func storeWork<Answer: Sendable>(
    _ body: @escaping @Sendable (Store) throws(StoreError) -> Answer
  ) async throws(ReplicationError) -> Answer {
    let store = store
    return try await workers.run { () throws(ReplicationError) in
      try mappingStoreErrors { () throws(StoreError) in try body(store) }
    }
  }

  func ring() async throws(ReplicationError) -> GroupKeyRing {
    let store = store
    return try await workers.run { () throws(ReplicationError) in try StoreKeys(store).groupKeys() }
  }

  /// When another device last wrote its head, by its own clock; nil if none has.
  var lastNews: UInt64? {
    let own = identity.id
    return memory.withLock { memory in
      memory.heads.values.map(\.head).filter { $0.device != own }.map(\.time).max()
    }
  }

  /// Changes what is known of a relay, unless this copy is no longer `actor`. Not durable by itself.
  func update(
    _ relay: RelayID, as actor: ActorID, _ change: @escaping @Sendable (inout RelayProgress) -> Void
  ) async throws(ReplicationError) {
    try await storeWork { store throws(StoreError) in
      _ = try store.updateRelay(relay, as: actor, isDurable: false, change)
    }
  }

  /// The relay's format, made if the place is empty and `creates`; nil if it is empty.
  func format(creates: Bool) async throws(ReplicationError) -> RelayFormat? {
    if let known = memory.withLock({ $0.format }) { return known }
    let ring = try await ring()
    for _ in 0..<2 {
      if case .found(let content) = try await get(RelayFormat.name, limit: RelayFormat.maximumBytes) {
        let format = try RelayFormat(bytes: content.bytes, store: store.id, keys: ring)
        memory.withLock { $0.format = format }
        return format
      }
      guard creates else { return nil }
      let new = RelayFormat(random: SecureRandom.bytes(48))
      let bytes = try new.encrypted(
        store: store.id, keys: ring, randomness: SecureRandom.bytes(BatchCodec.randomnessBytes))
      // Read back: the store may not know conditions, and another member may have been faster.
      _ = try await put(RelayFormat.name, bytes, if: .absent)
    }
    throw ReplicationError(.network, "\(name): what was written there cannot be read back: see `relay check`")
  }
}

/// The result of a push to a relay or of a pull from it.
public struct RelayReport: Hashable, Sendable {
  /// An object that could not be used.
  public struct SetAside: Hashable, Sendable {
    /// Its name.
    public var object: String
    /// Why.
    public var reason: String
  }

  /// The relay's name on this copy.
  public internal(set) var relay: String
  /// Records published and read: puts and deletes of users, not the store's own records about members.
  public internal(set) var sentRecords = 0, receivedRecords = 0
  /// Large values written and read.
  public internal(set) var sentBlobs = 0, receivedBlobs = 0
  /// Entries of other members that were read, and entries that wait for something that is not there.
  public internal(set) var entries: UInt64 = 0, waitingEntries: UInt64 = 0
  /// Devices that have published there and that this copy does not know as members: their entries count once
  /// a member that it knows has read them.
  public internal(set) var unknownDevices = 0
  /// Checkpoints written.
  public internal(set) var checkpoints = 0
  /// Large values that records here refer to and that are neither here nor in the relay.
  public internal(set) var missingBlobs = 0
  /// Objects deleted, or that would be in a dry run, and their bytes; objects that go a day after they were
  /// named as doomed.
  public internal(set) var collectedObjects = 0, collectedBytes: UInt64 = 0, doomedObjects = 0
  /// Bytes of all objects, if they were listed.
  public internal(set) var storedBytes: UInt64?
  /// Requests and bytes.
  public internal(set) var figures = ObjectStoreFigures()
  /// Time from the beginning to the end.
  public internal(set) var seconds = 0.0
  /// The position of this copy's journal up to which everything is durable in the relay, if it was published.
  public internal(set) var position: UInt64 = 0
  /// Objects that could not be used, at most 100: damaged, truncated, in the wrong place, or under a group
  /// key that this copy does not have.
  public internal(set) var setAside: [SetAside] = []
  /// What happened to this copy or to the relay on the way: it was put back, for instance.
  public internal(set) var remarks: [String] = []

  init(relay: String) { self.relay = relay }

  mutating func setAside(_ object: String, _ reason: String) {
    guard setAside.count < 100, !setAside.contains(where: { $0.object == object })
    else {
      return
    }
    setAside.append(SetAside(object: object, reason: reason))
  }
}

extension ObjectStoreFigures {
  /// Requests and bytes since `earlier`.
  func since(_ earlier: ObjectStoreFigures) -> ObjectStoreFigures {
    var difference = ObjectStoreFigures()
    for (kind, count) in requests {
      difference.add(kind, count - (earlier.requests[kind] ?? 0))
    }
    difference.addBytes(sent: sentBytes - earlier.sentBytes, received: receivedBytes - earlier.receivedBytes)
    return difference
  }
}
