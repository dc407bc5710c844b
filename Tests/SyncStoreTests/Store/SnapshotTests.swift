import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("A snapshot")
struct SnapshotTests {
  static let small = Configuration(durability: .relaxed, segmentBytes: 64 << 10)
  static let shared = Configuration(mode: .shared, durability: .relaxed, segmentBytes: 64 << 10)
  let host = SimulatedHost(compacting: .onRequest)

  @Test("does not change while other threads write, segments are begun, and compaction removes them")
  func unmoving() throws {
    let store = try Store.create(on: host, configuration: Self.small)
    var snapshots: [(Snapshot, [Scanned])] = []
    for turn in 0..<6 as Range<UInt64> {
      try CompactionTests.churn(store, writes: 120, seed: turn)
      let snapshot = try store.snapshot()
      snapshots.append((snapshot, try snapshot.scanned()))
      if turn % 2 == 1 { #expect(try store.compact() > 0) }
    }
    #expect(Set(snapshots.map { $0.1.map(\.value) }).count == 6)
    for (snapshot, scanned) in snapshots {
      #expect(try snapshot.scanned() == scanned)
      #expect(try snapshot.scanned(reversed: true) == scanned.reversed())
      #expect(try snapshot.count == scanned.count)
      for entry in scanned {
        #expect(try snapshot.get(Key(bytes: entry.key))?.bytes == entry.value)
        #expect(try snapshot.contains(Key(bytes: entry.key)))
      }
    }
    #expect(try snapshots.last?.0.get("no such key") == nil)
  }

  @Test("has the writes of other processes up to its creation, and none after")
  func processes() throws {
    let first = try Store.create(on: host, configuration: Self.shared)
    let second = try Store.openSecond(on: host, configuration: Self.shared)
    for turn in 0..<4 as Range<UInt64> {
      try CompactionTests.churn(second, writes: 100, seed: turn)
      let snapshot = try first.snapshot()
      let scanned = try snapshot.scanned()
      #expect(try scanned == second.scanned(), "turn \(turn)")
      try CompactionTests.churn(second, writes: 100, seed: turn + 50)
      if turn % 2 == 0 { #expect(try second.compact() > 0) }
      #expect(try snapshot.scanned() == scanned)
      #expect(try first.scanned() == second.scanned(), "turn \(turn)")
      #expect(try snapshot.scanned() == scanned)
    }
  }

  @Test("has the newest record of each key also during a segment installation")
  func segmentInstall() throws {
    let first = try Store.create(on: host, configuration: Self.shared)
    let second = try Store.openSecond(on: host, configuration: Self.shared)
    for number in 0..<300 { try first.put(Key("key \(number)"), [UInt8](repeating: 1, count: 100)) }
    #expect(try second.scanned().count == 300)
    // The replacements of the first values lie in closed segments, half of them dead.
    for step in 1...2 {
      for number in stride(from: 0, to: 120, by: step) {
        try first.put(Key("key \(number)"), [UInt8](repeating: 2, count: 1000))
      }
    }
    // It has read the changes, but not sorted them yet.
    #expect(try second.contains("key 0"))
    #expect(try first.compact() > 0)
    let names = try SegmentName.all(in: "/store/journal", host.storage).filter { $0.compaction > 0 }
    var adopted = 0
    let order = try second.core.engine.withLock { engine throws(StoreError) in
      for name in names {
        guard let segment = try engine.journal.map(name), segment.header.closedLength > 20_000
        else { continue }
        var adoption = SegmentInstall(segment, replacing: engine.journal.numbers(within: name.covered))
        engine.journal.addUninstalled(segment)
        engine.assignSlots(mayAdd: true)
        // Records are moved, and nothing is dropped yet: the state between two steps of the compactor.
        #expect(!engine.installSegment(&adoption, count: 12, indexing: true))
        adopted += 1
      }
      return try engine.sortedKeyIndex()
    }
    #expect(adopted > 0)
    var (count, changed) = (0, 0)
    let all = SnapshotState.Scan(range: .all, after: nil, reversed: false, limit: .max, time: host.time)
    _ = try SnapshotState(order: order, possiblyLostKeys: nil, indexNotes: [:]).visit(all, in: second) {
      _, value, _ in
      count += 1
      if value.byteCount == 1000 { changed += 1 }
      return .next
    }
    #expect(count == 300 && changed == 120)
  }

  @Test("has whole transactions only, and within one the state before it")
  func transactions() throws {
    let store = try Store.create(on: host)
    try store.put("a", "1")
    try store.transaction { transaction in
      try transaction.put("a", Array("2".utf8))
      try transaction.put("b", Array("2".utf8))
      #expect(try store.snapshot().scanned().map(\.value) == [Array("1".utf8)])
      #expect(try store.scanned().count == 1)
      #expect(try transaction.contains("b"))
      #expect(try transaction.entry("b")?.size == 1)
      #expect(try transaction.entry("a")?.dot != store.entry("a")?.dot)
      try transaction.delete("a")
      #expect(try !transaction.contains("a"))
      #expect(try transaction.entry("a") == nil)
      #expect(try transaction.versioned("a") == nil)
      #expect(try transaction.versioned("b")?.value.bytes == Array("2".utf8))
    }
    #expect(try store.scanned() == [Scanned(key: Array("b".utf8), value: Array("2".utf8))])
  }

  @Test("omits parked records until they are applied")
  func parked() throws {
    let store = try Store.create(on: host)
    let far = SimulatedHost(seed: 9, time: host.time + 100_000, machine: "fast")
    let fast = try Store.create(on: far, id: store.id)
    try fast.put("c", "early")
    try store.receive(from: fast)
    #expect(try store.snapshot().count == 0)
    #expect(try store.snapshot().get("c") == nil)
    host.time += 200_000
    try store.put("d", "1")
    #expect(try store.snapshot().list().map(\.key) == ["c", "d"])
  }

  @Test("is not built from a key order that changed while it was being made")
  func overtaken() throws {
    let store = try Store.create(on: host, configuration: Self.small)
    let fast = try Store.create(
      on: SimulatedHost(seed: 9, time: host.time + 100_000, machine: "fast"), id: store.id)
    try fast.put("c", "early")
    try store.receive(from: fast)
    func order(_ change: () throws -> Void) throws -> Bool {
      let origin = try store.reading { engine throws(StoreError) in try engine.sortInput() }
      let order = SortedKeyIndex(origin.places, upTo: origin.upTo, in: origin.segments)
      try change()
      return try store.reading { engine throws(StoreError) in
        engine.install(order, builtFrom: origin)
        return engine.sortedKeys.index != nil
      }
    }
    host.time += 200_000
    // Applies due parked records, which lie before the location where the sorted index would continue
    // reading.
    #expect(try !order { try store.put("d", "1") })
    #expect(try store.list().map(\.key) == ["c", "d"])
    try CompactionTests.churn(store, writes: 200)
    try store.reading { engine throws(StoreError) in engine.sortedKeys.index = nil }
    #expect(try !order { _ = try store.compact() })
    let listed = try store.list()
    try store.reading { engine throws(StoreError) in engine.sortedKeys.index = nil }
    #expect(try order { try store.put("e", "1") })
    #expect(try store.list().count == listed.count + 1)
  }

  @Test("fails with a typed error once it or its store is closed, and crashes no process")
  func closed() throws {
    let store = try Store.create(on: host, configuration: Self.small)
    try store.put("a", "1")
    let (early, late) = (try store.snapshot(), try store.snapshot())
    early.close()
    early.close()
    #expect(#expect(throws: StoreError.self) { try early.get("a") }?.code == .closed)
    #expect(#expect(throws: StoreError.self) { try early.count }?.code == .closed)
    #expect(try late.get("a")?.bytes == Array("1".utf8))
    #expect(try late.count == 1)
    // The store is closed in the middle of a scan.
    for number in 0..<3000 { try store.put(Key("\(number)"), "x") }
    var seen = 0
    let error = #expect(throws: StoreError.self) {
      try store.scan { _, value in
        if seen == 0 { try store.close() }
        seen += value.byteCount
      }
    }
    #expect(error?.code == .closed)
    #expect(seen > 0 && seen < 3000)
    #expect(#expect(throws: StoreError.self) { try late.get("a") }?.code == .closed)
    #expect(#expect(throws: StoreError.self) { try late.count }?.code == .closed)
    #expect(#expect(throws: StoreError.self) { try late.withValue("a") { _ in } }?.code == .closed)
    #expect(#expect(throws: StoreError.self) { try late.scanned() }?.code == .closed)
    #expect(#expect(throws: StoreError.self) { try store.snapshot() }?.code == .closed)
  }

  @Test("frees replaced segments when it is released")
  func release() throws {
    let store = try Store.create(on: host, configuration: Self.small)
    try CompactionTests.churn(store, writes: 200)
    weak var segment: Segment?
    var snapshot: Snapshot? = try store.snapshot()
    segment = try store.reading { engine throws(StoreError) in engine.journal.segments.first }
    #expect(try store.compact() > 0)
    try store.put("k", "v")
    _ = try store.list()
    #expect(segment != nil)
    #expect(try snapshot?.count ?? 0 > 0)
    snapshot = nil
    #expect(segment == nil)
  }
}

@Suite("Snapshots and scans during writes")
struct SnapshotConcurrencyTests {
  @Test("show the same transaction in every key, keep it, and block no writer")
  func consistent() async throws {
    let directory = TemporaryDirectory()
    let store = try Store.create(at: directory.path + "/store", configuration: SnapshotTests.small)
    let keys = try (0..<40).map { try Key("key \($0)") }
    func write(_ number: Int) throws {
      try store.transaction { transaction in
        let value = Array("\(number)".utf8) + [UInt8](repeating: 0, count: 60)
        for key in keys { try transaction.put(key, value) }
      }
    }
    try write(0)
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask { for number in 1..<250 { try write(number) } }
      group.addTask {
        for number in 0..<1500 {
          try store.put(Key("other \(number % 300)"), [UInt8](repeating: 1, count: number % 90))
          if number % 400 == 399 { try store.compact() }
        }
      }
      for reader in 0..<3 {
        group.addTask {
          for _ in 0..<60 {
            let snapshot = try store.snapshot()
            let values = try snapshot.scanned(KeyRange(prefix: "key "), reversed: reader == 1).map(\.value)
            #expect(values.count == keys.count && Set(values).count == 1)
            for key in keys { #expect(try snapshot.get(key)?.bytes == values[0]) }
            #expect(try Set(store.scanned(KeyRange(prefix: "key ")).map(\.value)).count == 1)
          }
        }
      }
      try await group.waitForAll()
    }
    #expect(try store.verify().isClean)
  }

  @Test("follow another instance that writes and compacts, by whole transactions only")
  func shared() async throws {
    let host = SimulatedHost(compacting: .onRequest)
    let writer = try Store.create(on: host, configuration: SnapshotTests.shared)
    let reader = try Store.openSecond(on: host, configuration: SnapshotTests.shared)
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask {
        for number in 0..<300 {
          try writer.transaction { transaction in
            for key in ["a", "b", "c"] as [Key] {
              try transaction.put(key, Array("\(number)".utf8) + [UInt8](repeating: 0, count: 300))
            }
          }
          if number % 100 == 99 { try writer.compact() }
        }
      }
      group.addTask {
        for _ in 0..<150 {
          let snapshot = try reader.snapshot()
          let first = try snapshot.scanned()
          #expect(Set(first.map(\.value)).count <= 1 && (first.isEmpty || first.count == 3))
          #expect(try snapshot.scanned() == first)
        }
      }
      try await group.waitForAll()
    }
    #expect(try reader.scanned() == writer.scanned())
  }
}
