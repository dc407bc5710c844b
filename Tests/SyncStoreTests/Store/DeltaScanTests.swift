import SyncTestSupport
import Testing

@testable import SyncStore

/// A delta scan runs concurrently with writers, yet its round has exactly the current records of its snapshot
/// (rule R10).
@Suite("A delta scan")
struct DeltaScanTests {
  private static let few: UInt64 = 4

  /// Runs an action whenever a scan yields to others.
  private final class Turns: Sendable {
    let action = Locked<(@Sendable () throws -> Void)?>(nil)
    let count = Locked(0)
    let failure = Locked<(any Error)?>(nil)

    func next() {
      count.withLock { $0 += 1 }
      guard let action = action.withLock({ $0 }) else { return }
      do { try action() } catch { failure.withLock { $0 = error } }
    }

    func run(_ body: @escaping @Sendable () throws -> Void) { action.withLock { $0 = body } }

    func end() throws {
      action.withLock { $0 = nil }
      if let failure = failure.withLock({ $0 }) { throw failure }
    }
  }

  private static func store(
    on host: SimulatedHost, id: StoreID? = nil, turns: Turns? = nil,
    configuration: Configuration = Configuration()
  ) throws -> Store {
    var environment = host.environment
    environment.scanBatchPositions = few
    if let turns { environment.onScanYield = { turns.next() } }
    return try Store.create(
      at: "/store", name: nil, id: id, configuration: host.configured(configuration), environment: environment
    )
  }

  private static func key(_ number: Int) throws -> Key { try Key("key \(number)") }

  @Test("lets other threads write after every few records, and includes their writes")
  func turns() throws {
    let turns = Turns()
    let store = try Self.store(on: SimulatedHost(), turns: turns)
    for number in 0..<400 { try store.put(Self.key(number), [1]) }
    let before = try store.replicaSummary().position
    let written = Locked(0)
    turns.run {
      let number = written.withLock { count in
        count += 1
        return count
      }
      // It does not grow without end.
      if number <= 100 { try store.put(Self.key(number * 3), [2]) }
    }
    let round = try store.openRound(since: nil, covered: VersionVector())
    try turns.end()
    #expect(turns.count.withLock { $0 } >= 400 / Int(Self.few))
    #expect(round.close.position == before + 100)
    #expect(round.close.vector == (try store.versionVector()))
    #expect(round.count == 400)
  }

  /// The current records, found while writers are blocked.
  private static func current(_ store: Store, _ choice: DeltaFilter) throws -> [DeltaStream.Item] {
    try store.reading { engine throws(StoreError) in try DeltaSource.items(choice, in: engine) }
  }

  private static func expectExact(
    _ store: Store, _ receiver: RoundReceiver, on ground: DeltaScanContext? = nil, _ what: Comment
  ) throws {
    let round = try store.openRound(for: receiver, on: ground)
    let choice = DeltaFilter(
      for: receiver, after: receiver.cursor?.position ?? 0, isFull: round.close.isFull)
    let exact = try current(store, choice)
    #expect(round.items.joined().map(\.position) == exact.map(\.position), what)
    #expect(round.items.joined().map(\.isPresent) == exact.map(\.isPresent), what)
    // Whatever was compacted or rewritten, each record can be sent.
    var count = 0
    while let batch = try round.next(maximumBytes: 2000) { count += batch.records.list.count }
    #expect(count == round.count, what)
  }

  @Test("gives the same records when several processors share it and the digest of all keys")
  func shared() throws {
    let configuration = Configuration(durability: .relaxed, segmentBytes: 1 << 20)
    let store = try Self.store(on: SimulatedHost(), configuration: configuration)
    let count = 17_000
    for number in 0..<count { try store.put(Self.key(number), [UInt8](repeating: 1, count: 600)) }
    for number in stride(from: 0, to: count, by: 7) { try store.put(Self.key(number), [2]) }
    for number in stride(from: 0, to: count, by: 90) {
      try store.transaction { transaction in
        for key in number..<min(number + 9, count) { try transaction.put(Self.key(key), [3]) }
      }
    }
    for number in stride(from: 3, to: count, by: 50) { _ = try store.delete(Self.key(number)) }
    let (stretch, places) = try #require(
      try store.reading { engine throws(StoreError) -> (JournalSlice, LiveRecordBitmap)? in
        guard let stretch = engine.slice(after: 0),
          let places = try engine.liveRecordBitmap(isExclusive: true)
        else { return nil }
        return (stretch, places)
      })
    try Self.expectWholeTransactions(stretch, stretch.parts(4, places), count: 4)
    let parts = stretch.parts(3)
    #expect(parts.count == 3 && stretch.parts(1).count == 1)
    #expect(parts.flatMap(\.sources).map(\.segment.number) == stretch.sources.map(\.segment.number))
    #expect(parts.allSatisfy { part in part.sources.reduce(0) { $0 + $1.bytes.count } > 2 << 20 })
    try Self.expectExact(store, RoundReceiver(cursor: nil, covered: VersionVector()), "all")
    let scope = try KeyScope(prefixes: ["key 1"])
    try Self.expectExact(store, RoundReceiver(cursor: nil, covered: VersionVector(), scope: scope), "some")
    let digest = try store.core.engine.withLock { try $0.computeDigest(isExclusive: true).digest }
    var sum = StateDigest()
    try store.reading { engine throws(StoreError) in
      for location in try engine.locations() {
        let record = try engine.record(at: location)
        if Engine.countsInDigest(record) { sum.add(record) }
      }
    }
    #expect(digest == sum)
  }

  /// The parts are equally large, have all records, and split no transaction.
  private static func expectWholeTransactions(
    _ stretch: JournalSlice, _ parts: [JournalSlice], count: Int
  ) throws {
    #expect(parts.count == count)
    let sizes = parts.map { part in part.sources.reduce(0) { $0 + $1.bytes.count } }
    #expect(try #require(sizes.max()) - #require(sizes.min()) < 16 << 10)
    func ends(_ stretch: JournalSlice) throws -> [(position: UInt64, continues: Bool)] {
      var ends: [(position: UInt64, continues: Bool)] = []
      _ = try stretch.visit { _, view throws(StoreError) in
        ends.append((view.position, view.flags.contains(.continues)))
      }
      return ends
    }
    let lists = try parts.map { try ends($0) }
    #expect(lists.joined().map(\.position) == (try ends(stretch)).map(\.position))
    #expect(lists.allSatisfy { $0.last?.continues == false })
  }

  @Test(
    "gives the same records when a live record bitmap was made before, whatever has changed since",
    arguments: 0..<30)
  func bitmapMadeBefore(seed: Int) throws {
    let host = SimulatedHost(seed: UInt64(seed))
    let store = try Self.store(
      on: host, configuration: Configuration(durability: .relaxed, segmentBytes: 64 << 10))
    var random = SplitMix64(seed: UInt64(seed))
    func change() throws {
      let key = try Self.key(Int.random(in: 0..<60, using: &random))
      switch Int.random(in: 0..<20, using: &random) {
      case 0...11: try store.put(key, random.bytes(Int.random(in: 0..<300, using: &random)))
      case 12...15: _ = try store.delete(key)
      case 16...17:
        try store.transaction { transaction in for _ in 0..<4 { try transaction.put(key, [4]) } }
      case 18: try store.purge()
      default: try store.compact()
      }
    }
    for _ in 0..<Int.random(in: 60..<400, using: &random) { try change() }
    // A known digest is not recomputed, and does not depend on locations.
    store.core.engine.withLock { $0.index.checkpoint.setDigest(nil, at: 0) }
    let ground = try #require(try store.replicaSummary(digestAt: host.time).scanContext)
    #expect(try store.replicaSummary(digestAt: host.time).scanContext == nil)
    #expect(ground.current?.count == Int(store.core.engine.withLock { $0.keyCount }))
    for _ in 0..<[0, 5, 200][seed % 3] { try change() }
    let scope = try KeyScope(prefixes: ["key 1", "key 3"])
    for receiver in [
      RoundReceiver(cursor: nil, covered: VersionVector()),
      RoundReceiver(cursor: nil, covered: VersionVector(), scope: scope),
      RoundReceiver(cursor: nil, covered: VersionVector([try store.actor: 20])),
    ] {
      try Self.expectExact(store, receiver, on: ground, "seed \(seed)")
    }
  }

  @Test("asks the index for a record missing from the bitmap, as when a compaction moves it")
  func missingFromBitmap() throws {
    let store = try Self.store(on: SimulatedHost())
    for number in 0..<50 { try store.put(Self.key(number), [UInt8](repeating: 1, count: 100)) }
    let ground = try store.reading { engine throws(StoreError) -> DeltaScanContext? in
      var places = LiveRecordBitmap(engine.journal.table)
      // The record's location in a copy that this view does not know yet.
      var isFirst = true
      try engine.index.hashIndex.forEachRef {
        places.insert(isFirst ? $0 + 1 : $0)
        isFirst = false
      }
      return DeltaScanContext(after: 0, few: Self.few, places, in: &engine)
    }
    let receiver = RoundReceiver(cursor: nil, covered: VersionVector())
    #expect(ground != nil)
    try Self.expectExact(store, receiver, on: ground, "all")
  }

  @Test(
    "gives what is current at its snapshot, under concurrent writes, purges, compaction and rounds",
    arguments: 0..<30)
  func exact(seed: Int) throws {
    let turns = Turns()
    let host = SimulatedHost(seed: UInt64(seed), machine: "one")
    let other = SimulatedHost(seed: UInt64(1000 + seed), machine: "two")
    let store = try Self.store(
      on: host, turns: turns, configuration: Configuration(durability: .relaxed, segmentBytes: 64 << 10))
    let peer = try Self.store(on: other, id: store.id)
    let random = Locked(SplitMix64(seed: UInt64(seed)))
    @Sendable func pick(_ count: Int) -> Int { random.withLock { Int.random(in: 0..<count, using: &$0) } }
    @Sendable func change() throws {
      let key = try Self.key(pick(60))
      switch pick(24) {
      case 0...8: try store.put(key, [UInt8](repeating: UInt8(pick(250)), count: pick(300)))
      case 9...12: _ = try store.delete(key)
      case 13: try store.put(key, [3], expiration: .at(host.time + UInt64(pick(100_000))))
      case 14...15:
        let keys = try (0..<pick(6)).map { _ in try Self.key(pick(60)) }
        try store.transaction { transaction in for key in keys { try transaction.put(key, [4]) } }
      case 16...17: try peer.put(key, [UInt8(pick(250))])
      case 18: _ = try peer.delete(key)
      case 19: try store.receive(from: peer)
      case 20: other.time = host.time + UInt64(pick(3) * 100_000)
      case 21: host.time += UInt64(pick(120_000))
      case 22: try store.purge()
      default: if pick(3) == 0 { try store.compact() } else { try store.put(key, [5]) }
      }
    }
    for _ in 0..<150 { try change() }
    let middle = try store.openRound(since: nil, covered: VersionVector()).close
    for _ in 0..<80 { try change() }
    turns.run { for _ in 0..<pick(5) { try change() } }
    let cursor = Cursor(position: middle.position, mark: middle.mark, closed: true)
    let scope = try KeyScope(prefixes: ["key 1", "key 3"])
    let receivers = [
      RoundReceiver(cursor: nil, covered: VersionVector()),
      RoundReceiver(cursor: cursor, covered: middle.vector),
      RoundReceiver(cursor: nil, covered: try peer.versionVector()),
      RoundReceiver(cursor: nil, covered: VersionVector(), scope: scope),
      RoundReceiver(cursor: cursor, covered: middle.vector, health: .unconfirmed),
    ]
    for receiver in receivers {
      let turnsBefore = turns.count.withLock { $0 }
      try Self.expectExact(store, receiver, "seed \(seed)")
      #expect(turns.count.withLock { $0 } > turnsBefore)
    }
    try turns.end()
  }

  @Test("concurrent with writing threads gives what was current in the journal up to its position")
  func threads() throws {
    let directory = TemporaryDirectory()
    var environment = Environment.real()
    environment.compactionMode = .onRequest
    environment.scanBatchPositions = 64
    let store = try Store.create(
      at: directory.path + "/store", name: nil, id: nil,
      configuration: Configuration(durability: .relaxed, segmentBytes: 1 << 20), environment: environment)
    for number in 0..<3000 { try store.put(Self.key(number % 2000), [UInt8](repeating: 1, count: 100)) }
    let rounds = Locked<[DeltaStream]>([])
    try Threaded.run(3) { thread in
      var random = SplitMix64(seed: UInt64(thread))
      if thread == 0 {
        for _ in 0..<15 {
          let round = try store.openRound(since: nil, covered: VersionVector())
          rounds.withLock { $0.append(round) }
        }
        return
      }
      for _ in 0..<4000 {
        let key = try Self.key(Int.random(in: 0..<2500, using: &random))
        if Bool.random(using: &random) { try store.put(key, [2]) } else { try store.delete(key) }
      }
    }
    var writes: [(key: [UInt8], version: Version, position: UInt64)] = []
    try store.reading { engine throws(StoreError) in
      writes = []
      try engine.visit(from: engine.start(of: 1)) { view throws(StoreError) in
        if view.isWrite, let shape = view.shape, let version = view.version {
          writes.append((view.key(shape), version, view.position))
        }
        return true
      }
    }
    for round in rounds.withLock({ $0 }) {
      var newest: [[UInt8]: (version: Version, position: UInt64)] = [:]
      for write in writes where write.position <= round.close.position {
        if newest[write.key].map({ $0.version < write.version }) ?? true {
          newest[write.key] = (write.version, write.position)
        }
      }
      #expect(round.items.joined().map(\.position) == newest.values.map(\.position).sorted())
    }
    try store.close()
  }
}
