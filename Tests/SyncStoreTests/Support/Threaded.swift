import Glibc
import SyncStore

/// A thread, started when the test says so.
final class Threaded: @unchecked Sendable {
  private var thread = pthread_t()
  private let body: @Sendable () -> Void

  init(_ body: @escaping @Sendable () -> Void) { self.body = body }

  func start() {
    unsafe pthread_create(
      &thread, nil,
      { argument in
        unsafe Unmanaged<Threaded>.fromOpaque(argument!).takeUnretainedValue().body()
        return nil
      }, unsafe Unmanaged.passUnretained(self).toOpaque())
  }

  func signal(_ number: Int32) { pthread_kill(thread, number) }

  func join() { pthread_join(thread, nil) }

  /// Runs `body` on that many threads, each with its number, to the end. Rethrows an error of any of them.
  static func run(_ count: Int, _ body: @escaping @Sendable (Int) throws -> Void) throws {
    let failure = Locked<(any Error)?>(nil)
    let threads = (0..<count).map { number in
      Threaded {
        do { try body(number) } catch { failure.withLock { $0 = error } }
      }
    }
    for thread in threads { thread.start() }
    for thread in threads { thread.join() }
    if let error = failure.withLock({ $0 }) { throw error }
  }
}
