import Replication
import SyncStore
import SyncTestSupport
import Testing

/// Two sessions against each other, event by event, in seeded random order.
@Suite struct SessionSimulationTests {
  private static func pair(_ seed: UInt64) -> (MemoryReplica, MemoryReplica, SplitMix64) {
    var random = SplitMix64(seed: seed)
    let store = StoreID(bytes: random.bytes(16))!
    return (
      MemoryReplica(store: store, seed: random.next()), MemoryReplica(store: store, seed: random.next()),
      random
    )
  }

  private static func write(_ count: Int, to replica: MemoryReplica, _ random: inout SplitMix64) {
    for _ in 0..<count {
      replica.wall += random.next() % 3
      let key = "key \(random.next() % 40)"
      switch random.next() % 10 {
      case 0, 1: replica.put(key, nil)
      case 2: replica.put(key, blob: random.bytes(random.chance(20) ? 300_000 : 2000))
      default: replica.put(key, random.bytes(Int(random.next() % 50)))
      }
    }
  }

  @Test(
    "F65 two copies written independently converge by one sync, in any order of events",
    arguments: 1...40 as ClosedRange<UInt64>)
  func syncConverges(seed: UInt64) {
    var (left, right, random) = Self.pair(seed)
    var network = SessionNetwork(seed: random.next())
    for pass in 0..<3 {
      Self.write(20, to: left, &random)
      Self.write(20, to: right, &random)
      let (client, server) = (
        SessionEndpoint(.client(.sync), pass == 1 ? right : left),
        SessionEndpoint(.server, pass == 1 ? left : right)
      )
      network.run(client, server)
      #expect(client.outcome == .done, "seed \(seed), pass \(pass)")
      #expect(server.outcome == .done, "seed \(seed), pass \(pass)")
      #expect(left.held == right.held, "seed \(seed), pass \(pass)")
      #expect(left.vector == right.vector)
      #expect(left.digest == right.digest)
      #expect(left.missingBlobs.isEmpty && right.missingBlobs.isEmpty)
      // After the second pass each cursor is at the other's end.
      #expect(left.cursors[right.actor]?.position == right.position)
      #expect(right.cursors[left.actor]?.position == left.position)
    }
  }

  @Test(
    "F69 F72 a broken session resumes after the last durable batch", arguments: 1...40 as ClosedRange<UInt64>
  )
  func brokenSessionsResume(seed: UInt64) {
    var (left, right, random) = Self.pair(seed)
    var network = SessionNetwork(seed: random.next())
    for number in 0..<60 { left.put("left \(number)", random.bytes(20)) }
    Self.write(30, to: left, &random)
    Self.write(30, to: right, &random)
    let mine = left.held.count
    for attempt in 0..<400 {
      let (client, server) = (SessionEndpoint(.client(.sync), left), SessionEndpoint(.server, right))
      let before = right.takenRecords
      let cursor = right.cursors[left.actor]?.position ?? 0
      network.run(client, server, breakAfter: attempt < 12 ? 1 + Int(random.next() % 40) : .max)
      #expect(right.cursors[left.actor]?.position ?? 0 >= cursor, "seed \(seed): a cursor went back")
      #expect(right.takenRecords - before <= mine)
      if client.outcome == .done { break }
    }
    #expect(left.held == right.held, "seed \(seed)")
    #expect(left.digest == right.digest && left.vector == right.vector, "seed \(seed)")
    #expect(left.missingBlobs.isEmpty && right.missingBlobs.isEmpty, "seed \(seed)")
    // No record was appended twice, however often it was sent.
    #expect(right.takenRecords <= mine, "seed \(seed)")
    #expect(left.rebirths == 0 && right.rebirths == 0, "seed \(seed)")
  }

  @Test("A session with nothing new changes nothing", arguments: SessionDirection.allCases)
  func repetitionHasNoEffect(direction: SessionDirection) {
    var (left, right, random) = Self.pair(7)
    var network = SessionNetwork(seed: 7)
    Self.write(30, to: left, &random)
    Self.write(30, to: right, &random)
    network.run(SessionEndpoint(.client(.sync), left), SessionEndpoint(.server, right))
    let (leftBefore, rightBefore) = (left.digested(at: 0), right.digested(at: 0))
    let client = SessionEndpoint(.client(direction), left)
    let server = SessionEndpoint(.server, right)
    network.run(client, server)
    #expect(client.outcome == .done)
    #expect(left.digested(at: 0) == leftBefore && right.digested(at: 0) == rightBefore)
    #expect(client.figures.sentRecords == 0 && client.figures.receivedRecords == 0)
    #expect(client.figures.roundTrips <= 2)
    #expect(client.figures.sentBytes + client.figures.receivedBytes < 2048)
    let writes = (client.trace + server.trace).filter {
      switch $0 {
      case .applyBatch, .finishRound, .storeBlobRanges, .storeBlobs, .becomeNewActor: true
      default: false
      }
    }
    #expect(writes.isEmpty)
  }

  @Test(
    "Records travel through a third copy, and all three end equal", arguments: 1...30 as ClosedRange<UInt64>)
  func threeCopies(seed: UInt64) {
    var (left, right, random) = Self.pair(seed)
    let hub = MemoryReplica(store: left.store, seed: random.next())
    var network = SessionNetwork(seed: random.next())
    for _ in 0..<4 {
      for copy in [left, right, hub] { Self.write(10, to: copy, &random) }
      for _ in 0..<3 {
        let copy = random.chance(50) ? left : right
        let direction = SessionDirection.allCases[Int(random.next() % 3)]
        let limit = random.chance(30) ? 1 + Int(random.next() % 60) : Int.max
        network.run(
          SessionEndpoint(.client(direction), copy), SessionEndpoint(.server, hub), breakAfter: limit)
      }
    }
    for (turn, copy) in [left, right, left, right].enumerated() {
      let client = SessionEndpoint(.client(.sync), copy)
      network.run(client, SessionEndpoint(.server, hub))
      // On its first turn a copy may learn of a blob that the hub lacks because its sender was cut off.
      #expect(turn < 2 || client.outcome == .done, "seed \(seed): \(String(describing: client.outcome))")
    }
    #expect(left.held == hub.held && right.held == hub.held, "seed \(seed)")
    #expect(left.digest == hub.digest && right.digest == hub.digest, "seed \(seed)")
    #expect(left.rebirths + right.rebirths + hub.rebirths == 0, "seed \(seed)")
  }

  @Test(
    "F57 F60 a machine rolled back in place becomes a new actor and converges",
    arguments: 1...30 as ClosedRange<UInt64>)
  func rolledBackMachine(seed: UInt64) {
    var (left, right, random) = Self.pair(seed)
    var network = SessionNetwork(seed: random.next())
    Self.write(20, to: left, &random)
    network.run(SessionEndpoint(.client(.sync), left), SessionEndpoint(.server, right))
    let image = left.image()
    Self.write(20, to: left, &random)
    network.run(SessionEndpoint(.client(.sync), left), SessionEndpoint(.server, right))
    // Whichever side dials, the restored image detects that it is one.
    let isDialling = random.chance(50)
    let (dialler, dialled) = isDialling ? (image, right) : (right, image)
    let first = SessionEndpoint(.client(.sync), dialler)
    network.run(first, SessionEndpoint(.server, dialled))
    guard case .reconnect = first.outcome else {
      Issue.record("seed \(seed): \(String(describing: first.outcome))")
      return
    }
    #expect(image.rebirths == 1 && right.rebirths == 0, "seed \(seed)")
    Self.write(5, to: image, &random)
    let second = SessionEndpoint(.client(.sync), dialler)
    network.run(second, SessionEndpoint(.server, dialled))
    #expect(second.outcome == .done, "seed \(seed): \(String(describing: second.outcome))")
    #expect(image.held == right.held && image.digest == right.digest, "seed \(seed)")
  }

  @Test("F58 F62 two machines with one actor both become new ones")
  func clonedMachine() {
    var (left, _, random) = Self.pair(3)
    var network = SessionNetwork(seed: 3)
    Self.write(10, to: left, &random)
    let clone = left.image()
    let client = SessionEndpoint(.client(.sync), left)
    network.run(client, SessionEndpoint(.server, clone))
    #expect(left.rebirths == 1 && clone.rebirths == 1)
    Self.write(5, to: left, &random)
    Self.write(5, to: clone, &random)
    network.run(SessionEndpoint(.client(.sync), left), SessionEndpoint(.server, clone))
    #expect(left.held == clone.held && left.digest == clone.digest)
  }
}
