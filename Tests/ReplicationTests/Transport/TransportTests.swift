import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

@Suite(.serialized, .timeLimit(.minutes(Patience.minutes(1)))) struct TCPConnectionTests {
  @Test func `sent bytes arrive complete and in order`() async throws {
    let test = try TestLoop()
    let loop = test.loop
    let listener = try await TestListener(loop)
    let client = try await connect(loop, to: listener.address)
    let server = try await listener.connections.take()
    let sent = (0..<5_000_000).map { UInt8(truncatingIfNeeded: $0 &* 7) }
    let received = Awaited<[UInt8]>()
    loop.execute {
      var collected: [UInt8] = []
      server.value.onBytes = { collected += $0 }
      server.value.onEnd = { _ in received.put(collected) }
      _ = server.value.start()
      _ = client.value.start()
      client.value.send(sent)
      client.value.finish()
    }
    #expect(try await received.take() == sent)
  }

  @Test func `a paused connection reads nothing until it is resumed`() async throws {
    let test = try TestLoop()
    let loop = test.loop
    let listener = try await TestListener(loop)
    let client = try await connect(loop, to: listener.address)
    let server = try await listener.connections.take()
    let received = Awaited<[UInt8]>()
    let answered = Awaited<[UInt8]>()
    loop.execute {
      server.value.onBytes = { received.put($0) }
      client.value.onBytes = { answered.put($0) }
      _ = server.value.start()
      _ = client.value.start()
      server.value.pause()
      client.value.send([1, 2, 3])
      server.value.send([9])
    }
    #expect(try await answered.take() == [9])
    #expect(received.pending.isEmpty)
    loop.execute { server.value.resume() }
    #expect(try await received.take() == [1, 2, 3])
  }

  @Test func `F90 a peer that never reads is dropped when its queue is full`() async throws {
    let test = try TestLoop()
    let loop = test.loop
    let listener = try await TestListener(loop)
    let silent = try await connect(loop, to: listener.address)
    let server = try await listener.connections.take()
    let ended = Awaited<ReplicationError.Code?>()
    loop.execute {
      server.value.onEnd = { ended.put($0?.code) }
      _ = server.value.start()
      let piece = [UInt8](repeating: 1, count: 1 << 20)
      for _ in 0..<64 { server.value.send(piece) }
    }
    #expect(try await ended.take() == .timeout)
    #expect(try await on(loop) { !server.value.isOpen && silent.value.isOpen })
  }

  @Test func `F90 a peer that consumes nothing of the queue is dropped after a time`() async throws {
    let test = try TestLoop()
    let loop = test.loop
    let ended = Awaited<ReplicationError.Code?>()
    let accepted = Awaited<Bool>()
    let address = try await on(loop) {
      let address = try SocketAddress.resolve(Endpoint(host: "127.0.0.1", port: 0), listening: true)[0]
      return try TCPListener(at: address, loop: loop, log: { _, _ in }) { socket, remote in
        let connection = TCPConnection(socket, remote: remote, loop: loop, stallMilliseconds: 50)
        connection.onEnd = { ended.put($0?.code) }
        _ = connection.start()
        for _ in 0..<20 { connection.send([UInt8](repeating: 1, count: 1 << 20)) }
        accepted.put(true)
      }.address
    }
    let silent = try await connect(loop, to: Endpoint(host: address.host, port: address.port))
    #expect(try await accepted.take())
    #expect(try await ended.take() == .timeout)
    #expect(try await on(loop) { silent.value.isOpen })
  }

  @Test func `F90 a finishing connection is closed, even if its peer consumes a little again and again`()
    async throws
  {
    let test = try TestLoop()
    let loop = test.loop
    let left = Awaited<Int>()
    let address = try await on(loop) {
      let address = try SocketAddress.resolve(Endpoint(host: "127.0.0.1", port: 0), listening: true)[0]
      return try TCPListener(at: address, loop: loop, log: { _, _ in }) { socket, remote in
        let connection = TCPConnection(socket, remote: remote, loop: loop, stallMilliseconds: 200)
        connection.onClose = { [unowned connection] in left.put(connection.queuedBytes) }
        _ = connection.start()
        for _ in 0..<32 { connection.send([UInt8](repeating: 1, count: 1 << 20)) }
        connection.finish()
      }.address
    }
    let slow = try await connect(loop, to: Endpoint(host: address.host, port: address.port))
    try await on(loop) {
      slow.value.onBytes = { _ in
        slow.value.pause()
        _ = loop.schedule(after: 1) { slow.value.resume() }
      }
      _ = slow.value.start()
    }
    #expect(try await left.take() > 0)
    try await on(loop) { slow.value.close() }
  }

  @Test func `F90 when all have too much queued, the oldest finishing connections are closed`()
    async throws
  {
    let test = try TestLoop()
    let loop = test.loop
    let listener = try await TestListener(loop)
    var clients: [LoopBound<TCPConnection>] = []
    var servers: [LoopBound<TCPConnection>] = []
    for _ in 0..<3 {
      clients.append(try await connect(loop, to: listener.address))
      servers.append(try await listener.connections.take())
    }
    let (finishing, all) = (LoopBound(FinishingConnections(limit: 40 << 20), to: loop), servers)
    let gone = Awaited<Int>()
    try await on(loop) {
      for (number, server) in all.enumerated() {
        _ = server.value.start()
        // The sockets hold only a few of them.
        for _ in 0..<30 { server.value.send([UInt8](repeating: 1, count: 1 << 20)) }
        server.value.finish()
        finishing.value.add(UInt64(number), connection: server.value) { gone.put(number) }
      }
      #expect(all.map(\.value.isOpen) == [false, false, true])
      #expect(finishing.value.queuedBytes == all[2].value.queuedBytes)
      finishing.value.close(2)
      finishing.value.add(3, connection: all[0].value) { gone.put(3) }
    }
    for number in 0..<4 { #expect(try await gone.take() == number) }
    try await on(loop) { [clients] in for client in clients { client.value.close() } }
  }

  @Test func `F89 when there are too many, the oldest finishing connections are closed`() async throws {
    let test = try TestLoop()
    let loop = test.loop
    let listener = try await TestListener(loop)
    var clients: [LoopBound<TCPConnection>] = []
    var servers: [LoopBound<TCPConnection>] = []
    for _ in 0..<4 {
      clients.append(try await connect(loop, to: listener.address))
      servers.append(try await listener.connections.take())
    }
    let (finishing, all) = (LoopBound(FinishingConnections(most: 2), to: loop), servers)
    try await on(loop) {
      for (number, server) in all.enumerated() {
        _ = server.value.start()
        server.value.finish()
        finishing.value.add(UInt64(number), connection: server.value) {}
      }
      #expect(finishing.value.count == 2)
      #expect(all.map(\.value.isOpen) == [false, false, true, true])
    }
    try await on(loop) { [clients] in for client in clients { client.value.close() } }
  }

  @Test func `a cut connection is reported once, and sending on it raises no fatal signal`() async throws {
    let test = try TestLoop()
    let loop = test.loop
    let listener = try await TestListener(loop)
    let client = try await connect(loop, to: listener.address)
    let server = try await listener.connections.take()
    let ended = Awaited<Bool>()
    loop.execute {
      client.value.onEnd = { _ in ended.put(true) }
      _ = client.value.start()
      server.value.close()
    }
    #expect(try await ended.take())
    try await on(loop) {
      client.value.send([1])
      client.value.finish()
    }
    #expect(ended.pending.isEmpty)
  }

  @Test func `connecting to a port without a listener is a network failure`() async throws {
    let test = try TestLoop()
    let listener = try await TestListener(test.loop)
    try await listener.close()
    await #expect { _ = try await connect(test.loop, to: listener.address) } throws: {
      ($0 as? ReplicationError)?.code == .network
    }
  }

  @Test func `a name that does not exist is a network failure`() async throws {
    let test = try TestLoop()
    await #expect { _ = try await connect(test.loop, to: Endpoint(host: "no such host", port: 1)) } throws: {
      ($0 as? ReplicationError)?.code == .network
    }
  }

  @Test func `F33 accepting pauses when no descriptors are left, and resumes later`() async throws {
    let test = try TestLoop()
    let failures = Counter()
    let listener = try await TestListener(test.loop) { socket in
      failures.next() <= 3 ? .exhausted : socket.accept()
    }
    _ = try await connect(test.loop, to: listener.address)
    _ = try await listener.connections.take()
    // Three pauses, no busy loop: then the connection, then no waiter is left.
    #expect((4...6).contains(failures.count))
  }
}

@Suite struct EndpointTests {
  @Test(
    arguments: [
      ("localhost:80", "localhost", 80), ("localhost", "localhost", 7420), (":0", "", 0),
      ("127.0.0.1:65535", "127.0.0.1", 65535), ("[::1]:7", "::1", 7),
      ("[fe80::1%eth0]", "fe80::1%eth0", 7420), ("\u{601}:8", "\u{601}", 8),
    ] as [(String, String, UInt16)])
  func `an address round-trips`(text: String, host: String, port: UInt16) {
    #expect(Endpoint(text) == Endpoint(host: host, port: port))
    #expect(Endpoint(Endpoint(host: host, port: port).description) == Endpoint(host: host, port: port))
  }

  @Test(arguments: [
    "", "host:", "host:x", "host:65536", "host:-1", "host:+1", "::1", "[::1", "[host]:1", "[::1]x", "a b:1",
    "a/b:1",
    "a]:1",
  ])
  func `an invalid address is refused`(text: String) { #expect(Endpoint(text) == nil) }

  @Test(arguments: ["127.0.0.1", "::1"])
  func `a numeric address is resolved without a query`(host: String) throws {
    let found = try SocketAddress.resolve(Endpoint(host: host, port: 9))
    #expect(found.map(\.host) == [host])
    #expect(found.map(\.port) == [9])
  }
}

@Suite struct AdmissionTests {
  private typealias Action = Admission.Action

  @Test func `F89 the number of connections in authentication is bounded, for each address and in total`() {
    var admission = Admission(total: 3, perAddress: 2, waiting: 10, grace: 100)
    #expect(admission.came(1, from: "a", at: 0) == [.start(1)])
    #expect(admission.came(2, from: "a", at: 0) == [.start(2)])
    #expect(admission.came(3, from: "a", at: 0) == [])
    #expect(admission.came(4, from: "b", at: 0) == [.start(4)])
    #expect(admission.came(5, from: "c", at: 0) == [])
    #expect(admission.placesTaken == 3 && admission.waitingCount == 2)
  }

  @Test func `a free slot goes to the connection that came last`() {
    var admission = Admission(total: 1, perAddress: 1, waiting: 10, grace: 100)
    _ = admission.came(1, from: "a", at: 0)
    _ = admission.came(2, from: "b", at: 0)
    _ = admission.came(3, from: "c", at: 0)
    #expect(admission.left(1, at: 1) == [.start(3)])
    #expect(admission.left(3, at: 2) == [.start(2)])
    #expect(admission.left(2, at: 3) == [])
    #expect(admission.placesTaken == 0)
  }

  @Test
  func
    `F88 a connection not authenticated in the grace period loses its slot if another waits, not before`()
  {
    var admission = Admission(total: 1, perAddress: 1, waiting: 10, grace: 100)
    _ = admission.came(1, from: "a", at: 0)
    #expect(admission.tick(at: 1000) == [])
    #expect(admission.came(2, from: "a", at: 1000) == [.drop(1), .start(2)])
    #expect(admission.came(3, from: "a", at: 1050) == [])
    #expect(admission.tick(at: 1099) == [])
    #expect(admission.tick(at: 1100) == [.drop(2), .start(3)])
  }

  @Test func `F89 in a flood a member of another address is served at once`() {
    var admission = Admission()
    for number in 1...2_000 { _ = admission.came(UInt64(number), from: "flood", at: 0) }
    #expect(admission.placesTaken == Limits.unauthenticatedConnectionsPerAddress)
    #expect(admission.waitingCount == TransportLimits.waitingConnections)
    #expect(admission.came(20_000, from: "member", at: 1) == [.start(20_000)])
  }

  @Test func `F89 in a flood a member of the same address is served after the grace`() {
    var admission = Admission()
    for number in 1...2_000 { _ = admission.came(UInt64(number), from: "flood", at: 0) }
    _ = admission.came(20_000, from: "flood", at: 1)
    let actions = admission.tick(at: TransportLimits.graceMilliseconds)
    #expect(actions.contains(.start(20_000)))
  }

  @Test
  func `F88 silent connections take no slot, and wait for a bounded time, in bounded number`() {
    var admission = Admission(total: 1, perAddress: 1, waiting: 3, grace: 100)
    for number in 1...3 { #expect(admission.arrived(UInt64(number), from: "a", at: 0) == []) }
    #expect(admission.placesTaken == 0)
    #expect(admission.came(4, from: "a", at: 1) == [.drop(1), .start(4)])
    #expect(admission.came(5, from: "a", at: 2) == [])
    #expect(admission.arrived(6, from: "a", at: 3) == [])
    #expect(admission.arrived(7, from: "a", at: 3) == [.drop(2)])
    #expect(admission.tick(at: 10, deadline: 10) == [.drop(3)])
    #expect(admission.left(4, at: 11) == [.start(5)])
    #expect(admission.spoke(3, at: 12) == [])
  }

  @Test func `a connection that waits past the deadline is dropped`() {
    var admission = Admission(total: 1, perAddress: 1, waiting: 10, grace: 100_000)
    _ = admission.came(1, from: "a", at: 0)
    _ = admission.came(2, from: "a", at: 5)
    #expect(admission.tick(at: 14, deadline: 10) == [])
    #expect(admission.tick(at: 15, deadline: 10) == [.drop(2)])
    #expect(admission.left(2, at: 16) == [])
  }
}

extension AdmissionTests {
  @Test func `F89 a network with several slots soon gives one up to a network with none`() {
    var admission = Admission(total: 4, perAddress: 4, waiting: 10, grace: 2_000, fairGrace: 500)
    for number in 1...4 {
      #expect(admission.came(UInt64(number), from: "flood", at: 0) == [.start(UInt64(number))])
    }
    #expect(admission.came(5, from: "member", at: 1) == [])
    #expect(admission.came(6, from: "flood", at: 2) == [])
    #expect(admission.tick(at: 499) == [])
    #expect(admission.tick(at: 500) == [.drop(1), .start(5)])
    // Among members with equal counts the long grace period decides.
    #expect(admission.tick(at: 1_999) == [])
    #expect(admission.tick(at: 2_000) == [.drop(2), .start(6)])
  }

  @Test func `F89 a flood from as many networks as there are slots delays another by under a second`() {
    var admission = Admission()
    for number in 1...Limits.unauthenticatedConnections {
      #expect(admission.came(UInt64(number), from: "flood \(number)", at: 0) == [.start(UInt64(number))])
    }
    #expect(admission.came(1_000, from: "member", at: 1) == [])
    for number in 1...Limits.unauthenticatedConnections {
      #expect(admission.came(UInt64(1_000 + number), from: "flood \(number)", at: 2) == [])
    }
    #expect(admission.tick(at: 799) == [])
    #expect(admission.tick(at: 800) == [.drop(1), .start(1_000)])
  }

  @Test func `F89 among waiting connections, one without a slot precedes the one that came last`() {
    var admission = Admission(total: 2, perAddress: 2, waiting: 10, grace: 10_000)
    for number in 1...2 { _ = admission.came(UInt64(number), from: "flood", at: 0) }
    _ = admission.came(3, from: "member", at: 1)
    _ = admission.came(4, from: "flood", at: 2)
    #expect(admission.left(1, at: 3) == [.start(3)])
  }

  @Test func `F89 a refused connection that lingers gives its slot up at once`() {
    var admission = Admission(total: 1, perAddress: 1, waiting: 10, grace: 10_000)
    _ = admission.came(1, from: "stranger", at: 0)
    #expect(admission.finishes(1, at: 1) == [])
    #expect(admission.placesTaken == 1)
    #expect(admission.came(2, from: "member", at: 1) == [.drop(1), .start(2)])
    _ = admission.came(3, from: "other", at: 1)
    #expect(admission.finishes(2, at: 2) == [.drop(2), .start(3)])
    #expect(admission.finishes(2, at: 3) == [])
  }

  @Test(
    arguments: [
      ("192.0.2.1", "192.0.2.1"), ("::ffff:192.0.2.1", "192.0.2.1"),
      ("2001:db8:1:2:3:4:5:6", "20010db800010002/64"), ("2001:db8:1:2::1", "20010db800010002/64"),
      ("2001:db8:1:3::1", "20010db800010003/64"),
    ])
  func `F89 attempts are counted by IPv4 address, and by the first 64 bits of an IPv6 address`(
    host: String, network: String
  )
    throws
  {
    #expect(try SocketAddress.resolve(Endpoint(host: host, port: 9)).map(\.network) == [network])
  }
}

extension Admission {
  /// A connection that speaks at once.
  fileprivate mutating func came(_ number: UInt64, from address: String, at now: UInt64) -> [Action] {
    arrived(number, from: address, at: now) + spoke(number, at: now)
  }
}
