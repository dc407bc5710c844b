/// A type whose calls may block the calling thread: they wait for other writers, a sync or a disk.
///
/// Asynchronous code makes such calls inside `run`, which runs a closure on a thread of the library that may
/// block, never on one of the cooperative pool:
///
/// ```swift
/// let store = try await Store.run { try Store.open(at: path) }
/// let reclaimed = try await store.run { try $0.compact() }
/// await cache.run { $0.close() }
/// ```
///
/// Several calls in one closure cost one change of threads. A closure that does not name its error throws
/// `any Error`; `{ store throws(StoreError) in … }` keeps the type.
///
/// *Cancellation*: a task that is cancelled before the closure began gets `cancellationError`, and nothing
/// was done. A closure that has begun runs to its end.
///
/// **A closure whose error type cannot represent `cancellationError`, or that does not throw, always runs,**
/// even if the task was cancelled.
public protocol BlockingCalls: Sendable {
  /// The error for a task that was cancelled before its work began: a `StoreError` with `.cancelled`, unless
  /// the calls of the type throw another type of error.
  static var cancellationError: any Error { get }
}

extension BlockingCalls {
  /// A `StoreError` with `.cancelled`.
  public static var cancellationError: any Error { StoreError.taskCancelled }

  /// Runs calls of this value on a thread that may block. `body` runs on one thread, so calls that belong to
  /// a thread may be made in it, if it also ends what they begin.
  ///
  /// - Throws: what `body` throws; `cancellationError`, see `BlockingCalls`.
  @discardableResult
  public func run<Result: Sendable, Failure: Error>(
    _ body: @escaping @Sendable (Self) throws(Failure) -> Result
  ) async throws(Failure) -> Result {
    try await Self.run { () throws(Failure) in try body(self) }
  }

  /// Runs calls that need no value of this type, such as `Store.open`, on a thread that may block.
  ///
  /// - Throws: what `body` throws; `cancellationError`, see `BlockingCalls`.
  @discardableResult
  public static func run<Result: Sendable, Failure: Error>(
    _ body: @escaping @Sendable () throws(Failure) -> Result
  ) async throws(Failure) -> Result {
    let cancelled = cancellationError as? Failure
    let start = StartOrCancel()
    let result = await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        Background.runBlocking {
          if !start.begin(), let cancelled {
            return continuation.resume(returning: Swift.Result<Result, Failure>.failure(cancelled))
          }
          continuation.resume(returning: Swift.Result { () throws(Failure) in try body() })
        }
      }
    } onCancel: {
      start.cancel()
    }
    return try result.get()
  }
}

// `Store`, `Snapshot`, `StoreCollection` and `CollectionSnapshot` conform by `ReadableStore` and
// `ReadableCollection`.
extension StoreHandle: BlockingCalls {}
extension StoreRoot: BlockingCalls {}
extension Change: BlockingCalls {}
extension ValueReader: BlockingCalls {}

extension StoreError {
  /// The error for a task that was cancelled before its work began.
  package static let taskCancelled = StoreError(
    .cancelled, "the task was cancelled: nothing was done from there on")
}

/// Decides which came first: the beginning of the work or its cancellation.
final class StartOrCancel: Sendable {
  private let state = LockedField(State.open)

  private enum State { case open, begun, cancelled }

  /// Claims the beginning; false if the work was cancelled first.
  func begin() -> Bool {
    state.withLock { state in
      if state == .open { state = .begun }
      return state == .begun
    }
  }

  func cancel() {
    state.withLock { state in
      if state == .open { state = .cancelled }
    }
  }
}
