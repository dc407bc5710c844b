import SyncTestSupport
import Testing

@testable import SyncStore

/// A store that is open for long: readers that never end, machines that sleep, files that are removed.
@Suite("A store that stays open for a long time")
struct LongRunningStoreTests {
  static let small = Configuration(durability: .relaxed, segmentBytes: 64 << 10)
  let host = SimulatedHost()

  /// Overwrites the same keys, so that all but the last values are dead.
  func churn(_ store: Store, _ pass: Int) throws {
    for number in 0..<40 {
      try store.put(Key("\(number)"), [UInt8](repeating: UInt8(pass & 0xFF), count: 4000))
    }
  }

  @Test(
    "closing makes durable what a killed process left, also by a process that wrote nothing", arguments: 0..<6
  )
  func closingForOthers(seed: Int) throws {
    let store = try Store.create(on: host, configuration: Self.small)
    for number in 0..<20 { try store.put(Key("\(number)"), "value \(number)") }
    host.killProcesses()
    let again = try Store.open(on: host, configuration: Self.small)
    #expect(again.control.durable < again.control.tail)
    try again.close()
    host.losePower(seed: UInt64(seed))
    let last = try Store.open(on: host, configuration: Self.small)
    for number in 0..<20 { #expect(try last.text(Key("\(number)")) == "value \(number)") }
  }

  @Test("F93 keeps what a reader reads, within bounds, and reports how much")
  func endlessReader() throws {
    let store = try Store.create(on: host, configuration: Self.small)
    store.core.engine.withLock { $0.pinned.limit = 1 << 20 }
    try churn(store, 0)
    let round = try store.openRound(since: nil, covered: VersionVector())
    #expect(try store.status().readers == 1)
    var most: UInt64 = 0
    var refusal: StoreError?
    var records = 0
    for pass in 1...100 {
      try churn(store, pass)
      _ = try store.compact()
      let status = try store.status()
      most = max(most, status.heldBytes)
      #expect(status.heldBytes <= max(1 << 20, status.journalBytes), "pass \(pass)")
      guard refusal == nil, pass.isMultiple(of: 20) else { continue }
      do throws(StoreError) {
        records += try round.next(maximumBytes: 1)?.records.count ?? 0
      } catch { refusal = error }
    }
    #expect(most > 0)
    #expect(refusal?.code == .snapshotEnded)
    #expect(records < 5)
    #expect(try store.verify().isClean)
  }

  @Test("F93 ends the oldest of several readers first")
  func oldestFirst() throws {
    let store = try Store.create(on: host, configuration: Self.small)
    store.core.engine.withLock { $0.pinned.limit = 1 << 20 }
    try churn(store, 0)
    var rounds: [DeltaStream] = []
    var ended = 0
    for pass in 1...60 {
      rounds.append(try store.openRound(since: nil, covered: VersionVector()))
      try churn(store, pass)
      _ = try store.compact()
      let codes = rounds.map { round -> StoreError.Code? in
        do throws(StoreError) {
          _ = try round.next(maximumBytes: 1)
          return nil
        } catch { return error.code }
      }
      ended = codes.prefix { $0 == .snapshotEnded }.count
      #expect(codes.dropFirst(ended).allSatisfy { $0 == nil })
      #expect(codes.last == .some(nil))
    }
    #expect(ended > 10)
    rounds = []
    #expect(try store.status().heldBytes == 0)
  }

  @Test("F54 re-evaluates deadlines after the machine has slept")
  func slept() throws {
    let store = try Store.create(on: host)
    try store.put("short", [1], expiration: .at(host.time + 60_000))
    try store.put("long", [1], expiration: .at(host.time + 24 * 3_600_000))
    let digest = try store.digest()
    #expect(try store.contains("short"))
    // No timer ran during the sleep, and none is needed.
    host.time += 8 * 3_600_000
    #expect(try store.get("short") == nil)
    #expect(try store.entry("short") == nil)
    #expect(try !store.contains("short"))
    #expect(try store.withValue("short") { $0.byteCount } == nil)
    #expect(try store.list().map(\.key) == ["long"])
    #expect(try store.status().keys == 1)
    #expect(try store.digest() != digest)
    #expect(try !store.delete("short"))
    try store.put("short", [2])
    #expect(try store.get("short")?.bytes == [2])
    host.time += 24 * 3_600_000
    #expect(try store.get("long") == nil)
  }

  @Test("F54 applies records parked until a time that passed while the machine slept")
  func parked() throws {
    let store = try Store.create(on: host)
    let ahead = SimulatedHost(seed: 7, time: host.time + 3_600_000, machine: "ahead")
    let other = try Store.create(on: ahead, id: store.id)
    try other.put("k", "from the future")
    try store.receive(from: other)
    #expect(try store.get("k") == nil)
    host.time += 2 * 3_600_000
    #expect(try store.text("k") == "from the future")
  }

  @Test("F48 works on a machine whose clock is at 1970, and warns")
  func unsetClock() throws {
    let unset = SimulatedHost(time: 0, machine: "unset")
    let store = try Store.create(on: unset)
    #expect(store.clockWarning?.contains("0 days after the beginning of 1970") == true)
    try store.put("k", "1")
    try store.put("k", "2")
    try store.put("gone", [1], expiration: .at(1000))
    #expect(try store.text("k") == "2")
    unset.time = 1_800_000_000_000
    #expect(store.clockWarning == nil)
    #expect(try store.get("gone") == nil)
    try store.put("k", "3")
    #expect(try store.text("k") == "3")
  }

  @Test("F33 works without free descriptors as long as it needs none, and recovers")
  func outOfDescriptors() throws {
    try Store.create(on: host, configuration: Self.small).close()
    let plan = FaultPlan()
    let store = try Store.open(on: host, configuration: Self.small, failing: plan)
    plan.fail(.open, forever: true, errno: 24)
    try store.put("k", "1")
    #expect(try store.text("k") == "1")
    let error = #expect(throws: StoreError.self) { try churn(store, 1) }
    #expect(error?.code == .inputOutput)
    #expect(error?.errno == 24)
    #expect(try store.text("k") == "1")
    plan.clear()
    try churn(store, 2)
    #expect(try store.status().keys == 41)
    #expect(try store.verify().isClean)
  }

  @Test(
    "F33 is not poisoned by a sync without a free descriptor, and loses nothing when it is synced later",
    arguments: [(StorageCall.list, "packs"), (.syncDirectory, "packs"), (.syncDirectory, "journal")])
  func syncWithoutDescriptors(call: StorageCall, path: String) throws {
    try Store.create(on: host, configuration: Self.small).close()
    let plan = FaultPlan()
    // Only a store that others may have open checks for their packs.
    var shared = Self.small
    shared.mode = .shared
    let store = try Store.open(on: host, configuration: shared, failing: plan)
    try store.put("large", pattern(40_000))
    plan.fail(call, on: path, forever: true, errno: 24)
    let error = #expect(throws: StoreError.self) {
      try churn(store, 1)
      try store.sync()
    }
    #expect(error?.code == .inputOutput && error?.errno == 24)
    #expect(try store.get("large")?.bytes == pattern(40_000))
    plan.clear()
    try store.put("k", "1")
    try store.sync()
    host.losePower(seed: 1)
    let again = try Store.open(on: host, configuration: Self.small)
    #expect(try again.get("large")?.bytes == pattern(40_000) && again.text("k") == "1")
    #expect(try again.verify().isClean)
  }

  @Test("F39 stops writing once a segment was removed: at the next sync", arguments: [false, true])
  func segmentRemoved(isRotation: Bool) throws {
    let store = try Store.create(on: host, configuration: Self.small)
    try store.put("k", "1", durability: .full)
    _ = try host.storage.remove("/store/journal/0000000000000001.segment")
    let error = #expect(throws: StoreError.self) {
      if isRotation {
        for number in 0..<40 { try store.put(Key("\(number)"), [UInt8](repeating: 1, count: 4000)) }
        try store.sync()
      } else {
        try store.put("k", "2", durability: .full)
      }
    }
    #expect(error?.code == .poisoned)
    #expect(error?.message.contains("was removed while in use") == true)
    #expect(#expect(throws: StoreError.self) { try store.put("l", "1") }?.code == .poisoned)
    #expect(try store.get("k") != nil)
    try? store.close()
    #expect(throws: StoreError.self) { try Store.open(on: host, configuration: Self.small) }
  }

  @Test("F41 does not replay a record of a recycled file's earlier contents")
  func recycled() throws {
    let store = try Store.create(on: host, configuration: Self.small)
    try churn(store, 1)
    try store.sync()
    // The whole content of the first segment, including records, is in the file reused as a later one.
    let old = try host.storage.open("/store/journal/0000000000000001.segment", .readOnly)
    let bytes = try old.read(1 << 20, at: 0)
    _ = try host.storage.remove("/store/journal/next")
    let next = try host.storage.open("/store/journal/next", .create)
    try next.allocate(to: 128 << 10)
    try next.write(bytes, at: 0)
    let before = try store.status().segments
    var number = 0
    while try store.status().segments == before {
      try store.put(Key("new\(number)"), [UInt8](repeating: 1, count: 4000), durability: .full)
      number += 1
    }
    #expect(try host.storage.status("/store/journal/next") == nil)
    host.killProcesses()
    let again = try Store.open(on: host, configuration: Self.small)
    #expect(try again.status().keys == 40 + number)
    #expect(try again.get("0")?.bytes.first == 1)
    #expect(try again.verify().isClean)
    try again.put("after", "x")
    host.losePower(seed: 1)
    #expect(try Store.open(on: host, configuration: Self.small).verify().isClean)
  }
}
