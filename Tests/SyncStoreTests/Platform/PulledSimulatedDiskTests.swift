import SyncTestSupport
import Testing

@testable import SyncStore

/// A disk that is lost and returns while the machine keeps running: it was pulled out, or its file system was
/// shut down and mounted again. The boot is the same, and unsynced data is lost.
@Suite("A simulated disk that was removed and attached again (F29)")
struct PulledSimulatedDiskTests {
  static let configuration = Configuration(durability: .relaxed, blobThreshold: 4096, segmentBytes: 64 << 10)

  /// Whether the state of an opened store equals that of its journal.
  private func agrees(_ store: Store, _ host: SimulatedHost) throws -> [String] {
    let known = try OpeningTests.Knowledge(store)
    try store.close()
    for name in ["index", "ledger"] { _ = try host.storage.remove("/store/" + name) }
    let read = try Store.open(on: host, configuration: Self.configuration)
    // One names a record by the compacted segment that contains it, the other by that segment's location.
    return known.differences(from: try OpeningTests.Knowledge(read), but: ["places"])
  }

  @Test(
    "shows durable data and a prefix of the rest, and nothing missing from it is trusted",
    arguments: 0..<60 as Range<UInt64>)
  func simulated(seed: UInt64) throws {
    let host = SimulatedHost(seed: seed, encrypted: seed % 2 == 1)
    var random = SplitMix64(seed: seed)
    var store = try Store.create(on: host, configuration: Self.configuration)
    var durable = 0
    func value(_ number: Int) -> [UInt8] {
      [UInt8](repeating: UInt8(number % 251), count: number % 4 == 0 ? 5000 : 30)
    }
    for _ in 0..<3 {
      for number in durable..<durable + 20 {
        let isDurable = random.chance(20)
        try store.put(Key("\(number)"), value(number), durability: isDurable ? .full : .relaxed)
        if isDurable { durable = number + 1 }
      }
      // By then the kernel has written some files back, and others not.
      let written = ["index", "control", "/packs/", "ledger"].filter { _ in random.chance(50) }
      host.pullDisk(keeping: { path, _ in
        written.contains { path.contains($0) } || random.chance(20) ? .survives : .lost
      })
      store = try Store.open(on: host, configuration: Self.configuration)
      let found = try (0..<durable + 20).filter { try store.contains(Key("\($0)")) }
      #expect(found == Array(0..<found.count) && found.count >= durable, "seed \(seed)")
      for number in found { #expect(try store.get(Key("\(number)"))?.bytes == value(number), "seed \(seed)") }
      #expect(try store.verify().isClean, "seed \(seed)")
      let differences = try agrees(store, host)
      #expect(differences.isEmpty, "seed \(seed): \(differences)")
      store = try Store.open(on: host, configuration: Self.configuration)
      durable = found.count
      try store.sync()
    }
  }

  @Test("is distinguished from a killed process, after which the journal is not replayed")
  func killedOrPulled() throws {
    let host = SimulatedHost()
    for isPulled in [false, true, false] {
      let store = try? Store.create(on: host, configuration: Self.configuration)
      let open = try store ?? Store.open(on: host, configuration: Self.configuration)
      try open.put("k", "v")
      if isPulled { host.pullDisk(keeping: { _, _ in .survives }) } else { host.killProcesses() }
      let again = try Store.open(on: host, configuration: Self.configuration)
      #expect(again.core.engine.withLock { $0.status.isRestored } == !isPulled)
      #expect(try again.text("k") == "v")
      host.killProcesses()
    }
  }

  @Test("is assumed where the kernel supports no marks: the journal is replayed, and nothing is lost")
  func withoutMarks() throws {
    let host = SimulatedHost()
    let plan = FaultPlan()
    let storage = FaultingStorage(host.storage, plan: plan)
    plan.fail(.mark, forever: true)
    func open() throws -> Store {
      try Store.open(
        at: "/store", configuration: host.configured(Self.configuration),
        environment: host.environment(over: storage))
    }
    try Store.create(on: host, configuration: Self.configuration).close()
    for number in 0..<5 {
      let store = try open()
      #expect(number == 0 || !store.core.engine.withLock { $0.status.isRestored })
      for before in 0..<number {
        #expect(try store.get(Key("\(before)"))?.bytes == pattern(5000, seed: UInt64(before)))
      }
      try store.put(Key("\(number)"), pattern(5000, seed: UInt64(number)))
      host.killProcesses()
    }
    #expect(try open().verify().isClean)
  }

  @Test("loses a large value that was not durable: put again, it is written again")
  func largeValue() throws {
    let host = SimulatedHost()
    let store = try Store.create(on: host, configuration: Self.configuration)
    try store.put("first", pattern(6000), durability: .full)
    try store.put("second", pattern(6000, seed: 2))
    // The table of the pack has reached the disk, the object has not.
    host.pullDisk(keeping: { path, page in path.hasSuffix(".pack") && page < 2 ? .survives : .lost })
    let again = try Store.open(on: host, configuration: Self.configuration)
    #expect(try !again.contains("second"))
    try again.put("second", pattern(6000, seed: 2), durability: .full)
    #expect(try again.get("first")?.bytes == pattern(6000))
    #expect(try again.get("second")?.bytes == pattern(6000, seed: 2))
    #expect(try again.verify().isClean)
  }
}
