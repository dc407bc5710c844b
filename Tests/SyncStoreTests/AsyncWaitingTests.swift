import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// Asynchronous forms beyond the store itself. More tasks than the pool has threads wait for one event: if
/// they held threads, nothing could release them.
@Suite("Asynchronous forms of", .timeLimit(.minutes(Patience.minutes(1))))
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

  @Test("a root of stores")
  func root() async throws {
    let path = directory.path
    let root = AsyncStoreRoot(StoreRoot(path + "/root"))
    let shop = try await root.store("shop")
    try await shop.withStore { try $0.put("a", 1) }
    #expect(try await root.names() == ["shop"])
    #expect(try await root.contains("shop"))
    #expect(try await !root.contains("none"))
    #expect(try await shop.sizeOfFiles > 0)
    #expect(try await !shop.files.isEmpty)
    // The exclusive holder keeps the backups waiting.
    let handle = shop.handle
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
      let reports = try await root.backUpAll(to: path + "/backups \(number)")
      #expect(reports.count == 1)
    }
    try holder.wait()
    try await shop.withStore { try $0.put("a", 2) }
    #expect(try await root.restoreAll(from: path + "/backups 0").count == 1)
    #expect(try await shop.withStore { try $0.get("a", as: Int.self) } == 1)
    try await shop.close()
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
    let cache = try await AsyncCache<Slow>.open(at: directory.path + "/cache")
    try await cache.set("a", Slow(7))
    #expect(try await cache.contains("a"))
    #expect(try await !cache.contains("none"))
    #expect(try await cache.get("none") == nil)
    #expect(try await cache.get("a")?.number == 7)
    cache.cache.memory.removeAll()
    Slow.mayBeRead.withLock { $0 = false }
    try await Self.manyWait {
      Slow.mayBeRead.withLock { $0 = true }
    } _: { _ in
      let value = try await cache.get("a")
      #expect(value?.number == 7)
    }
    #expect(cache.cache.memory.count == 1)
    #expect(try await cache.remove("a"))
    #expect(try await !cache.remove("a"))
    try await cache.set("b", Slow(8))
    try await cache.removeAll()
    #expect(try await cache.get("b") == nil)
  }

  @Test("a disk cache whose values are used in place")
  func diskCache() async throws {
    let cache = try await AsyncDiskCache.open(at: directory.path + "/cache")
    try await cache.set("a", [1, 2, 3])
    let goesOn = Locked(false)
    try await Self.manyWait {
      goesOn.withLock { $0 = true }
    } _: { _ in
      let count = try await cache.withValue("a") { bytes in
        while !goesOn.withLock({ $0 }) { usleep(1000) }
        return bytes.byteCount
      }
      #expect(count == 3)
    }
    await cache.close()
  }

  struct Order: Codable, Identifiable, Equatable, Sendable {
    let id: Int
    var customer: String
    static let byCustomer = CollectionIndex("customer", \Order.customer)
  }

  @Test("a collection")
  func collection() async throws {
    let store = AsyncStore(try Store.create(on: SimulatedHost(compacting: .onRequest)))
    let orders = try await store.collection("orders", of: Order.self, indexes: [Order.byCustomer])
    let holder = AsyncStoreTests.Holder(store.store)
    try await Self.manyWait {
      holder.end()
    } _: { number in
      try await orders.insert(Order(id: number, customer: "Ann"), durability: .relaxed)
    }
    let count = Self.tasks
    #expect(try await orders.count == count)
    await #expect(throws: StoreError.self) { try await orders.insert(Order(id: 1, customer: "Bo")) }
    #expect(try await !orders.insertOrIgnore(Order(id: 1, customer: "Bo")))
    try await orders.insertOrReplace(Order(id: 1, customer: "Bo"))
    #expect(try await orders.replace(Order(id: 2, customer: "Cy")))
    #expect(try await orders.update(3) { $0.customer = "Di" })
    #expect(try await orders.get(3)?.customer == "Di")
    #expect(try await orders.all(in: 1...3).map(\.customer) == ["Bo", "Cy", "Di"])
    #expect(try await orders.all(reversed: true, limit: 1).map(\.id) == [count - 1])
    #expect(try await orders.all(by: Order.byCustomer, in: "B"..."C").map(\.id) == [1])
    #expect(try await orders.all(by: Order.byCustomer, limit: 1).map(\.id) == [0])
    #expect(try await orders.all(by: Order.byCustomer, equalTo: "Di").map(\.id) == [3])
    #expect(try await orders.count(by: Order.byCustomer, equalTo: "Ann") == count - 3)
    #expect(try await orders.count(in: 0..<2) == 2)
    #expect(try await orders.expire(3, .after(.hour)))
    let visited = Locked(0)
    try await orders.forEach { _ in
      visited.withLock { visited in
        visited += 1
        return visited == 2 ? .stop : .next
      }
    }
    #expect(visited.withLock { $0 } == 2)
    let moment = try await orders.snapshot()
    #expect(try await orders.delete(1))
    #expect(try await orders.delete(contentsOf: [1, 2]) == 1)
    try await orders.insert(contentsOf: [Order(id: 1000, customer: "Ed")])
    try await orders.insert(Order(id: 1001, customer: "Ed"), expiration: .after(.hour))
    #expect(try await orders.insertOrIgnore(contentsOf: [Order(id: 1000, customer: "")]) == 0)
    try await orders.insertOrReplace(contentsOf: [Order(id: 1000, customer: "Fi")])
    try await orders.insertOrReplace(Order(id: 1001, customer: "Fi"), expiration: .after(.hour))
    try await orders.rebuildIndexes()
    #expect(try await orders.deleteAll() == count)
    #expect(try moment.count == count)
  }

  @Test("reading, importing, encrypting and explaining do the same as the blocking ones")
  func upkeep() async throws {
    let path = directory.path
    let old = try await AsyncStore.create(at: path + "/old")
    var configuration = Configuration()
    configuration.passphraseCost = Scrypt.Parameters(logN: 1, r: 1, p: 1)
    let store = try await AsyncStore.create(at: path + "/new", configuration: configuration)
    try await old.put("a", 1)
    try await old.put("b", "two")
    #expect(try await store.importAll(from: old).imported == 2)
    #expect(try await store.importAll(from: old.snapshot(), conflict: .keep).kept == 2)
    try Data([8, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0x07, 1, 0x6B, 1, 5]).write(to: URL(filePath: path + "/mmkv"))
    let file = try await MMKVFile.read(path: path + "/mmkv")
    #expect(try await store.importAll(from: file, prefix: "m/") { _ in .integer }.imported == 1)
    let list = try PropertyListSerialization.data(fromPropertyList: ["n": 1], format: .binary, options: 0)
    try list.write(to: URL(filePath: path + "/list"))
    #expect(try await store.importAll(fromPropertyListAt: path + "/list", prefix: "p/").imported == 1)
    #expect(try await store.list().map(\.key) == ["a", "b", "m/k", "p/n"])
    #expect(try await store.list(prefix: Array("m/".utf8)).count == 1)
    #expect(try await store.values(of: Int.self, prefix: "p/").map(\.value) == [1])
    #expect(try await store.values(of: Int.self, in: KeyRange("a"..."a")).map(\.value) == [1])
    #expect(try await store.keyCounts().live == 4)
    #expect(try await store.withValue("b") { $0.byteCount } == 3)
    let seen = try await store.versioned("a", as: Int.self)
    #expect(try await store.put("a", 2, expecting: .unchanged(since: seen)) != nil)
    #expect(try await store.versioned("a")?.value.decoded(as: Int.self) == 2)
    #expect(try await store.putIfChanged("bytes", [1]))
    #expect(try await store.put("bytes", [2], expecting: .value([9]), expiration: .after(.hour)) == nil)
    #expect(try await store.delete("bytes", expecting: .value([1])))
    #expect(try await store.explain("a")?.isLocal == true)
    #expect(try await store.log(from: 0, limit: 2).count == 2)
    #expect(try await store.log(from: 0, limit: 0).isEmpty)
    #expect(try await store.conflicts().isEmpty)
    #expect(try await store.status().keys == 4)
    #expect(try await store.digest() == store.store.digest())
    #expect(try await store.absentValues() == AbsentValues())
    try await store.setBlobLimits(BlobLimits())
    #expect(try await store.lastBlobTrim() == nil)
    #expect(try await store.restampUnsent().writes == 0)
    try await store.put("large", [UInt8](repeating: 7, count: 30_000))
    let read = Locked<UInt64>(0)
    #expect(try await store.verify { done, _ in read.withLock { $0 = done } }.isClean)
    #expect(read.withLock { $0 } > 0)
    #expect(try await store.encrypt(with: Passphrase("one")).isComplete)
    try await store.changePassphrase(to: Passphrase("two"))
    #expect(try await store.renewKeys().isComplete)
    #expect(try await AsyncStore.isEncrypted(at: path + "/new"))
    #expect(try await store.decrypt().isComplete)
    #expect(try await store.finishRekeying().isComplete)
    #expect(try await AsyncStore.exists(at: path + "/new"))
    #expect(try await AsyncStore.sizeOfFiles(at: path + "/new") > 0)
    #expect(try await !AsyncStore.files(at: path + "/new").isEmpty)
    let reader = try await store.reader(of: "b")
    #expect(try await reader?.withBytes { $0.byteCount } == 3)
    #expect(try await reader?.withUnverifiedBytes { $0.byteCount } == 3)
    try await store.close()
    try await old.close()
  }
}
