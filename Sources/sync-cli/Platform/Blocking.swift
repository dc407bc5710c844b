private import SyncStore
private import Dispatch

/// Runs `body` on the runtime's threads and blocks until it is done. Only for the main thread: blocking the
/// runtime's own threads could deadlock.
func blocking<Value: Sendable>(_ body: @escaping @Sendable () async throws -> Value) throws -> Value {
  let answer = Answer<Value>()
  Task {
    do { answer.resolve(.success(try await body())) } catch { answer.resolve(.failure(error)) }
  }
  return try answer.wait().get()
}

private final class Answer<Value: Sendable>: Sendable {
  private let result = LockedField<Result<Value, any Error>?>(nil)
  private let given = DispatchSemaphore(value: 0)

  func resolve(_ answer: Result<Value, any Error>) {
    result.withLock { $0 = answer }
    given.signal()
  }

  func wait() -> Result<Value, any Error> {
    while true {
      given.wait()
      if let answer = result.withLock({ $0 }) { return answer }
    }
  }
}
