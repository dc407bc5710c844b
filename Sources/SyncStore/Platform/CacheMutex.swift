private import Glibc

/// A mutex that inlined code in other modules can lock, separate from the data it guards.
///
/// This is one of the few files that use `unsafe`: the mutex is C's.
@safe @usableFromInline final class CacheMutex: @unchecked Sendable {
  private let mutex: UnsafeMutablePointer<pthread_mutex_t>

  init() {
    unsafe mutex = .allocate(capacity: 1)
    unsafe pthread_mutex_init(mutex, nil)
  }

  deinit {
    unsafe pthread_mutex_destroy(mutex)
    unsafe mutex.deallocate()
  }

  @usableFromInline func lock() { unsafe pthread_mutex_lock(mutex) }

  @usableFromInline func unlock() { unsafe pthread_mutex_unlock(mutex) }
}
