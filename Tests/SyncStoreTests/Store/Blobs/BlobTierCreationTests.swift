import SyncStore
import SyncTestSupport
import Testing

/// Crashes and failures while a store's first large value creates the blob tier.
@Suite("The first large value")
struct BlobTierCreationTests {
  static let configuration = Configuration(blobThreshold: 1024, segmentBytes: 64 << 10)
  static let large = [UInt8](repeating: 0xB7, count: 5000)

  @Test(
    "may be lost in a power failure; the store still opens, also read-only (F10, F15, F20)",
    arguments: 0..<60 as Range<UInt64>)
  func powerLoss(seed: UInt64) throws {
    let host = SimulatedHost(seed: seed, encrypted: seed % 2 == 1)
    let store = try Store.create(on: host, configuration: Self.configuration)
    try store.put("before", "it")
    try store.put("large", Self.large, durability: .relaxed)
    host.losePower(seed: seed)
    for mode in [Configuration.Mode.readOnly, .shared] {
      var configuration = Self.configuration
      configuration.mode = mode
      let again = try Store.open(on: host, configuration: configuration)
      #expect(try again.text("before") == "it")
      if mode == .readOnly {
        _ = try again.status()
      } else {
        let value = try again.get("large")?.bytes
        #expect(value == nil || value == Self.large, "seed \(seed)")
        #expect(try again.verify().isClean, "seed \(seed)")
        try again.put("large", Self.large)
        host.losePower(seed: seed + 1)
      }
      try? again.close()
    }
    #expect(try Store.open(on: host, configuration: Self.configuration).get("large")?.bytes == Self.large)
  }

  @Test(
    "interrupted by a kill at any call, leaves no directory that is not durable for a later value (F10)"
  )
  func killed() throws {
    var call = 1
    var isDone = false
    while !isDone {
      let host = SimulatedHost(seed: UInt64(call))
      try Store.create(on: host, configuration: Self.configuration).close()
      let plan = FaultPlan()
      plan.fail(number: call, forever: true)
      do {
        let store = try Store.open(on: host, configuration: Self.configuration, failing: plan)
        try store.put("first", Self.large)
        isDone = plan.calls < call
      } catch {}
      host.killProcesses()
      let store = try Store.open(on: host, configuration: Self.configuration)
      let value = Self.large + [UInt8(truncatingIfNeeded: call)]
      try store.put("second", value)
      // Only synced data survives.
      host.losePower(keeping: { _, _ in .lost }, sizes: { _ in false }, entries: { _ in false })
      let again = try Store.open(on: host, configuration: Self.configuration)
      #expect(try again.get("second")?.bytes == value, "killed at call \(call)")
      call += 1
    }
    #expect(call > 20)
  }
}
