import Synchronization
import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("A disk cache")
struct DiskCacheTests {
  private let host = SimulatedHost(encrypted: false)

  private func open(_ limits: DiskCache.Limits? = nil) throws -> DiskCache {
    var quiet = limits ?? DiskCache.Limits()
    quiet.trimInterval = 0
    return try DiskCache(at: "/cache", limits: quiet, environment: host.environment, packing: .small)
  }

  @Test("round-trips values with their extended data, and gives information without reading them")
  func roundTrip() throws {
    let cache = try open()
    try cache.set("a", [1, 2, 3], extendedData: [9], type: .json)
    try cache.set("ä", [], extendedData: pattern(300))
    #expect(try cache.get("a") == [1, 2, 3] && cache.get("none") == nil)
    #expect(try cache.item("a") == DiskCache.Item(value: [1, 2, 3], extendedData: [9], type: .json))
    #expect(try cache.item("ä")?.extendedData == pattern(300))
    #expect(try cache.withValue("a") { $0.byteCount } == 3)
    #expect(try cache.get(["a", "b", "ä"]) == ["a": [1, 2, 3], "ä": []])
    host.time += 500
    _ = try cache.get("a")
    let known = try #require(try cache.information("a"))
    #expect(known.key == "a" && known.valueBytes == 3 && known.type == .json)
    #expect(known.accessed == known.modified + 500)
    #expect(try cache.contains("a") && !cache.contains("b") && cache.count == 2)
    try cache.set("a", pattern(1000))
    #expect(try cache.get("a") == pattern(1000) && cache.count == 2)
    var seen: [String] = []
    try cache.forEach { known in
      seen.append(known.key)
      return true
    }
    #expect(seen.sorted() == ["a", "ä"])
    #expect(try cache.remove("a") && !cache.remove("a") && cache.get("a") == nil)
    #expect(try cache.remove(["ä", "b"]) == 1 && cache.totalBytes == 0)
  }

  @Test("refuses keys and values out of bounds")
  func bounds() throws {
    let cache = try open()
    for key in ["", String(repeating: "x", count: 1025)] {
      #expect(#expect(throws: StoreError.self) { try cache.set(key, []) }?.code == .invalidKey)
    }
    cache.close()
    #expect(#expect(throws: StoreError.self) { try cache.get("a") }?.code == .closed)
  }

  @Test("refuses the directory of a store, or any with foreign files, and leaves it unchanged")
  func foreignDirectory() throws {
    let store = try Store.create(on: host)
    try store.put("large", pattern(100_000))
    let before = try Set(host.storage.files(below: store.path).keys)
    func refused(_ path: String) -> StoreError.Code? {
      #expect(throws: StoreError.self) { try DiskCache(at: path, environment: host.environment) }?.code
    }
    #expect(refused(store.path) == .foreignFile)
    #expect(try Set(host.storage.files(below: store.path).keys) == before)
    try store.close()
    #expect(refused(store.path) == .foreignFile)
    #expect(try Store.open(on: host).get("large")?.bytes == pattern(100_000))
    _ = try host.storage.createDirectory("/other")
    try host.storage.replace("/other/notes", with: [1])
    #expect(refused("/other") == .foreignFile)
    #expect(try host.storage.list("/other") == ["notes"])
  }

  @Test("evicts exactly the least recently used, by count, bytes, age, size and free space")
  func order() throws {
    let cache = try open()
    func fill() throws {
      for number in 0..<20 {
        host.time += 1000
        try cache.set("\(number)", pattern(1000))
      }
      // All within one millisecond: the order is that of the calls.
      for number in [3, 7, 5] { _ = try cache.get("\(number)") }
    }
    func left() throws -> Set<Int> { Set(try (0..<20).filter { try cache.contains("\($0)") }) }
    try fill()
    var heard: [Int] = []
    #expect(try cache.trim(toCount: 2) { done, _ in heard.append(done) } == 18)
    #expect(try left() == [7, 5] && heard == [18])
    try fill()
    let each = try cache.totalBytes / 20
    #expect(try cache.trim(toBytes: each * 4 + 100) == 16)
    #expect(try left() == [19, 3, 7, 5])
    try fill()
    #expect(try cache.trim(toAge: 2.5) == 14)
    #expect(try left() == [17, 18, 19, 3, 7, 5])
    try cache.set("large", pattern(5000))
    #expect(try cache.removeLarger(than: 3000) == 1 && !cache.contains("large"))
    #expect(try cache.removeOlder(than: host.time) == 2)
    try fill()
    host.storage.free = 10_000
    #expect(try cache.trim(toFreeDiskBytes: 10_000 + UInt64(3 * each)) == 3)
    #expect(try left().isDisjoint(with: [0, 1, 2]))
  }

  @Test("enforces its limits, and frees space for itself on a full disk (F92)")
  func limits() throws {
    var limits = DiskCache.Limits()
    limits.count = 10
    let cache = try open(limits)
    for number in 0..<50 { try cache.set("\(number)", pattern(2000, seed: UInt64(number))) }
    try cache.trim()
    #expect(try cache.count == 10 && cache.get("49") == pattern(2000, seed: 49))
    cache.limits = DiskCache.Limits()
    host.storage.free = Int(PackSettings.small.reserveBytes) + 70_000
    for number in 0..<100 { try cache.set("x\(number)", pattern(9000, seed: UInt64(number))) }
    #expect(try cache.get("x99") == pattern(9000, seed: 99))
  }

  @Test(
    "survives closing, kills and losses of power, and never gives wrong bytes (F15)",
    arguments: 0..<20 as Range<UInt64>)
  func survives(seed: UInt64) throws {
    let cache = try open()
    try host.storage.syncDirectory("/")
    for number in 0..<10 { try cache.set("\(number)", pattern(3000, seed: UInt64(number))) }
    if seed == 0 {
      cache.close()
    } else if seed == 1 {
      host.killProcesses()
    } else {
      host.losePower(seed: seed)
    }
    let again = try open()
    for number in 0..<10 {
      let value = try again.get("\(number)")
      #expect(value == pattern(3000, seed: UInt64(number)) || (value == nil && seed > 1))
    }
  }

  @Test("forgets rotten values (F44)")
  func rotten() throws {
    let cache = try open()
    try cache.set("a", pattern(3000))
    let (pack, slot) = try #require(try cache.packs.lookUp(CacheEntry.name("a"), refreshing: false))
    let entry = try #require(pack.entry(slot))
    try host.storage.flipBit(of: pack.file.path, at: entry.offset + 50, bit: 1)
    #expect(try cache.get("a") == nil && !cache.contains("a"))
    try cache.set("a", [1])
    #expect(try cache.get("a") == [1])
  }

  @Test("removes everything at once, permanently")
  func removesAll() throws {
    let cache = try open()
    for number in 0..<30 { try cache.set("\(number)", pattern(9000)) }
    var heard = 0
    try cache.removeAll { done, total in heard = done == total ? total : heard }
    #expect(heard > 0)
    #expect(try cache.count == 0 && cache.get("3") == nil)
    #expect(try host.storage.list("/cache").filter { $0.hasPrefix("trash") } == [])
    try cache.set("new", [1])
    host.losePower(seed: 4)
    let again = try open()
    for number in 0..<30 { #expect(try again.get("\(number)") == nil) }
  }

  @Test("one directory is one cache, and another process is told that it is in use")
  func instances() throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/cache"
    let one = try DiskCache.open(at: path)
    #expect(try DiskCache.open(at: path) === one)
    #expect(
      #expect(throws: StoreError.self) { try DiskCache(at: path, environment: .real()) }?.code == .busy)
    try one.set("a", [1])
    one.close()
    let two = try DiskCache.open(at: path)
    #expect(two !== one)
    #expect(try two.get("a") == [1])
  }

  @Test("Readers never wait for long, and never get wrong bytes, during concurrent sets and trims")
  func together() async throws {
    let directory = TemporaryDirectory()
    let cache = try DiskCache(
      at: directory.path + "/cache", environment: .real(), packing: .small)
    let failures = Failures()
    await withTaskGroup(of: Void.self) { group in
      for thread in 0..<3 as Range<UInt64> {
        group.addTask {
          for number in 0..<300 as Range<UInt64> {
            failures.collect {
              let key = (number &* 7 &+ thread) % 40
              if thread == 0 { try cache.set("\(key)", pattern(2000, seed: key)) }
              if thread == 1, number % 50 == 49 { try cache.trim(toCount: 10) }
              if let value = try cache.get("\(key)"), value != pattern(2000, seed: key) {
                throw StoreError(.damaged, "wrong bytes of \(key)")
              }
            }
          }
        }
      }
    }
    #expect(failures.all == [])
  }

  @Test("Removing all during an iteration: removed values do not come back, new ones stay")
  func emptiedDuringIteration() throws {
    let cache = try open()
    for number in 0..<40 { try cache.set("\(number)", pattern(9000, seed: UInt64(number))) }
    var isFirst = true
    try cache.forEach { _ throws(StoreError) in
      guard isFirst else { return true }
      isFirst = false
      try cache.removeAll()
      try cache.set("new", [1])
      return true
    }
    #expect(try cache.count == 1 && cache.get("new") == [1] && cache.get("1") == nil)
    try cache.trim(toCount: 0)
    #expect(try cache.count == 0 && cache.totalBytes == 0)
  }
}

@Suite("A cache of two levels")
struct CacheTests {
  struct Photo: Codable, Hashable, Sendable {
    var name: String
    var pixels: [Int]
  }

  @Test("keeps on disk what is evicted from memory, and reads it back")
  func levels() throws {
    let directory = TemporaryDirectory()
    let cache = try Cache<Photo>(
      at: directory.path + "/cache",
      memory: MemoryCache(countLimit: 2, trimInterval: 0, yieldsToPressure: false))
    let photos = (0..<5).map { Photo(name: "\($0)", pixels: [$0]) }
    for photo in photos { try cache.set(photo.name, photo) }
    #expect(cache.memory.count == 2 && !cache.memory.contains("0"))
    #expect(try cache.get("0") == photos[0] && cache.memory.contains("0"))
    #expect(try cache.contains("1") && !cache.contains("9") && cache.get("9") == nil)
    #expect(try cache.remove("0") && !cache.remove("0") && cache.get("0") == nil)
    try cache.removeAll()
    #expect(try cache.memory.count == 0 && cache.get("3") == nil)
    let other = Cache<Int>(memory: MemoryCache(), disk: cache.disk)
    try cache.set("a", photos[1])
    #expect(#expect(throws: StoreError.self) { try other.get("a") }?.code == .wrongType)
  }

  @Test("a value being read from disk does not come back after the removal of all")
  func removedDuringRead() throws {
    let (host, plan) = (SimulatedHost(encrypted: false), FaultPlan())
    let disk = try DiskCache(
      at: "/cache", environment: host.environment(over: FaultingStorage(host.storage, plan: plan)),
      packing: .small)
    let cache = Cache<Photo>(
      memory: MemoryCache(trimInterval: 0, yieldsToPressure: false), disk: disk)
    try cache.set("k", Photo(name: "old", pixels: []))
    cache.memory.removeAll()
    let isDone = Signal()
    let other = Threaded {
      try? cache.removeAll()
      isDone.signal()
    }
    plan.before(.map, of: ".pack") {
      other.start()
      isDone.wait(milliseconds: 200)
    }
    #expect(try cache.get("k")?.name == "old")
    other.join()
    #expect(try cache.get("k") == nil)
  }
}
