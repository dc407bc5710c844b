import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

@Suite("A large value that changed", .timeLimit(.minutes(Patience.minutes(3))))
struct ChunkTransferTests {
  @Test("sends about as much as changed, and arrives complete")
  func changed() async throws {
    let (server, client, _) = try await pair()
    var value = noise(6 << 20, seed: 3)
    try server.store.put(Key("film"), value)
    _ = try await client.node.synchronize(with: "first", direction: .pull)
    value = noise(1000, seed: 4) + value
    value.replaceSubrange(3_000_000..<3_050_000, with: noise(50_000, seed: 5))
    try server.store.put(Key("film"), value)
    let report = try await client.node.synchronize(with: "first", direction: .pull)
    #expect(try client.store.get(Key("film"))?.bytes == value)
    #expect(report.receivedBlobs == 1)
    #expect(report.receivedBytes < 1 << 20, "\(report.receivedBytes) bytes came")
    await server.node.stop()
  }
}

@Suite("Chunks in a session")
struct ChunkSessionTests {
  private static func pair(_ seed: UInt64) -> (MemoryReplica, MemoryReplica, SplitMix64) {
    let store = StoreID(high: 1, low: seed)
    let (left, right) = (
      MemoryReplica(store: store, seed: seed), MemoryReplica(store: store, seed: seed + 1000)
    )
    right.looksForKin = true
    return (left, right, SplitMix64(seed: seed))
  }

  @Test(
    "transfer what a side lacks, in any order of events and over broken connections",
    arguments: 1...40 as ClosedRange<UInt64>)
  func converge(seed: UInt64) {
    var (left, right, random) = Self.pair(seed)
    var network = SessionNetwork(seed: random.next())
    let base = random.bytes(8000)
    left.put("base", blob: base)
    var (client, server) = (
      SessionEndpoint(.client(.sync), right, capabilities: .chunks),
      SessionEndpoint(.server, left, capabilities: .chunks)
    )
    network.run(client, server)
    for number in 0..<4 {
      var changed = random.bytes(Int(random.next() % 300)) + base
      let place = Int(random.next() % 7000)
      changed.replaceSubrange(place..<place + 500, with: random.bytes(500))
      left.put("changed \(number)", blob: changed)
    }
    for attempt in 0..<400 {
      (client, server) = (
        SessionEndpoint(.client(.sync), right, capabilities: .chunks),
        SessionEndpoint(.server, left, capabilities: seed % 5 != 0 ? .chunks : [])
      )
      network.run(client, server, breakAfter: attempt < 6 ? 1 + Int(random.next() % 60) : .max)
      if client.outcome == .done { break }
    }
    #expect(client.outcome == .done, "seed \(seed)")
    #expect(right.missingBlobs.isEmpty && left.blobs == right.blobs, "seed \(seed)")
  }

  @Test("are used where both sides support them, and not with a side that does not")
  func figures() {
    for knows in [true, false] {
      var (left, right, random) = Self.pair(7)
      var network = SessionNetwork(seed: 9)
      let base = random.bytes(20_000)
      left.put("base", blob: base)
      network.run(SessionEndpoint(.client(.sync), right), SessionEndpoint(.server, left))
      left.put("changed", blob: random.bytes(10) + base)
      let client = SessionEndpoint(.client(.sync), right, capabilities: .chunks)
      network.run(client, SessionEndpoint(.server, left, capabilities: knows ? .chunks : []))
      #expect(client.outcome == .done && right.missingBlobs.isEmpty)
      #expect((client.figures.assembledBytes > 15_000) == knows)
      #expect((client.figures.receivedBytes < 10_000) == knows)
    }
  }
}
