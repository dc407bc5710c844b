import Foundation
import SyncStore
import SyncStoreFoundation
import Testing

/// A program that uses every row of `docs/comparison.md` by the names in it, through the public interface
/// alone.
@Suite("Every row of the comparison") struct EveryRowTests {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }
  private static let relaxed = Configuration(durability: .relaxed)

  private func store(_ name: String = "store") throws -> Store {
    try Store.openOrCreate(at: here + name, configuration: Self.relaxed)
  }

  private struct Order: Codable, Identifiable, Equatable, Sendable {
    let id: Int
    var customer: String
    var total = 1.5
    static let byCustomer = CollectionIndex("customer", \Order.customer)
  }

  // MARK: Values and keys

  @Test("values of all types round-trip, with and without defaults")
  func values() throws {
    let store = try store()
    func check<Content: Codable & Equatable>(
      _ value: Content, sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
      try store.put("value", value)
      #expect(try store.get("value", as: Content.self) == value, sourceLocation: sourceLocation)
    }
    try check(true)
    try check(Int32.min)
    try check(Int64.min)
    try check(UInt32.max)
    try check(UInt64.max)
    try check(Float(0.5))
    try check(Double.pi)
    try check("text")
    try check(Data([0, 255]))
    try check(Date(timeIntervalSince1970: 1_700_000_000.25))
    try check(UUID())
    try check(["a", "b"])
    try check([1, -2])
    try check([Float(1), 2])
    try check([1.5, 2])
    try check(Order(id: 1, customer: "Ann"))
    #expect(try store.get("none", default: 5) == 5)
    #expect(try store.get("none", as: Int.self) == nil)
    let error = #expect(throws: StoreError.self) { try store.get("value", default: 5) }
    #expect(error?.code == .wrongType)
    #expect(try store.entry("value")?.type == .cbor)
    #expect(try !store.putIfChanged("value", Order(id: 1, customer: "Ann")))
    try store.close()
  }

  @Test("keys are found, counted, visited with early exit, and removed one by one and in bulk")
  func keys() throws {
    let store = try store()
    for number in 0..<9 { try store.put(Key("a/\(number)"), number) }
    try store.put("b", Data(repeating: 1, count: 100))
    #expect(try store.contains("a/1") && !store.contains("c"))
    #expect(try store.keyCounts().live == 10)
    #expect(try store.snapshot().count == 10)
    #expect(try store.list().map(\.key).count == 10)
    #expect(try store.list(prefix: Array("a/".utf8)).count == 9)
    var visited = 0
    try store.scan(KeyRange("a/3"..<"a/8")) { _, _ in
      visited += 1
      return visited < 3 ? .next : .stop
    }
    #expect(visited == 3)
    #expect(try store.values(of: Int.self, prefix: "a/", reversed: true, limit: 1).first?.value == 8)
    #expect(try store.entry("b")?.size == 100)
    #expect(try store.status().liveBytes >= 100)
    #expect(try store.delete("b"))
    #expect(try store.delete(contentsOf: ["a/0", "a/1", "none"]) == 2)
    #expect(try store.deleteAll(KeyRange(prefix: "a/")) == 7)
    #expect(try store.keyCounts().all == 0)
    try store.close()
  }

  @Test("values expire by default or individually, and are counted with and without expired ones")
  func expiry() throws {
    var configuration = Self.relaxed
    configuration.defaultLifetime = .month
    let store = try Store.openOrCreate(at: here + "expiring", configuration: configuration)
    try store.put("default", 1)
    try store.put("span", 1, expiration: .after(.minute))
    try store.put("moment", 1, expiration: .at(Lifetime.hours(2).fromNow()))
    try store.put("never", 1, expiration: .never)
    try store.put("over", 1, expiration: .at(1))
    for span in [Lifetime.minute, .hour, .day, .week, .month, .year] {
      #expect(try store.expire("span", .after(span)))
    }
    #expect(try store.expire("default", .never) && store.expire("moment", .at(.max - 1)))
    let counts = try store.keyCounts()
    #expect(counts.live == 4 && counts.expired == 1 && counts.all == 5)
    #expect(try store.deadline(of: "never") == nil)
    try store.close()
  }

  @Test("writes of this and other processes are observed, by key and by prefix")
  func notification() async throws {
    let store = try Store.openOrCreate(at: here + "shared", configuration: Configuration(mode: .shared))
    let start = try store.changePosition()
    try store.put("a/1", 1)
    try store.delete("a/1")
    var kinds: [Change.Kind] = []
    for try await change in try store.changes(prefix: "a/", from: start) {
      kinds.append(change.kind)
      if kinds.count == 2 { break }
    }
    #expect(kinds == [.put, .delete])
    try store.put("one", 7)
    for try await value in store.observe("one") {
      #expect(try value?.decoded(as: Int.self) == 7)
      break
    }
    try store.close()
  }

  // MARK: Tables

  @Test("a table is written, read in order, by index, in pages and in transactions")
  func tables() throws {
    let store = try store()
    let orders = try store.collection("orders", of: Order.self, indexes: [Order.byCustomer])
    try orders.insert(Order(id: 1, customer: "Ann"))
    #expect(
      #expect(throws: StoreError.self) { try orders.insert(Order(id: 1, customer: "Bo")) }?.code
        == .duplicateIdentifier)
    try orders.insertOrReplace(Order(id: 1, customer: "Bo"))
    #expect(try !orders.insertOrIgnore(Order(id: 1, customer: "Cy")))
    try orders.insert(contentsOf: (2...30).map { Order(id: $0, customer: $0 % 2 == 0 ? "Ann" : "Bo") })
    try orders.insertOrReplace(contentsOf: [Order(id: 30, customer: "Cy")])
    #expect(try orders.insertOrIgnore(contentsOf: [Order(id: 30, customer: "Di")]) == 0)
    #expect(try orders.replace(Order(id: 2, customer: "Ed")) && !orders.replace(Order(id: 99, customer: "")))
    #expect(try orders.update(3) { $0.total += 1 })
    #expect(try orders.delete(4) && orders.delete(contentsOf: [5, 6, 99]) == 2)
    #expect(try orders.get(3)?.total == 2.5 && orders.contains(1))
    #expect(try orders.all(in: 10...20, reversed: true, limit: 3).map(\.id) == [20, 19, 18])
    #expect(try orders.all(limit: 2, after: 20).map(\.id) == [21, 22])
    #expect(try orders.count == 27 && orders.count(in: 1..<4) == 3)
    #expect(try orders.all(by: Order.byCustomer, equalTo: "Cy").map(\.id) == [30])
    #expect(try orders.all(by: Order.byCustomer, in: "C"..."E").map(\.customer) == ["Cy"])
    #expect(try orders.count(by: Order.byCustomer, equalTo: "Ed") == 1)
    var seen = 0
    try orders.forEach { _ in
      seen += 1
      return seen == 5 ? .stop : .next
    }
    try store.transaction { transaction in
      try orders.insert(Order(id: 50, customer: "Fi"), in: &transaction)
      #expect(try orders.get(50, in: transaction) != nil)
    }
    let snapshot = try store.snapshot()
    let moment = try orders.snapshot()
    #expect(try orders.deleteAll() == 28)
    #expect(try moment.count == 28 && orders.reading(snapshot).count == 28 && orders.count == 0)
    try store.close()
  }

  // MARK: Transactions

  @Test("transactions nest, pause, run stepwise, and can fail instead of waiting")
  func transactions() throws {
    struct Stop: Error {}
    let store = try store()
    #expect(throws: Stop.self) {
      try store.transaction { transaction in
        try transaction.put("a", 1)
        throw Stop()
      }
    }
    try store.transaction { transaction in
      #expect(store.isInTransaction)
      try transaction.put("b", 1)
      try? transaction.nested { transaction in
        try transaction.put("c", 1)
        throw Stop()
      }
      let place = transaction.savepoint()
      try transaction.put("d", 1)
      try transaction.rollBack(to: place)
      transaction.release(place)
      #expect(transaction.size.records == 1 && transaction.size.bytes < transaction.size.limit)
    }
    #expect(!store.isInTransaction)
    var steps = 0
    let report = try store.pausableTransaction { transaction in
      steps += 1
      try transaction.put(Key("step/\(steps)"), steps)
      return steps < 3 ? .next : .done
    }
    #expect(report.steps == 3)
    var open = try store.beginTransaction()
    try open.transaction.put("e", 1)
    try open.commit()
    if var open = try store.tryBeginTransaction() {
      try open.transaction.put("f", 1)
      open.rollBack()
    }
    #expect(try store.list().map(\.key.description) == ["b", "e", "step/1", "step/2", "step/3"])
    #expect(try store.put("cas", 1, expecting: .absent) != nil)
    let seen = try store.versioned("cas", as: Int.self)
    #expect(try store.put("cas", 2, expecting: .equal(to: 1.0)) == nil)
    #expect(try store.put("cas", 2, expecting: .unchanged(since: seen)) != nil)
    #expect(try store.update("cas", default: 0) { $0 += 1 } == 3)
    try store.close()
  }

  @Test("each call that may block can be made from a task")
  func asynchronous() async throws {
    let store = try await AsyncStore.openOrCreate(at: here + "async")
    try await store.put("a", 1)
    try await store.put("b", 1, expiration: .after(.hour))
    #expect(try await store.transaction { try $0.delete("a") })
    #expect(try await store.expire("b", .never))
    try await store.run { try $0.sync() }
    #expect(try await store.run { try $0.verify() }.isClean)
    let orders = try await store.run { try $0.collection("orders", of: Order.self) }
    try await orders.run { try $0.insert(Order(id: 1, customer: "Ann")) }
    #expect(try await orders.run { try $0.count } == 1)
    #expect(try await orders.run { try $0.delete(1) })
    let paths = (backups: here + "async backups", cache: here + "async cache")
    let root = StoreRoot(here + "async root")
    let handle = try await root.run { try $0.store("shop") }
    try await handle.run { try $0.withStore { try $0.put("a", 1) } }
    #expect(try await root.run { try $0.backUpAll(to: paths.backups) }.count == 1)
    #expect(try await handle.run { try $0.close { true } })
    let cache = try await Cache<Order>.run { try Cache<Order>(at: paths.cache) }
    try await cache.run { try $0.set("a", Order(id: 1, customer: "Ann")) }
    #expect(try await cache.run { try $0.get("a") }?.customer == "Ann")
    #expect(try await store.run { try $0.keyCounts() }.live == 1)
    try await store.close()
  }

  // MARK: Stores

  @Test("store handles: by name, found, closed, blocked, moved, backed up, restored and removed")
  func stores() throws {
    let root = StoreRoot(here + "root")
    let handle = try root.store("shop")
    #expect(!handle.isOpened)
    #expect(handle === StoreHandle.at(here + "root/shop"))
    try handle.withStore { try $0.put("a", 1) }
    #expect(handle.isOpened && handle.canOpen)
    #expect(try root.names() == ["shop"] && root.contains("shop") && Store.exists(at: here + "root/shop"))
    handle.tag = 5
    #expect(try root.store("shop").tag == 5)
    try handle.blockade()
    #expect(handle.isBlockaded)
    #expect(#expect(throws: StoreError.self) { try handle.withStore { _ in } }?.code == .busy)
    handle.unblockade()
    #expect(try handle.sizeOfFiles > 0 && !handle.files.isEmpty)
    handle.purgeMemory()
    StoreHandle.purgeMemory()
    let backup = try handle.backUp(to: here + "shop.backup")
    #expect(backup.isFull)
    try handle.withStore { store in
      try store.put("a", 2)
      #expect(try store.backUp(to: here + "shop.backup").isFull == false)
      #expect(try store.trim() >= 0)
    }
    #expect(try Store.backupSummary(of: here + "shop.backup").states.count == 2)
    try Store.verifyBackup(here + "shop.backup")
    try handle.restore(from: here + "shop.backup", state: 1)
    #expect(try handle.withStore { try $0.get("a", default: 0) } == 1)
    #expect(try root.backUpAll(to: here + "all").count == 1)
    #expect(try root.restoreAll(from: here + "all").count == 1)
    #expect(try handle.close { handle.isOpened } == false)
    let moved = try handle.move(to: here + "moved")
    try moved.close()
    try Store.move(from: here + "moved", to: here + "moved again")
    #expect(try StoreHandle.at(here + "moved again").remove())
    #expect(try !Store.remove(at: here + "moved again"))
  }

  @Test("a store's configuration determines who may open it, and how")
  func modes() throws {
    let store = try store()
    #expect(try Store.open(at: here + "store", configuration: Self.relaxed) === store)
    #expect(
      #expect(throws: StoreError.self) {
        try Store.open(at: here + "store", configuration: Configuration(mode: .shared))
      }?.code == .busy)
    try store.put("a", 1)
    try store.put("b", 1, durability: .full)
    try store.put("c", 1, durability: .interval(milliseconds: 50))
    try store.sync()
    try store.close()
    var configuration = Configuration(mode: .readOnly)
    configuration.onCorruption = { _ in .serveRest }
    let reader = try Store.open(at: here + "store", configuration: configuration)
    #expect(try reader.get("a", default: 0) == 1)
    #expect(#expect(throws: StoreError.self) { try reader.put("a", 2) }?.code == .readOnly)
    try reader.close()
  }

  @Test("a store is encrypted, re-keyed and decrypted while it is open; a wrong key is an error")
  func encryption() throws {
    let store = try store()
    try store.put("a", "secret")
    #expect(try !Store.isEncrypted(at: here + "store"))
    #expect(try store.encrypt(with: Passphrase("one")).isComplete)
    #expect(try store.isEncrypted && Store.isEncrypted(at: here + "store"))
    try store.changePassphrase(to: Passphrase("two"))
    #expect(try store.renewKeys().isComplete && store.get("a", default: "") == "secret")
    try store.close()
    for wrong in [nil, Passphrase("one")] {
      let error = #expect(throws: StoreError.self) {
        try Store.open(at: here + "store", configuration: Configuration(passphrase: wrong))
      }
      #expect(error?.code == (wrong == nil ? .keyRequired : .wrongKey))
    }
    let again = try Store.open(
      at: here + "store", configuration: Configuration(passphrase: Passphrase("two")))
    #expect(try again.decrypt().isComplete && again.get("a", default: "") == "secret")
    try again.encrypt(with: Passphrase("three"))
    try again.close()
    #expect(try Store.remove(at: here + "store"))
  }

  @Test("data of other libraries is imported")
  func migration() throws {
    let old = try store("old")
    try old.put("order/1", 1)
    try old.put("order/2", 2)
    let store = try store()
    #expect(try store.importAll(from: old).imported == 2)
    #expect(try store.importAll(from: old.snapshot(), conflict: .keep).kept == 2)
    let list = try PropertyListSerialization.data(
      fromPropertyList: ["name": "Ann", "age": 7], format: .binary, options: 0)
    try scratch.write("preferences.plist", Array(list))
    #expect(try store.importAll(fromPropertyListAt: here + "preferences.plist", prefix: "p/").imported == 2)
    #expect(try store.get("p/age", default: 0) == 7)
    // The count, the skipped varint, "k" and the varint 5.
    try scratch.write("mmkv", [8, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0x07, 1, 0x6B, 1, 5])
    #expect(try store.importAll(from: MMKVFile(path: here + "mmkv")) { _ in .integer }.imported == 1)
    #expect(try store.get("k", default: 0) == 5)
    try old.close()
    try store.close()
  }

  // MARK: Caches

  @Test("a memory cache has limits, and trims and releases memory")
  func memoryCache() {
    let cache = MemoryCache<String, Int>(
      name: "rows", countLimit: 100, costLimit: 1000, ageLimit: 60, trimInterval: 5,
      release: .inBackground, yieldsToPressure: false)
    for number in 0..<10 { cache.set("\(number)", number, cost: 2) }
    #expect(cache.name == "rows" && cache.count == 10 && cache.totalCost == 20)
    #expect(cache.contains("3") && cache.get("3") == 3 && cache["none"] == nil)
    #expect(cache.remove("3") == 3)
    cache.trim(toCount: 5)
    cache.trim(toCost: 6)
    cache.trim(toAge: 100)
    #expect(cache.count == 3)
    cache.countLimit = 2
    #expect(cache.count == 2)
    cache.yield(to: .some)
    #expect(cache.count == 1)
    cache.removeAll()
    #expect(cache.count == 0)
  }
}
