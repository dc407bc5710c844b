import Dispatch
import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// Strangers and broken peers must have no effect on a node.
@Suite(.timeLimit(.minutes(Patience.minutes(2)))) struct HostileTests {
  /// The most that a stranger may be sent: the server's part of a handshake and an alert, no application
  /// byte.
  private static func tryTLS(
    _ address: Endpoint, as identity: DeviceIdentity, protocols: [String]
  ) async throws -> (plaintext: [UInt8], failure: ReplicationError.Code?) {
    let end = Awaited<([UInt8], ReplicationError.Code?)>()
    try await startLink(to: address, as: identity, protocols: protocols) { link in
      var heard: [UInt8] = []
      link.onPlaintext = { heard += $0 }
      link.onEstablished = { _ in link.send([1, 2, 3]) }
      link.onEnd = { error in
        withExtendedLifetime(link) {}
        end.put((heard, error?.code))
      }
    }
    return try await end.take()
  }

  @Test func `F75 a stranger with its own certificate is sent no application byte`() async throws {
    let (server, client, address) = try await pair()
    let end = try await Self.tryTLS(address, as: .generate(), protocols: [WireLimits.sessionProtocol])
    #expect(end.plaintext.isEmpty)
    #expect(end.failure == .notAMember)
    _ = try await client.node.synchronize(with: "first")
    await server.node.stop()
  }

  @Test func `F87 a joining stranger is rejected when there is no open invitation`() async throws {
    let server = try TestCopy.first()
    let address = try await server.listen()
    let end = try await Self.tryTLS(address, as: .generate(), protocols: [WireLimits.joinProtocol])
    #expect(end.plaintext.isEmpty)
    #expect(end.failure == .notAMember)
    await server.node.stop()
  }

  private static let records: [(String, [UInt8])] = [
    ("garbage", noise(4000, seed: 9)),
    ("a length of 2 GiB", [0xFF, 0xFF, 0xFF, 0x7F, 0x01] + noise(100, seed: 1)),
    ("HTTP", Array("GET / HTTP/1.1\r\nHost: x\r\n\r\n".utf8)),
    ("a TLS record of the greatest length", [22, 3, 1, 0xFF, 0xFF] + noise(500, seed: 2)),
    // A hello that offers only TLS 1.2: no supported_versions extension.
    (
      "F76 TLS 1.2",
      [22, 3, 1, 0, 45, 1, 0, 0, 41, 3, 3] + noise(32, seed: 3) + [0, 0, 2, 0xC0, 0x2B, 1, 0]
    ),
  ]

  @Test(arguments: records.indices)
  func `F78 traffic of another protocol gets at most an alert, and members are served`(index: Int)
    async throws
  {
    let (what, bytes) = Self.records[index]
    let (server, client, address) = try await pair()
    let raw = try await RawClient(try EventLoop.shared(), to: address, saying: bytes)
    #expect(try await raw.ended.take(), "\(what)")
    let answer = raw.received.pending.flatMap { $0 }
    #expect(answer.isEmpty || (answer.count == 7 && answer[0] == 21), "\(what): \(answer)")
    _ = try await client.node.synchronize(with: "first")
    await server.node.stop()
  }

  @Test func `F88 F89 silent connections do not block a member for long`() async throws {
    let (server, client, address) = try await pair()
    var silent: [RawClient] = []
    for _ in 0..<60 { silent.append(try await RawClient(try EventLoop.shared(), to: address)) }
    _ = try await client.node.synchronize(with: "first")
    for connection in silent { #expect(connection.received.pending.isEmpty) }
    for connection in silent { try await connection.close() }
    await server.node.stop()
  }

  @Test func `F89 a connection that is being sent an alert keeps its slot until it is closed`() async throws {
    let server = try TestCopy.first()
    let address = try await server.listen()
    let core = server.node.core
    // Every change, however rarely this test gets a thread.
    let places = Awaited<Int>()
    try await server.node.onLoop { () throws(ReplicationError) in watch(core, 0, places) }
    let raw = try await RawClient(
      try EventLoop.shared(), to: address, saying: noise(4000, seed: 9), isDeaf: true)
    while try await places.take() != 1 {}
    try await raw.close()
    while try await places.take() != 0 {}
    await server.node.stop()
  }

  /// Reports every change of the number of slots taken by abandoned connections.
  private func watch(_ core: LoopBound<NodeCore>, _ last: Int, _ places: Awaited<Int>) {
    guard !core.value.isStopping else { return }
    let now = core.value.incoming.isEmpty ? core.value.admission.placesTaken : last
    if now != last { places.put(now) }
    _ = core.value.loop.schedule(after: 1) { watch(core, now, places) }
  }

  @Test func `F87 an invitation works once`() async throws {
    let server = try TestCopy.first()
    _ = try await server.listen()
    let token = try Node.invite(to: server.store)
    _ = try await TestCopy.joined(token, "second")
    await #expect { _ = try await TestCopy.joined(token, "third") } throws: {
      ($0 as? ReplicationError)?.code == .invalidInvitation
    }
    #expect(try Membership(server.store).members().map(\.name) == ["first", "second"])
    await server.node.stop()
  }

  @Test func `F87 of many that redeem one invitation at once, one becomes a member`() async throws {
    let server = try TestCopy.first()
    _ = try await server.listen()
    let token = try Node.invite(to: server.store)
    let joined = await withTaskGroup(of: Bool.self) { group in
      for number in 0..<6 { group.addTask { (try? await TestCopy.joined(token, "m\(number)")) != nil } }
      return await group.reduce(into: 0) { $0 += $1 ? 1 : 0 }
    }
    #expect(joined == 1)
    #expect(try Membership(server.store).members().count == 2)
    await server.node.stop()
  }

  @Test func `F87 the same device can ask again for an answer that was lost`() async throws {
    let server = try TestCopy.first()
    _ = try await server.listen()
    let token = try Node.invite(to: server.store)
    let invitation = try Invitation(text: token)
    let directory = TemporaryDirectory()
    let storage = server.store.environment.storage
    // As if the joiner had been killed between the inviter's acceptance and the creation of its store.
    _ = try storage.createDirectory(directory.path + "/s")
    let identity = try StoreKeys(path: directory.path + "/s", storage: storage).makeIdentity()
    guard
      case .member = try InvitationStore(store: server.store).redeem(
        invitation.pending, by: identity.id, called: "late", inviter: server.node.device)
    else {
      Issue.record("it was not redeemed")
      return
    }
    let joined = try await Node.join(token, at: directory.path + "/s", name: "late")
    #expect(joined.memberName == "late")
    await server.node.stop()
  }

  @Test func `F87 an invitation that has expired, or has another secret, is refused`() async throws {
    let server = try TestCopy.first()
    _ = try await server.listen()
    var invitation = try Invitation(text: try Node.invite(to: server.store))
    invitation.secret = SecureRandom.bytes(16)
    await #expect { _ = try await TestCopy.joined(invitation.text, "guesser") } throws: {
      ($0 as? ReplicationError)?.code == .invalidInvitation
    }
    var ended = try Invitation(text: try Node.invite(to: server.store))
    ended.expires = 1
    try server.store.setLocal(
      Array("invite/\(Hex.string(of: ended.id))".utf8), ended.pending.bytes)
    await #expect { _ = try await TestCopy.joined(ended.text, "late") } throws: {
      ($0 as? ReplicationError)?.code == .invalidInvitation
    }
    #expect(try Membership(server.store).members().count == 1)
    await server.node.stop()
  }

  @Test
  func `F88 a stranger is disconnected, and a member admitted, while members keep all other workers busy`()
    async throws
  {
    let directory = TemporaryDirectory()
    let store = try Store.create(at: directory.path + "/store", configuration: TestCopy.configuration)
    try Node.prepare(store, name: "busy")
    let pool = WorkerPool(width: 3)
    let node = try Node(
      store: store, configuration: Node.Configuration(), loop: try EventLoop.shared(), workers: pool)
    let address = try await node.start(listen: Endpoint(host: "127.0.0.1", port: 0))
    let token = try Node.invite(to: store)
    let isFree = DispatchSemaphore(value: 0)
    for _ in 0..<8 { pool.later { isFree.wait() } }
    let end = try await Self.tryTLS(address, as: .generate(), protocols: [WireLimits.sessionProtocol])
    #expect(end.failure == .notAMember)
    _ = try await TestCopy.joined(token, "second")
    for _ in 0..<8 { isFree.signal() }
    await node.stop()
  }
}
