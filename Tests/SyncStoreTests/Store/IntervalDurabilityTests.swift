import Glibc
import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("A write to be durable within an interval")
struct IntervalDurabilityTests {
  let host = SimulatedHost()
  let plan = FaultPlan()

  /// One store in two processes; the first one's calls fail as planned.
  private func opened(_ milliseconds: Int) throws -> (one: Store, other: Store) {
    let configuration = host.configured(
      Configuration(mode: .shared, durability: .interval(milliseconds: milliseconds), segmentBytes: 64 << 10))
    try Store.create(on: host, configuration: configuration).close()
    let one = try Store.open(
      at: "/store", configuration: configuration,
      environment: host.environment(over: FaultingStorage(host.storage, plan: plan)))
    let other = try Store.open(at: "/store", configuration: configuration, environment: host.otherProcess)
    return (one, other)
  }

  private func waits(_ condition: () throws -> Bool) async throws -> Bool {
    for _ in 0..<1000 {
      if try condition() { return true }
      try await Task.sleep(for: .milliseconds(10))
    }
    return false
  }

  @Test("is synced without another call (F24)")
  func synced() async throws {
    let store = try Store.create(
      on: host, configuration: Configuration(durability: .interval(milliseconds: 20)))
    try store.put("k", "v")
    let tail = store.control.tail
    #expect(try await waits { store.control.durable >= tail })
    RotationTests.losePower(host)
    #expect(try Store.open(on: host).text("k") == "v")
  }

  @Test("is synced later if a sync could not begin for want of descriptors (F24, F33)")
  func triedAgain() async throws {
    let (one, other) = try opened(50)
    try one.put("k", "v")
    let tail = one.control.tail
    // A segment that the first one must open before it can sync.
    plan.fail(.open, on: ".segment", errno: EMFILE)
    for number in 0..<40 {
      try other.put(Key("\(number)"), [UInt8](repeating: 1, count: 4000), durability: .relaxed)
    }
    #expect(try await waits { one.control.durable >= tail })
    RotationTests.losePower(host)
    #expect(try Store.open(on: host).text("k") == "v")
  }

  @Test("that could not be synced fails the next write, and is never acknowledged (F24, F30)")
  func failed() async throws {
    let (one, _) = try opened(20)
    plan.fail(.sync, on: ".segment")
    try one.put("k", "v")
    #expect(try await waits { one.control.poisoned })
    #expect(#expect(throws: StoreError.self) { try one.put("l", "v") }?.code == .poisoned)
    #expect(#expect(throws: StoreError.self) { try one.sync() }?.code == .poisoned)
  }
}
