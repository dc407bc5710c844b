import Replication
import SyncStore
import SyncTestSupport
import Testing

/// Two open sessions, event by event, while both copies are written to.
@Suite struct LiveSimulationTests {
  private struct Pair {
    let left: MemoryReplica
    let right: MemoryReplica
    var random: SplitMix64
    var network: SessionNetwork
    var client: SessionEndpoint
    var server: SessionEndpoint

    init(_ seed: UInt64) {
      random = SplitMix64(seed: seed)
      let store = StoreID(bytes: random.bytes(16))!
      left = MemoryReplica(store: store, seed: random.next())
      right = MemoryReplica(store: store, seed: random.next())
      network = SessionNetwork(seed: random.next())
      client = SessionEndpoint(.client(.sync), left, mode: .live)
      server = SessionEndpoint(.server, right, mode: .live)
    }

    mutating func write(_ count: Int, to replica: MemoryReplica) {
      for _ in 0..<count {
        replica.wall += random.next() % 3
        let key = "key \(random.next() % 40)"
        switch random.next() % 10 {
        case 0, 1: replica.put(key, nil)
        case 2: replica.put(key, blob: random.bytes(2000))
        default: replica.put(key, random.bytes(Int(random.next() % 50)))
        }
      }
    }

    mutating func connect() {
      client = SessionEndpoint(.client(.sync), left, mode: .live)
      server = SessionEndpoint(.server, right, mode: .live)
    }
  }

  private static func expectEqual(_ pair: Pair, _ seed: UInt64) {
    let (left, right) = (pair.left, pair.right)
    #expect(left.held == right.held, "seed \(seed)")
    #expect(left.digest == right.digest && left.vector == right.vector, "seed \(seed)")
    #expect(left.missingBlobs.isEmpty && right.missingBlobs.isEmpty, "seed \(seed)")
    #expect(left.rebirths == 0 && right.rebirths == 0, "seed \(seed)")
  }

  @Test(
    "Writes of either side during the session are on both, in any order of events",
    arguments: 1...60 as ClosedRange<UInt64>)
  func flows(seed: UInt64) {
    var pair = Pair(seed)
    pair.write(20, to: pair.left)
    pair.write(20, to: pair.right)
    pair.network.run(pair.client, pair.server)
    #expect(pair.client.isAtRest && pair.server.isAtRest, "seed \(seed)")
    for _ in 0..<12 {
      pair.write(Int(pair.random.next() % 6), to: pair.left)
      pair.write(Int(pair.random.next() % 6), to: pair.right)
      // Not to completion: the next writes must arrive during open rounds.
      pair.network.run(pair.client, pair.server, steps: Int(pair.random.next() % 30))
    }
    pair.network.run(pair.client, pair.server)
    #expect(pair.client.outcome == nil && pair.server.outcome == nil, "seed \(seed)")
    #expect(pair.client.isAtRest && pair.server.isAtRest, "seed \(seed)")
    Self.expectEqual(pair, seed)
  }

  @Test(
    "A side does not send back what it received, unless both happen at the same time",
    arguments: 1...10 as ClosedRange<UInt64>)
  func noEcho(seed: UInt64) {
    var pair = Pair(seed)
    pair.network.run(pair.client, pair.server)
    for number in 0..<30 {
      pair.left.put("left \(number)", [1])
      pair.network.run(pair.client, pair.server, steps: Int(pair.random.next() % 12))
    }
    pair.network.run(pair.client, pair.server)
    #expect(pair.server.figures.sentRecords <= 3, "seed \(seed)")
    #expect(pair.right.takenRecords == 30, "seed \(seed)")
    Self.expectEqual(pair, seed)
  }

  @Test(
    "F69 a live session that breaks repeatedly loses nothing and continues after the last durable batch",
    arguments: 1...40 as ClosedRange<UInt64>)
  func breaks(seed: UInt64) {
    var pair = Pair(seed)
    for _ in 0..<10 {
      pair.write(5, to: pair.left)
      pair.write(5, to: pair.right)
      let cursors = (
        pair.left.cursors[pair.right.actor]?.position ?? 0, pair.right.cursors[pair.left.actor]?.position ?? 0
      )
      pair.network.run(pair.client, pair.server, breakAfter: 5 + Int(pair.random.next() % 120))
      #expect(
        pair.left.cursors[pair.right.actor]?.position ?? 0 >= cursors.0, "seed \(seed): a cursor went back")
      #expect(
        pair.right.cursors[pair.left.actor]?.position ?? 0 >= cursors.1, "seed \(seed): a cursor went back")
      pair.connect()
    }
    pair.network.run(pair.client, pair.server)
    Self.expectEqual(pair, seed)
  }

  @Test(
    "A side that does not stay open ends the session as usual", arguments: [(true, false), (false, true)])
  func oneSideOnly(client: Bool, server: Bool) {
    var pair = Pair(1)
    pair.write(10, to: pair.left)
    pair.client = SessionEndpoint(.client(.sync), pair.left, mode: client ? .live : .once)
    pair.server = SessionEndpoint(.server, pair.right, mode: server ? .live : .once)
    pair.network.run(pair.client, pair.server)
    #expect(pair.client.outcome == .done && pair.server.outcome == .done)
    Self.expectEqual(pair, 1)
  }

  @Test(
    "A live session in one direction transfers in that direction only",
    arguments: [SessionDirection.push, .pull])
  func oneDirection(direction: SessionDirection) {
    var pair = Pair(2)
    pair.client = SessionEndpoint(.client(direction), pair.left, mode: .live)
    pair.network.run(pair.client, pair.server)
    pair.left.put("left", [1])
    pair.right.put("right", [2])
    pair.network.run(pair.client, pair.server)
    let (given, kept) = direction == .push ? (pair.right, pair.left) : (pair.left, pair.right)
    #expect(given.held.count == 2 && kept.held.count == 1)
    #expect(pair.client.isAtRest && pair.server.isAtRest)
  }

  @Test(
    "Writes propagate along a chain of connected copies", arguments: 1...20 as ClosedRange<UInt64>)
  func chain(seed: UInt64) {
    var pair = Pair(seed)
    let third = MemoryReplica(store: pair.left.store, seed: pair.random.next())
    let (client, server) = (
      SessionEndpoint(.client(.sync), third, mode: .live),
      SessionEndpoint(.server, pair.right, mode: .live)
    )
    for number in 0..<20 {
      pair.left.put("left \(number)", pair.random.bytes(9))
      third.put("third \(number)", pair.random.bytes(9))
      pair.network.run(pair.client, pair.server, steps: Int(pair.random.next() % 20))
      pair.network.run(client, server, steps: Int(pair.random.next() % 20))
    }
    for _ in 0..<4 {
      pair.network.run(pair.client, pair.server)
      pair.network.run(client, server)
    }
    #expect(third.held == pair.left.held && third.digest == pair.right.digest, "seed \(seed)")
    #expect(third.vector == pair.left.vector, "seed \(seed)")
    Self.expectEqual(pair, seed)
  }
}
