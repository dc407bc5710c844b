import Glibc
import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Two copies of a store")
struct ReplicationRulesTests {
  let left = SimulatedHost(seed: 1, machine: "left")
  let right = SimulatedHost(seed: 2, machine: "right")

  func copies() throws -> (Store, Store) {
    let first = try Store.create(on: left)
    return (first, try Store.create(on: right, id: first.id))
  }

  @Test(
    "converge after independent writes: the later stamp wins on both, the loser is kept as a conflict (F65)")
  func convergence() throws {
    let (a, b) = try copies()
    try a.put("shared", "from a")
    right.time += 5
    try b.put("shared", "from b")
    try a.put("only a", "1")
    try b.put("only b", "2")
    try b.put("gone", "x")
    try b.delete("gone")
    try a.synchronize(with: b)
    try a.synchronize(with: b)
    for store in [a, b] {
      #expect(try store.text("shared") == "from b")
      #expect(try store.text("only a") == "1")
      #expect(try store.text("only b") == "2")
      #expect(try store.get("gone") == nil)
    }
    #expect(try a.digest() == b.digest())
    #expect(try a.versionVector() == b.versionVector())
    #expect(try a.conflicts().map(\.value) == [Array("from a".utf8)])
    let why = try #require(try a.explain("shared"))
    #expect(!why.isLocal)
    #expect(why.beaten.map(\.value) == [Array("from a".utf8)])
  }

  @Test("agree on the winner of equal stamps, the write of the greater actor, in any order of syncs (F53)")
  func equalStamps() throws {
    let (a, b) = try copies()
    let third = SimulatedHost(seed: 3, time: left.time, machine: "third")
    let c = try Store.create(on: third, id: a.id)
    for (store, value) in [(a, "a"), (b, "b"), (c, "c")] { try store.put("k", value) }
    let written = try [a, b, c].map { try #require(try $0.currentRecord(Array("k".utf8))) }
    #expect(Set(written.map(\.stamp)).count == 1 && Set(written.map(\.dot.actor)).count == 3)
    let greatest = try #require(
      written.max { $0.dot.actor.bytes.lexicographicallyPrecedes($1.dot.actor.bytes) })
    for (one, other) in [(a, b), (b, c), (c, a), (a, b), (b, c), (c, a)] {
      try one.receive(from: other)
      try other.receive(from: one)
    }
    for (store, own) in zip([a, b, c], written) {
      #expect(try store.currentRecord(Array("k".utf8))?.dot == greatest.dot)
      #expect(try store.digest() == a.digest())
      // The beaten copy keeps its own value.
      #expect(try own.dot == greatest.dot || store.conflicts().contains { $0.dot == own.dot })
    }
  }

  @Test("do not treat an overwrite of a known value as a conflict")
  func sequentialOverwrite() throws {
    let (a, b) = try copies()
    try a.put("k", "1")
    try b.receive(from: a)
    try b.put("k", "2")
    try b.put("k", "3")
    try a.receive(from: b)
    #expect(try a.text("k") == "3")
    #expect(try a.conflicts().isEmpty)
  }

  @Test("resume after the last durable batch, and merge the vector only at the end (F69, R6)")
  func resume() throws {
    let (a, b) = try copies()
    for number in 0..<100 {
      try a.put(Key("\(number)"), [UInt8](repeating: 1, count: 1000), durability: .relaxed)
    }
    try b.receive(from: a, batches: 3, maximumBytes: 10_000)
    #expect(try b.versionVector().isEmpty)
    let half = try b.status().keys
    #expect(half > 10 && half < 100)
    let theirs = try a.replicaSummary()
    let cursor = try #require(try b.cursor(for: theirs.actor))
    let rest = try a.openRound(since: cursor, covered: try b.versionVector())
    #expect(rest.count == 100 - half)
    try b.receive(from: a)
    #expect(try b.status().keys == 100)
    #expect(try b.versionVector() == a.versionVector())
  }

  @Test("ignore a batch delivered twice (F66)")
  func repeated() throws {
    let (a, b) = try copies()
    try a.put("k", "1")
    let round = try a.openRound(since: nil, covered: VersionVector())
    let batch = try #require(try round.next(maximumBytes: 1000))
    _ = try b.apply(batch)
    let position = try b.status().position
    _ = try b.apply(batch)
    #expect(try b.status().position == position)
    try b.finish(round.close)
    try b.finish(round.close)
    #expect(try b.digest() == a.digest())
  }

  @Test("send what is current and uncovered, and nothing when nothing is new")
  func smallRounds() throws {
    let (a, b) = try copies()
    for number in 0..<10 { try a.put("k", "\(number)") }
    try b.receive(from: a)
    #expect(try b.log(from: 0, limit: 100).count == 1)
    let cursor = try b.cursor(for: try a.replicaSummary().actor)
    let round = try a.openRound(since: cursor, covered: try b.versionVector())
    #expect(round.count == 0)
    #expect(round.close.mark == cursor?.mark)
  }

  @Test("send a write made during a round with the next one, and the vector stays correct (R6, R10)")
  func writeDuringRound() throws {
    let (a, b) = try copies()
    try a.put("k", "old")
    let round = try a.openRound(since: nil, covered: VersionVector())
    try a.put("k", "new")
    while let batch = try round.next(maximumBytes: 1000) { _ = try b.apply(batch) }
    try b.finish(round.close)
    #expect(try b.text("k") == "old")
    try b.receive(from: a)
    #expect(try b.text("k") == "new")
    #expect(try b.versionVector() == a.versionVector())
  }

  @Test(
    "apply cursor, batch and vector atomically, whatever survives a loss of power (F9, F72)",
    arguments: 0..<40 as Range<UInt64>)
  func atomicApply(seed: UInt64) throws {
    let left = SimulatedHost(seed: seed, machine: "left")
    let right = SimulatedHost(seed: seed + 1000, machine: "right")
    let a = try Store.create(on: left)
    var b = try Store.create(on: right, id: a.id)
    for number in 0..<60 {
      try a.put(Key("\(number)"), [UInt8](repeating: UInt8(number), count: 500), durability: .relaxed)
    }
    for round in 0..<4 {
      try b.receive(from: a, batches: Int((seed + UInt64(round)) % 5), maximumBytes: 4000)
      right.losePower(seed: seed + UInt64(round))
      b = try Store.open(on: right)
      let cursor = try b.cursor(for: a.actor)
      let held = try b.log(from: 0, limit: 1000).count
      #expect(held == Int(cursor?.position ?? 0), "seed \(seed)")
    }
    try b.receive(from: a)
    #expect(try b.digest() == a.digest(), "seed \(seed)")
  }

  @Test("park records stamped too far ahead until their time has come (F50)")
  func parking() throws {
    let (a, b) = try copies()
    try b.put("k", "now")
    left.time += 10 * 60_000
    try a.put("k", "later")
    left.time -= 10 * 60_000
    try a.put("other", "x")
    try b.receive(from: a)
    #expect(try b.text("k") == "now")
    #expect(try b.status().parked == 2)
    // It beats nothing yet.
    #expect(try b.conflicts().isEmpty)
    // Nor does its stamp advance the clock here: the next write would have to be parked elsewhere.
    try b.put("here", "x")
    let here = try #require(try b.explain("here"))
    #expect(here.winner.stamp.milliseconds <= right.time)
    #expect(try b.versionVector().covers(try a.versionVector()))
    #expect(try a.text("k") == "later")
    try a.receive(from: b)
    #expect(try b.digest() == a.digest())
    right.time += 10 * 60_000
    #expect(try b.text("k") == "later")
    try b.put("poke", "x")
    #expect(try b.status().parked == 0)
    #expect(try b.text("k") == "later")
    let running = try b.digest()
    try b.close()
    #expect(try Store.open(on: right).digest() == running)
  }

  @Test(
    "keep a value beaten by a parked record that came due during a power failure (F50)",
    arguments: [false, true])
  func parkedThroughLossOfPower(lost: Bool) throws {
    let (a, b) = try copies()
    right.time += 5
    try b.put("k", "now", durability: .full)
    left.time += 10 * 60_000
    try a.put("k", "later")
    try b.receive(from: a)
    #expect(try b.status().parked == 1)
    if lost { right.losePower(seed: 1) } else { right.killProcesses() }
    right.time += 20 * 60_000
    let again = try Store.open(on: right)
    #expect(try again.text("k") == "later")
    try again.put("poke", "x")
    #expect(try again.text("k") == "later")
    #expect(try again.conflicts().map(\.value) == [Array("now".utf8)])
  }

  @Test("apply all parked records though the index could not grow when they came due (F25, F50)")
  func parkingWithoutIndex() throws {
    let (a, first) = try copies()
    try first.close()
    let plan = FaultPlan()
    let b = try Store.open(on: right, failing: plan)
    left.time += 10 * 60_000
    try a.transaction { transaction in
      for number in 0..<9_000 { try transaction.put(Key("\(number)"), [1]) }
    }
    try b.receive(from: a)
    #expect(try b.status().parked == 9_000)
    right.time += 10 * 60_000
    plan.fail(.allocate, on: "/index", errno: EIO)
    _ = try? b.put("poke", "x")
    try b.put("poke", "y")
    #expect(try b.status().keys == 9_001 && b.status().parked == 0)
    #expect(try b.get("8999")?.bytes == [1] && b.get("0")?.bytes == [1])
    #expect(try b.digest() == b.core.engine.withLock { try $0.computeDigest(isExclusive: true).digest })
    try b.compact()
    #expect(try b.status().keys == 9_001 && b.verify().isClean)
  }

  @Test("continue in another segment when one has numbered the maximum of actors (F82)")
  func manyActors() throws {
    let (a, b) = try copies()
    try a.put("k", "x")
    b.core.engine.withLock {
      $0.journal.segments[0].actors.define(ActorID(high: 9, low: 9), as: .max - 1, at: 0)
    }
    let records = (0..<5).map { number in
      let dot = Dot(actor: ActorID(high: 7, low: UInt64(number)), sequence: 1)
      let stamp = Stamp(milliseconds: right.time)
      return PositionedRecord(
        position: UInt64(number + 1),
        record: Record(
          version: Version(stamp: stamp, dot: dot), key: Array("\(number)".utf8), content: .inline([1])))
    }
    _ = try b.apply(
      IncomingBatch(sender: a.actor, mark: RoundMark(high: 1, low: 1), position: 5, records: records))
    #expect(try b.status().keys == 5)
    #expect(try b.status().segments == 2)
  }

  @Test("keep a losing value once, however often it is delivered (F66)")
  func repeatedLoser() throws {
    let (a, b) = try copies()
    try a.put("k", "earlier")
    right.time += 5
    try b.put("k", "later")
    let round = try a.openRound(since: nil, covered: VersionVector())
    let batch = try #require(try round.next(maximumBytes: 1000))
    for _ in 0..<3 { _ = try b.apply(batch) }
    #expect(try b.conflicts().count == 1)
  }

  @Test("refuse a round that covers writes this copy never made, also one without records (F56, R9)")
  func claimed() throws {
    let store = try Store.create(on: SimulatedHost(seed: 1, machine: "left"))
    let peer = try Store.create(on: SimulatedHost(seed: 2, machine: "right"), id: store.id)
    try store.put("k", "1")
    let (mine, theirs) = (try store.actor, try peer.actor)
    for claimed in [2, UInt64.max] {
      let close = RoundClose(
        sender: theirs, mark: RoundMark(high: 1, low: 1), position: 1, vector: VersionVector([mine: claimed]),
        floor: VersionVector(), horizon: .zero)
      #expect(#expect(throws: StoreError.self) { try store.finish(close) }?.code == .rolledBack)
    }
    try store.put("k", "2")
    #expect(try store.versionVector()[mine] == 2)
  }
}

@Suite("The identity of a copy")
struct IdentityTests {
  @Test("a copied directory becomes a new actor before its first write, and both converge (F55)")
  func copiedDirectory() throws {
    let host = SimulatedHost()
    let original = try Store.create(on: host)
    try original.put("k", "1")
    try original.close()
    try host.storage.copyTree(from: "/store", to: "/copy")
    let reader = try Store.open("/copy", on: host, configuration: Configuration(mode: .readOnly))
    #expect(try reader.actor == Store.open(on: host).actor)
    try reader.close()
    let first = try Store.open(on: host)
    let second = try Store.open("/copy", on: host)
    #expect(try first.actor != second.actor)
    try first.put("k", "first")
    try second.put("k", "second")
    try first.synchronize(with: second)
    try first.synchronize(with: second)
    #expect(try first.digest() == second.digest())
    let actor = try second.actor
    try second.close()
    #expect(try Store.open("/copy", on: host).actor == actor)
  }

  @Test("a directory moved to another machine becomes a new actor")
  func otherMachine() throws {
    let host = SimulatedHost(machine: "one")
    let store = try Store.create(on: host)
    let actor = try store.actor
    try store.close()
    let other = SimulatedHost(seed: 9, machine: "two", storage: host.storage)
    #expect(try Store.open(on: other).actor != actor)
  }

  @Test(
    "a machine rolled back in place is detected by its peer, and its lost writes come back (F56, F57, F60)")
  func rolledBack() throws {
    let (left, right) = (SimulatedHost(seed: 1, machine: "left"), SimulatedHost(seed: 2, machine: "right"))
    let b = try Store.create(on: right)
    var a = try Store.create(on: left, id: b.id)
    try a.put("before", "1")
    try b.receive(from: a)
    try a.close()
    let image = try left.storage.files(below: "/store")
    a = try Store.open(on: left)
    try a.put("lost", "2")
    try b.receive(from: a)
    try a.close()
    try left.storage.restore(image)
    left.killProcesses()
    a = try Store.open(on: left)
    try a.put("unsent", "3")
    #expect(#expect(throws: StoreError.self) { try b.receive(from: a) }?.code == .rolledBack)
    let before = try a.actor
    try a.becomeNewActor()
    #expect(try a.actor != before)
    try a.synchronize(with: b)
    try b.receive(from: a)
    for store in [a, b] {
      #expect(try store.text("before") == "1")
      #expect(try store.text("lost") == "2")
      #expect(try store.text("unsent") == "3")
    }
    #expect(try a.digest() == b.digest())
  }

  @Test("a damaged copy gets the lost record from a peer again, and gives its own (F17, R9)")
  func recovering() throws {
    let left = SimulatedHost(seed: 1, machine: "left", encrypted: false)
    let right = SimulatedHost(seed: 2, machine: "right")
    let b = try Store.create(on: right)
    var a = try Store.create(on: left, id: b.id)
    try a.put("k", "value")
    try a.put("other", "value")
    try b.receive(from: a)
    try a.put("unsent", "value")
    try a.close()
    let entry = "/store/journal/0000000000000001.segment"
    let bytes = try left.storage.open(entry, .readOnly).read(1 << 20, at: 0)
    let place = try #require(bytes.firstRange(of: Array("kvalue".utf8))?.lowerBound)
    try left.storage.flipBit(of: entry, at: place + 1, bit: 3)
    left.killProcesses()
    a = try Store.open(on: left)
    #expect(#expect(throws: StoreError.self) { try a.get("k") }?.code == .damaged)
    #expect(try a.text("other") == "value")
    #expect(try a.get("absent") == nil)
    #expect(try !a.verify().isClean)
    try a.receive(from: b)
    #expect(try a.text("k") == "value")
    #expect(try a.verify().isClean)
    try b.receive(from: a)
    try a.receive(from: b)
    #expect(try b.text("unsent") == "value")
    #expect(try a.digest() == b.digest())
    #expect(try a.versionVector() == b.versionVector())
  }
}
