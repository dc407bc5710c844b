import SyncTestSupport
import Testing

@testable import SyncStore

/// Operations that succeed, and those that fail, without free space.
@Suite("A full disk")
struct FullDiskTests {
  static let small = Configuration(durability: .relaxed, segmentBytes: 1 << 20)
  static let journal = "/store/journal"
  static let packs = "/store/blobs/packs"
  let host = SimulatedHost(compacting: .onRequest)

  /// Puts until there is no space; returns how many.
  @discardableResult
  func fill(_ store: Store, bytes: Int = 15_000) throws -> Int {
    var count = 0
    let value = [UInt8](repeating: 7, count: bytes)
    let error = #expect(throws: StoreError.self) {
      while count < 100_000 {
        try store.put(Key("\(count)"), value)
        count += 1
      }
    }
    #expect(error?.code == .diskFull)
    return count
  }

  func segments() throws -> [String] {
    try host.storage.list(Self.journal).filter { $0.hasSuffix(".segment") }
  }

  /// Puts a large value, makes the sync of its pack fail, and kills all processes. Returns the pack's path.
  static func leaveUnsynced(_ key: Key, _ value: [UInt8], of store: Store, on host: SimulatedHost) throws
    -> String
  {
    try host.storage.syncDirectory("/")
    try store.put(key, value, durability: .relaxed)
    let pack = packs + "/" + (try #require(try host.storage.list(packs).first))
    host.storage.failSync(of: pack)
    #expect(#expect(throws: StoreError.self) { try store.sync() }?.code == .poisoned)
    host.killProcesses()
    return pack
  }

  @Test(
    "F25 F31 with large values to copy after a failed sync confirms nothing, is readable, and recovers"
  )
  func copyThatDoesNotFit() throws {
    let configuration = Configuration(durability: .relaxed)
    let large = [UInt8](repeating: 9, count: 30_000)
    var store = try Store.create(on: host, configuration: configuration)
    let pack = try Self.leaveUnsynced("large", large, of: store, on: host)

    host.storage.free = 2 << 20
    store = try Store.open(on: host, configuration: configuration)
    for round in 0..<3 as Range<UInt8> {
      #expect(try store.get("large")?.bytes == large)
      let error = #expect(throws: StoreError.self) { try store.put("small", [round], durability: .full) }
      #expect(error?.code == .diskFull && error?.message.contains("make room") == true)
      #expect(try store.get("small")?.bytes == [round])
    }
    #expect(try host.storage.list(Self.packs).count == 1)

    host.storage.free = nil
    try store.sync()
    #expect(try host.storage.status(pack) == nil)
    host.losePower(keeping: { _, _ in .lost }, sizes: { _ in false }, entries: { _ in false })
    store = try Store.open(on: host, configuration: configuration)
    #expect(try store.get("large")?.bytes == large && store.get("small")?.bytes == [2])
    #expect(try store.verify().isClean)
  }

  @Test("F25 refuses puts, accepts deletes, is cleaned by a compaction, and accepts puts again")
  func wholeLife() throws {
    let store = try Store.create(on: host, configuration: Self.small)
    host.storage.free = 5 << 20
    let count = try fill(store)
    #expect(host.storage.free == 0)
    #expect(count > 250)
    for number in 0..<count { #expect(try store.get(Key("\(number)"))?.bytes.count == 15_000) }
    for number in 0..<(count - 3) { #expect(try store.delete(Key("\(number)"))) }
    #expect(throws: StoreError.self) { try store.put("more", "x") }
    #expect(try store.compact() > 4 << 20)
    #expect(try store.status().keys == 3)
    try store.put("more", "x")
    #expect(try fill(store) > 200)
    host.killProcesses()
    let again = try Store.open(on: host, configuration: Self.small)
    #expect(try again.text("more") == "x")
    #expect(try again.verify().isClean)
  }

  @Test("F25 is filled with smaller and smaller segments")
  func smallerSegments() throws {
    let store = try Store.create(on: host, configuration: Configuration(durability: .relaxed))
    host.storage.free = 11 << 20
    try fill(store, bytes: 1000)
    #expect(try #require(host.storage.free) < 64 << 10)
    host.killProcesses()
    #expect(try Store.open(on: host).verify().isClean)
  }

  @Test("F25 reserves space for deletes alone, also of another process and after a kill")
  func reserveIsKept() throws {
    let shared = Configuration(mode: .shared, durability: .relaxed, segmentBytes: 1 << 20)
    let store = try Store.create(on: host, configuration: shared)
    host.storage.free = 2 << 20
    try fill(store)
    try fill(store, bytes: 1)
    var deleted = 0
    while try host.storage.status(Self.journal + "/reserve") != nil, deleted < 100 {
      try store.delete(Key("\(deleted)"))
      deleted += 1
    }
    #expect(try host.storage.status(Self.journal + "/reserve") == nil)
    let tail = Location(packed: store.control.tail)
    #expect(store.core.engine.withLock { $0.journal.segment(tail.segment)?.header.isReserve } == true)
    // The segment has space, but not for these.
    #expect(#expect(throws: StoreError.self) { try store.put("p", "x") }?.code == .diskFull)
    let second = try Store.openSecond(on: host, configuration: shared)
    #expect(#expect(throws: StoreError.self) { try second.put("p", "x") }?.code == .diskFull)
    #expect(
      #expect(throws: StoreError.self) {
        try second.transaction { transaction in
          try transaction.delete("50")
          try transaction.put("p", [1])
        }
      }?.code == .diskFull)
    #expect(try second.contains("50"))
    #expect(try second.delete("50"))
    host.killProcesses()
    let again = try Store.open(on: host, configuration: Self.small)
    #expect(#expect(throws: StoreError.self) { try again.put("p", "x") }?.code == .diskFull)
    #expect(try again.delete("51"))
    host.storage.free = 10 << 20
    try again.put("p", "x")
    #expect(try host.storage.status(Self.journal + "/reserve")?.size == 64 << 10)
    #expect(try again.get("50") == nil)
    #expect(try again.get("51") == nil)
    #expect(try again.verify().isClean)
  }

  @Test("F22 F25 keeps the deletes made before a part of the reserve is used a second time")
  func reserveTakenTwice() throws {
    let long = Key(unchecked: [UInt8](repeating: 65, count: 1000))
    var store = try Store.create(on: host, configuration: Self.small)
    for key in ["short", long] as [Key] { try store.put(key, "x") }
    host.storage.free = 2 << 20
    try fill(store)
    try fill(store, bytes: 900)
    try store.sync()
    try host.storage.syncDirectory(Self.journal)
    // There is space for a small delete, but not for this one.
    #expect(try store.delete(long))
    #expect(try host.storage.status(Self.journal + "/reserve") == nil)
    let begun = SegmentName(Location(packed: store.control.tail).segment).text
    // The started segment still has its beginning, under its previous name.
    RotationTests.losePower(host) { path, _ in path.hasSuffix(begun) }
    store = try Store.open(on: host, configuration: Self.small)
    // The space freed by the power loss was taken by another program.
    host.storage.free = 0
    #expect(try store.contains(long))
    #expect(try store.delete("short", durability: .full))
    #expect(try store.delete(long))
    RotationTests.losePower(host, entries: true)
    let again = try Store.open(on: host, configuration: Self.small)
    #expect(try again.get("short") == nil && again.contains(long))
    #expect(try again.delete(long) && again.verify().isClean)
  }

  @Test("F25 can free space also if a foreign program has written into the reserve")
  func reserveNotZero() throws {
    let store = try Store.create(on: host, configuration: Self.small)
    try store.put("k", "x")
    host.storage.free = 2 << 20
    let count = try fill(store)
    try host.storage.open(Self.journal + "/reserve", .readWrite).write([1, 2, 3], at: 100)
    try fill(store, bytes: 1)
    for number in 0..<count { #expect(try store.delete(Key("\(number)"))) }
    #expect(try host.storage.status(Self.journal + "/reserve") == nil)
    host.killProcesses()
    let again = try Store.open(on: host, configuration: Self.small)
    #expect(try again.text("k") == "x" && again.get("0") == nil && again.verify().isClean)
  }

  @Test("F25 reports that the reserve is used up, and the store is unharmed")
  func reserveUsedUp() throws {
    let store = try Store.create(on: host, configuration: Self.small)
    host.storage.free = 3 << 20
    let count = try fill(store, bytes: 100)
    var deleted = 0
    let error = #expect(throws: StoreError.self) {
      while deleted < count {
        try store.delete(Key("\(deleted)"))
        deleted += 1
      }
    }
    #expect(error?.code == .diskFull)
    #expect(deleted > 400)
    #expect(try store.status().keys == count - deleted)
    try store.close()
    let again = try Store.open(on: host, configuration: Self.small)
    #expect(try again.status().keys == count - deleted)
    host.storage.free = 10 << 20
    try again.put("more", "x")
    #expect(try again.verify().isClean)
  }

  @Test("F25 at opening after a crash does not prevent opening")
  func openingAfterCrash() throws {
    let store = try Store.create(on: host, configuration: Self.small)
    try store.put("durable", "x", durability: .full)
    try store.put("after", "x", durability: .full)
    try store.put("torn", [UInt8](repeating: 7, count: 9000))
    host.storage.free = 0
    host.storage.crash(
      keeping: { path, page in path.hasSuffix("1.segment") && page == 2 ? .lost : .survives })
    host.losePower(seed: 0)
    host.storage.free = 4096
    let again = try Store.open(on: host, configuration: Self.small)
    #expect(try again.text("after") == "x")
    #expect(try again.get("torn") == nil)
    #expect(try again.delete("durable"))
  }

  @Test(
    "F25 at any call, in a copy killed at any call, keeps what was acknowledged", arguments: 1...40)
  func anyCall(number: Int) throws {
    let store = try Store.create(on: host, configuration: Self.small)
    try RotationTests.fill(store, 200)
    try store.close()
    let plan = FaultPlan()
    let dying = try Store.open(on: host, configuration: Self.small, failing: plan)
    plan.fail(number: number, forever: true, errno: 28)
    var (deleted, kept): (Set<Int>, Set<Int>) = ([], Set(0..<200))
    for key in 0..<150 where (try? dying.delete(Key("\(key)"))) != nil {
      deleted.insert(key)
      kept.remove(key)
    }
    _ = try? dying.compact()
    for key in 200..<280 where (try? dying.put(Key("\(key)"), [1])) != nil { kept.insert(key) }
    host.killProcesses()
    let again = try Store.open(on: host, configuration: Self.small)
    for key in kept { #expect(try again.contains(Key("\(key)")), "key \(key)") }
    for key in deleted { #expect(try !again.contains(Key("\(key)")), "key \(key)") }
    #expect(try again.verify().isClean)
  }

  @Test(
    "F25 of 24 MiB, a real one: reads, deletes and compaction work, and puts once there is space",
    .enabled(if: LoopImage.isAvailable, "needs the right to mount"))
  func real() throws {
    let image = try LoopImage(megabytes: 24)
    let path = image.path + "/store"
    let store = try Store.create(at: path)
    let value = [UInt8](repeating: 7, count: 15_000)
    try store.put("blob", [UInt8](repeating: 5, count: 40_000))
    var count = 0
    let error = #expect(throws: StoreError.self) {
      while count < 10_000 {
        try store.put(Key("\(count)"), value, durability: .relaxed)
        count += 1
      }
    }
    #expect(error?.code == .diskFull)
    #expect(error?.errno == 28)
    #expect(count > 700)
    // Preallocation of the next segment may return unusable space late, or complete a segment: then puts
    // continue.
    var more = 0
    var refusal: StoreError?
    while refusal == nil, more < 1000 {
      try image.fill()
      do {
        try store.put("x", value, durability: .relaxed)
        more += 1
      } catch { refusal = error }
    }
    #expect(refusal?.code == .diskFull)
    let large = [UInt8](repeating: 7, count: 2 << 20)
    #expect(#expect(throws: StoreError.self) { try store.put("b", large) }?.code == .diskFull)
    for number in 0..<count { #expect(try store.get(Key("\(number)"))?.bytes == value) }
    #expect(try store.get("blob")?.bytes.count == 40_000)
    // Each one durable.
    for number in 0..<(count - 20) { #expect(try store.delete(Key("\(number)"))) }
    // Some of it is already done in the background.
    try store.compact()
    #expect(try store.status().journalBytes < UInt64(count * 15_000) * 2 / 3)
    try store.put("more", value)
    try store.close()
    let again = try Store.open(at: path)
    #expect(try again.status().keys == (more == 0 ? 22 : 23))
    #expect(try again.get("more")?.bytes == value)
    #expect(try again.verify().isClean)
    try again.close()
  }

  @Test(
    "F25 at creation is a typed error, and leaves nothing behind",
    .enabled(if: LoopImage.isAvailable, "needs the right to mount"))
  func creation() throws {
    let image = try LoopImage(megabytes: 8)
    try image.fill()
    let path = image.path + "/store"
    #expect(#expect(throws: StoreError.self) { try Store.create(at: path) }?.code == .diskFull)
    image.drain()
    let store = try Store.create(at: path)
    try store.put("k", "v")
    try store.close()
  }
}
