public import SyncStore

/// The contents of a relay, and how far each member has read.
public struct RelayStatus: Hashable, Sendable {
  /// Objects of one kind.
  public struct Objects: Hashable, Sendable {
    /// Number of objects.
    public internal(set) var count = 0
    /// Their bytes.
    public internal(set) var bytes: UInt64 = 0
  }

  /// A member, as the relay shows it.
  public struct Member: Hashable, Sendable {
    /// Its name; the device's, if this copy does not know the member.
    public internal(set) var name: String
    /// Its device.
    public internal(set) var device: DeviceID
    /// Whether it is this copy.
    public internal(set) var isSelf = false
    /// When it last wrote its head, in milliseconds since 1970, by its own clock; nil if it has none.
    public internal(set) var news: UInt64?
    /// Entries that it has published, in all its streams.
    public internal(set) var published: UInt64 = 0
    /// Entries of it that this copy has yet to read.
    public internal(set) var unread: UInt64 = 0
    /// Entries of this copy that it says to have read.
    public internal(set) var seen: UInt64 = 0
    /// Whether it has read everything that this copy has published.
    public internal(set) var hasAll = false
    /// Large values that it asks for.
    public internal(set) var wantedBlobs = 0
  }

  /// The relay's name on this copy, and where it is.
  public internal(set) var name: String, location: String
  /// The relay's identity; nil if it is empty.
  public internal(set) var relay: String?
  /// Heads (with the relay's other small objects: keys, invitations), entries, checkpoints and large values.
  public internal(set) var heads = Objects(), entries = Objects(), checkpoints = Objects(), blobs = Objects()
  /// Objects that are none of this program's.
  public internal(set) var foreign = Objects()
  /// The members, by name.
  public internal(set) var members: [Member] = []
  /// Whether this copy has something that it has not published.
  public internal(set) var hasUnpublished = false
  /// Milliseconds by which the store's clock is ahead of this one's; nil if it does not state the time.
  public internal(set) var clockOffset: Int64?
  /// Requests of this copy so far, without those of this look, and without those of the last hour of another
  /// process that keeps the relay in step.
  public internal(set) var usage = RelayUsage()
  /// Prices of the bucket; nil if they are not known.
  public internal(set) var prices: RelayPrices?
  /// Requests and bytes of this look.
  public internal(set) var figures = ObjectStoreFigures()

  /// All objects.
  public var total: Objects {
    [heads, entries, checkpoints, blobs, foreign].reduce(into: Objects()) { total, some in
      total.count += some.count
      total.bytes += some.bytes
    }
  }
}

extension RelayClient {
  /// The contents of the relay, and how far each member has read. Changes nothing.
  ///
  /// - Throws: as `pull`.
  package func status(location: String) async throws(ReplicationError) -> RelayStatus {
    let before = objects.figures
    var status = RelayStatus(name: name, location: location)
    guard let format = try await format(creates: false) else {
      status.figures = objects.figures.since(before)
      return status
    }
    status.relay = "\(format.relay)"
    status.count(try await list(""))
    var report = RelayReport(relay: name)
    let progress = try await storeWork { store throws(StoreError) in try store.relayProgress(format.relay) }
    let view = try await readHeads(progress, try await keys(format), &report)
    let (store, own) = (store, identity.id)
    let (members, copy) = try await workers.run { () throws(ReplicationError) in
      let members = try Membership(store).members()
      return (
        members, try mappingStoreErrors { () throws(StoreError) in try store.relayReplica() }
      )
    }
    status.hasUnpublished =
      !progress.covered.covers(copy.vector) || !progress.covered.covers(copy.floor)
    let devices = Set(members.filter { $0.right != .revoked }.map(\.device))
      .union(view.streams.values.map(\.head.device))
    for device in devices {
      let name = members.first { $0.device == device }?.name ?? "\(device)"
      var member = RelayStatus.Member(name: name, device: device)
      member.isSelf = device == own
      member.read(view, progress)
      status.members.append(member)
    }
    status.members.sort { $0.name < $1.name }
    status.clockOffset = objects.clock.map { Int64(clamping: $0) - Int64(clamping: store.environment.now()) }
    status.figures = objects.figures.since(before)
    return status
  }
}

extension RelayStatus {
  fileprivate mutating func count(_ listed: [ObjectEntry]) {
    func add(_ objects: inout Objects, _ entry: ObjectEntry) {
      objects.count += 1
      objects.bytes += entry.size
    }
    for entry in listed {
      switch entry.name.utf8.prefix(2) {
      case let kind where ["h/", "j/", "k/"].contains { kind.elementsEqual($0.utf8) }: add(&heads, entry)
      case let kind where kind.elementsEqual("e/".utf8): add(&entries, entry)
      case let kind where kind.elementsEqual("c/".utf8): add(&checkpoints, entry)
      case let kind where kind.elementsEqual("b/".utf8): add(&blobs, entry)
      default:
        let isOwn = entry.name == RelayFormat.name || entry.name == RelayName.bell
        if isOwn { add(&heads, entry) } else { add(&foreign, entry) }
      }
    }
  }
}

extension RelayStatus.Member {
  fileprivate mutating func read(_ view: RelayView, _ progress: RelayProgress) {
    let streams = view.streams.filter { $0.value.head.device == device }
    for (stream, known) in streams {
      let last = known.head.last?.number ?? 0
      published += last
      if !isSelf { unread += last - min(last, progress.place(in: stream)?.number ?? 0) }
      news = max(news ?? 0, known.head.time)
      wantedBlobs += known.head.wanted.count
      if let own = progress.stream { seen = max(seen, known.head.seen[own]?.number ?? 0) }
    }
    hasAll = isSelf || seen >= (progress.last?.number ?? 0)
  }
}
