import Synchronization
import SyncTestSupport
import Testing

@testable import Replication
@testable import SyncStore

@Suite(.timeLimit(.minutes(Patience.minutes(2)))) struct NodeTests {
  @Test func `a new member pulls everything that the inviter has`() async throws {
    let server = try TestCopy.first()
    for number in 0..<500 { try server.put("key \(number)", "value \(number)") }
    let blob = noise(700_000, seed: 1)
    try server.store.put(Key("large"), blob)
    _ = try await server.listen()
    let client = try await TestCopy.joined(try Node.invite(to: server.store), "second")
    let report = try await client.node.synchronize(with: "first", direction: .pull)
    #expect(report.peer == "first")
    #expect(report.receivedBlobs == 1 && report.sentRecords == 0)
    #expect(report.receivedRecords == 501)
    #expect(try client.get("key 499") == "value 499")
    #expect(try client.store.get(Key("large"))?.bytes == blob)
    #expect(try client.digest() == server.digest())
    #expect(report.digest == (try server.digest()))
    #expect(try Membership(client.store).members().map(\.name) == ["first", "second"])
    await server.node.stop()
  }

  @Test func `push sends local writes, and ends with the peer's receipt`() async throws {
    let (server, client, _) = try await pair()
    for number in 0..<300 { try client.put("key \(number)", "value \(number)") }
    try client.store.put(Key("large"), noise(300_000, seed: 2))
    let report = try await client.node.synchronize(with: "first", direction: .push)
    #expect(report.sentRecords == 301 && report.sentBlobs == 1 && report.receivedRecords == 0)
    #expect(try server.get("key 299") == "value 299")
    #expect(report.digest == (try server.digest()))
    #expect(try client.digest() == server.digest())
    await server.node.stop()
  }

  @Test func `F65 after one sync both sides have the writes of both, and the later write won`()
    async throws
  {
    let (server, client, _) = try await pair()
    for number in 0..<100 {
      try server.put("server \(number)", "s")
      try client.put("client \(number)", "c")
      try (number.isMultiple(of: 2) ? server : client).put("both \(number)", "earlier")
    }
    // Within one millisecond the clocks of two machines cannot be compared.
    try await Task.sleep(for: .milliseconds(3))
    for number in 0..<100 {
      try (number.isMultiple(of: 2) ? client : server).put("both \(number)", "later")
    }
    let report = try await client.node.synchronize(with: "first")
    #expect(report.sentRecords > 100 && report.receivedRecords > 100)
    #expect(try client.digest() == server.digest())
    for copy in [server, client] {
      #expect(try copy.get("server 7") == "s" && copy.get("client 7") == "c")
      #expect(try (0..<100).allSatisfy { try copy.get("both \($0)") == "later" })
    }
    await server.node.stop()
  }

  @Test func `the remains of a transaction whose last record was superseded still form a whole batch`() throws
  {
    let copy = try TestCopy.first()
    try copy.store.transaction { transaction in
      try transaction.put(Key("kept"), [1])
      try transaction.put(Key("superseded"), [1])
    }
    try copy.put("superseded", "later")
    let round = try copy.store.openRound(since: nil, covered: VersionVector())
    var keys: [String] = []
    while let batch = try round.next(maximumBytes: 1) {
      let payload = RecordCodec.Payload(position: batch.position, records: batch.records.list)
      #expect(try RecordCodec.decode(RecordCodec.encode(payload)) == payload)
      keys += batch.records.list.filter { !$0.record.isReserved }.map {
        String(decoding: $0.record.key, as: UTF8.self)
      }
    }
    #expect(keys == ["kept", "superseded"])
  }

  @Test(arguments: [SyncDirection.push, .pull, .both])
  func `with nothing new a session takes at most two round trips and 2 KiB`(direction: SyncDirection)
    async throws
  {
    let (server, client, _) = try await pair()
    for number in 0..<2000 { try client.put("key \(number)", "value") }
    _ = try await client.node.synchronize(with: "first")
    _ = try await client.node.synchronize(with: "first")
    let report = try await client.node.synchronize(with: "first", direction: direction)
    #expect(report.sentRecords + report.receivedRecords == 0)
    #expect(report.roundTrips <= 2)
    #expect(report.sentBytes + report.receivedBytes <= 2048)
    #expect(report.digest == (try server.digest()))
    await server.node.stop()
  }

  @Test func `a value deleted by all members is purged everywhere after two syncs`() async throws {
    let (server, client, _) = try await pair()
    for number in 0..<20 { try server.put("key \(number)", "value") }
    _ = try await client.node.synchronize(with: "first")
    // A member that acknowledged before it had seen everything acknowledges again an hour later.
    try await Self.until { server.store.compactor.deletesScannedTo.load(ordering: .relaxed) > 20 }
    for number in 0..<10 { try server.store.delete(Key("key \(number)")) }
    for number in 10..<15 { try client.store.delete(Key("key \(number)")) }
    func purge() throws -> Bool {
      for copy in [server, client] {
        try copy.store.compactor.purgeBeforeCompaction(always: true, sparing: 0)
      }
      let summaries = try [server, client].map { try $0.store.replicaSummary() }
      return !summaries[0].floor.isEmpty && summaries[0].horizon == summaries[1].horizon
    }
    _ = try purge()
    #expect(try server.store.replicaSummary().floor.isEmpty)
    // After the first session each acknowledges its vector, and the other receives it at the second.
    let deadline = ContinuousClock.now + .seconds(30)
    var isPurged = false
    while !isPurged, ContinuousClock.now < deadline {
      _ = try await client.node.synchronize(with: "first")
      isPurged = try purge()
    }
    #expect(isPurged)
    #expect(try client.digest() == server.digest())
    let report = try await client.node.synchronize(with: "first")
    #expect(report.receivedRecords == 0 && report.sentRecords == 0)
    #expect(try client.get("key 3") == nil && client.get("key 17") == "value")
    // A revoked member is not waited for.
    try Membership(server.store).revoke("second")
    #expect(try server.store.reserved(ReservedKey.frontier(client.node.device)) == nil)
    await server.node.stop()
  }

  private static func until(_ isSo: () throws -> Bool) async throws {
    for _ in 0..<2000 where try !isSo() { try await Task.sleep(for: .milliseconds(5)) }
    #expect(try isSo())
  }

  @Test func `a member added by another process is admitted at once`() async throws {
    let (server, _, address) = try await pair()
    // Like `sync-cli` next to the daemon: only the directory is shared with the node.
    let token = try Node.invite(to: server.store, addresses: [address])
    let third = try await TestCopy.joined(token, "second")
    _ = try await third.node.synchronize(with: address.description, direction: .pull)
    #expect(try Set(Membership(server.store).members().map(\.name)) == ["first", "second", "second-2"])

    await server.node.stop()
  }

  @Test func `F81 a revoked member is not admitted, and a read-only one may only pull`() async throws {
    let (server, client, address) = try await pair()
    let reader = try await TestCopy.joined(
      try Node.invite(to: server.store, right: .readOnly, addresses: [address]), "reader")
    _ = try await reader.node.synchronize(with: "first", direction: .pull)
    #expect(throws: StoreError.self) { try reader.put("mine", "x") }
    await #expect { _ = try await reader.node.synchronize(with: "first", direction: .push) } throws: {
      ($0 as? ReplicationError)?.code == .notAllowed
    }
    try Membership(server.store).revoke("second")
    try client.put("mine too", "x")
    await #expect { _ = try await client.node.synchronize(with: "first", direction: .push) } throws: {
      ($0 as? ReplicationError)?.code == .notAMember
    }
    #expect(try server.get("mine") == nil && server.get("mine too") == nil)
    await server.node.stop()
  }

  @Test func `an unknown or unreachable peer is a typed error`() async throws {
    let (server, client, address) = try await pair()
    await #expect { _ = try await client.node.synchronize(with: "nobody") } throws: {
      ($0 as? ReplicationError)?.code == .notAMember
    }
    await server.node.stop()
    await #expect { _ = try await client.node.synchronize(with: address.description) } throws: {
      ($0 as? ReplicationError)?.code == .network
    }
  }

  @Test func `F70 two nodes that dial each other at once both finish`() async throws {
    let (server, client, _) = try await pair()
    let back = try await client.listen()
    try Membership(server.store).add(Peer(name: "second", addresses: [back.description]))
    for number in 0..<50 {
      try server.put("server \(number)", "s")
      try client.put("client \(number)", "c")
    }
    async let there = server.node.synchronize(with: "second")
    async let here = client.node.synchronize(with: "first")
    _ = try await (there, here)
    #expect(try client.digest() == server.digest())
    await server.node.stop()
    await client.node.stop()
  }

  @Test func `F62 concurrent sessions of one device run one after the other`() async throws {
    let (server, client, _) = try await pair()
    for number in 0..<200 { try client.put("key \(number)", String(repeating: "v", count: 900)) }
    // All at once, over separate connections: those told to wait come back.
    let node = client.node
    let done = await withTaskGroup(of: Bool.self) { group in
      for _ in 0..<3 {
        group.addTask { (try? await node.synchronize(with: "first", direction: .push)) != nil }
      }
      return await group.reduce(into: 0) { $0 += $1 ? 1 : 0 }
    }
    #expect(done >= 1)
    #expect(try client.digest() == server.digest())
    await server.node.stop()
  }

  @Test func `F62 a second connection of a connected device is told to wait, with a warning`() async throws {
    let (server, client, address) = try await pair()
    try client.put("key", "value")
    let loop = try EventLoop.shared()
    let established = Awaited<LoopBound<PeerLink>>()
    try await startLink(to: address, as: StoreKeys(client.store).identity()) { link in
      link.onEstablished = { _ in established.put(LoopBound(link, to: loop)) }
      link.onEnd = { _ in withExtendedLifetime(link) {} }
    }
    let rival = try await established.take()
    while !server.log.lines.contains(where: { $0.contains("second connected") && $0.contains("debug") }) {
      try await Task.sleep(for: .milliseconds(5))
    }
    async let report = client.node.synchronize(with: "first", direction: .push)
    while !server.log.lines.contains(where: { $0.contains("told to wait") }) {
      try await Task.sleep(for: .milliseconds(5))
    }
    #expect(try server.get("key") == nil)
    loop.execute { rival.value.close() }
    _ = try await report
    #expect(try server.get("key") == "value")
    await server.node.stop()
  }

  @Test func `F57 a copy that was rolled back in place becomes a new actor and recovers in one call`()
    async throws
  {
    let (server, client, _) = try await pair()
    let path = client.store.path
    try client.put("before", "1")
    _ = try await client.node.synchronize(with: "first")
    let actor = try client.store.actor
    try client.store.close()
    let image = FileImage(of: path)
    let later = try TestCopy(client.directory, Store.open(at: path, configuration: TestCopy.configuration))
    try later.put("lost here", "2")
    _ = try await later.node.synchronize(with: "first")
    try later.store.close()
    image.restore()
    let back = try TestCopy(client.directory, Store.open(at: path, configuration: TestCopy.configuration))
    #expect(try back.store.actor == actor)
    try back.put("after", "3")
    _ = try await back.node.synchronize(with: "first")
    #expect(try back.store.actor != actor)
    #expect(try back.get("lost here") == "2" && server.get("after") == "3")
    #expect(try back.digest() == server.digest())
    await server.node.stop()
  }

  @Test func `stopping a node ends its sessions, and keeps what they transferred`() async throws {
    let (server, client, _) = try await pair()
    for number in 0..<50 { try client.put("key \(number)", "v") }
    _ = try await client.node.synchronize(with: "first", direction: .push)
    await server.node.stop()
    #expect(try server.get("key 49") == "v")
    await #expect(throws: ReplicationError.self) {
      _ = try await client.node.synchronize(with: "first", direction: .push)
    }
  }

  @Test func `200 members that connect at once are all served by one node`() async throws {
    let server = try TestCopy.first()
    for number in 0..<20 { try server.put("key \(number)", "value") }
    let address = try await server.listen()
    // Only their keys are real: 200 stores would take longer than the tested behaviour.
    let members = try (0..<200).map { _ in try DeviceIdentity.generate() }
    for (number, member) in members.enumerated() {
      try Membership(server.store).put(
        Member(device: member.id, name: "m\(number)", right: .readWrite, addresses: [], joined: 0))
    }
    let served = try await withThrowingTaskGroup(of: Bool.self) { group in
      for member in members {
        group.addTask { try await Self.greet(address, as: member, store: server.store) }
      }
      return try await group.reduce(into: 0) { $0 += $1 ? 1 : 0 }
    }
    #expect(served == 200)
    await server.node.stop()
  }

  /// Connects as a member, sends hello, and returns whether the node answered with its own.
  private static func greet(_ address: Endpoint, as identity: DeviceIdentity, store: Store) async throws
    -> Bool
  {
    let answer = Awaited<Bool>()
    let hello = Hello(
      summary: ReplicaSummary(
        store: store.id, actor: .random(), sequence: 0, vector: VersionVector(), floor: VersionVector(),
        horizon: .zero, position: 0), wallMilliseconds: store.environment.now(), digest: StateDigest(),
      directions: .receives)
    try await startLink(to: address, as: identity) { link in
      link.onEnd = { _ in
        withExtendedLifetime(link) {}
        answer.put(false)
      }
      link.onEstablished = { _ in link.send(Message.hello(hello).frame.bytes) }
      link.onPlaintext = { bytes in
        answer.put(bytes.count > Frame.headerBytes && bytes[4] == MessageType.hello.rawValue)
        link.close()
      }
    }
    return try await answer.take()
  }
}
