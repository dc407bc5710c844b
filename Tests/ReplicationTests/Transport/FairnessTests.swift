import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// Peers with much traffic, concurrent with peers with little.
@Suite("Fairness between peers", .timeLimit(.minutes(Patience.minutes(4))))
struct FairnessTests {
  private static let keys = 4000

  @Test("a live member gets new writes within few turns while eight others make their first copies")
  func firstCopies() async throws {
    let pool = WorkerPool(width: 8)
    let directory = TemporaryDirectory()
    let store = try Store.create(
      at: directory.path + "/store", name: "hub", configuration: TestCopy.configuration)
    try Node.prepare(store, name: "hub")
    // Several batches for each.
    for start in stride(from: 0, to: Self.keys, by: 1000) {
      try store.transaction { transaction in
        for number in start..<start + 1000 {
          try transaction.put(Key("key \(number)"), noise(900, seed: UInt64(number)))
        }
      }
    }
    let hub = try Node(
      store: store, configuration: Node.Configuration(), loop: try EventLoop.shared(), workers: pool)
    let address = try await hub.start(listen: Endpoint(host: "127.0.0.1", port: 0))
    let identity = try DeviceIdentity.generate()
    try Membership(store).put(
      Member(device: identity.id, name: "live", right: .readWrite, addresses: [], joined: 0))
    let members = LoopBound(ThinMembers(), to: try EventLoop.shared())
    try await ThinMember.connect(
      identity, to: address, store.id, try StoreKeys(store).groupKeys(), members)
    let arrived = Awaited<Int>()
    try await on(try EventLoop.shared()) {
      members.value.list[0].onRecords = { records in
        for record in records where record.record.key.starts(with: Array("news".utf8)) { arrived.put(1) }
      }
    }
    var copies: [TestCopy] = []
    for number in 0..<8 {
      copies.append(try await TestCopy.joined(try Node.invite(to: store), "greedy-\(number)"))
    }
    let before = pool.figures
    let isOver = Counter()
    try await withThrowingTaskGroup(of: Void.self) { group in
      for copy in copies {
        group.addTask {
          let report = try await copy.node.synchronize(with: "hub", direction: .pull)
          #expect(report.receivedRecords >= Self.keys)
          _ = isOver.next()
        }
      }
      var written = 0
      while isOver.count < copies.count {
        try store.put(Key("news \(written)"), [1])
        _ = try await arrived.take()
        written += 1
      }
      #expect(written > 0)
      try await group.waitForAll()
    }
    let figures = pool.figures
    #expect(figures.begun.ordinary - before.begun.ordinary > 8 * 4)
    // A thread is free for it: ordinary work never starts before it.
    #expect(figures.longestPromptWait <= 1)
    // Among themselves each waits for at most one piece of each other queue.
    #expect(figures.longestOrdinaryWait <= 4 * (copies.count + 1) + 8)
    await hub.stop()
  }

  @Test("sessions continue with one batch at a time while all together exceed the node's memory limit (F90)")
  func crowded() throws {
    var port = SessionPort(peerName: "slow")
    var half = SendingHalf()
    let close = RoundClose(
      sender: .random(), mark: RoundMark(high: 1, low: 2), position: 100, vector: VersionVector(),
      floor: VersionVector(), horizon: .zero)
    try half.open(
      for: RoundReceiver(cursor: nil, covered: VersionVector()), isHeld: false, &port)
    half.opened(records: 100, close: close, &port)
    half.pump(&port)
    half.batchEncrypted([UInt8](repeating: 0, count: 1 << 20), position: 10, records: 10, &port)
    port.actions = []
    // It has not been taken yet.
    port.isCrowded = true
    half.pump(&port)
    #expect(port.actions.isEmpty)
    port.queued = 0
    half.pump(&port)
    #expect(port.actions.count == 1)
    half.batchEncrypted([UInt8](repeating: 0, count: 1 << 20), position: 20, records: 10, &port)
    port.actions = []
    port.isCrowded = false
    half.pump(&port)
    #expect(port.actions.count == 1)

    let budget = FlowBudget()
    budget.held = Limits.nodeBytes
    #expect(!budget.isCrowded)
    budget.held += 1
    #expect(budget.isCrowded)
  }
}
