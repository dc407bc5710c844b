import Glibc
import SyncTestSupport
import Testing

@testable import Replication
@testable import SyncStore

/// How a node learns that its journal has grown while its store cannot be read.
@Suite("The watch over the journal", .timeLimit(.minutes(Patience.minutes(2))))
struct JournalWatchTests {
  @Test("notifies live sessions again after it could not watch for want of descriptors (F33)")
  func withoutDescriptors() async throws {
    let host = SimulatedHost(seed: 9, time: SystemCall.wallMilliseconds())
    let shared = host.configured(
      Configuration(mode: .shared, durability: .relaxed, segmentBytes: 64 << 10))
    let writer = try Store.create(on: host, configuration: shared)
    try Node.prepare(writer, name: "first")
    let refused = Locked(0)
    let isRefusing = Locked(false)
    let plan = FaultPlan { call, path in
      if call == .open, path.contains("/journal/"), isRefusing.withLock({ $0 }) {
        refused.withLock { $0 += 1 }
      }
    }
    var environment = host.otherProcess
    environment.storage = FaultingStorage(host.storage, plan: plan)
    let store = try Store.open(at: "/store", configuration: shared, environment: environment)
    let node = try Node(store: store, configuration: Node.Configuration())
    let address = try await node.start(listen: Endpoint(host: "127.0.0.1", port: 0))
    let client = try await TestCopy.joined(try Node.invite(to: store, addresses: [address]), "second")
    client.node.keepInStep(KeepPolicy(retry: 1...50))
    for await state in client.node.states(of: "first") where state.phase == .live { break }
    try writer.put("before", [1])
    try await until { try client.store.get("before") != nil }
    // The other process's local metadata takes no position: there is nothing to send, but a file to open.
    plan.fail(.open, on: "/journal/", forever: true, errno: EMFILE)
    isRefusing.withLock { $0 = true }
    for number in 0..<3 as Range<UInt8> {
      try writer.setLocal(Array("note".utf8), [UInt8](repeating: number, count: 40_000))
    }
    try await until { refused.withLock { $0 > 0 } }
    plan.clear()
    try await Task.sleep(for: .milliseconds(20))
    try writer.put("behind", [2])
    let patience = ContinuousClock.now + .seconds(10)
    try await until {
      let isHere = try client.store.get("behind") != nil
      return isHere || ContinuousClock.now > patience
    }
    #expect(try client.store.get("behind") != nil)
    await client.node.stop()
    await node.stop()
  }
}
