import Glibc
import Synchronization
import SyncTestSupport
import Testing

@testable import SyncStore

/// A store with enough keys that closing records its index as complete, while others are about to write.
@Suite("Closing a store with many keys")
struct ClosingTests {
  private static let configuration = Configuration(durability: .relaxed, segmentBytes: 64 << 10)
  private static let count = 2000

  private let host = SimulatedHost(compacting: .onRequest)
  private let plan = FaultPlan()

  /// A store whose first segments are partly dead, in an environment whose calls `plan` sees.
  private func store(betweenAdoptions: (@Sendable () -> Void)? = nil) throws -> Store {
    try Store.create(on: host, configuration: Self.configuration).close()
    var environment = host.environment(over: FaultingStorage(host.storage, plan: plan))
    environment.onInstallYield = betweenAdoptions
    let store = try Store.open(
      at: "/store", configuration: host.configured(Self.configuration), environment: environment)
    store.core.keysWorthClosing.store(1000, ordering: .relaxed)
    for part in [0, 0, 1, 2, 3] {
      try store.transaction { transaction in
        for number in (part * Self.count / 4)..<((part + 1) * Self.count / 4) {
          try transaction.put(Key("\(number)"), [1])
        }
      }
    }
    return store
  }

  /// Waits a while for the condition.
  private static func wait(milliseconds: Int = 100, until isSo: () -> Bool) {
    for _ in 0..<(milliseconds * 10) where !isSo() { usleep(100) }
  }

  private static func isIndexClosed(_ store: Store) -> Bool {
    store.core.engine.withLock { !$0.index.hashIndex.isWriting }
  }

  /// Opens it after a power loss that drops everything that is not durable.
  private func openAfterLoss() throws -> Store {
    RotationTests.losePower(host)
    let again = try Store.open(on: host, configuration: Self.configuration)
    #expect(try again.verify().isClean)
    return again
  }

  @Test("marks the index as complete: it is trusted after a loss of power")
  func marksIndexComplete() throws {
    let store = try store()
    try store.close()
    let again = try openAfterLoss()
    #expect(again.core.engine.withLock { $0.status.isRestored })
    #expect(try again.status().keys == Self.count)
  }

  @Test("gives a later sync of large values a typed error, and does not poison the store")
  func laterSync() throws {
    let store = try store()
    try store.put("large", pattern(40_000))
    try store.sync()
    try store.put("large", pattern(50_000))
    // As in a close whose last sync came before that.
    store.core.closed.store(true, ordering: .releasing)
    for sync in [{ try store.sync(upTo: store.control.tail) }, { try store.blobTier.syncBlobs() }] {
      #expect(throws: StoreError.self) { try sync() }.map { #expect($0.code == .closed) }
    }
    #expect(!store.control.poisoned)
    store.core.closed.store(false, ordering: .releasing)
    try store.close()
    #expect(try openAfterLoss().get("large")?.bytes == pattern(50_000))
  }

  @Test("waits for another thread's sync, so that its result does not count for a later instance")
  func syncUnderWay() throws {
    let store = try store()
    try store.put("large", pattern(40_000))
    let (isHeld, isClosed) = (Locked(false), Locked(false))
    let closer = Threaded {
      try? store.close()
      isClosed.withLock { $0 = true }
    }
    plan.before(.sync, of: ".pack") {
      // Closing then makes nothing durable, and would not wait for it.
      store.control.setPoisoned()
      closer.start()
      Self.wait { isClosed.withLock { $0 } }
      isHeld.withLock { $0 = !isClosed.withLock { $0 } }
    }
    #expect(throws: StoreError.self) { try store.sync() }
    closer.join()
    #expect(isHeld.withLock { $0 } && isClosed.withLock { $0 })
  }

  @Test("lets a running transaction finish, and then does not mark the index as complete")
  func transactionUnderWay() throws {
    let store = try store()
    let isInside = Locked(false)
    let writer = Threaded {
      try? store.transaction { transaction in
        isInside.withLock { $0 = true }
        Self.wait { Self.isIndexClosed(store) }
        try transaction.put("late", [1])
      }
    }
    plan.before(.lock, of: "control") {
      writer.start()
      Self.wait { isInside.withLock { $0 } }
    }
    try store.close()
    writer.join()
    host.killProcesses()
    let again = try Store.open(on: host, configuration: Self.configuration)
    #expect(try again.get("late")?.bytes == [1])
    #expect(try again.status().keys == Self.count + 1 && again.verify().isClean)
  }

  @Test("does not mark an index as complete that names records which are not durable")
  func lateRecord() throws {
    let store = try store()
    // Everything that follows must be in one segment.
    while Location(packed: store.control.tail).offset > 32 << 10 {
      try store.put("0", [UInt8](repeating: 1, count: 15_000))
    }
    let late = Locked(Location(segment: 0, offset: 0))
    // Stored after the last bytes were made durable, and before their end is read.
    plan.before(.lock, of: "control") {
      try? store.put("unsynced", "x")
      plan.before(.fileStatus, of: "next.new") {
        late.withLock { $0 = Location(packed: store.control.tail) }
        for (key, bytes) in [("late", 15_000), ("later", 1)] as [(Key, Int)] {
          try? store.put(key, [UInt8](repeating: 1, count: bytes))
        }
      }
    }
    try store.close()
    // Of the late ones only the last reaches the disk.
    let (segment, page) = late.withLock { (SegmentName($0.segment).text, $0.offset / 4096 + 2) }
    #expect(page > 2, "they were stored")
    RotationTests.losePower(host) { $0.hasSuffix(segment) && $1 > page }
    let again = try Store.open(on: host, configuration: Self.configuration)
    #expect(try again.get("late") == nil && again.get("later") == nil)
    #expect(try again.status().keys == Self.count + 1 && again.text("unsynced") == "x")
    #expect(try again.verify().isClean)
  }

  @Test("stops a compaction that is updating the index, which the next one completes")
  func compactionUnderWay() throws {
    let closing = Locked<Threaded?>(nil)
    let opened = Locked<Store?>(nil)
    let store = try self.store {
      guard let store = opened.withLock({ $0 }) else { return }
      let closer = closing.withLock { closing -> Threaded? in
        guard closing == nil else { return nil }
        closing = Threaded { try? store.close() }
        return closing
      }
      closer?.start()
      Self.wait(milliseconds: 5000) { (try? store.checkOpen()) == nil || Self.isIndexClosed(store) }
    }
    opened.withLock { $0 = store }
    #expect(code { try store.compact() } == .closed)
    closing.withLock { $0 }?.join()
    opened.withLock { $0 = nil }
    let again = try openAfterLoss()
    #expect(again.core.engine.withLock { $0.status.isRestored })
    #expect(try again.status().keys == Self.count)
    try again.compact()
    #expect(try again.status().keys == Self.count && again.verify().isClean)
  }
}
