import SyncTestSupport
import Testing

@testable import SyncStore

/// Journals on file systems where a store to mapped memory may fail.
@Suite("A tail written with pwrite")
struct PwriteTailTests {
  static let btrfs: UInt64 = 0x9123_683E
  static let nfs: UInt64 = 0x6969
  static let small = Configuration(segmentBytes: 1 << 20)
  let host = SimulatedHost()

  init() { host.storage.type = Self.btrfs }

  @Test("is used on copy-on-write file systems, and not on others (F26)")
  func chosen() throws {
    let store = try Store.create(on: host)
    #expect(store.core.engine.withLock { $0.journal.segments[0].usesPwrite })
    host.storage.type = 0xEF53
    let other = try Store.create("/other", on: host)
    #expect(!other.core.engine.withLock { $0.journal.segments[0].usesPwrite })
    #expect(try !DiskStorage().fileSystem("/dev/shm").mappedStoresMayFail)
  }

  @Test("has the same bytes as a mapped one, through rotation, power loss and compaction (F26)")
  func sameBytes() throws {
    var images: [[String: [UInt8]]] = []
    for type in [Self.btrfs, 0xEF53] {
      let host = SimulatedHost()
      host.storage.type = type
      var store = try Store.create(on: host, configuration: Self.small)
      try RotationTests.fill(store, 150)
      for number in 0..<100 { try store.delete(Key("\(number)")) }
      host.losePower(seed: 3)
      store = try Store.open(on: host, configuration: Self.small)
      #expect(try store.status().keys == 50)
      try store.transaction { transaction in
        for number in 0..<20 { try transaction.put(Key("t\(number)"), [1, 2, 3]) }
      }
      #expect(try store.compact() > 0)
      #expect(try store.verify().isClean)
      try store.close()
      var files: [String: [UInt8]] = [:]
      for name in try host.storage.list("/store/journal") where name.hasSuffix(".segment") {
        files[name] = try host.storage.open("/store/journal/" + name, .readOnly).read(8 << 20, at: 0)
      }
      images.append(files)
    }
    #expect(images[0].count > 1)
    #expect(images[0] == images[1])
  }

  @Test("is followed by other processes, and continued after a kill (F26)")
  func processes() throws {
    let shared = SharedModeTests.shared
    let first = try Store.create(on: host, configuration: shared)
    let second = try Store.openSecond(on: host, configuration: shared)
    for number in 0..<50 {
      try (number % 2 == 0 ? first : second).put(Key("\(number)"), "v\(number)")
      #expect(try (number % 2 == 0 ? second : first).text(Key("\(number)")) == "v\(number)")
    }
    host.killProcesses()
    let again = try Store.open(on: host)
    #expect(try again.status().keys == 50)
    try again.put("more", "x")
    #expect(try again.verify().isClean)
  }

  @Test("without space for a record fails that write alone (F26, F27)")
  func noSpace() throws {
    let plan = FaultPlan()
    try Store.create(on: host, configuration: Self.small).close()
    let store = try Store.open(on: host, configuration: Self.small, failing: plan)
    try store.put("before", "x")
    plan.fail(.write, on: "1.segment", errno: 28)
    #expect(#expect(throws: StoreError.self) { try store.put("k", "lost") }?.code == .diskFull)
    #expect(try store.get("k") == nil)
    try store.put("k", "kept")
    plan.fail(.write, on: "1.segment", forever: true, errno: 28)
    #expect(#expect(throws: StoreError.self) { try store.put("l", "x") }?.code == .poisoned)
    plan.clear()
    #expect(#expect(throws: StoreError.self) { try store.put("l", "x") }?.code == .poisoned)
    #expect(try store.text("k") == "kept")
    host.killProcesses()
    let again = try Store.open(on: host)
    #expect(try again.text("k") == "kept")
    #expect(try again.text("before") == "x")
    #expect(try again.get("l") == nil)
  }

  @Test(
    "without space for the first record of a segment continues in the same segment later (F26, F27)",
    arguments: [60, 5000])
  func noSpaceAtFirst(next: Int) throws {
    let plan = FaultPlan()
    try Store.create(on: host, configuration: Self.small).close()
    let store = try Store.open(on: host, configuration: Self.small, failing: plan)
    // The next one does not fit any more.
    try RotationTests.fill(store, 69)
    // The segment keeps its initial name: first its header is written, then the record.
    plan.fail(.write, number: 2, on: "next.new", errno: 28)
    let large = [UInt8](repeating: 1, count: 15_000)
    #expect(#expect(throws: StoreError.self) { try store.put("large", large) }?.code == .diskFull)
    try store.put("next", [UInt8](repeating: 2, count: next))
    try store.put("large", large)
    #expect(try store.status().segments == 2)
    func expectAll(_ store: Store) throws {
      #expect(try store.status().keys == 71 && store.verify().isClean)
      #expect(try store.get("0") != nil && store.get("next")?.bytes.count == next)
      #expect(try store.get("large")?.bytes == large)
    }
    try expectAll(store)
    host.killProcesses()
    try expectAll(Store.open(on: host))
  }

  @Test("F29 on a failing disk poisons the store")
  func failure() throws {
    let plan = FaultPlan()
    try Store.create(on: host, configuration: Self.small).close()
    let store = try Store.open(on: host, configuration: Self.small, failing: plan)
    plan.fail(.write, on: "1.segment", errno: 5)
    #expect(#expect(throws: StoreError.self) { try store.put("k", "lost") }?.code == .poisoned)
    #expect(#expect(throws: StoreError.self) { try store.put("l", "x") }?.code == .poisoned)
  }

  @Test("F27 on thin storage that runs out at a sync poisons the store, whichever process syncs")
  func thinStorage() throws {
    let plan = FaultPlan()
    try Store.create(on: host, configuration: Self.small).close()
    let store = try Store.open(on: host, configuration: Self.small, failing: plan)
    plan.fail(.sync, on: "1.segment", errno: 28)
    let error = #expect(throws: StoreError.self) { try store.put("k", "lost") }
    #expect(error?.code == .poisoned)
    #expect(error?.errno == 28)
    #expect(#expect(throws: StoreError.self) { try store.put("l", "x") }?.code == .poisoned)
  }

  @Test("F98 on a network file system is refused by name, unless forced")
  func network() throws {
    let plain = SimulatedHost()
    try Store.create(on: plain).close()
    plain.storage.type = Self.nfs
    for attempt in [{ try Store.open(on: plain) }, { try Store.create("/other", on: plain) }] {
      let error = #expect(throws: StoreError.self) { try attempt() }
      #expect(error?.code == .unsafeFileSystem)
      #expect(error?.message.contains("NFS") == true)
    }
    let forced = Configuration(allowsNetworkFileSystem: true)
    let store = try Store.open(on: plain, configuration: forced)
    try store.put("k", "v")
    #expect(store.core.engine.withLock { $0.journal.segments[0].usesPwrite })
    try store.close()
    #expect(try Store.create("/third", on: plain, configuration: forced).status().keys == 0)
    #expect(try DiskStorage().fileSystem("/tmp").network == nil)
  }

  @Test(
    "F26 on a real, full btrfs fails writes, and loses nothing acknowledged",
    .enabled(if: LoopImage.isAvailable("btrfs"), "needs the right to mount, and btrfs"))
  func realBtrfs() throws {
    let image = try LoopImage(megabytes: 120, type: "btrfs", make: ["-m", "single"])
    let path = image.path + "/store"
    let store = try Store.create(at: path, configuration: Self.small)
    #expect(store.core.engine.withLock { $0.journal.segments[0].usesPwrite })
    let value = [UInt8](repeating: 7, count: 15_000)
    var acknowledged: [Int] = []
    try RotationTests.fill(store, 10)
    #expect(try store.verify().isClean)
    try image.fill(leaving: 3 << 20)
    for number in 100..<12_000 {
      do throws(StoreError) {
        try store.put(Key("\(number)"), value, durability: .relaxed)
        acknowledged.append(number)
      } catch {
        #expect([.diskFull, .poisoned].contains(error.code))
        break
      }
    }
    #expect(!acknowledged.isEmpty && acknowledged.count < 11_000)
    for number in acknowledged { #expect(try store.get(Key("\(number)"))?.bytes == value) }
    try? store.close()
    image.drain()
    let again = try Store.open(at: path, configuration: Self.small)
    #expect(try again.status().keys >= 10)
    try again.put("more", "x")
    #expect(try again.verify().isClean)
    try again.close()
  }
}
