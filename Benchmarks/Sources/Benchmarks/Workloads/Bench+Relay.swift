import Foundation
import ObjectStorageS3
import Replication
import SyncStore

/// Relays: first copies through a directory and through a bucket, compared with a live copy of the same
/// records, and the requests of a small change.
extension Bench {
  private static let firstCopy = "relay-first-copy"
  private static let s3Copy = "relay-s3-first-copy"
  static let live = "live"

  func relays() throws {
    for _ in 0..<options.rounds { try relaysOnce() }
    let targets: KeyValuePairs<String, Double> = [
      Self.firstCopy + "-puts": 12, Self.firstCopy + "-gets": 15, Self.s3Copy + "-puts": 12,
      Self.s3Copy + "-gets": 15, "relay-change-puts": 2, "relay-change-reads": 3,
      "relay-nothing-changed-requests": 1,
    ]
    for (workload, target) in targets where report.has(workload) {
      report.add(workload, "target", target, "")
    }
  }

  private func relaysOnce() throws {
    let fleet = try RelayBench(in: folder("fleet", "relay"), keys: options.keys, members: 3)
    defer { remove(fleet.folder) }
    try Machine.settle(touching: RedisReplica.memory, in: fleet.folder)
    let live = try fleet.milliseconds { _ = try fleet.readers[0].sync(RelayBench.server, .pull) }.time
    try copy(through: .directory, to: fleet.readers[1], of: fleet, live)
    try changeOne(of: fleet)
    if let server = try RcloneServer(in: fleet.folder + "/rclone") {
      defer { server.end() }
      let plain = try server.copy(fleet.folder + "/directory", in: fleet.folder)
      for (phase, time) in [("", plain.put + plain.get), ("-push", plain.put), ("-pull", plain.get)] {
        report.add(Self.s3Copy + phase, RcloneServer.title, time, "ms")
      }
      fleet.bucket.set(server.options)
      try copy(through: .bucket, to: fleet.readers[2], of: fleet, live)
    } else {
      note("rclone is not installed (make s3-servers): no relay in a bucket is measured")
    }
    try fleet.end()
  }

  /// Publishes everything and reads it in a copy without any of it.
  private func copy(
    through relay: RelayBench.Place, to reader: RelayBench.Copy, of fleet: RelayBench, _ live: Double
  ) throws {
    let workload = relay == .directory ? Self.firstCopy : Self.s3Copy
    try fleet.name(relay)
    try Machine.settle(touching: RedisReplica.memory, in: fleet.folder)
    let push = try fleet.milliseconds { try fleet.writer.sync(relay.rawValue, .push) }
    try Machine.settle(touching: RedisReplica.memory, in: fleet.folder)
    let pull = try fleet.milliseconds { try reader.sync(relay.rawValue, .pull) }
    try expect(pull.answer.receivedRecords, options.keys, workload)
    for (phase, time) in [("", push.time + pull.time), ("-push", push.time), ("-pull", pull.time)] {
      report.add(workload + phase, SyncStorePeer.title, time, "ms")
      report.add(workload + phase, Self.live, live, "ms")
    }
    let (sent, read) = (push.answer.figures, pull.answer.figures)
    report.add(workload + "-puts", SyncStorePeer.title, Double(sent[.put]), "")
    report.add(workload + "-gets", SyncStorePeer.title, Double(read[.get]), "")
    note(
      "\(workload): \(Int(push.time)) ms, \(sent[.put]) PUTs, \(sent.total) requests, \(sent.sentBytes) bytes; then \(Int(pull.time)) ms, \(read[.get]) GETs, \(read.total) requests"
    )
  }

  /// One small change: what a daemon sends, what a reader asks for, and what it asks for without any change.
  private func changeOne(of fleet: RelayBench) throws {
    let reader = fleet.readers[1]
    let sent = try fleet.requests { isMeasured in
      // Read before the next one is written.
      if isMeasured { _ = try reader.sync(RelayBench.Place.directory.rawValue, .pull) }
      try fleet.writer.store.put(SyncServer.key(0), [isMeasured ? 1 : 2])
    }
    report.add("relay-change-puts", SyncStorePeer.title, Double(sent.puts), "")
    note("relay-change: \(sent.puts) PUTs, and \(sent.all - sent.puts) requests of the look that they cause")
    let read = try reader.sync(RelayBench.Place.directory.rawValue, .pull)
    try expect(read.receivedRecords, 1, "relay-change")
    report.add("relay-change-reads", SyncStorePeer.title, Double(read.figures.total), "")
    let same = try reader.sync(RelayBench.Place.directory.rawValue, .pull)
    report.add("relay-nothing-changed-requests", SyncStorePeer.title, Double(same.figures.total), "")
  }

  /// A large value, published, and published again after 1 MiB of its middle has changed.
  func relayOfLargeValue() throws {
    let (workload, bytes) = ("relay-value", options.largeMebibytes << 20)
    for _ in 0..<options.rounds {
      let fleet = try RelayBench(in: folder("fleet", "relay-large"), keys: 1, members: 1)
      defer { remove(fleet.folder) }
      try fleet.name(.directory)
      for isEdited in [false, true] {
        try fleet.writer.store.put(Key("large")) { writer in
          try SyncServer.pieces(ofLarge: bytes, isEdited: isEdited, inserted: 0) { try writer.append($0) }
        }
        try Machine.settle(touching: 2 << 30, in: options.data)
        let name = workload + (isEdited ? "-edited" : "")
        let push = try fleet.milliseconds { try fleet.writer.sync("directory", .push) }
        try Machine.settle(touching: 2 << 30, in: options.data)
        let pull = try fleet.milliseconds { try fleet.readers[0].sync("directory", .pull) }
        let (sent, read) = (push.answer.figures, pull.answer.figures)
        note(
          "\(name): \(Int(push.time)) ms, \(sent[.put]) PUTs, \(sent.total) requests, \(sent.sentBytes) bytes sent; then \(Int(pull.time)) ms, \(read[.get]) GETs, \(read.receivedBytes) bytes read"
        )
        report.add(name + "-bytes", SyncStorePeer.title, Double(sent.sentBytes) / 1e6, "MB")
      }
      try expect(Int(fleet.readers[0].store.reader(of: "large")?.size ?? 0), bytes, workload)
      try fleet.end()
    }
    report.add(workload + "-edited-bytes", "target", Double(3 << 20) / 1e6, "MB")
  }
}

/// A store with records in a process of its own, which serves members, and members of it in this process.
final class RelayBench {
  /// The relay; its raw value is its name on each copy.
  enum Place: String {
    case directory, bucket
  }

  /// A member in this process.
  struct Copy {
    let store: Store
    let node: Node

    /// One synchronization with a member or a relay. Of a live one the relay's report is empty.
    func sync(_ peer: String, _ direction: SyncDirection) throws -> Done {
      let node = node
      let report = try SyncServer.wait { try await node.synchronize(with: peer, direction: direction) }
      return Done(
        receivedRecords: report.receivedRecords, figures: report.relay?.figures ?? ObjectStoreFigures())
    }
  }

  /// What a synchronization has moved.
  struct Done {
    let receivedRecords: Int
    let figures: ObjectStoreFigures
  }

  /// Where the bucket is; set once its server has started.
  final class Bucket: @unchecked Sendable {
    private let lock = NSLock()
    private var options: S3Options?
    func set(_ new: S3Options) { lock.withLock { options = new } }
    func get() -> S3Options? { lock.withLock { options } }
  }

  static let server = "server"

  let folder: String
  let bucket = Bucket()
  /// The copy with all records, which a process of its own serves to members at the same time.
  let writer: Copy
  /// Copies without any record.
  let readers: [Copy]
  private let process: SyncServer.Running

  init(in folder: String, keys: Int, members: Int) throws {
    self.folder = folder
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    process = try SyncServer.Running(folder + "/server", keys)
    let bucket = bucket
    func node(_ store: Store) throws -> Node {
      var configuration = Node.Configuration()
      configuration.opensRelay = { relay throws(ReplicationError) in
        guard let options = bucket.get(), relay.directory == nil else {
          return try Node.opensDirectories(relay)
        }
        do throws(ObjectStoreError) { return try S3Store(options) } catch {
          throw ReplicationError(.network, error.message)
        }
      }
      return try Node(store: store, configuration: configuration)
    }
    let store = try Store.open(at: folder + "/server", configuration: Configuration(mode: .shared))
    writer = Copy(store: store, node: try node(store))
    readers = try (0..<members).map { number in
      let token = try Node.invite(to: store)
      let joined = try SyncServer.wait {
        try await Node.join(
          token, at: "\(folder)/reader-\(number)", name: "reader-\(number)",
          configuration: Configuration(mode: .shared)
        ).store
      }
      return Copy(store: joined, node: try node(joined))
    }
  }

  /// Names a relay at all copies. The directory is made.
  func name(_ place: Place) throws {
    let directory = URL(fileURLWithPath: folder).path + "/directory"
    if place == .directory {
      try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    }
    let location = place == .directory ? "dir:" + directory : "s3://bucket/relay"
    for copy in [writer] + readers {
      try Membership(copy.store).add(RelayDescription(name: place.rawValue, location: location))
    }
  }

  func milliseconds<Answer>(_ work: () throws -> Answer) rethrows -> (answer: Answer, time: Double) {
    let begin = Machine.now()
    let answer = try work()
    return (answer, Double(Machine.now() - begin) / 1e6)
  }

  /// Requests to the directory that the writer's node makes by itself for a change that `body` makes: all, and
  /// those that write. An earlier change goes first, with whatever a node publishes when it starts.
  func requests(forPublishing body: (_ isMeasured: Bool) throws -> Void) throws -> (all: UInt64, puts: UInt64)
  {
    let (node, name) = (writer.node, Place.directory.rawValue)
    var policy = KeepPolicy(peers: [name])
    (policy.publishSeconds, policy.pollSeconds) = (1, 3600)
    node.keepInStep(policy)
    defer { node.stopKeepingInStep() }
    try body(false)
    let before = try quietState(of: node, records: 1)
    try body(true)
    let after = try quietState(of: node, records: before.sentRecords + 1)
    let (old, new) = (before.figures, after.figures)
    return (new.total - old.total, new[.put] - old[.put])
  }

  /// The state of the directory at the node once so many records are published, and no request has been made
  /// for longer than a change waits until it is published.
  private func quietState(of node: Node, records: Int) throws -> RelayState {
    let begin = Machine.now()
    var (last, since) = (UInt64.max, begin)
    while Machine.now() - begin < 60_000_000_000 {
      usleep(50_000)
      guard let state = node.state[relay: Place.directory.rawValue], state.sentRecords >= records else {
        continue
      }
      if state.figures.total != last { (last, since) = (state.figures.total, Machine.now()) }
      if Machine.now() - since > 3_000_000_000 { return state }
    }
    throw BenchmarkError("the relay is not kept in step: \(node.state.relays)")
  }

  /// Closes all of it.
  func end() throws {
    for copy in [writer] + readers {
      let node = copy.node
      try SyncServer.wait { await node.stop() }
      try copy.store.close()
    }
    try process.end()
  }
}
