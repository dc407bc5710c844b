private import SyncStore
private import Dispatch

/// Runs `body` on the runtime's threads and blocks until it is done. Only for the main thread: blocking the
/// runtime's own threads could deadlock. A stop cancels the task, and its end is awaited.
///
/// Without `stop`, the interruption of a command in a shell does not wait for the end of the task, which may
/// be a connection to a peer that does not answer: the command closes its store, and the task fails.
func blocking<Value: Sendable>(
  until stop: StopRequest? = nil, _ body: @escaping @Sendable () async throws -> Value
) throws -> Value {
  let answer = Answer<Value>()
  let task = Task {
    do { answer.resolve(.success(try await body())) } catch { answer.resolve(.failure(error)) }
  }
  if let stop { return try stop.reacting(task.cancel, during: answer.wait).get() }
  guard let interruption = Interruption.request else { return try answer.wait().get() }
  let abandon: @Sendable () -> Void = {
    task.cancel()
    answer.resolve(.failure(Failure.interrupted))
  }
  return try interruption.reacting(abandon, during: answer.wait).get()
}

private final class Answer<Value: Sendable>: Sendable {
  private let result = LockedField<Result<Value, any Error>?>(nil)
  private let given = DispatchSemaphore(value: 0)

  /// Sets the result, unless there is one.
  func resolve(_ answer: Result<Value, any Error>) {
    result.withLock { $0 = $0 ?? answer }
    given.signal()
  }

  func wait() -> Result<Value, any Error> {
    while true {
      given.wait()
      if let answer = result.withLock({ $0 }) { return answer }
    }
  }
}
