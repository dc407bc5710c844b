import SyncStore
import SyncTestSupport
import Testing

@Suite("A store")
struct StoreTests {
  let host = SimulatedHost()

  @Test("returns what was put, through closing and opening")
  func roundTrip() throws {
    let store = try Store.create(on: host)
    try store.put("a", "one")
    try store.put("b", [0, 1, 2], type: .bytes)
    try store.put("a", "two")
    #expect(try store.text("a") == "two")
    try store.close()
    let again = try Store.open(on: host)
    #expect(try again.text("a") == "two")
    #expect(try again.get("b")?.bytes == [0, 1, 2])
    #expect(try again.get("c") == nil)
    #expect(again.id == store.id)
  }

  @Test("accepts bytes that the caller keeps, and shows a value in place")
  func inPlace() throws {
    let store = try Store.create(on: host)
    let bytes = (0..<200).map { UInt8($0) }
    try store.put("small", bytes.span, type: .json)
    try store.put("none", Span())
    let large = [UInt8](repeating: 7, count: 100_000)
    try store.put("large", large.span)
    #expect(try store.get("small")?.bytes == bytes)
    #expect(try store.get("small")?.type == .json)
    #expect(try store.get("large")?.bytes == large)
    func sum(_ key: Key) throws -> Int? {
      try store.withValue(key) { span in
        span.byteOffsets.reduce(0) { $0 + Int(unsafe span.unsafeLoad(fromByteOffset: $1, as: UInt8.self)) }
      }
    }
    #expect(try sum("small") == bytes.reduce(0) { $0 + Int($1) })
    #expect(try sum("none") == 0)
    #expect(try sum("large") == 700_000)
    #expect(try sum("absent") == nil)
    try store.delete("small")
    #expect(try sum("small") == nil)
    try store.put("brief", [1], type: .bytes, expiration: .at(host.time + 10))
    #expect(try sum("brief") == 1)
    host.time += 10
    #expect(try sum("brief") == nil)
    #expect(throws: Refusal.self) { try store.withValue("large") { _ in throw Refusal() } }
    #expect(throws: Refusal.self) { try store.withValue("none") { _ in throw Refusal() } }
    #expect(try store.text("none") == "")
  }

  struct Refusal: Error {}

  @Test("behaves on a real disk as on the simulated one")
  func realDisk() throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/store"
    let store = try Store.create(at: path)
    for number in 0..<500 { try store.put(Key("key \(number)"), "value \(number)", durability: .relaxed) }
    #expect(try store.delete("key 7"))
    try store.close()
    let again = try Store.open(at: path)
    #expect(try again.text("key 499") == "value 499")
    #expect(try again.get("key 7") == nil)
    #expect(try again.status().keys == 499)
    #expect(try again.verify().isClean)
  }

  @Test("keeps every file and directory to its owner")
  func permissions() throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/store"
    let store = try Store.create(at: path)
    try store.put("large", [UInt8](repeating: 1, count: 100_000))
    let storage = DiskStorage()
    func check(_ path: String) throws {
      let status = try #require(try storage.status(path))
      #expect(status.permissions == (status.kind == .directory ? 0o700 : 0o600), "\(path)")
      if status.kind == .directory { for name in try storage.list(path) { try check(path + "/" + name) } }
    }
    try check(path)
  }

  @Test("that belongs to another user is refused unchanged, and its owner is named (F99)")
  func anotherOwner() throws {
    let store = try Store.create(on: host)
    try store.put("a", "one")
    try store.close()
    let owner = try #require(try host.storage.status("/store")).owner
    try host.storage.plantOwner(owner + 4711, of: "/store")
    let before = try host.storage.files(below: "/store")
    for mode in [Configuration.Mode.exclusive, .shared, .readOnly] {
      let error = #expect(throws: StoreError.self) {
        try Store.open(on: host, configuration: Configuration(mode: mode))
      }
      #expect(error?.code == .unsafeDirectory)
      #expect(error?.message.contains("run as user \(owner + 4711)") == true)
    }
    #expect(try host.storage.files(below: "/store") == before)
    try host.storage.plantOwner(owner, of: "/store")
    #expect(try Store.open(on: host).text("a") == "one")
  }

  @Test("lists keys in byte order, with prefix, continuation and limit")
  func listing() throws {
    let store = try Store.create(on: host)
    for key in ["b/2", "a", "b/1", "c", "b/10", "b"] { try store.put(Key(key), key) }
    try store.delete("c")
    #expect(try store.list().map(\.key.description) == ["a", "b", "b/1", "b/10", "b/2"])
    #expect(try store.list(prefix: Array("b/".utf8)).map(\.key.description) == ["b/1", "b/10", "b/2"])
    #expect(
      try store.list(prefix: Array("b/".utf8), after: "b/1", limit: 1).map(\.key.description) == ["b/10"])
  }

  @Test("executes a transaction atomically")
  func transactions() throws {
    struct Stop: Error {}
    let store = try Store.create(on: host)
    try store.put("balance", "10")
    #expect(throws: Stop.self) {
      try store.transaction { transaction in
        try transaction.put("balance", Array("0".utf8))
        #expect(try transaction.get("balance")?.bytes == Array("0".utf8))
        throw Stop()
      }
    }
    #expect(try store.text("balance") == "10")
    try store.transaction { transaction in
      try transaction.put("balance", Array("5".utf8))
      try transaction.put("paid", Array("5".utf8))
      try transaction.delete("nothing")
    }
    #expect(try store.text("balance") == "5")
    #expect(try store.text("paid") == "5")
  }

  @Test("refuses to write outside of a running transaction, instead of deadlocking")
  func reentrance() throws {
    let store = try Store.create(on: host)
    try store.transaction { _ in
      let error = #expect(throws: StoreError.self) { try store.put("a", "x") }
      #expect(error?.code == .busy)
    }
    try store.put("a", "x")
  }

  @Test("grows by segments and finds every key in them")
  func rotation() throws {
    let store = try Store.create(
      on: host, configuration: Configuration(durability: .relaxed, segmentBytes: 1 << 20))
    let value = [UInt8](repeating: 7, count: 10_000)
    for number in 0..<400 { try store.put(Key("key \(number)"), value) }
    #expect(try store.status().segments > 3)
    try store.close()
    let again = try Store.open(on: host)
    for number in 0..<400 { #expect(try again.get(Key("key \(number)"))?.bytes == value) }
  }

  @Test("lets a value expire at its deadline, and its stamps rise when the clock steps back (F47)")
  func deadlines() throws {
    let store = try Store.create(on: host)
    try store.put("a", [1], expiration: .at(host.time + 1000))
    let first = try #require(try store.entry("a"))
    host.time += 999
    #expect(try store.contains("a"))
    host.time += 1
    #expect(try store.get("a") == nil)
    host.time -= 500_000
    try store.put("a", "again")
    #expect(try #require(try store.entry("a")).stamp > first.stamp)
  }

  @Test("names what is wrong with a key", arguments: [[], [0, 1], [UInt8](repeating: 65, count: 1025)])
  func invalidKeys(bytes: [UInt8]) {
    let error = #expect(throws: StoreError.self) { try Key(bytes: bytes) }
    #expect(error?.code == .invalidKey)
  }

  @Test("in one process is one instance (F96); in another mode it is busy (F95)")
  func oneInstance() throws {
    let store = try Store.create(on: host)
    #expect(try Store.open(on: host) === store)
    let error = #expect(throws: StoreError.self) {
      try Store.open(on: host, configuration: Configuration(mode: .shared))
    }
    #expect(error?.code == .busy)
    try store.close()
    let closed = #expect(throws: StoreError.self) { try store.put("a", "x") }
    #expect(closed?.code == .closed)
    #expect(try Store.open(on: host) !== store)
  }

  @Test("is not created over something else, and a missing one is reported by name")
  func creation() throws {
    let store = try Store.create(on: host)
    try store.close()
    #expect(#expect(throws: StoreError.self) { try Store.create(on: host) }?.code == .alreadyExists)
    #expect(#expect(throws: StoreError.self) { try Store.open("/other", on: host) }?.code == .notAStore)
  }

  @Test("keeps a running digest equal to the recomputed one after every write")
  func runningDigest() throws {
    let store = try Store.create(on: host)
    _ = try store.digest()
    try store.put("a", "1")
    try store.put("b", "2")
    try store.put("c", [3], expiration: .at(host.time + 10))
    try store.put("a", "4")
    try store.delete("b")
    let running = try store.digest()
    try store.close()
    #expect(try Store.open(on: host).digest() == running)
    host.time += 10
    #expect(try Store.open(on: host).digest() != running)
  }
}

@Suite("A large value")
struct LargeValueTests {
  let host = SimulatedHost(encrypted: false)
  let large = (0..<100_000).map { UInt8(truncatingIfNeeded: $0 &* 31) }

  @Test("goes to the blob tier, once for all keys that hold it, and comes back complete")
  func tier() throws {
    let store = try Store.create(on: host)
    try store.put("a", large)
    try store.put("b", large)
    #expect(try store.get("a")?.bytes == large)
    #expect(try store.entry("a")?.blob == store.entry("b")?.blob)
    #expect(try store.blobs.all().count == 1)
    #expect(try store.entry("a")?.size == 100_000)
    try store.close()
    #expect(try Store.open(on: host).get("b")?.bytes == large)
  }

  @Test("that has not arrived yet is a typed error, and is listed until it has")
  func missing() throws {
    let right = SimulatedHost(seed: 2, machine: "right", encrypted: false)
    let a = try Store.create(on: host)
    let b = try Store.create(on: right, id: a.id)
    try a.put("k", large)
    try b.receive(from: a)
    #expect(#expect(throws: StoreError.self) { try b.get("k") }?.code == .blobUnavailable)
    let missing = try b.missingBlobs()
    #expect(missing.map(\.size) == [100_000])
    #expect(try a.digest() == b.digest())
    try b.blobs.append(large, to: missing[0].hash, at: 0)
    try b.blobs.complete(missing[0], durable: true)
    #expect(try b.get("k")?.bytes == large)
    #expect(try b.missingBlobs().isEmpty)
  }

  @Test("that arrived and could not be made durable is requested again (F29)")
  func arrivedInVain() throws {
    let right = SimulatedHost(seed: 2, machine: "right", encrypted: false)
    let a = try Store.create(on: host)
    let plan = FaultPlan()
    try Store.create(on: right, id: a.id).close()
    let b = try Store.open(on: right, failing: plan)
    try a.put("k", large)
    try b.receive(from: a)
    let blob = try #require(try b.missingBlobs().first)
    #expect(try b.blobs.put(large, arrivedAs: blob))
    plan.fail(.sync, on: "packs")
    #expect(throws: StoreError.self) { try b.blobs.makeDurable([blob]) }
    #expect(try b.missingBlobs() == [blob])
    right.losePower(keeping: { _, _ in .lost }, sizes: { _ in false }, entries: { _ in true })
    let again = try Store.open(on: right)
    #expect(try again.missingBlobs() == [blob])
    #expect(try again.blobs.put(large, arrivedAs: blob))
    #expect(try again.missingBlobs().isEmpty)
    right.losePower(keeping: { _, _ in .lost }, sizes: { _ in false }, entries: { _ in true })
    #expect(try Store.open(on: right).get("k")?.bytes == large)
  }

  @Test("that is rotten is never served, is quarantined, and is fetched again (F44)")
  func rotten() throws {
    let store = try Store.create(on: host)
    try store.put("k", large)
    let blob = try #require(try store.entry("k")?.blob)
    let hash = blob.hash.description
    let place = try #require(try store.blobs.place(of: blob.hash))
    try host.storage.flipBit(of: place.path, at: place.offset + 500, bit: 0)
    #expect(#expect(throws: StoreError.self) { try store.get("k") }?.code == .damaged)
    #expect(try store.missingBlobs().map(\.hash.description) == [hash])
    #expect(#expect(throws: StoreError.self) { try store.get("k") }?.code == .blobUnavailable)
  }
}

@Suite("The blob of a durable record")
struct BlobDurabilityTests {
  @Test(
    "survives with it any loss of power, also from a transaction in relaxed mode (F15, F24)",
    arguments: 0..<30 as Range<UInt64>)
  func survives(seed: UInt64) throws {
    let host = SimulatedHost(seed: seed, encrypted: false)
    let store = try Store.create(
      on: host, configuration: Configuration(durability: .relaxed, blobThreshold: 100))
    for number in 0..<5 {
      try store.transaction { transaction in
        for part in 0..<3 {
          try transaction.put(
            Key("\(number) \(part)"), [UInt8](repeating: UInt8(number * 3 + part), count: 5000))
        }
      }
      if number == 2 { try store.sync() }
    }
    host.losePower(seed: seed)
    let again = try Store.open(on: host)
    for number in 0..<5 {
      for part in 0..<3 {
        let value = try again.get(Key("\(number) \(part)"))?.bytes
        #expect(value != nil || number > 2, "seed \(seed)")
        if let value { #expect(value == [UInt8](repeating: UInt8(number * 3 + part), count: 5000)) }
      }
    }
    #expect(try again.verify().isClean, "seed \(seed)")
  }
}
