import SyncStore
import SyncTestSupport
import Testing

/// Random histories over real stores on simulated machines: writes, complete and broken rounds, kills, power
/// losses, copied directories, clock skew, compactions. They are checked against a model that only knows
/// which writes were acknowledged.
@Suite("A network of copies")
struct StoreSimulationTests {
  /// One copy: a machine and its open store.
  final class Copy {
    let host: SimulatedHost
    var store: Store
    let path: String

    init(host: SimulatedHost, store: Store, path: String) {
      (self.host, self.store, self.path) = (host, store, path)
    }
  }

  /// A write as recorded by the model.
  struct Write {
    var version: Version
    var value: [UInt8]?
  }

  struct World {
    var copies: [Copy] = []
    var writes: [Key: [Write]] = [:]
    var random: SplitMix64
    var time: UInt64 = 1_700_000_000_000
    var value: UInt64 = 0

    mutating func pick() -> Copy { copies[Int(random.next() % UInt64(copies.count))] }
  }

  static let keys: [Key] = ["a", "b", "c", "d"]
  static let configuration = Configuration(segmentBytes: 64 << 10)

  @Test(
    "converges on the greatest surviving write of each key, whatever happens (F55, F59, F65, F66, F69)",
    arguments: 0..<60 as Range<UInt64>)
  func history(seed: UInt64) throws {
    var world = World(random: SplitMix64(seed: seed))
    let count = 2 + Int(seed % 3)
    for number in 0..<count {
      let host = SimulatedHost(
        seed: seed &* 31 &+ UInt64(number), machine: "machine \(number)",
        encrypted: (seed / 2 + UInt64(number)) % 2 == 1)
      let store = try Store.create(
        on: host, id: world.copies.first?.store.id, configuration: Self.configuration)
      world.copies.append(Copy(host: host, store: store, path: "/store"))
    }
    for _ in 0..<60 { try Self.step(&world, seed) }
    try Self.heal(&world, seed)
  }

  private static func step(_ world: inout World, _ seed: UInt64) throws {
    world.time += world.random.next() % 50
    let copy = world.pick()
    copy.host.time = world.time + world.random.next() % 1000
    switch world.random.next() % 17 {
    case 0..<6: try write(&world, copy)
    case 6..<11:
      let other = world.pick()
      guard other !== copy else { return }
      let breaks = world.random.next() % 3 == 0
      try receive(copy, from: other, batches: breaks ? Int(world.random.next() % 3) : nil)
    case 11:
      copy.host.killProcesses()
      try reopen(copy)
    case 12:
      try reopen(copy)
      let before = try copy.store.versionVector()
      copy.host.losePower(seed: world.random.next())
      try reopen(copy)
      // Every write so far was made durable before it was acknowledged.
      #expect(try copy.store.versionVector().covers(before), "seed \(seed)")
    case 13:
      guard world.copies.count < 5 else { return }
      try reopen(copy)
      let path = "/copy\(world.copies.count)"
      try copy.host.storage.copyTree(from: copy.path, to: path)
      let store = try Store.open(path, on: copy.host, configuration: configuration)
      #expect(try store.actor != copy.store.actor)
      world.copies.append(Copy(host: copy.host, store: store, path: path))
    case 14:
      try reopen(copy)
      for _ in 0..<4 { try copy.store.put("filler", [UInt8](repeating: 7, count: 18_000)) }
      try copy.store.compact()
    default: try check(copy, world, seed)
    }
  }

  private static func write(_ world: inout World, _ copy: Copy) throws {
    try reopen(copy)
    let key = keys[Int(world.random.next() % UInt64(keys.count))]
    if world.random.next() % 4 == 0 {
      guard try copy.store.delete(key) else { return }
    } else {
      world.value += 1
      try copy.store.put(key, Array("\(world.value)".utf8))
    }
    let record = try #require(try copy.store.explain(key)).winner
    world.writes[key, default: []].append(
      Write(
        version: Version(stamp: record.stamp, dot: record.dot), value: record.isTombstone ? nil : record.value
      ))
  }

  private static func reopen(_ copy: Copy) throws {
    // Other directories of the same machine went down with it; they are reopened at their next use.
    copy.store = try Store.open(copy.path, on: copy.host, configuration: configuration)
  }

  private static func receive(_ copy: Copy, from other: Copy, batches: Int?) throws {
    try reopen(copy)
    try reopen(other)
    try copy.store.receive(from: other.store, batches: batches, maximumBytes: 200)
  }

  /// R6: every write covered by the vector is held, beaten by a held one, or a purged delete.
  private static func check(_ copy: Copy, _ world: World, _ seed: UInt64) throws {
    try reopen(copy)
    let vector = try copy.store.versionVector()
    for (key, writes) in world.writes {
      guard let top = writes.filter({ vector.covers($0.version.dot) }).max(by: { $0.version < $1.version })
      else { continue }
      let held = try copy.store.explain(key)?.winner
      let version = held.map { Version(stamp: $0.stamp, dot: $0.dot) }
      #expect(version.map { $0 >= top.version } ?? (top.value == nil), "seed \(seed): \(key) lost \(top)")
    }
    #expect(try copy.store.verify().isClean, "seed \(seed)")
  }

  private static func heal(_ world: inout World, _ seed: UInt64) throws {
    for copy in world.copies { copy.host.time = world.time + 2000 }
    for _ in 0..<3 {
      for copy in world.copies {
        for other in world.copies where other !== copy { try receive(copy, from: other, batches: nil) }
      }
    }
    let first = world.copies[0].store
    for copy in world.copies {
      try reopen(copy)
      try check(copy, world, seed)
      #expect(try copy.store.digest() == first.digest(), "seed \(seed)")
      #expect(try copy.store.versionVector() == first.versionVector(), "seed \(seed)")
    }
    // Every write was acknowledged as durable, so the greatest one wins everywhere; or an older one that had
    // to be reissued, to pass on the dots it replaced, and so became the latest write.
    for (key, writes) in world.writes {
      let top = try #require(writes.max { $0.version < $1.version })
      guard let winner = try first.explain(key)?.winner else {
        #expect(top.value == nil, "seed \(seed): \(key)")
        continue
      }
      let version = Version(stamp: winner.stamp, dot: winner.dot)
      if version == top.version {
        #expect(winner.value == top.value, "seed \(seed): \(key)")
      } else {
        #expect(version > top.version && !writes.contains { $0.version == version }, "seed \(seed): \(key)")
        #expect(writes.contains { $0.value == winner.value }, "seed \(seed): \(key)")
      }
    }
  }
}
