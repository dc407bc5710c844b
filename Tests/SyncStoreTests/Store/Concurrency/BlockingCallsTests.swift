import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Blocking calls in tasks", .timeLimit(.minutes(Patience.minutes(1))))
struct BlockingCallsTests {
  private struct OwnError: Error {}

  private let store: Store

  init() throws { store = try Store.create(on: SimulatedHost()) }

  /// The error that the work throws in a task that was cancelled before it.
  private static func errorIfCancelled(
    _ work: @escaping @Sendable () async throws -> Void
  ) async -> (any Error)? {
    await Task {
      unsafe withUnsafeCurrentTask { unsafe $0?.cancel() }
      do {
        try await work()
        return nil
      } catch {
        return error
      }
    }.value
  }

  @Test("throw the error type that the closure names")
  func errors() async throws {
    do throws(StoreError) {
      try await store.run { store throws(StoreError) in try store.put("k", 1) }
      let path = store.path
      _ = try await Store.run { () throws(StoreError) in try Store.open(at: path + "/none") }
      Issue.record("a store that does not exist was opened")
    } catch {
      #expect(error.code == .notAStore)
    }
    await #expect(throws: OwnError.self) { try await store.run { _ in throw OwnError() } }
    let isClosed = await store.run { store in (try? store.close()) != nil }
    #expect(isClosed)
  }

  @Test("do nothing in a task that was cancelled before, and say so")
  func cancelled() async throws {
    let store = store
    let typed = await Self.errorIfCancelled {
      try await store.run { store throws(StoreError) in try store.put("k", 1) }
    }
    #expect((typed as? StoreError)?.code == .cancelled)
    let untyped = await Self.errorIfCancelled {
      try await store.run { store in
        try store.put("k", 1)
        throw OwnError()
      }
    }
    #expect((untyped as? StoreError)?.code == .cancelled)
    #expect(try store.get("k") == nil)
  }

  @Test("run in a cancelled task if the closure cannot throw the cancellation")
  func notCancellable() async throws {
    let store = store
    let own = await Self.errorIfCancelled {
      try await store.run { store throws(OwnError) in
        do { try store.put("k", 1) } catch { throw OwnError() }
        throw OwnError()
      }
    }
    #expect(own is OwnError)
    #expect(try store.get("k", as: Int.self) == 1)
    let closing = await Self.errorIfCancelled { try await AsyncStore(store).close() }
    #expect(closing == nil)
    #expect(throws: StoreError.self) { try store.put("k", 2) }
  }

  @Test("that have begun run to their end when the task is cancelled")
  func begun() async throws {
    let (begun, goesOn) = (Locked(false), Locked(false))
    let store = store
    let task = Task {
      try await store.run { store in
        begun.withLock { $0 = true }
        while !goesOn.withLock({ $0 }) {}
        try store.put("k", 1)
      }
    }
    try await ChangesTests.until { begun.withLock { $0 } }
    task.cancel()
    goesOn.withLock { $0 = true }
    try await task.value
    #expect(try store.get("k", as: Int.self) == 1)
  }
}
