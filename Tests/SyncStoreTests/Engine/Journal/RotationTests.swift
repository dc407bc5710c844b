import SyncTestSupport
import Testing

@testable import SyncStore

/// The transition from one segment to the next, under every fault.
@Suite("A rotation")
struct RotationTests {
  static let journal = "/store/journal"
  static let relaxed = Configuration(durability: .relaxed, segmentBytes: 1 << 20)
  let host = SimulatedHost()

  /// Puts `count` values; 69 fill a segment.
  static func fill(_ store: Store, from first: Int = 0, _ count: Int) throws(StoreError) {
    for number in first..<(first + count) {
      try store.put(Key(unchecked: Array("\(number)".utf8)), [UInt8](repeating: 7, count: 15_000))
    }
  }

  /// Loses power with all unsynced data, except what `survives` keeps.
  static func losePower(
    _ host: SimulatedHost, entries: Bool = false,
    survives: (_ path: String, _ page: Int) -> Bool = { _, _ in false }
  ) {
    host.storage.crash(
      keeping: { survives($0, $1) ? .survives : .lost }, sizes: { _ in true }, entries: { _ in entries })
    host.losePower(seed: 0)
  }

  @Test("that failed after the rename of the new segment lets no write follow the renamed end (R4, F30)")
  func failedDirectorySync() throws {
    let store = try Store.create(on: host, configuration: Self.relaxed)
    try Self.fill(store, 69)
    host.storage.failSync(of: Self.journal)
    #expect(throws: StoreError.self) { try store.put("large", [UInt8](repeating: 1, count: 19_000)) }
    let acknowledged = (try? store.put("small", "x")) != nil
    host.killProcesses()
    let again = try Store.open(on: host)
    if acknowledged { #expect(try again.text("small") == "x") }
    #expect(try again.status().keys == (acknowledged ? 70 : 69))
    try again.put("after", "x")
  }

  @Test("killed before the directory sync is made durable by the next opening (F5)")
  func killedBeforeDirectorySync() throws {
    let plan = FaultPlan()
    let store = try Store.create(on: host, configuration: Self.relaxed)
    try store.close()
    let dying = try Store.open(on: host, configuration: Self.relaxed, failing: plan)
    plan.fail(.syncDirectory, on: Self.journal, forever: true)
    #expect(throws: StoreError.self) { try Self.fill(dying, 80) }
    host.killProcesses()
    let again = try Store.open(on: host)
    try again.put("after", "x", durability: .full)
    Self.losePower(host)
    #expect(try Store.open(on: host).text("after") == "x")
  }

  @Test("uses an existing prepared segment, also if another process has just put its own there")
  func preparedByAnother() throws {
    let plan = FaultPlan()
    try Store.create(on: host, configuration: Self.relaxed).close()
    let store = try Store.open(on: host, configuration: Self.relaxed, failing: plan)
    let storage = host.storage
    let prepare: @Sendable () -> Journal.PreparedSegment? = {
      try? Journal.prepare(directory: Self.journal, size: 1 << 20, storage: storage, isDurable: false)
    }
    store.writes.segments.ready.withLock { $0 = prepare() }
    plan.before(.rename, of: "next.new") {
      _ = try? storage.remove(Self.journal + "/next")
      _ = prepare()
    }
    try Self.fill(store, 80)
    #expect(try store.status().segments == 2)
    host.killProcesses()
    let again = try Store.open(on: host)
    #expect(try again.status().keys == 80 && again.verify().isClean)
  }

  @Test(
    "whose new segment lost its beginning with the power loses the last moments only (F15, F24)",
    arguments: 2...4)
  func lostBeginning(segment: Int) throws {
    let store = try Store.create(on: host, configuration: Self.relaxed)
    try store.put("durable", "x", durability: .full)
    try Self.fill(store, 250)
    let lost = "\(segment).segment"
    Self.losePower(host, entries: true) { path, page in !(path.hasSuffix(lost) && page == 0) }
    let again = try Store.open(on: host)
    #expect(try again.text("durable") == "x")
    var found = 0
    while try again.contains(Key("\(found)")) { found += 1 }
    #expect(try again.status().keys == found + 1)
    #expect(try again.verify().isClean)
  }

  @Test(
    "makes the preceding segment durable first: damage there truncates nothing after it (F16, F17)"
  )
  func damageBeforeIt() throws {
    let store = try Store.create(on: host, configuration: Self.relaxed)
    try Self.fill(store, 100)
    try store.sync()
    try store.put("synced again", "x", durability: .full)
    try store.close()
    let path = Self.journal + "/0000000000000001.segment"
    let bytes = try host.storage.open(path, .readOnly).read(1 << 20, at: 0)
    let last = try #require(bytes.lastIndex(of: 7))
    try host.storage.flipBit(of: path, at: last, bit: 1)
    for name in ["index", "ledger"] { _ = try host.storage.remove("/store/" + name) }
    host.losePower(keeping: { _, _ in .survives }, sizes: { _ in true })
    let again = try Store.open(on: host)
    #expect(try again.text("synced again") == "x")
    #expect(try again.status().keys == 100)
    #expect(try again.status().damagedPlaces == 1)
  }

  @Test("does not hide an earlier segment from the sync after a kill (F4, F24)")
  func syncAfterKill() throws {
    let store = try Store.create(on: host, configuration: Self.relaxed)
    try Self.fill(store, 150)
    host.killProcesses()
    let again = try Store.open(on: host, configuration: Self.relaxed)
    try again.sync()
    Self.losePower(host)
    let after = try Store.open(on: host)
    #expect(try after.status().keys == 150)
    #expect(try after.verify().isClean)
  }

  @Test("between the listing and the reading of an opening process is not missed")
  func duringOpening() throws {
    let shared = Configuration(mode: .shared, durability: .relaxed, segmentBytes: 1 << 20)
    let first = try Store.create(on: host, configuration: shared)
    try Self.fill(first, 40)
    let plan = FaultPlan()
    plan.before(.open, of: "1.segment") { try? Self.fill(first, from: 40, 60) }
    var environment = host.otherProcess
    environment.storage = FaultingStorage(host.storage, plan: plan)
    let second = try Store.open(
      at: "/store", configuration: host.configured(shared), environment: environment)
    #expect(try second.status().keys == 100)
    #expect(try second.digest() == first.digest())
  }

  @Test("by another process that took the segment being prepared does not lose it to the preparing one")
  func preparedTwice() throws {
    let host = host
    let store = try Store.create(on: host, configuration: Self.relaxed)
    let plan = FaultPlan()
    plan.before(.lock, of: "next.preparing") {
      try? host.storage.rename(Self.journal + "/next.preparing", to: Self.journal + "/next")
      try? host.storage.open(Self.journal + "/next", .readWrite).allocate(to: 2 << 20)
      try? Self.fill(store, 100)
    }
    _ = try Journal.prepare(
      directory: Self.journal, size: 1 << 20, storage: FaultingStorage(host.storage, plan: plan),
      isDurable: true)
    host.killProcesses()
    #expect(try Store.open(on: host).status().keys == 100)
  }

  @Test(
    "whose rename was lost with the power does not end its segment at the same place again (F22, F24)"
  )
  func nameLostTwice() throws {
    var store = try Store.create(on: host, configuration: Self.relaxed)
    try Self.fill(store, 69)
    try store.sync()
    _ = try Journal.prepare(
      directory: Self.journal, size: 1 << 20, storage: host.storage, isDurable: true)
    try host.storage.syncDirectory(Self.journal)
    let large = [UInt8](repeating: 1, count: 19_000)
    try store.put("large", large)
    // The started segment still has its beginning, and its previous name.
    Self.losePower(host) { path, _ in path.hasSuffix("2.segment") }
    store = try Store.open(on: host, configuration: Self.relaxed)
    #expect(try store.get("large") == nil)
    try store.put("small", "x", durability: .full)
    try store.put("large", large)
    Self.losePower(host, entries: true)
    let again = try Store.open(on: host)
    #expect(try again.text("small") == "x")
    #expect(try again.status().keys == 70 && again.verify().isClean)
  }

  @Test("rejects a prepared file that begins with anything but zeros, whatever its origin")
  func preparedNotBlank() throws {
    let store = try Store.create(on: host, configuration: Self.relaxed)
    try Self.fill(store, 69)
    let header = try host.storage.open(Self.journal + "/0000000000000001.segment", .readOnly).read(
      4096, at: 0)
    let stale = try host.storage.open(Self.journal + "/next", .openOrCreate)
    try stale.allocate(to: 1 << 20)
    try stale.write(header, at: 0)
    try stale.sync()
    try store.put("large", [UInt8](repeating: 1, count: 19_000))
    Self.losePower(host, entries: true)
    // Its beginning was not durable: it is blank.
    let again = try Store.open(on: host)
    #expect(try again.get("large") == nil)
    try again.put("after", "x")
  }
}
