import Synchronization
import SyncTestSupport
import Testing

@testable import SyncStore

/// A pass over all keys yields to writers: a writer waits for at most one turn of it.
@Suite("A pass over all keys")
struct KeyPassTests {
  private let host = SimulatedHost(compacting: .onRequest, encrypted: false)
  private static let count = 6000

  /// Counts while a pass yields.
  private final class Counts: Sendable {
    let turn = Atomic(0)
    let most = Atomic(0)
    let added = Atomic(0)
  }

  /// A store of 6,000 keys; a pass calls `onScanYield` whenever it yields.
  private func store(mode: Configuration.Mode, _ betweenTurns: @escaping @Sendable (Store) -> Void) throws
    -> Store
  {
    let configuration = Configuration(mode: mode, durability: .relaxed)
    let filled = try Store.create(on: host, configuration: configuration)
    for start in stride(from: 0, to: Self.count, by: 500) {
      try filled.transaction { transaction in
        for number in start..<start + 500 { try transaction.put(Key("key \(number)"), [1, 2, 3]) }
      }
    }
    try filled.close()
    host.killProcesses()
    let opened = Locked<Store?>(nil)
    var environment = host.environment
    environment.onScanYield = { if let store = opened.withLock({ $0 }) { betweenTurns(store) } }
    let store = try Store.open(
      at: "/store", configuration: host.configured(configuration), environment: environment)
    opened.withLock { $0 = store }
    return store
  }

  @Test(
    "visits at most 256 records per turn, each key exactly once, though the index grows by half meanwhile",
    arguments: [.exclusive, .shared] as [Configuration.Mode])
  func once(mode: Configuration.Mode) throws {
    let counts = Counts()
    let store = try store(mode: mode) { store in
      counts.most.max(counts.turn.exchange(0, ordering: .relaxed), ordering: .relaxed)
      let first = counts.added.add(200, ordering: .relaxed).oldValue
      try? store.transaction { transaction in
        for number in first..<first + 200 { try transaction.put(Key("new \(number)"), [4]) }
      }
    }
    var seen: [[UInt8]: Int] = [:]
    try store.visitKeysInSteps {
      seen = [:]
    } read: { engine, place throws(StoreError) -> [UInt8] in
      counts.turn.add(1, ordering: .relaxed)
      return engine.key(at: place)
    } collect: { key throws(StoreError) in
      seen[key, default: 0] += 1
    }
    counts.most.max(counts.turn.load(ordering: .relaxed), ordering: .relaxed)
    #expect(counts.most.load(ordering: .relaxed) <= Store.recordsPerStep)
    #expect(counts.added.load(ordering: .relaxed) >= Self.count / 2)
    for number in 0..<Self.count { #expect(seen[Array("key \(number)".utf8)] == 1, "key \(number)") }
    #expect(seen.values.allSatisfy { $0 == 1 })
  }

  @Test(
    "lets writers continue within verify and status, whose figures stay correct",
    arguments: [.exclusive, .shared]
      as [Configuration.Mode])
  func verifyAndStatus(mode: Configuration.Mode) throws {
    let counts = Counts()
    let store = try store(mode: mode) { store in
      let number = counts.turn.add(1, ordering: .relaxed).oldValue
      try? store.put(Key("key \(number)"), [9, 9, 9])
    }
    let status = try store.status()
    #expect(status.keys == Self.count && status.liveBytes == UInt64(3 * Self.count))
    #expect(counts.turn.load(ordering: .relaxed) >= Self.count / Store.recordsPerStep)
    counts.turn.store(0, ordering: .relaxed)
    let report = try store.verify()
    #expect(report.isClean && report.records >= Self.count)
    #expect(counts.turn.load(ordering: .relaxed) >= Self.count / Store.recordsPerStep)
    #expect(try store.get("key 3")?.bytes == [9, 9, 9])
    // Within a transaction of this thread, too.
    try store.transaction { transaction in
      try transaction.put("in", [1])
      #expect(try store.status().keys == Self.count)
    }
  }

  @Test("lets writers continue within conflicts and explain")
  func conflicts() throws {
    let counts = Counts()
    let store = try store(mode: .exclusive) { store in
      counts.turn.add(1, ordering: .relaxed)
      try? store.put("between", [1])
    }
    let other = try Store.create(on: SimulatedHost(seed: 9, machine: "other"), id: store.id)
    for number in 0..<700 { try other.put(Key("key \(number)"), [7]) }
    try store.receive(from: other)
    let beaten = try store.conflicts()
    #expect(beaten.count == 700)
    #expect(counts.turn.load(ordering: .relaxed) >= 3)
    counts.turn.store(0, ordering: .relaxed)
    #expect(try store.explain("key 5")?.beaten.count == 1)
    #expect(counts.turn.load(ordering: .relaxed) >= 3)
  }
}
