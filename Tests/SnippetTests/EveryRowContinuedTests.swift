import Foundation
import Replication
import SyncStore
import Synchronization
import Testing

/// The second half of the program that uses every row of `docs/comparison.md`; `EveryRowTests` is the first.
@Suite("Every row of the comparison, continued") struct EveryRowContinuedTests {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }
  private static let relaxed = Configuration(durability: .relaxed)

  private struct Tile: Codable, Equatable, Sendable {
    var name: String
    var heights: [Double] = [1, 2.5]
  }

  // MARK: Values, tables

  @Test(
    "typed values are visited with early exit, and limits are constants whose excess is an error")
  func values() throws {
    var configuration = Configuration(mode: .exclusive, durability: .relaxed)
    configuration.blobThreshold = 100
    let store = try Store.openOrCreate(at: here + "store", configuration: configuration)
    for number in 0..<5 { try store.put(Key("n/\(number)"), number) }
    var sum = 0
    try store.forEachValue(of: Int.self, in: KeyRange(prefix: "n/")) { _, number in
      sum += number
      return number < 3 ? .next : .stop
    }
    #expect(sum == 6)
    try store.put("large", [UInt8](repeating: 7, count: 101))
    try store.put("small", [UInt8](repeating: 7, count: 100))
    #expect(try store.entry("large")?.blob != nil && store.entry("small")?.blob == nil)
    #expect(Limits.blobBytes > 1 << 40)
    let long = String(repeating: "k", count: Limits.keyBytes + 1)
    #expect(#expect(throws: StoreError.self) { try Key(long) }?.code == .invalidKey)
    try store.transaction { #expect($0.size.limit == Limits.transactionBytes) }
    try store.close()
  }

  @Test("a table is used from tasks")
  func asynchronousTables() async throws {
    struct Order: Codable, Identifiable, Sendable { let id: Int }
    let store = try await AsyncStore.openOrCreate(at: here + "tables")
    let orders = try await store.run { try $0.collection("orders", of: Order.self) }
    try await orders.run { try $0.insert(contentsOf: [Order(id: 1), Order(id: 2)]) }
    #expect(try await orders.run { try $0.all(reversed: true) }.map(\.id) == [2, 1])
    try await store.close()
  }

  // MARK: Stores

  @Test("the user's stores have standard locations, where nothing is created before first use")
  func standard() throws {
    let (handle, root) = (try StoreHandle.standard(), try StoreRoot.standard())
    #expect(!handle.isOpened && handle.path.hasPrefix("/") && root.path.hasPrefix("/"))
    #expect(handle.path != root.path)
  }

  @Test("asynchronous code, too, can close a store and run a closure with exclusive access")
  func exclusively() async throws {
    let (path, copy) = (here + "shop", here + "shop copy")
    let handle = StoreHandle.at(path)
    try await handle.run { try $0.withStore { try $0.put("a", 1) } }
    let name = try await handle.run { handle in
      try handle.close {
        #expect(#expect(throws: StoreError.self) { try Store.open(at: path) }?.code == .busy)
        try FileManager.default.copyItem(atPath: path, toPath: copy)
        return "copied"
      }
    }
    #expect(name == "copied" && FileManager.default.fileExists(atPath: copy))
    #expect(try await handle.run { try $0.withStore { try $0.get("a", default: 0) } } == 1)
    #expect(try await handle.run { try $0.remove() })
  }

  @Test("unsolicited messages of a store go where the program directs them")
  func log() throws {
    let store = try Store.openOrCreate(at: here + "log")
    try store.put("a", 1)
    try store.close()
    let heard = Mutex<[StoreLog.Entry]>([])
    // The process has one log, which a concurrent test may redirect.
    for attempt in 0..<50 where heard.withLock({ $0.isEmpty }) {
      let copy = here + "log copy \(attempt)"
      try FileManager.default.copyItem(atPath: here + "log", toPath: copy)
      StoreLog.redirect(from: .warning) { entry in
        if entry.path.contains("log copy") { heard.withLock { $0.append(entry) } }
      }
      try Store.open(at: copy).close()
      StoreLog.redirect(to: nil)
    }
    #expect(heard.withLock { $0.first?.level } == .warning)
  }

  @Test("a damaged record is an error for its key alone")
  func recovery() throws {
    let store = try Store.openOrCreate(at: here + "damaged")
    for number in 0..<9 { try store.put(Key("\(number)"), "value \(number)") }
    try store.close()
    let segment = "damaged/journal/0000000000000001.segment"
    var bytes = try scratch.read(segment)
    let value = Array("value 4".utf8)
    let place = try #require(bytes.indices.first { bytes[$0...].starts(with: value) })
    bytes[place] ^= 4
    try scratch.write(segment, bytes)
    let again = try Store.open(at: here + "damaged")
    #expect(#expect(throws: StoreError.self) { try again.get("4") }?.code == .damaged)
    #expect(try again.get("5", default: "") == "value 5")
    #expect(try !again.verify().isClean)
    try again.close()
  }

  @Test("decrypted values stay in memory on request")
  func opened() throws {
    var configuration = Configuration(passphrase: Passphrase("secret"))
    configuration.openedRecordBytes = 1 << 20
    let store = try Store.openOrCreate(at: here + "opened", configuration: configuration)
    try store.put("a", "text")
    for _ in 0..<3 { #expect(try store.get("a", default: "") == "text") }
    store.purgeMemory()
    try store.put("a", "newer")
    #expect(try store.get("a", default: "") == "newer")
    try store.close()
  }

  // MARK: Caches

  @Test("a disk cache has limits, extended data and statistics, and evicts large, old and surplus values")
  func diskCache() throws {
    var limits = DiskCache.Limits()
    (limits.count, limits.bytes, limits.age, limits.freeDiskBytes) = (1000, 1 << 30, 86_400, 1)
    limits.trimInterval = 60
    let cache = try DiskCache.open(at: here + "cache", name: "tiles", limits: limits)
    #expect(try DiskCache.open(at: here + "cache", limits: limits) === cache && cache.name == "tiles")
    for number in 0..<20 { try cache.set("\(number)", [UInt8](repeating: 1, count: 100)) }
    try cache.set("large", [UInt8](repeating: 1, count: 5000), extendedData: [9], type: .bytes)
    #expect(try cache.count == 21 && cache.totalBytes > 7000)
    #expect(try cache.contains("large") && cache.get("3")?.count == 100)
    #expect(try cache.withValue("3") { $0.byteCount } == 100)
    #expect(try cache.item("large")?.extendedData == [9])
    #expect(try cache.information("large")?.valueBytes == 5000)
    var seen = 0
    try cache.forEach { _ in
      seen += 1
      return seen < 5
    }
    #expect(seen == 5)
    #expect(try cache.get(["0", "1", "none"]).count == 2 && cache.remove(["0", "1", "none"]) == 2)
    #expect(try cache.remove("2"))
    #expect(try cache.removeLarger(than: 1000) == 1 && cache.removeOlder(than: 1) == 0)
    #expect(try cache.trim() == 0 && cache.trim(toAge: 3600) == 0 && cache.trim(toFreeDiskBytes: 1) == 0)
    var done = 0
    #expect(try cache.trim(toCount: 10, progress: { count, _ in done = count }) == 7)
    #expect(done == 7)
    #expect(try cache.trim(toBytes: 500) > 0)
    try cache.removeAll(progress: { done, total in #expect(done <= total) })
    #expect(try cache.count == 0)
    cache.close()
  }

  @Test("a cache of two levels takes any type, and both levels are used from tasks")
  func twoLevels() async throws {
    let cache = try Cache<Tile>(at: here + "both", memory: MemoryCache(name: "tiles", countLimit: 10))
    try cache.set("7/66", Tile(name: "harbour"))
    cache.memory.removeAll()
    #expect(try cache.get("7/66") == Tile(name: "harbour") && cache.contains("7/66"))
    #expect(try cache.remove("7/66") && cache.get("7/66") == nil)
    try cache.removeAll()
    cache.disk.close()
    let paths = (disk: here + "disk", both: here + "async")
    let disk = try await DiskCache.run { try DiskCache.open(at: paths.disk) }
    try await disk.run { try $0.set("a", [1, 2], extendedData: [3]) }
    #expect(try await disk.run { try $0.item("a") }?.extendedData == [3])
    #expect(try await disk.run { try $0.trim(toCount: 0) } == 1)
    await disk.run { $0.close() }
    let both = try await Cache<Tile>.run { try Cache<Tile>(at: paths.both) }
    try await both.run { try $0.set("a", Tile(name: "b")) }
    #expect(try await both.run { try $0.get("a") }?.name == "b")
    await both.disk.run { $0.close() }
  }

  @Test("a program and its caches are notified of memory pressure")
  func pressure() {
    let cache = MemoryCache<String, Int>(yieldsToPressure: true)
    cache.set("a", 1)
    let told = Mutex(false)
    let listener = MemoryPressure.listen { level in told.withLock { $0 = $0 || level == .critical } }
    MemoryPressure.announce(.critical)
    #expect(cache.count == 0 && told.withLock { $0 })
    listener.cancel()
  }

  // MARK: Features unique to this store

  /// On a full disk reads and deletes still work.
  private static func putMakingRoom(_ store: Store, _ key: Key, _ value: [UInt8]) throws {
    do {
      try store.put(key, value)
    } catch let error where error.code == .diskFull {
      try store.deleteAll(KeyRange(prefix: "log/"))
      try store.compact()
      try store.put(key, value)
    }
  }

  @Test(
    "copies sync, give receipts, list and undo conflicts, explain, and evict large values that others hold",
    .timeLimit(.minutes(2)))
  func replication() async throws {
    let hubStore = try Store.create(at: here + "hub")
    try Node.prepare(hubStore, name: "hub")
    let hub = try Node(store: hubStore)
    _ = try await hub.start(listen: Endpoint(host: "127.0.0.1", port: 0))
    let store = try await Node.join(Node.invite(to: hubStore), at: here + "edge", name: "edge").store
    let node = try Node(store: store)
    try Self.putMakingRoom(hubStore, "limit", [1])
    try await Task.sleep(for: .milliseconds(2))
    try Self.putMakingRoom(store, "limit", [2])
    try store.put("film", [UInt8](repeating: 7, count: 1 << 20))
    try store.delete("film/draft")
    let report: SessionReport = try await node.synchronize(with: "hub")
    #expect(try report.position > 0 && report.digest == store.digest() && report.digest == hubStore.digest())
    let beaten = try #require(try store.conflicts().first)
    #expect(try beaten.value == [1] && store.explain("limit")?.beaten.count == 1)
    try store.restore(beaten)
    #expect(try store.get("limit")?.bytes == [1])

    node.keepInStep()
    for await state in node.states(of: "hub") {
      let peer: PeerState = state
      if peer.phase == .live, let received = peer.received, received > report.position { break }
    }
    #expect(try hubStore.get("limit")?.bytes == [1])
    var limits = BlobLimits()
    (limits.bytes, limits.copies) = (0, 1)
    #expect(try await node.trimBlobs(to: limits).evicted == 1)
    #expect(try store.entry("film")?.size == 1 << 20)
    await node.stop()
    await hub.stop()
    try store.close()
    try hubStore.close()
  }

  @Test("a restored backup continues as a separate copy")
  func putBack() throws {
    let store = try Store.create(at: here + "first")
    try store.put("a", 1)
    try store.backUp(to: here + "first.backup")
    try Store.restore(from: here + "first.backup", to: here + "second")
    let second = try Store.open(at: here + "second")
    #expect(try second.actor != store.actor && second.digest() == store.digest())
    try second.close()
    try store.close()
  }
}
