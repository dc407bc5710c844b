import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// Nodes in live sync over real connections.
@Suite(.timeLimit(.minutes(Patience.minutes(2)))) struct LiveNodeTests {
  private static let policy = KeepPolicy(retry: 1...50)

  /// Waits until the node has a live session with the peer, and returns its state.
  @discardableResult
  private static func live(_ node: Node, _ peer: String) async throws -> PeerState {
    for await state in node.states(of: peer) where state.phase == .live { return state }
    throw ReplicationError(.unavailable, "\(peer) never went live")
  }

  @Test func `writes on one side can soon be read on the other, both ways`() async throws {
    let (server, client, _) = try await pair()
    client.node.keepInStep(Self.policy)
    let state = try await Self.live(client.node, "first")
    #expect(state.device == server.node.device && !state.isAccepted)
    for number in 0..<20 {
      try client.put("there \(number)", "c")
      try server.put("here \(number)", "s")
      try await until { try server.get("there \(number)") == "c" && client.get("here \(number)") == "s" }
    }
    let blob = noise(300_000, seed: 3)
    try client.store.put(Key("large"), blob)
    try await until { (try? server.store.get(Key("large")))??.bytes == blob }
    #expect(try client.digest() == server.digest())
    await client.node.stop()
    await server.node.stop()
  }

  @Test func `a node that only listens shows who is connected, and remembers what it learned of them`()
    async throws
  {
    let (server, client, _) = try await pair()
    #expect(server.node.state.connected.isEmpty)
    #expect(try Membership(server.store).contact(of: server.node.device) == nil)
    client.node.keepInStep(Self.policy)
    for await state in server.node.states where !state.connected.isEmpty {
      #expect(state.connected == [client.node.device] && state.peers.isEmpty)
      break
    }
    #expect(server.log.lines.contains { $0.contains("second stays connected") })
    try await until { client.node.state.connected == [server.node.device] }
    await client.node.stop()
    for await state in server.node.states where state.connected.isEmpty { break }
    try await until { try Membership(server.store).contact(of: client.node.device) != nil }
    #expect(try Membership(server.store).contact(of: client.node.device)?.actor == client.store.actor)
    await server.node.stop()
  }

  @Test func `peers disconnected by a stopping node are told so by name`() async throws {
    let (server, client, _) = try await pair()
    client.node.keepInStep(Self.policy)
    try await Self.live(client.node, "first")
    await server.node.stop()
    try await until {
      client.log.lines.contains { $0.hasSuffix("first refused: it shuts down: try again later") }
    }
    await client.node.stop()
  }

  @Test func `writes of many threads are replicated while they are made, and both copies end equal`()
    async throws
  {
    let (server, client, _) = try await pair()
    client.node.keepInStep(Self.policy)
    try await Self.live(client.node, "first")
    try await withThrowingTaskGroup(of: Void.self) { group in
      for writer in 0..<4 {
        group.addTask {
          for number in 0..<100 {
            try (writer < 2 ? server : client).put("\(writer) \(number)", "v \(number)")
            if number.isMultiple(of: 10) { try await Task.sleep(for: .milliseconds(1)) }
          }
        }
      }
      try await group.waitForAll()
    }
    try await until { try client.digest() == server.digest() }
    #expect(try client.get("0 99") == "v 99" && server.get("3 99") == "v 99")
    await client.node.stop()
    await server.node.stop()
  }

  @Test func `F69 a node reconnects by itself after its peer was away, and nothing was lost`() async throws {
    let (server, client, address) = try await pair()
    client.node.keepInStep(Self.policy)
    try await Self.live(client.node, "first")
    await server.node.stop()
    for await state in client.node.states(of: "first") where state.lastError != nil || state.phase != .live {
      break
    }
    try client.put("meanwhile here", "1")
    try server.put("meanwhile there", "2")
    let again = try Node(store: server.store)
    _ = try await again.start(listen: address)
    try await until {
      try server.get("meanwhile here") == "1" && client.get("meanwhile there") == "2"
    }
    await client.node.stop()
    await again.stop()
  }

  /// The secrets of the connections on which the node has a live session with the device: both ends of one
  /// have the same.
  private static func connections(of node: Node, to device: DeviceID) async throws -> [[UInt8]] {
    let core = node.core
    return try await node.onLoop { () throws(ReplicationError) in
      let all =
        core.value.incoming.values.map { ($0.device, $0.driver) }
        + core.value.outgoing.values.map { ($0.device, $0.driver) }
      var secrets: [[UInt8]] = []
      for case (device?, let driver?) in all where driver.isLive {
        secrets.append(try driver.link.exporter())
      }
      return secrets
    }
  }

  @Test func `F70 two nodes in live mode have one session, the same one on both sides`()
    async throws
  {
    let (server, client, _) = try await pair()
    let back = try await client.listen()
    try Membership(server.store).add(
      Peer(name: "second", addresses: [back.description], device: client.node.device))
    server.node.keepInStep(Self.policy)
    client.node.keepInStep(Self.policy)
    try await Self.live(client.node, "first")
    try await Self.live(server.node, "second")
    func here() async throws -> [[UInt8]] {
      try await Self.connections(of: server.node, to: client.node.device)
    }
    func there() async throws -> [[UInt8]] {
      try await Self.connections(of: client.node, to: server.node.device)
    }
    for number in 0..<10 {
      try client.put("c \(number)", "c")
      try server.put("s \(number)", "s")
      try await until { try server.get("c \(number)") == "c" && client.get("s \(number)") == "s" }
      #expect(try await here().count <= 1)
    }
    // A session that ends in favour of the other may be gone before that is live.
    var secrets = (try await here(), try await there())
    while secrets.0.count != 1 || secrets.0 != secrets.1 {
      try await Task.sleep(for: .milliseconds(2))
      secrets = (try await here(), try await there())
    }
    await server.node.stop()
    await client.node.stop()
  }

  @Test
  func
    `F61 one dot with two contents is found between idle live nodes, named in both logs, and repaired`()
    async throws
  {
    let (server, client, _) = try await pair()
    client.node.keepInStep(Self.policy)
    try await Self.live(client.node, "first")
    let (actor, mark) = (ActorID(high: 7, low: 7), RoundMark(high: 1, low: 1))
    let stamp = Stamp(milliseconds: client.store.environment.now())
    // Records applied by one are sent at once: the client receives nothing until both have their own content.
    let taken = try await client.node.onLoop { () throws(ReplicationError) in
      Result {
        for (copy, text) in [(server, "here"), (client, "there")] {
          let record = Record(
            version: Version(stamp: stamp, dot: Dot(actor: actor, sequence: 1)), key: Array("the key".utf8),
            content: .inline(Array(text.utf8)))
          _ = try copy.store.apply(
            IncomingBatch(
              sender: actor, mark: mark, position: 1, records: [PositionedRecord(position: 1, record: record)]
            ),
            closing: RoundClose(
              sender: actor, mark: mark, position: 1, vector: VersionVector([actor: 1]),
              floor: VersionVector(), horizon: .zero))
        }
      }
    }
    try taken.get()
    #expect(try client.digest() != server.digest())
    let core = client.node.core
    try await until {
      client.node.context.loop.execute { for driver in core.value.drivers { driver.expire(.comparison) } }
      return try client.digest() == server.digest()
    }
    try await until {
      [client, server].allSatisfy { $0.log.lines.contains { $0.contains("\"the key\"") } }
    }
    #expect(try client.get("the key") == "there" && server.get("the key") == "there")
    #expect(try server.store.conflicts().map(\.value) == [Array("here".utf8)])
    try client.put("after", "v")
    try await until { try server.get("after") == "v" }
    await client.node.stop()
    await server.node.stop()
  }

  @Test
  func
    `F68 pings end a live session whose peer machine vanished silently, and a new one replaces it`()
    async throws
  {
    let (server, client, address) = try await pair()
    let relay = try await VanishingRelay(to: address)
    try Membership(client.store).add(
      Peer(name: "first", addresses: [relay.address.description], device: server.node.device))
    client.node.keepInStep(Self.policy)
    try await Self.live(client.node, "first")
    try server.put("before", "1")
    try await until { try client.get("before") == "1" }
    let halves = [try await Self.drivers(of: server.node), try await Self.drivers(of: client.node)]
    #expect(halves.allSatisfy { $0.count == 1 })
    relay.vanish()
    try server.put("there", "2")
    try client.put("here", "3")
    for (copy, drivers) in zip([server, client], halves) {
      // Neither is notified: sent data vanishes, and nothing arrives.
      for tick in 0...(Limits.idleSeconds / Limits.pingSeconds) {
        let over = try await copy.node.onLoop { () throws(ReplicationError) in
          drivers.allSatisfy { $0.value.isOver }
        }
        if tick == 0 { #expect(!over) }
        try await copy.node.onLoop { () throws(ReplicationError) in
          for driver in drivers { driver.value.expire(.ping) }
        }
      }
      let over = try await copy.node.onLoop { () throws(ReplicationError) in
        drivers.allSatisfy { $0.value.isOver }
      }
      #expect(over)
    }
    try await until { try server.get("here") == "3" && client.get("there") == "2" }
    try await Self.live(client.node, "first")
    #expect(relay.connections >= 2)
    await client.node.stop()
    await server.node.stop()
  }

  private static func drivers(of node: Node) async throws -> [LoopBound<SessionDriver>] {
    let (core, loop) = (node.core, node.context.loop)
    return try await node.onLoop { () throws(ReplicationError) in
      core.value.drivers.map { LoopBound($0, to: loop) }
    }
  }

  @Test func `a push from another program of the same device works alongside its live session`() async throws
  {
    let (server, client, _) = try await pair()
    client.node.keepInStep(Self.policy)
    try await Self.live(client.node, "first")
    let other = try Node(store: client.store)
    for number in 0..<5 {
      try client.put("key \(number)", "v")
      let report = try await other.synchronize(with: "first", direction: .push)
      #expect(report.peer == "first")
      #expect(try server.get("key \(number)") == "v")
    }
    // Both directions still work, whichever session carried what.
    try client.put("after", "1")
    try server.put("after too", "2")
    try await until { try server.get("after") == "1" && client.get("after too") == "2" }
    #expect(
      try client.store.actor == Store.open(at: client.store.path, configuration: TestCopy.configuration).actor
    )
    await client.node.stop()
    await server.node.stop()
  }

  @Test func `F81 revoking a member ends its live session`() async throws {
    let (server, client, _) = try await pair()
    client.node.keepInStep(Self.policy)
    try await Self.live(client.node, "first")
    try Membership(server.store).revoke("second")
    for await state in client.node.states(of: "first") where state.lastError?.code == .notAMember { break }
    try server.put("secret", "x")
    #expect(try client.get("secret") == nil)
    await client.node.stop()
    await server.node.stop()
  }

  @Test(arguments: [Member.Right.revoked, .readOnly])
  func `F81 a change of right ends a session that has not caught up, however long it takes`(
    right: Member.Right
  ) async throws {
    let hub = try TestCopy.first()
    let address = try await hub.listen()
    let identity = try DeviceIdentity.generate()
    var member = Member(device: identity.id, name: "slow", right: .readWrite, addresses: [], joined: 0)
    try Membership(hub.store).put(member)
    let members = LoopBound(ThinMembers(), to: try EventLoop.shared())
    try await ThinMember.connect(
      identity, to: address, hub.store.id, try StoreKeys(hub.store).groupKeys(), members, isStuck: true)
    let closed = Awaited<SessionOutcome>()
    try await on(try EventLoop.shared()) { members.value.list[0].onClosed = { closed.put($0) } }
    let core = hub.node.core
    var hasGreeted = false
    while !hasGreeted {
      try Task.checkCancellation()
      hasGreeted = try await hub.node.onLoop { () throws(ReplicationError) in
        core.value.drivers.contains { $0.peer != nil && !$0.isLive }
      }
    }
    member.right = right
    try Membership(hub.store).put(member)
    // By the hub's review of its sessions, or by its handshake if that was not over yet.
    switch try await closed.take() {
    case .failed, .reconnect: break
    case .done: Issue.record("its session ended in good order")
    }
    await hub.node.stop()
  }

  @Test func `a schedule syncs copies periodically without staying connected`() async throws {
    let (server, client, _) = try await pair()
    client.node.keepInStep(KeepPolicy(schedule: .every(seconds: 1), retry: 1...50))
    for number in 0..<2 {
      try client.put("key \(number)", "v")
      try await until { try server.get("key \(number)") == "v" }
    }
    #expect(client.node.state["first"]?.phase != .live)
    await client.node.stop()
    await server.node.stop()
  }

  @Test func `a read-only member that stays connected receives, and sends nothing`() async throws {
    let (server, _, address) = try await pair()
    let reader = try await TestCopy.joined(
      try Node.invite(to: server.store, right: .readOnly, addresses: [address]), "reader")
    _ = try await reader.node.synchronize(with: "first", direction: .pull)
    #expect(throws: StoreError.self) { try reader.put("mine", "x") }
    reader.node.keepInStep(Self.policy)
    try await Self.live(reader.node, "first")
    try server.put("for all", "1")
    try await until { try reader.get("for all") == "1" }
    #expect(try server.get("mine") == nil)
    await reader.node.stop()
    await server.node.stop()
  }

  @Test func `disconnecting ends dialled sessions, and the states show it`() async throws {
    let (server, client, _) = try await pair()
    client.node.keepInStep(Self.policy)
    try await Self.live(client.node, "first")
    client.node.stopKeepingInStep()
    for await state in client.node.states where state.peers.isEmpty { break }
    await client.node.stop()
    var isOver = false
    for await state in client.node.states { isOver = state.isStopped }
    #expect(isOver)
    await server.node.stop()
  }

  @Test func `after a session the peer's clock offset and received position are remembered`() async throws {
    let (server, client, _) = try await pair()
    try client.put("key", "v")
    let report = try await client.node.synchronize(with: "first", direction: .push)
    let contact = try #require(try Contacts(client.store).contact(server.node.device))
    #expect(contact.received == report.position)
    #expect(try contact.actor == server.store.actor)
    await server.node.stop()
  }

  @Test func `marks of live rounds do not accumulate`() async throws {
    let (server, client, _) = try await pair()
    client.node.keepInStep(Self.policy)
    try await Self.live(client.node, "first")
    let before = try client.store.roundMarkCount()
    for number in 0..<60 {
      try client.store.put(Key("key \(number)"), [1], durability: .full)
      try await until { try server.store.get(Key("key \(number)")) != nil }
    }
    #expect(try client.store.roundMarkCount() - before < 20)
    await client.node.stop()
    await server.node.stop()
  }
}
