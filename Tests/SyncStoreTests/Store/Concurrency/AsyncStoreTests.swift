import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("A store for asynchronous code", .timeLimit(.minutes(Patience.minutes(1))))
struct AsyncStoreTests {
  let host = SimulatedHost(compacting: .onRequest)

  @Test("puts for any number of tasks, which share syncs")
  func puts() async throws {
    let store = try Store.create(on: host)
    let writer = AsyncStore(store)
    let syncs = store.syncCount
    try await withThrowingTaskGroup(of: Void.self) { group in
      for number in 0..<500 {
        group.addTask { try await writer.put(Key("\(number)"), [UInt8(number % 251)]) }
      }
      try await group.waitForAll()
    }
    #expect(store.syncCount - syncs < 250)
    host.losePower(seed: 1)
    let again = try Store.open(on: host)
    #expect(try again.list().count == 500)
  }

  @Test("offers writes, transactions, and all other calls of the store inside run")
  func all() async throws {
    let directory = TemporaryDirectory()
    let store = try await AsyncStore.create(at: directory.path + "/store")
    try await store.put("a", Int64(5))
    try await store.put("large", [UInt8](repeating: 7, count: 30_000))
    #expect(try await store.delete("nothing") == false)
    #expect(try await store.expire("a", .after(.hour)))
    let sum = try await store.transaction { transaction in
      try transaction.put("b", [1])
      return try transaction.get("a", as: Int64.self).map { $0 + 1 }
    }
    #expect(sum == 6)
    let number = Locked(0)
    let report = try await store.pausableTransaction { transaction in
      let next = number.withLock { number in
        number += 1
        return number
      }
      try transaction.put(Key("step \(next)"), [1])
      return next < 3 ? .next : .done
    }
    #expect(report.steps == 3)
    let counts = try await store.run { store in
      try store.compact()
      return (try store.snapshot().count, try store.verify().isClean)
    }
    #expect(counts == (6, true))
    try await store.close()
    await #expect(throws: StoreError.self) { try await store.put("late", [1]) }
    await #expect(throws: StoreError.self) { try await store.run { try $0.sync() } }
    let again = try await AsyncStore.open(at: directory.path + "/store")
    #expect(try await again.run { try $0.list() }.count == 6)
    try await again.close()
  }

  @Test("does not start an operation that was cancelled before, and says so")
  func cancelled() async throws {
    let store = try Store.create(on: host)
    let writer = AsyncStore(store)
    let task = Task { () -> [StoreError.Code?] in
      unsafe withUnsafeCurrentTask { unsafe $0?.cancel() }
      var codes: [StoreError.Code?] = []
      for durability in [Durability.full, .relaxed] {
        do throws(StoreError) {
          try await writer.put("k", [1], durability: durability)
          codes.append(nil)
        } catch {
          codes.append(error.code)
        }
      }
      return codes
    }
    #expect(await task.value == [.cancelled, .cancelled])
    #expect(try store.get("k") == nil)
  }

  @Test("ends a pausable transaction between two steps when the task is cancelled")
  func cancelledSteps() async throws {
    let store = try Store.create(on: host, configuration: PausableTransactionTests.relaxed)
    let steps = Locked(0)
    let task = Task { () -> StoreError.Code? in
      do {
        try await AsyncStore(store).pausableTransaction { transaction in
          try transaction.put("count", Int64(steps.withLock { $0 + 1 }))
          steps.withLock { $0 += 1 }
          return .next
        }
        return nil
      } catch {
        return (error as? StoreError)?.code
      }
    }
    try await ChangesTests.until { steps.withLock { $0 } > 3 }
    task.cancel()
    #expect(await task.value == .cancelled)
    let done = steps.withLock { $0 }
    #expect(try store.get("count", as: Int64.self) == Int64(done))
  }

  @Test(
    "waits without a pool thread: with more waiting tasks than threads, another task still runs"
  )
  func pool() async throws {
    let store = try Store.create(on: host)
    var open = Optional(try Self.begin(store))
    let writers = (0..<64).map { number in
      Task { try await AsyncStore(store).put(Key("\(number)"), [1], durability: .relaxed) }
    }
    // Runs on the pool that they would fill.
    #expect(await Task.detached { 42 }.value == 42)
    try await ChangesTests.until { store.control.isContended }
    #expect(await Task.detached { 43 }.value == 43)
    open?.end()
    open = nil
    for writer in writers { try await writer.value }
    #expect(try store.list().count == 64)
  }

  /// A thread that holds the writers' mutex until it is told to end.
  final class Holder: Sendable {
    private let isEnding = Locked(false)
    private let thread: Threaded

    init(_ store: Store) {
      let (begun, isEnding) = (Locked(false), isEnding)
      thread = Threaded {
        try? store.transaction { _ in
          begun.withLock { $0 = true }
          while !isEnding.withLock({ $0 }) {}
        }
      }
      thread.start()
      while !begun.withLock({ $0 }) {}
    }

    func end() {
      isEnding.withLock { $0 = true }
      thread.join()
    }
  }

  static func begin(_ store: Store) throws -> Holder { Holder(store) }
}
