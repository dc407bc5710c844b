private import SyncStore
private import Dispatch

/// Runs `body` on the runtime's threads and blocks until it is done. Only for the main thread: blocking the
/// runtime's own threads could deadlock. A stop cancels the task.
func blocking<Value: Sendable>(
  until stop: StopRequest? = nil, _ body: @escaping @Sendable () async throws -> Value
) throws -> Value {
  let answer = Answer<Value>()
  let task = Task {
    do { answer.resolve(.success(try await body())) } catch { answer.resolve(.failure(error)) }
  }
  return try (stop?.reacting(task.cancel, during: answer.wait) ?? answer.wait()).get()
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
