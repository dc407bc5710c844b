import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// Every reader waiting for a large value receives it, or an error that it is unavailable, whatever happens
/// to sessions concurrently.
@Suite("Waiting for large values", .timeLimit(.minutes(Patience.minutes(1))))
struct BlobFetchCoordinatorTests {
  /// Puts a relay between the client and the server at an address. After some bytes of each connection it
  /// silently drops everything.
  private static func swallowing(
    _ address: Endpoint, of server: TestCopy, for client: TestCopy
  ) async throws -> (relay: Relay, isHeldBack: Locked<Bool>) {
    let isHeldBack = Locked(false)
    let relay = try await Relay(to: address) {
      var left = 60_000
      return { count in
        left -= count
        if left <= 0 { isHeldBack.withLock { $0 = true } }
        return left > 0 || count == 0 ? .passed : .swallowed
      }
    }
    try Membership(client.store).add(
      Peer(name: "first", addresses: [relay.address.description], device: server.node.device))
    return (relay, isHeldBack)
  }

  @Test("A fetch requested in a session that broke is requested again in the next one with the same member")
  func otherSession() async throws {
    let (server, client, address) = try await pair()
    try client.store.setBlobPolicy(.lazy)
    let bytes = noise(500_000, seed: 31)
    try server.store.put("large", bytes)
    _ = try await client.node.synchronize(with: "first", direction: .pull)
    let (relay, isHeldBack) = try await Self.swallowing(address, of: server, for: client)
    defer { withExtendedLifetime(relay) {} }
    let node = client.node
    async let fetched = node.fetch("large")
    try await until { isHeldBack.withLock { $0 } }
    // The member dials, too, and that session stays.
    let back = try await client.listen()
    try Membership(server.store).add(
      Peer(name: "second", addresses: [back.description], device: client.node.device))
    server.node.keepInStep(KeepPolicy(retry: 1...50))
    try await until { client.node.state.connected == [server.node.device] }
    let core = client.node.core
    try await client.node.onLoop { () throws(ReplicationError) in
      for errand in core.value.outgoing.values { errand.driver?.abandon() }
    }
    #expect(try await fetched)
    #expect(try client.store.get("large")?.bytes == bytes)
    await client.node.stop()
    await server.node.stop()
  }

  @Test("A fetch from a member that stops responding fails, and can be retried")
  func silent() async throws {
    let (server, client, address) = try await pair()
    try client.store.setBlobPolicy(.lazy)
    try server.store.put("large", noise(500_000, seed: 36))
    _ = try await client.node.synchronize(with: "first", direction: .pull)
    let (relay, isHeldBack) = try await Self.swallowing(address, of: server, for: client)
    defer { withExtendedLifetime(relay) {} }
    let (node, core) = (client.node, client.node.core)
    for _ in 0..<2 {
      let isOver = Locked(false)
      let fetched = Task {
        defer { isOver.withLock { $0 = true } }
        _ = try await node.fetch("large")
      }
      try await until { isHeldBack.withLock { $0 } }
      while !isOver.withLock({ $0 }) {
        try await node.onLoop { () throws(ReplicationError) in core.value.blobFetches.tick() }
        try await Task.sleep(for: .milliseconds(20))
      }
      let error = await #expect(throws: ReplicationError.self) { try await fetched.value }
      #expect(error?.message.contains("first answers, but does not give it") == true)
    }
    await client.node.stop()
    await server.node.stop()
  }

  @Test("A member with an open control-only session can be dialled all the same (F70)")
  func controlOnly() async throws {
    let (server, client, _) = try await pair()
    let back = try await client.listen()
    try Membership(server.store).add(
      Peer(name: "second", addresses: [back.description], device: client.node.device))
    // Of two that dial at once, the session of the smaller identity continues.
    let (lower, upper, name) =
      server.node.device < client.node.device ? (server, client, "first") : (client, server, "second")
    let gathered = Awaited<Int>()
    let core = lower.node.core
    try await lower.node.onLoop { () throws(ReplicationError) in
      core.value.blobFetches.connectAllMembers { gathered.put(core.value.outgoing.count) }
    }
    #expect(try await gathered.take() == 1)
    try upper.put("key", "value")
    _ = try await upper.node.synchronize(with: name)
    #expect(try lower.get("key") == "value")
    await lower.node.stop()
    await upper.node.stop()
  }

  @Test("A member that is receiving a large value, and sends nothing itself, does not count as silent")
  func movesBytes() async throws {
    let (server, client, _) = try await pair()
    try server.store.put("large", noise(24 << 20, seed: 32))
    let core = server.node.core
    let hasMoved = Locked(false)
    // The event loop checks by itself: a task may get its turn only when everything is over.
    try await server.node.onLoop { () throws(ReplicationError) in
      func look() {
        if core.value.incoming.values.contains(where: {
          $0.driver.map { $0.lastMoved > $0.lastHeard } ?? false
        }) {
          return hasMoved.withLock { $0 = true }
        }
        _ = core.value.loop.schedule(after: 1) { look() }
      }
      look()
    }
    _ = try await client.node.synchronize(with: "first", direction: .pull)
    #expect(hasMoved.withLock { $0 })
    await server.node.stop()
  }
}

/// `BlobSwarm` alone, with members reduced to their answers.
@Suite("Large values from several members", .timeLimit(.minutes(Patience.minutes(1))))
struct BlobSwarmTests {
  /// A member's answer to the request for a part.
  private enum Answer {
    /// It answers at once that it does not have it.
    case lacking
    case all
    /// All bytes but the last one.
    case short
    /// One byte too many, of a part that is not the last one.
    case long
    case nothing
  }

  /// A member reduced to its answer.
  private final class Giver: PartGiver {
    private let device: DeviceID
    private let bytes: [UInt8]
    private let answer: Answer
    private let loop: EventLoop
    private weak var swarm: BlobSwarm?
    private(set) var asked: [BlobPart] = []
    private(set) var transferProgress: Int? = 0

    init(_ device: DeviceID, _ bytes: [UInt8], _ answer: Answer, _ swarm: BlobSwarm, _ loop: EventLoop) {
      (self.device, self.bytes, self.answer, self.swarm, self.loop) = (device, bytes, answer, swarm, loop)
    }

    func want(_ parts: BlobPartsWanted) {
      asked += parts.parts
      let more =
        switch answer {
        case .lacking: Int?.none
        case .all: 0
        case .short: -1
        case .long: 1
        case .nothing: Int?.none
        }
      guard let more else { return answer == .lacking ? swarm?.lost(device) ?? () : () }
      let this = LoopBound(self, to: loop)
      loop.execute {
        for part in parts.parts { this.value.give(part, more) }
      }
    }

    private func give(_ part: BlobPart, _ more: Int) {
      transferProgress = (transferProgress ?? 0) + 1
      let end = min(Int(part.end) + more, bytes.count)
      swarm?.arrived(offset: part.offset, bytes: Array(bytes[Int(part.offset)..<end]), from: device)
    }
  }

  /// Fetches a value from members that answer this way, while time passes. Returns whether it arrived, and
  /// what each member was asked for.
  private static func fetch(
    _ bytes: [UInt8], from answers: [Answer], into copy: TestCopy
  ) async throws -> (isHere: Bool?, asked: [[BlobPart]]) {
    let hash = try #require(BlobHash(bytes: SHA256.hash(bytes)))
    let (core, loop) = (copy.node.core, try EventLoop.shared())
    let ended = Locked<Bool?>(nil)
    let swarm = try await copy.node.onLoop { () throws(ReplicationError) in
      let blob = BlobReference(hash: hash, size: UInt64(bytes.count))
      let swarm = BlobSwarm(blob: blob, context: core.value.context, loop: loop)
      var givers: [Giver] = []
      for (number, answer) in answers.enumerated() {
        guard let device = DeviceID(bytes: [UInt8](repeating: UInt8(number), count: 32)) else { continue }
        givers.append(Giver(device, bytes, answer, swarm, loop))
        swarm.join(device, driver: givers[number])
      }
      swarm.onEnd = { isHere in ended.withLock { $0 = isHere } }
      swarm.start()
      return LoopBound((swarm, givers), to: loop)
    }
    // Each tick is one second: longer than it takes to store what has arrived.
    for tick in 0..<400 where ended.withLock({ $0 }) == nil {
      try await Task.sleep(for: .milliseconds(10))
      guard tick % 20 == 19 else { continue }
      try await copy.node.onLoop { () throws(ReplicationError) in swarm.value.0.tick() }
    }
    let asked = try await copy.node.onLoop { () throws(ReplicationError) in swarm.value.1.map(\.asked) }
    return (ended.withLock { $0 }, asked)
  }

  @Test("Members that turn out to lack the value are excluded from the swarm")
  func lacking() async throws {
    let copy = try TestCopy.first()
    let bytes = noise(3 * Int(BlobSwarm.partBytes), seed: 33)
    let answers = (0...6).map { $0 == 3 ? Answer.all : .lacking }
    let (isHere, asked) = try await Self.fetch(bytes, from: answers, into: copy)
    #expect(isHere == true)
    #expect(asked[3].map(\.offset) == [0, BlobSwarm.partBytes, 2 * BlobSwarm.partBytes])
    #expect(try copy.store.blobs.has(try #require(BlobHash(bytes: SHA256.hash(bytes)))))
  }

  @Test(
    "A member that sends a wrong number of bytes, or nothing, delays nothing: another one sends its part",
    arguments: [Answer.short, .long, .nothing])
  private func others(answer: Answer) async throws {
    let copy = try TestCopy.first()
    // More than is requested beyond the missing part.
    let bytes = noise(Int(BlobSwarm.outOfOrderBytes + 2 * BlobSwarm.partBytes), seed: 34)
    let fetched = try await Self.fetch(bytes, from: [answer, .all], into: copy)
    #expect(fetched.isHere == true && fetched.asked[0].count == 1)
    #expect(try copy.store.blobs.has(try #require(BlobHash(bytes: SHA256.hash(bytes)))))
  }

  @Test(
    "Without other members the fetch ends without the value", arguments: [Answer.short, .long, .nothing])
  private func alone(answer: Answer) async throws {
    let bytes = noise(2 * Int(BlobSwarm.partBytes), seed: 35)
    let fetched = try await Self.fetch(bytes, from: [answer], into: try TestCopy.first())
    #expect(fetched.isHere == false)
  }
}
