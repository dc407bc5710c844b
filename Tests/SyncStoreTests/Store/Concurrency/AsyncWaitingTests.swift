import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// Blocking calls in tasks. More tasks than the pool has threads wait for one event: if
/// they held threads, nothing could release them.
@Suite("Blocking calls in more tasks than threads, of", .timeLimit(.minutes(Patience.minutes(1))))
struct AsyncWaitingTests {
  let directory = TemporaryDirectory()
  /// More than the pool's threads on any machine that runs the tests.
  static let tasks = 2 * max(10, ProcessInfo.processInfo.activeProcessorCount)

  /// Starts the work in many tasks, checks that the pool still runs others while they wait, and lets them
  /// end.
  static func manyWait(
    for release: @escaping @Sendable () throws -> Void, _ work: @escaping @Sendable (Int) async throws -> Void
  ) async throws {
    let begun = Locked(0)
    let workers = (0..<tasks).map { number in
      Task {
        begun.withLock { $0 += 1 }
        try await work(number)
      }
    }
    // All of them are running or waiting, which is possible only if waiting tasks hold no thread.
    try await ChangesTests.until { begun.withLock { $0 } == tasks }
    #expect(await Task.detached { 42 }.value == 42)
    try release()
    for worker in workers { try await worker.value }
  }

  @Test("a store handle")
  func handles() async throws {
    let handle = StoreHandle.at(directory.path + "/a")
    #expect(await handle.run { $0.canOpen })
    // More tasks than the pool has threads: all wait for the one that works.
    let began = AsyncStream<Void>.makeStream()
    let goesOn = Locked(false)
    async let worked: Void = handle.run { handle in
      try handle.withStore { _ in
        began.continuation.yield()
        while !goesOn.withLock({ $0 }) { usleep(1000) }
      }
    }
    for await _ in began.stream { break }
    async let closed: Void = withThrowingTaskGroup(of: Void.self) { group in
      for _ in 0..<20 { group.addTask { try await handle.run { try $0.close() } } }
      try await group.waitForAll()
    }
    try await Task.sleep(for: .milliseconds(20))
    goesOn.withLock { $0 = true }
    try await worked
    try await closed
    #expect(!handle.isOpened)
    let path = directory.path
    #expect(try await handle.run { try $0.close { try Store.exists(at: path + "/a") } })
  }

  @Test("a root of stores")
  func root() async throws {
    let path = directory.path
    let root = StoreRoot(path + "/root")
    let handle = try await root.run { try $0.store("shop") }
    try await handle.run { try $0.withStore { try $0.put("a", 1) } }
    // The exclusive holder keeps the backups waiting.
    let (blockaded, goesOn) = (Locked(false), Locked(false))
    let holder = Worker.run {
      try handle.blockade()
      blockaded.withLock { $0 = true }
      while !goesOn.withLock({ $0 }) { usleep(1000) }
      handle.unblockade()
    }
    try await ChangesTests.until { blockaded.withLock { $0 } }
    try await Self.manyWait {
      goesOn.withLock { $0 = true }
    } _: { number in
      let reports = try await root.run { try $0.backUpAll(to: path + "/backups \(number)") }
      #expect(reports.count == 1)
    }
    try holder.wait()
    try await handle.run { try $0.close() }
  }

  /// A value that is read only when the test says so.
  struct Slow: Codable, Sendable {
    static let mayBeRead = Locked(true)
    var number: Int

    init(_ number: Int) { self.number = number }

    init(from decoder: any Decoder) throws {
      number = try decoder.singleValueContainer().decode(Int.self)
      while !Self.mayBeRead.withLock({ $0 }) { usleep(1000) }
    }

    func encode(to encoder: any Encoder) throws {
      var container = encoder.singleValueContainer()
      try container.encode(number)
    }
  }

  @Test("a cache of two levels")
  func cache() async throws {
    let path = directory.path + "/cache"
    let cache = try await Cache<Slow>.run { try Cache<Slow>(at: path) }
    try await cache.run { try $0.set("a", Slow(7)) }
    cache.memory.removeAll()
    Slow.mayBeRead.withLock { $0 = false }
    try await Self.manyWait {
      Slow.mayBeRead.withLock { $0 = true }
    } _: { _ in
      let value = try await cache.run { try $0.get("a") }
      #expect(value?.number == 7)
    }
    #expect(cache.memory.count == 1)
  }

  @Test("a disk cache whose values are used in place")
  func diskCache() async throws {
    let cache = try DiskCache.open(at: directory.path + "/cache")
    try await cache.run { try $0.set("a", [1, 2, 3]) }
    let goesOn = Locked(false)
    try await Self.manyWait {
      goesOn.withLock { $0 = true }
    } _: { _ in
      let count = try await cache.run { cache in
        try cache.withValue("a") { bytes in
          while !goesOn.withLock({ $0 }) { usleep(1000) }
          return bytes.byteCount
        }
      }
      #expect(count == 3)
    }
    await cache.run { $0.close() }
  }

  struct Order: Codable, Identifiable, Equatable, Sendable {
    let id: Int
    var customer: String
    static let byCustomer = CollectionIndex("customer", \Order.customer)
  }

  @Test("a collection")
  func collection() async throws {
    let store = try Store.create(on: SimulatedHost(compacting: .onRequest))
    let orders = try await store.run {
      try $0.collection("orders", of: Order.self, indexes: [Order.byCustomer])
    }
    let holder = AsyncStoreTests.Holder(store)
    try await Self.manyWait {
      holder.end()
    } _: { number in
      try await orders.run { try $0.insert(Order(id: number, customer: "Ann"), durability: .relaxed) }
    }
    #expect(try await orders.run { try $0.count } == Self.tasks)
    await #expect(throws: StoreError.self) {
      try await orders.run { try $0.insert(Order(id: 1, customer: "Bo")) }
    }
  }
}
