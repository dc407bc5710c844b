import Replication
import SyncStore
import SyncTestSupport
import Testing

/// Undetectably cloned or rolled-back machines, so that one dot has two contents: real sessions over real
/// stores, with events in seeded random order.
@Suite("Repair of one dot with two contents, between sessions (F61)")
struct RepairSimulationTests {
  private static let ring = GroupKeyRing(key: [UInt8](repeating: 7, count: GroupKeyRing.keyBytes))
  private static let configuration = Configuration(blobThreshold: 2048, segmentBytes: 64 << 10)

  /// Several machines with one copy each.
  private final class Fleet {
    var random: SplitMix64
    let hosts: [SimulatedHost]
    var stores: [Store] = []
    /// Keys that sessions reported as repaired.
    var repaired: Set<[UInt8]> = []
    var rebirths = 0

    init(seed: UInt64, count: Int = 3) throws {
      random = SplitMix64(seed: seed)
      hosts = (0..<count).map { SimulatedHost(seed: seed * 10 + UInt64($0), machine: "machine \($0)") }
      for host in hosts {
        let store = try Store.create(on: host, id: stores.first?.id, configuration: configuration)
        try StoreKeys(store).replaceGroupKeys(with: ring)
        stores.append(store)
      }
    }

    func image(_ number: Int) throws -> [String: [UInt8]] { try hosts[number].storage.files(below: "/store") }

    /// Rolls the machine back under the same inodes: no check at opening can detect it.
    func putBack(_ number: Int, _ image: [String: [UInt8]]) throws {
      hosts[number].killProcesses()
      for path in try self.image(number).keys.sorted() where image[path] == nil {
        _ = try hosts[number].storage.remove(path)
      }
      try hosts[number].storage.restore(image)
      stores[number] = try Store.open(on: hosts[number], configuration: configuration)
    }

    func reopen(_ number: Int) throws {
      stores[number] = try Store.open(on: hosts[number], configuration: configuration)
    }

    func pass(_ milliseconds: UInt64) { for host in hosts { host.time += milliseconds } }

    /// One session, which breaks after `steps` steps if given.
    @discardableResult
    func session(
      _ client: Int, _ server: Int, _ direction: SessionDirection = .sync, steps: Int = .max
    ) throws -> (client: SessionSide, server: SessionSide) {
      let one = SessionSide(.client(direction), stores[client], peerName: "machine \(server)")
      let other = SessionSide(.server, stores[server], peerName: "machine \(client)")
      try SessionPair.run(one, other, &random, steps: steps)
      for side in [one, other] {
        repaired.formUnion(side.figures.repaired)
        if let failure = side.failure { throw failure }
      }
      return (one, other)
    }

    /// Runs sessions until one completes.
    @discardableResult
    func meet(
      _ client: Int, _ server: Int, _ direction: SessionDirection = .sync
    ) throws -> (client: SessionSide, server: SessionSide) {
      for _ in 0..<8 {
        let sides = try session(client, server, direction)
        if sides.client.outcome == .done { return sides }
        guard case .reconnect = sides.client.outcome else {
          throw StoreError(.inputOutput, "\(String(describing: sides.client.outcome))")
        }
        rebirths += 1
      }
      throw StoreError(.inputOutput, "they never come into step")
    }

    /// Every pair meets.
    func settle() throws {
      for _ in 0..<3 {
        for one in stores.indices { for other in stores.indices where one < other { try meet(one, other) } }
      }
    }

    /// Whether all copies have the same digest and version vector.
    func agreed() throws -> Bool {
      let time = hosts[0].time
      return try stores.allSatisfy {
        try $0.digest(at: time) == stores[0].digest(at: time)
          && $0.versionVector() == stores[0].versionVector()
      }
    }

    /// All values of a key that any copy holds or has kept as a conflict.
    func values(of key: Key) throws -> Set<String> {
      var values: Set<String> = []
      for store in stores {
        if let value = try store.text(key) { values.insert(value) }
        for entry in try store.conflicts() where entry.key == key {
          if let value = entry.value { values.insert(String(decoding: value, as: UTF8.self)) }
        }
      }
      return values
    }
  }

  /// Machine 0 sends "one" to machine 1, is rolled back, and sends "two" with the same dots to machine 2.
  private static func forked(_ seed: UInt64, keys: Int = 6) throws -> Fleet {
    let fleet = try Fleet(seed: seed)
    for number in 0..<40 { try fleet.stores[0].put(Key("same \(number)"), "v \(number)") }
    let image = try fleet.image(0)
    for (target, text) in [(1, "one"), (2, "two")] {
      // With equal clocks even the stamps match those of the other fork.
      if seed % 3 == 0 { fleet.pass(UInt64(target) * 7) }
      for number in 0..<keys { try fleet.stores[0].put(Key("key \(number)"), text + "\(number)") }
      try fleet.meet(0, target, seed % 2 == 0 ? .push : .sync)
      try fleet.putBack(0, image)
    }
    return fleet
  }

  @Test(
    "two copies that received it from a machine and its clone find every key, keep both values and converge",
    arguments: 1...12 as ClosedRange<UInt64>)
  func betweenOthers(seed: UInt64) throws {
    let fleet = try Self.forked(seed)
    #expect(try fleet.stores[1].versionVector() == fleet.stores[2].versionVector(), "seed \(seed)")
    #expect(try fleet.stores[1].digest() != fleet.stores[2].digest(), "seed \(seed)")
    let (client, server) = try fleet.meet(1, 2)
    #expect(client.outcome == .done && server.outcome == .done, "seed \(seed)")
    #expect(client.figures.repairedKeys == 6 && server.figures.repairedKeys == 6, "seed \(seed)")
    #expect(fleet.repaired == Set((0..<6).map { Array("key \($0)".utf8) }), "seed \(seed)")
    #expect(try fleet.stores[1].digest() == fleet.stores[2].digest(), "seed \(seed)")
    #expect(try fleet.stores[1].versionVector() == fleet.stores[2].versionVector(), "seed \(seed)")
    for number in 0..<6 {
      #expect(try fleet.values(of: Key("key \(number)")) == ["one\(number)", "two\(number)"], "seed \(seed)")
    }
    // Neither is the rolled-back machine.
    #expect(fleet.rebirths == 0, "seed \(seed)")
    let again = try fleet.meet(1, 2)
    #expect(again.client.figures.repairedKeys == 0 && again.client.figures.sentRecords == 0, "seed \(seed)")
    try fleet.settle()
    #expect(try fleet.agreed(), "seed \(seed)")
  }

  @Test(
    "a rolled-back machine becomes a new actor when it meets its own later writes",
    arguments: 1...12 as ClosedRange<UInt64>)
  func withItsAuthor(seed: UInt64) throws {
    let fleet = try Fleet(seed: seed)
    let image = try fleet.image(0)
    try fleet.stores[0].put("key", "one")
    try fleet.meet(0, 1)
    // Machine 2 has it from machine 1: it has no cursor from which the author could detect a rollback.
    try fleet.meet(1, 2)
    try fleet.putBack(0, image)
    if seed % 3 == 0 { fleet.pass(9) }
    try fleet.stores[0].put("key", "two")
    let actor = try fleet.stores[0].actor
    let (one, other) = seed % 2 == 0 ? (0, 2) : (2, 0)
    try fleet.meet(one, other)
    #expect(fleet.rebirths == 1, "seed \(seed)")
    #expect(try fleet.stores[0].actor != actor, "seed \(seed)")
    #expect(fleet.repaired == [Array("key".utf8)], "seed \(seed)")
    #expect(try fleet.stores[0].digest() == fleet.stores[2].digest(), "seed \(seed)")
    #expect(try fleet.values(of: "key") == ["one", "two"], "seed \(seed)")
    try fleet.stores[0].put("key", "three")
    try fleet.settle()
    #expect(try fleet.agreed(), "seed \(seed)")
    #expect(try fleet.stores[1].text("key") == "three", "seed \(seed)")
  }

  @Test(
    "a rolled-back machine rewrites the same key: whichever copy it meets, both values are kept (F57, F60)",
    arguments: 1...12 as ClosedRange<UInt64>)
  func sameKeyAgain(seed: UInt64) throws {
    let fleet = try Fleet(seed: seed)
    try fleet.stores[0].put("key", "none")
    if seed % 2 == 0 { try fleet.meet(0, 2) }
    let image = try fleet.image(0)
    try fleet.stores[0].put("key", "one")
    try fleet.meet(0, 1)
    try fleet.putBack(0, image)
    // With equal clocks even the stamps match those of the other fork; a clock that was also set back makes
    // this one lose.
    if seed % 3 == 0 { fleet.pass(9) }
    if seed % 3 == 1 { fleet.hosts[0].time -= 9 }
    try fleet.stores[0].put("key", "two")
    let (one, other) = seed % 4 < 2 ? (0, 1) : (1, 0)
    try fleet.meet(one, other)
    #expect(try fleet.values(of: "key").isSuperset(of: ["one", "two"]), "seed \(seed)")
    #expect(fleet.rebirths == 1, "seed \(seed)")
    try fleet.settle()
    #expect(try fleet.agreed(), "seed \(seed)")
    #expect(try fleet.values(of: "key").isSuperset(of: ["one", "two"]), "seed \(seed)")
  }

  @Test(
    "a rolled-back machine keeps what its peers send back, and does not write it again (F57, F60)",
    arguments: 1...4 as ClosedRange<UInt64>)
  func givenBack(seed: UInt64) throws {
    let fleet = try Fleet(seed: seed, count: 2)
    let image = try fleet.image(0)
    for number in 0..<5 { try fleet.stores[0].put(Key("key \(number)"), "lost \(number)") }
    try fleet.meet(0, 1)
    if seed % 2 == 0 {
      // A later delete was purged: records the peer does not send are indistinguishable from deleted ones.
      try fleet.stores[1].put("other", "v")
      try fleet.stores[1].delete("other")
      try fleet.stores[1].purge()
    }
    try fleet.putBack(0, image)
    let position = fleet.stores[1].journalPosition
    try fleet.meet(seed > 2 ? 0 : 1, seed > 2 ? 1 : 0)
    #expect(fleet.rebirths == 1, "seed \(seed)")
    for number in 0..<5 {
      #expect(try fleet.stores[0].text(Key("key \(number)")) == "lost \(number)", "seed \(seed)")
    }
    #expect(try fleet.stores[0].conflicts().isEmpty, "seed \(seed)")
    #expect(fleet.stores[1].journalPosition == position, "seed \(seed)")
    #expect(fleet.repaired.isEmpty, "seed \(seed)")
    #expect(try fleet.agreed(), "seed \(seed)")
  }

  @Test(
    "a repair interrupted anywhere loses neither value, and is resumed by the next session (F69)",
    arguments: 1...60 as ClosedRange<UInt64>)
  func broken(seed: UInt64) throws {
    let fleet = try Self.forked(seed, keys: 2)
    for _ in 0..<4 {
      try fleet.session(1, 2, steps: fleet.random.below(80))
      for number in 0..<2 {
        #expect(
          try fleet.values(of: Key("key \(number)")) == ["one\(number)", "two\(number)"], "seed \(seed)")
      }
      if fleet.random.chance(30) {
        fleet.hosts[1].losePower(seed: seed)
        try fleet.reopen(1)
      }
    }
    try fleet.meet(1, 2)
    #expect(try fleet.stores[1].digest() == fleet.stores[2].digest(), "seed \(seed)")
    for number in 0..<2 {
      #expect(try fleet.values(of: Key("key \(number)")) == ["one\(number)", "two\(number)"], "seed \(seed)")
    }
    try fleet.settle()
    #expect(try fleet.agreed(), "seed \(seed)")
  }

  @Test(
    "a push or a pull finds it, too; the sync after it makes the copies converge",
    arguments: [SessionDirection.push, .pull], 1...4 as ClosedRange<UInt64>)
  func oneDirection(direction: SessionDirection, seed: UInt64) throws {
    let fleet = try Self.forked(seed)
    // Cursors at each other's ends, as after any sync; nothing is compared on the way.
    let client = try fleet.meet(1, 2, direction).client
    if client.figures.repairedKeys == 0 {
      // A one-sided session must first leave both cursors closed.
      try fleet.meet(2, 1, direction)
    }
    try fleet.meet(1, 2)
    #expect(fleet.repaired.count == 6, "seed \(seed)")
    #expect(try fleet.stores[1].digest() == fleet.stores[2].digest(), "seed \(seed)")
  }

  // MARK: Live

  /// Two copies in a live session that received one dot with two contents, one from each side.
  private static func live(_ seed: UInt64) throws -> (fleet: Fleet, client: SessionSide, server: SessionSide)
  {
    let fleet = try Fleet(seed: seed, count: 2)
    for number in 0..<10 { try fleet.stores[0].put(Key("same \(number)"), "v") }
    let client = SessionSide(.client(.sync), fleet.stores[0], peerName: "server", mode: .live)
    let server = SessionSide(.server, fleet.stores[1], peerName: "client", mode: .live)
    try SessionPair.move(client, server, &fleet.random)
    #expect(client.isAtRest && server.isAtRest && client.timers[.comparison] != nil)
    return (fleet, client, server)
  }

  private static func fork(_ fleet: Fleet) throws {
    let actor = ActorID(high: 7, low: 7)
    let mark = RoundMark(high: 1, low: 1)
    for (store, text) in zip(fleet.stores, ["here", "there"]) {
      let record = Record(
        version: Version(
          stamp: Stamp(milliseconds: fleet.hosts[0].time), dot: Dot(actor: actor, sequence: 1)),
        key: Array("key".utf8), content: .inline(Array(text.utf8)))
      _ = try store.apply(
        IncomingBatch(
          sender: actor, mark: mark, position: 1, records: [PositionedRecord(position: 1, record: record)]),
        closing: RoundClose(
          sender: actor, mark: mark, position: 1, vector: VersionVector([actor: 1]), floor: VersionVector(),
          horizon: .zero))
    }
  }

  @Test(
    "two idle live copies prove their equality by one message, and send nothing without a change"
  )
  func equality() throws {
    let (fleet, client, server) = try Self.live(1)
    try fleet.stores[1].put("another", "v")
    try SessionPair.move(client, server, &fleet.random)
    let before = (client.figures, server.figures)
    client.handle(.timer(.comparison))
    try SessionPair.move(client, server, &fleet.random)
    #expect(client.figures.sentBytes - before.0.sentBytes == Frame.headerBytes + 6 + 16 + 16)
    #expect(server.figures.sentBytes == before.1.sentBytes)
    let after = client.figures.sentBytes
    client.handle(.timer(.comparison))
    try SessionPair.move(client, server, &fleet.random)
    #expect(client.figures.sentBytes == after)
    #expect(client.timers[.comparison]?.seconds == Limits.comparisonSeconds)
    #expect(client.outcome == nil && client.isAtRest && server.isAtRest)
  }

  @Test(
    "a live session finds it when both are idle, repairs it, and continues",
    arguments: 1...12 as ClosedRange<UInt64>)
  func live(seed: UInt64) throws {
    let (fleet, client, server) = try Self.live(seed)
    try Self.fork(fleet)
    try SessionPair.move(client, server, &fleet.random)
    #expect(try fleet.stores[0].digest() != fleet.stores[1].digest())
    client.handle(.timer(.comparison))
    // Writes made during the repair replicate as usual.
    try SessionPair.move(client, server, &fleet.random, steps: fleet.random.below(20))
    try fleet.stores[0].put("meanwhile", "c")
    try fleet.stores[1].put("meanwhile, too", "s")
    try SessionPair.move(client, server, &fleet.random)
    for _ in 0..<2 where client.figures.repairedKeys == 0 {
      client.handle(.timer(.comparison))
      try SessionPair.move(client, server, &fleet.random)
    }
    #expect(client.figures.repaired == [Array("key".utf8)], "seed \(seed)")
    #expect(server.figures.repaired == [Array("key".utf8)], "seed \(seed)")
    #expect(client.outcome == nil && server.outcome == nil, "seed \(seed)")
    #expect(try fleet.agreed(), "seed \(seed)")
    #expect(try fleet.values(of: "key") == ["here", "there"], "seed \(seed)")
    try fleet.stores[0].put("after", "v")
    try SessionPair.move(client, server, &fleet.random)
    #expect(try fleet.stores[1].text("after") == "v")
  }

  @Test(
    "more keys than fit in one message, or larger values, are repaired by successive comparisons",
    arguments: [(6000, 10), (24, 100_000)])
  func many(keys: Int, bytes: Int) throws {
    let fleet = try Fleet(seed: 1, count: 2)
    let (actor, mark) = (ActorID(high: 7, low: 7), RoundMark(high: 1, low: 1))
    for (number, store) in fleet.stores.enumerated() {
      let records = (1...keys).map { key in
        PositionedRecord(
          position: UInt64(key),
          record: Record(
            version: Version(
              stamp: Stamp(milliseconds: fleet.hosts[0].time), dot: Dot(actor: actor, sequence: UInt64(key))),
            key: Array("key \(key)".utf8), content: .inline([UInt8(number)] + fleet.random.bytes(bytes))))
      }
      let end = UInt64(keys)
      _ = try store.apply(
        IncomingBatch(sender: actor, mark: mark, position: end, records: records),
        closing: RoundClose(
          sender: actor, mark: mark, position: end, vector: VersionVector([actor: end]),
          floor: VersionVector(),
          horizon: .zero))
    }
    let (client, server) = try fleet.meet(0, 1)
    #expect(client.figures.repairedKeys == keys && server.figures.repairedKeys == keys)
    #expect(client.figures.repaired.count == min(keys, WireLimits.repairNames))
    #expect(try fleet.agreed())
    let conflicts = try fleet.stores.map { try $0.conflicts().count }
    #expect(conflicts.reduce(0, +) == keys)
  }

  @Test("the cost depends on the difference, not on the number of keys")
  func cost() throws {
    let fleet = try Self.forked(2, keys: 1)
    for number in 0..<3000 { try fleet.stores[1].put(Key("more \(number)"), "value \(number)") }
    try fleet.meet(2, 1, .pull)
    try fleet.meet(1, 2, .push)
    // Groups, the buckets of one group, the fingerprints of one bucket, two records, and the rounds
    // afterwards.
    let (client, _) = try fleet.meet(1, 2)
    #expect(fleet.repaired.count == 1)
    #expect(client.figures.sentBytes + client.figures.receivedBytes < 13_000)
  }
}
