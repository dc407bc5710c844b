import Synchronization
import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Packs and crashes")
struct PackCrashTests {
  private func open(_ test: BlobsUnderTest, _ storage: (any Storage)? = nil, boot: UInt64) throws -> BlobStore
  {
    let clock = test.clock
    return try BlobStore.open(
      directory: test.directory, storage: storage ?? test.base.storage, packing: .small,
      environment: BlobEnvironment(boot: boot, now: { clock.now.load(ordering: .relaxed) }))
  }

  @Test(
    "A write whose large value is lost with the power is lost, too, with all later writes (F10, F15)"
  )
  func writeWithoutItsValue() throws {
    let host = SimulatedHost()
    let store = try Store.create(
      on: host, configuration: Configuration(durability: .relaxed, blobThreshold: 512))
    try store.put("durable", [UInt8](repeating: 1, count: 1000), durability: .full)
    try store.put("large", [UInt8](repeating: 2, count: 1000))
    try store.put("behind", "x")
    host.losePower(
      keeping: { path, _ in path.contains("/blobs/") ? .lost : .survives }, sizes: { _ in true })
    let again = try Store.open(on: host)
    #expect(try again.get("durable")?.bytes.count == 1000)
    #expect(try !again.contains("large") && !again.contains("behind"))
    #expect(try again.verify().isClean)
  }

  @Test("A pack that is finished while another process examines it stays in place")
  func finishedConcurrently() throws {
    let test = try BlobsUnderTest(.simulated)
    let storage = test.base.storage
    let blobs = try open(test, boot: 1)
    let reference = try blobs.put(bytes: pattern(2000), durable: true)
    blobs.close()
    let path = test.directory + "/" + (try #require(test.packs().first))
    let whole = try storage.open(path, .readOnly).read(1 << 20, at: 0)
    try storage.open(path, .readWrite).write([UInt8](repeating: 0, count: whole.count), at: 0)
    let plan = FaultPlan()
    plan.before(.lock, of: path) { try? storage.open(path, .readWrite).write(whole, at: 0) }
    let other = try open(test, FaultingStorage(storage, plan: plan), boot: 1)
    #expect(try other.read(reference) == pattern(2000))
    #expect(try other.put(bytes: [1, 2, 3], durable: true).size == 3)
    #expect(try !test.names().contains { $0.hasPrefix("quarantine/") })
  }

  @Test(
    "Durable puts survive a loss of power, and a partial object is never served (F10, F15, F18, F19, F20)",
    arguments: 0..<40 as Range<UInt64>)
  func powerLoss(_ seed: UInt64) throws {
    let test = try BlobsUnderTest(.simulated)
    let storage = try #require(test.base.storage as? SimulatedStorage)
    var random = SplitMix64(seed: seed)
    try storage.syncDirectory("/")
    var durable: [BlobReference: UInt64] = [:]
    var boot: UInt64 = 1
    for life in 0..<4 as Range<UInt64> {
      let blobs = try open(test, boot: boot)
      for (reference, seed) in durable {
        #expect(try blobs.read(reference) == pattern(Int(reference.size), seed: seed), "seed \(seed)")
      }
      var pending: [BlobReference: UInt64] = [:]
      for number in 0..<(5 + random.next() % 20) {
        let content = life * 1000 + number + 1
        let reference = try blobs.put(
          bytes: pattern(Int(random.next() % 3000), seed: content), durable: random.chance(20))
        pending[reference] = content
        if random.chance(20) {
          try blobs.sync()
          durable.merge(pending) { old, _ in old }
          pending = [:]
        }
        if random.chance(10), let victim = durable.keys.sorted(by: { $0.hash < $1.hash }).first {
          // It is no longer needed: it may be found intact, or not at all.
          try blobs.remove(victim.hash)
          durable[victim] = nil
        }
        if random.chance(10) { try blobs.packs.reclaim() }
      }
      test.clock.advance(5)
      if random.chance(70) {
        storage.crash(seed: random.next())
        boot += 1
      } else {
        storage.killProcesses()
        durable.merge(pending) { old, _ in old }
      }
      let after = try open(test, boot: boot)
      for reference in try after.all() {
        let bytes = try? after.read(reference)
        #expect(bytes == nil || SHA256.hash(bytes ?? []) == reference.hash.bytes)
      }
      #expect(try after.verify() == [], "seed \(seed)")
      after.close()
    }
  }

  @Test(
    "Whichever call fails, a put succeeds or fails with a typed error, and durable objects stay (F29, F92)")
  func eachCall() throws {
    for number in 1...200 {
      let test = try BlobsUnderTest(.simulated)
      let storage = FaultingStorage(test.base.storage)
      let first = try open(test, boot: 1)
      let kept = try first.put(bytes: [9, 9], durable: true)
      first.close()
      let blobs = try open(test, storage, boot: 1)
      let before = storage.plan.calls
      storage.plan.fail(number: number)
      let reference = try? blobs.put(bytes: [1, 2, 3], durable: true)
      let calls = storage.plan.calls - before
      storage.plan.clear()
      let again = try open(test, boot: 1)
      #expect(try again.read(kept) == [9, 9])
      if let reference { #expect(try again.read(reference) == [1, 2, 3]) }
      blobs.close()
      again.close()
      #expect(try open(test, boot: 1).put(bytes: [1, 2, 3], durable: true).size == 3)
      if calls < number {
        #expect(reference != nil)
        return
      }
    }
    Issue.record("a put makes fewer calls than that")
  }

  @Test("A failed sync is not retried on the same pages; their contents are written anew (F30, F31)")
  func failedSync() throws {
    let test = try BlobsUnderTest(.simulated)
    let storage = try #require(test.base.storage as? SimulatedStorage)
    try storage.syncDirectory("/")
    var blobs = try open(test, boot: 1)
    let safe = try blobs.put(bytes: pattern(5000), durable: true)
    let pack = test.directory + "/" + (try test.packs()[0])
    let doubtful = try blobs.put(bytes: pattern(6000), durable: false)
    storage.failSync(of: pack)
    #expect(throws: StoreError.self) { try blobs.sync() }
    // When put again, it is stored elsewhere.
    #expect(try blobs.put(bytes: pattern(6000), durable: false) == doubtful)
    #expect(throws: StoreError.self) { try blobs.sync() }
    storage.killProcesses()
    blobs = try open(test, boot: 1)
    #expect(try blobs.read(doubtful) == pattern(6000))
    try blobs.sync()
    storage.crash(keeping: { _, _ in .lost }, sizes: { _ in false }, entries: { _ in false })
    blobs = try open(test, boot: 2)
    #expect(try blobs.read(safe) == pattern(5000))
    #expect(try blobs.read(doubtful) == pattern(6000))
  }

  @Test(
    "What a failed sync lost of a pack is quarantined, and does not fail the next sync (F30)")
  func failedSyncThatLost() throws {
    let test = try BlobsUnderTest(.simulated)
    let storage = try #require(test.base.storage as? SimulatedStorage)
    try storage.syncDirectory("/")
    var blobs = try open(test, boot: 1)
    let safe = try blobs.put(bytes: pattern(5000), durable: true)
    let content = pattern(6000)
    let lost = try blobs.put(bytes: content, durable: false)
    let pack = test.directory + "/" + (try test.packs()[0])
    let bytes = try storage.open(pack, .readOnly).read(1 << 20, at: 0)
    let place = try #require(
      bytes.indices.first { bytes[$0] == content[0] && bytes[$0...].starts(with: content) })
    storage.failSync(of: pack)
    #expect(throws: StoreError.self) { try blobs.sync() }
    storage.killProcesses()
    try storage.flipBit(of: pack, at: place + 100, bit: 1)
    blobs = try open(test, boot: 1)
    #expect(try blobs.read(safe) == pattern(5000))
    #expect(throws: StoreError.self) { try blobs.read(lost) }
    try blobs.sync()
    #expect(try test.names().contains { $0.hasPrefix("quarantine/") })
    #expect(try blobs.put(bytes: pattern(6000), durable: true) == lost)
    #expect(try blobs.read(lost) == pattern(6000))
  }

  @Test(
    "A record never outlives its blob: one that reached the disk without it is dropped (F24, rule R7)",
    arguments: 0..<30 as Range<UInt64>)
  func recordWithoutBlob(_ seed: UInt64) throws {
    let host = SimulatedHost(seed: seed)
    var random = SplitMix64(seed: seed)
    let configuration = Configuration(durability: .relaxed)
    var store = try Store.create(on: host, configuration: configuration)
    try host.storage.syncDirectory("/")
    var acknowledged: [Key: [UInt8]] = [:]
    var latest: [Key: [[UInt8]]] = [:]
    for number in 0..<30 as Range<UInt64> {
      let key = try Key("\(random.next() % 5)")
      let value = pattern(random.chance(70) ? 21_000 : 10, seed: number + 1)
      let isDurable = random.chance(15)
      try store.put(key, value, durability: isDurable ? .full : nil)
      latest[key, default: []].append(value)
      if isDurable {
        acknowledged = latest.compactMapValues(\.last)
        latest = acknowledged.mapValues { [$0] }
      }
    }
    host.losePower(seed: seed)
    store = try Store.open(on: host, configuration: configuration)
    for (key, values) in latest {
      let found = try store.get(key)?.bytes
      // The last acknowledged value, or a later one: never a value without its bytes, never an older one.
      let allowed = acknowledged[key] == nil || found != nil
      #expect(allowed && (found.map { values.contains($0) } ?? true), "key \(key), seed \(seed)")
    }
    #expect(try store.verify().damagedBlobs == [] && store.verify().missingBlobs == [], "seed \(seed)")
    try store.put("new", pattern(30_000), durability: .full)
    try store.close()
  }
}
