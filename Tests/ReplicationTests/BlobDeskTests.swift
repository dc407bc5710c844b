import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// Whoever waits for a large value gets it, or hears that it cannot be had, whatever becomes of sessions meanwhile.
@Suite("Waiting for large values", .timeLimit(.minutes(Patience.minutes(1))))
struct BlobDeskTests {
  private static func until(_ isSo: () async throws -> Bool) async throws {
    while try await !isSo() { try await Task.sleep(for: .milliseconds(2)) }
  }

  @Test("What was asked in a session that broke is asked again in another one with the same member")
  func otherSession() async throws {
    let (server, client, address) = try await pair()
    try client.store.setBlobPolicy(.lazy)
    let bytes = noise(500_000, seed: 31)
    try server.store.put("large", bytes)
    _ = try await client.node.synchronize(with: "first", direction: .pull)
    // What comes of it does not come through, and nobody is told.
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
    let node = client.node
    async let fetched = node.fetch("large")
    try await Self.until { isHeldBack.withLock { $0 } }
    // The member dials, too, and that session stays.
    let back = try await client.listen()
    try Membership(server.store).add(
      Peer(name: "second", addresses: [back.description], device: client.node.device))
    server.node.keepInStep(KeepPolicy(retry: 1...50))
    try await Self.until { client.node.state.connected == [server.node.device] }
    let core = client.node.core
    try await client.node.onLoop { () throws(ReplicationError) in
      for errand in core.value.outgoing.values { errand.driver?.abandon() }
    }
    #expect(try await fetched)
    #expect(try client.store.get("large")?.bytes == bytes)
    await client.node.stop()
    await server.node.stop()
  }

  @Test("A member to which a session on an errand is open may dial all the same (F70)")
  func errand() async throws {
    let (server, client, _) = try await pair()
    let back = try await client.listen()
    try Membership(server.store).add(
      Peer(name: "second", addresses: [back.description], device: client.node.device))
    // Of two that dial at once the smaller one's session goes on.
    let (lower, upper, name) =
      server.node.device < client.node.device ? (server, client, "first") : (client, server, "second")
    let gathered = Awaited<Int>()
    let core = lower.node.core
    try await lower.node.onLoop { () throws(ReplicationError) in
      core.value.desk.gather { gathered.put(core.value.outgoing.count) }
    }
    #expect(await gathered.take() == 1)
    try upper.put("key", "value")
    _ = try await upper.node.synchronize(with: name)
    #expect(try lower.get("key") == "value")
    await lower.node.stop()
    await upper.node.stop()
  }

  @Test("A member that is sent a large value, and has nothing to say meanwhile, is not silent")
  func movesBytes() async throws {
    let (server, client, _) = try await pair()
    try server.store.put("large", noise(24 << 20, seed: 32))
    let isOver = Locked(false)
    let pull = Task {
      defer { isOver.withLock { $0 = true } }
      _ = try await client.node.synchronize(with: "first", direction: .pull)
    }
    let core = server.node.core
    var hasMoved = false
    while !hasMoved, !isOver.withLock({ $0 }) {
      hasMoved = try await server.node.onLoop { () throws(ReplicationError) in
        core.value.incoming.values.contains { $0.driver.map { $0.lastMoved > $0.lastHeard } ?? false }
      }
    }
    #expect(hasMoved)
    try await pull.value
    await server.node.stop()
  }
}

/// `BlobSwarm` alone, with members that are but what they answer.
@Suite("Large values from several members", .timeLimit(.minutes(Patience.minutes(1))))
struct BlobSwarmTests {
  /// A member that says at once that it does not have it, or that gives all that it is asked for.
  private final class Giver: PartGiver {
    private let device: DeviceID
    private let bytes: [UInt8]?
    private let loop: EventLoop
    private weak var swarm: BlobSwarm?
    private(set) var asked: [BlobPart] = []

    init(_ device: DeviceID, _ bytes: [UInt8]?, _ swarm: BlobSwarm, _ loop: EventLoop) {
      (self.device, self.bytes, self.swarm, self.loop) = (device, bytes, swarm, loop)
    }

    func want(_ parts: BlobPartsWanted) {
      asked += parts.parts
      guard let bytes else { return swarm?.lost(device) ?? () }
      let this = LoopBound((swarm, device), to: loop)
      loop.execute {
        let (swarm, device) = this.value
        for part in parts.parts {
          swarm?.arrived(part.offset, Array(bytes[Int(part.offset)..<Int(part.end)]), from: device)
        }
      }
    }
  }

  @Test("Members that lack it, and say so while others are being asked, take no part with them")
  func lacking() async throws {
    let copy = try TestCopy.first()
    let bytes = noise(3 * Int(BlobSwarm.partBytes), seed: 33)
    let hash = try #require(BlobHash(bytes: SHA256.hash(bytes)))
    let (core, loop) = (copy.node.core, try EventLoop.shared())
    let (ended, asked) = (Awaited<Bool>(), Locked<[BlobPart]>([]))
    try await copy.node.onLoop { () throws(ReplicationError) in
      let blob = BlobReference(hash: hash, size: UInt64(bytes.count))
      let swarm = BlobSwarm(blob, core.value.context, loop)
      var givers: [Giver] = []
      for number in 0...6 as ClosedRange<UInt8> {
        guard let device = DeviceID(bytes: [UInt8](repeating: number, count: 32)) else { continue }
        givers.append(Giver(device, number == 3 ? bytes : nil, swarm, loop))
        swarm.join(device, givers[givers.count - 1])
      }
      let giver = givers[3]
      swarm.onEnd = { isHere in
        asked.withLock { $0 = giver.asked }
        withExtendedLifetime(swarm) {}
        ended.put(isHere)
      }
      swarm.start()
    }
    #expect(await ended.take())
    let offsets = asked.withLock { $0.map(\.offset) }
    #expect(offsets == [0, BlobSwarm.partBytes, 2 * BlobSwarm.partBytes])
    #expect(try copy.store.blobs.has(hash))
  }
}
