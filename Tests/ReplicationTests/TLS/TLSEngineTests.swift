import Replication
import SyncStore
import Testing

/// Two engines connected to each other, and all bytes exchanged.
private struct Pair {
  let client: TLSEngine
  let server: TLSEngine
  var clientError: ReplicationError?
  var serverError: ReplicationError?

  /// Carries bytes both ways, `piece` at a time, until neither side has output.
  mutating func run(piece: Int = .max) {
    while client.outgoingCount + server.outgoingCount > 0 {
      carry(client.takeOutgoing(), to: server, piece: piece, error: &serverError)
      carry(server.takeOutgoing(), to: client, piece: piece, error: &clientError)
    }
  }

  private func carry(_ bytes: [UInt8], to engine: TLSEngine, piece: Int, error: inout ReplicationError?) {
    var rest = bytes[...]
    while !rest.isEmpty, error == nil {
      do { try engine.receive(Array(rest.prefix(piece))) } catch let caught { error = caught }
      rest = rest.dropFirst(piece)
    }
  }
}

@Suite struct TLSEngineTests {
  static let alpn = ["syncstore/1"]
  let alice: DeviceIdentity
  let bob: DeviceIdentity
  let mallory: DeviceIdentity

  init() throws {
    alice = try DeviceIdentity(privateKey: [UInt8](repeating: 1, count: 32))
    bob = try DeviceIdentity(privateKey: [UInt8](repeating: 2, count: 32))
    mallory = try DeviceIdentity(privateKey: [UInt8](repeating: 3, count: 32))
  }

  func engine(
    _ role: TLSContext.Role, _ identity: DeviceIdentity, alpn: [String] = Self.alpn,
    accept: @escaping TLSEngine.Accept = { _, _ in true }
  ) throws -> TLSEngine {
    try TLSEngine(context: TLSContext(role: role, identity: identity), alpn: alpn, accept: accept)
  }

  private func established() throws -> Pair {
    var pair = Pair(client: try engine(.client, alice), server: try engine(.server, bob))
    pair.run()
    try #require(pair.client.isEstablished && pair.server.isEstablished)
    return pair
  }

  @Test(
    "Two devices that accept each other are connected, however the bytes are split",
    arguments: [1, 7, 1000, .max])
  func handshake(piece: Int) throws {
    var asked: [String] = []
    let (alice, bob) = (alice.id, bob.id)
    let client = try engine(.client, self.alice) { device, name in
      asked.append("client: \(device == bob) \(name)")
      return device == bob
    }
    let server = try engine(.server, self.bob, alpn: ["syncstore-join/1", "syncstore/1"]) { device, name in
      asked.append("server: \(device == alice) \(name)")
      return device == alice
    }
    var pair = Pair(client: client, server: server)
    pair.run(piece: piece)
    #expect(pair.clientError == nil && pair.serverError == nil)
    #expect(client.isEstablished && server.isEstablished)
    #expect(client.peer == bob && server.peer == alice)
    #expect(client.negotiatedProtocol == "syncstore/1" && server.negotiatedProtocol == "syncstore/1")
    #expect(asked == ["client: true syncstore/1", "server: true syncstore/1"])
  }

  @Test(
    "Any number of bytes arrives unchanged, both ways", arguments: [1, 16383, 16384, 16385, 3_000_000])
  func transfer(count: Int) throws {
    var pair = try established()
    let sent = BatchCodecTests.noise(count)
    for piece in [.max, 1400] {
      try pair.client.send(sent[...])
      try pair.server.send(ArraySlice(sent.reversed()))
      pair.run(piece: piece)
      #expect(pair.server.takePlaintext() == sent)
      #expect(pair.client.takePlaintext() == sent.reversed())
      #expect(pair.server.takePlaintext().isEmpty)
    }
    #expect(pair.clientError == nil && pair.serverError == nil)
  }

  @Test(
    "F75 a server whose key is not pinned gets no application byte and no client key")
  func wrongServer() throws {
    let pinned = bob.id
    let client = try engine(.client, alice) { device, _ in device == pinned }
    let server = try engine(.server, mallory)
    var pair = Pair(client: client, server: server)
    pair.run()
    #expect(pair.clientError?.code == .notAMember)
    #expect(pair.clientError?.message.contains("\(mallory.id)") == true)
    #expect(pair.serverError?.code == .notAMember)
    #expect(!client.isEstablished && !server.isEstablished)
    #expect(server.peer == nil)
    #expect(throws: ReplicationError.self) { try client.send([1]) }
    #expect(client.takeOutgoing().isEmpty)
  }

  @Test(
    "F75 a client whose key is not pinned gets no application byte, and its bytes are ignored")
  func wrongClient() throws {
    let pinned = alice.id
    let client = try engine(.client, mallory)
    let server = try engine(.server, bob) { device, _ in device == pinned }
    try server.receive(client.takeOutgoing())
    // Half-way: the server has presented its key, but has not authenticated the client.
    #expect(throws: ReplicationError.self) { try server.send([1]) }
    try client.receive(server.takeOutgoing())
    // The client may send once it has accepted the server: the server must not process it yet.
    try client.send([1, 2, 3])
    var pair = Pair(client: client, server: server)
    pair.run()
    #expect(pair.serverError?.code == .notAMember)
    #expect(pair.clientError?.code == .notAMember)
    #expect(!server.isEstablished)
    #expect(server.takePlaintext().isEmpty && client.takePlaintext().isEmpty)
    #expect(throws: ReplicationError.self) { try server.send([1]) }
    #expect(throws: ReplicationError.self) { try client.send([1]) }
    #expect(throws: ReplicationError.self) { try server.receive([1]) }
  }

  /// The hello of a TLS 1.2 client, with an application protocol.
  static func hello(protocolName: String?) -> [UInt8] {
    func counted(_ bytes: [UInt8], width: Int = 2) -> [UInt8] {
      (0..<width).reversed().map { UInt8(truncatingIfNeeded: bytes.count >> (8 * $0)) } + bytes
    }
    let alpn = protocolName.map { [0, 16] + counted(counted(counted(Array($0.utf8), width: 1))) } ?? []
    let extensions: [UInt8] = [0, 10, 0, 4, 0, 2, 0, 29] + [0, 13, 0, 4, 0, 2, 8, 7] + alpn
    let body: [UInt8] =
      [3, 3] + [UInt8](repeating: 9, count: 32) + [0] + counted([0xC0, 0x2C, 0xC0, 0x30]) + [1, 0]
      + counted(extensions)
    return [22, 3, 1] + counted([1] + counted(body, width: 3))
  }

  @Test("F76 a client that supports at most TLS 1.2 is refused with an alert")
  func oldClient() throws {
    let server = try engine(.server, bob)
    let error = #expect(throws: ReplicationError.self) {
      try server.receive(Self.hello(protocolName: "syncstore/1"))
    }
    #expect(error?.code == .incompatible)
    // A fatal alert, protocol_version.
    #expect(server.takeOutgoing().suffix(2) == [2, 70])
    #expect(!server.isEstablished)
  }

  @Test("F76 a server that answers with TLS 1.2 is refused")
  func oldServer() throws {
    let client = try engine(.client, alice)
    let session = Array(client.takeOutgoing()[43...])
    let echo = Array(session.prefix(Int(session[0]) + 1))
    let body: [UInt8] = [3, 3] + [UInt8](repeating: 9, count: 32) + echo + [0xC0, 0x2C, 0]
    let message = [2, 0, 0, UInt8(body.count)] + body
    let error = #expect(throws: ReplicationError.self) {
      try client.receive([22, 3, 3, 0, UInt8(message.count)] + message)
    }
    #expect(error?.code == .incompatible)
    #expect(!client.isEstablished && client.peer == nil)
  }

  @Test("F76 the server issues no session tickets, and sends nothing after the handshake")
  func tickets() throws {
    let client = try engine(.client, alice)
    let server = try engine(.server, bob)
    try server.receive(client.takeOutgoing())
    try client.receive(server.takeOutgoing())
    try server.receive(client.takeOutgoing())
    #expect(client.isEstablished && server.isEstablished)
    #expect(server.outgoingCount == 0)
  }

  @Test(
    "A client that offers no application protocol, or none that we support, is refused")
  func applicationProtocols() throws {
    var pair = Pair(
      client: try engine(.client, alice, alpn: ["syncstore/2"]), server: try engine(.server, bob))
    pair.run()
    // Each side states its own protocols, and the remedy.
    for (error, own) in [(pair.serverError, "(syncstore/1)"), (pair.clientError, "(syncstore/2)")] {
      #expect(error?.code == .incompatible)
      let message = try #require(error?.message)
      #expect(
        message.contains("no application protocol that this one does \(own)")
          && message.contains("check that host and port are those of a copy"), "\(message)")
    }
    #expect(pair.server.peer == nil && pair.client.peer == nil)

    let server = try engine(.server, bob)
    let error = #expect(throws: ReplicationError.self) { try server.receive(Self.hello(protocolName: nil)) }
    #expect(error?.code == .incompatible)
    // A fatal alert, no_application_protocol.
    #expect(server.takeOutgoing().suffix(2) == [2, 120])
  }

  @Test("F77 both ends compute the same exporter, and a relay between two connections has two")
  func exporters() throws {
    let direct = try established()
    func export(_ engine: TLSEngine, _ label: String = "EXPORTER-test", _ context: [UInt8] = [1]) throws
      -> [UInt8]
    {
      try engine.exporter(label: label, context: context, count: 32)
    }
    #expect(try export(direct.client) == export(direct.server))
    #expect(try export(direct.client).count == 32)
    #expect(try export(direct.client) != export(direct.client, "EXPORTER-other"))
    #expect(try export(direct.client) != export(direct.client, "EXPORTER-test", [2]))

    // Mallory stands between Alice and Bob, who accept any key here, and relays all plaintext.
    var left = Pair(client: try engine(.client, alice), server: try engine(.server, mallory))
    var right = Pair(client: try engine(.client, mallory), server: try engine(.server, bob))
    left.run()
    right.run()
    #expect(try export(left.client) != export(right.server))
    #expect(throws: ReplicationError.self) { try export(engine(.client, alice)) }
  }

  @Test("A close arrives after the bytes before it, and later bytes are ignored")
  func closing() throws {
    var pair = try established()
    try pair.client.send([1, 2])
    pair.client.close()
    pair.client.close()
    #expect(throws: ReplicationError.self) { try pair.client.send([3]) }
    pair.run()
    #expect(pair.server.isClosedByPeer && !pair.client.isClosedByPeer)
    #expect(pair.server.takePlaintext() == [1, 2])
    // The other direction is still open.
    try pair.server.send([4])
    pair.server.close()
    pair.run()
    #expect(pair.client.takePlaintext() == [4])
    #expect(pair.client.isClosedByPeer)
    try pair.client.receive([1, 2, 3])
    #expect(pair.clientError == nil && pair.serverError == nil)
  }

  @Test("Bytes changed in transit end the connection, at any time", arguments: [0, 5, 20, 100])
  func changes(index: Int) throws {
    var pair = try established()
    try pair.client.send([UInt8](repeating: 65, count: 200)[...])
    var bytes = pair.client.takeOutgoing()
    bytes[index] ^= 1
    #expect(throws: ReplicationError.self) { try pair.server.receive(bytes) }
    #expect(pair.server.failure?.code == .protocolViolation)
    #expect(pair.server.takePlaintext().isEmpty)
    #expect(throws: ReplicationError.self) { try pair.server.send([1]) }
    pair.run()
    #expect(pair.clientError?.code == .protocolViolation)
  }

  @Test(
    "Traffic other than TLS is refused",
    arguments: ["GET / HTTP/1.1\r\n\r\n", "SSH-2.0-x\r\n", "\0\0\0\0\0\0\0\0"])
  func strangers(text: String) throws {
    for role in [TLSContext.Role.client, .server] {
      let end = try engine(role, alice)
      let error = #expect(throws: ReplicationError.self) { try end.receive(Array(text.utf8)) }
      #expect(error?.code == .protocolViolation || error?.code == .incompatible)
      #expect(!end.isEstablished)
    }
  }

  @Test("F90 an owner that does not consume its plaintext is throttled at the bound")
  func unread() throws {
    let pair = try established()
    let piece = [UInt8](repeating: 0, count: 8 << 20)
    var received = 0
    let error = #expect(throws: ReplicationError.self) {
      while received <= 2 * Limits.connectionBytes {
        try pair.client.send(piece[...])
        try pair.server.receive(pair.client.takeOutgoing())
        received += piece.count
      }
    }
    #expect(error?.code == .protocolViolation)
    #expect(received <= Limits.connectionBytes)
  }

  @Test("One context serves many connections, each with its own peer and keys")
  func sharedContext() throws {
    let server = try TLSContext(role: .server, identity: bob)
    let contexts = try [alice, mallory].map { try TLSContext(role: .client, identity: $0) }
    var exported: Set<[UInt8]> = []
    for round in 0..<10 {
      let context = contexts[round % 2]
      var pair = Pair(
        client: try TLSEngine(context: context, alpn: Self.alpn) { _, _ in true },
        server: try TLSEngine(context: server, alpn: Self.alpn) { _, _ in true })
      pair.run()
      #expect(pair.server.peer == context.device)
      exported.insert(try pair.server.exporter(label: "EXPORTER-test", context: [], count: 16))
    }
    #expect(exported.count == 10)
  }
}
