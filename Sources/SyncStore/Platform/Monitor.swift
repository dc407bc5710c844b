private import Glibc

/// A mutex with a condition variable.
///
/// This is one of the few files that use `unsafe`: mutex and condition variable are C's.
@safe final class Monitor: @unchecked Sendable {
  private let mutex: UnsafeMutablePointer<pthread_mutex_t>
  private let condition: UnsafeMutablePointer<pthread_cond_t>

  init() {
    unsafe mutex = .allocate(capacity: 1)
    unsafe condition = .allocate(capacity: 1)
    unsafe pthread_mutex_init(mutex, nil)
    unsafe pthread_cond_init(condition, nil)
  }

  deinit {
    unsafe pthread_cond_destroy(condition)
    unsafe pthread_mutex_destroy(mutex)
    unsafe condition.deallocate()
    unsafe mutex.deallocate()
  }

  func lock() { unsafe pthread_mutex_lock(mutex) }

  func unlock() { unsafe pthread_mutex_unlock(mutex) }

  /// Releases the lock until `notifyAll`, or spuriously: the caller must check its condition again.
  func wait() { SystemCall.uncancelled { _ = unsafe pthread_cond_wait(condition, mutex) } }

  /// Wakes all waiters.
  func notifyAll() { unsafe pthread_cond_broadcast(condition) }

  func withLock<Result>(_ body: () -> Result) -> Result {
    lock()
    defer { unlock() }
    return body()
  }
}
