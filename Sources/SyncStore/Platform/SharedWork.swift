private import Glibc

/// Work that one thread does for all that wait for it: a sync makes durable what many have written. Who comes while it is
/// being done waits; when it is done, all it was done for go on at once, and one of the others does it again.
///
/// This is one of the few files that use `unsafe`: a condition variable is C's.
@safe final class SharedWork: @unchecked Sendable {
  private let mutex: UnsafeMutablePointer<pthread_mutex_t>
  private let condition: UnsafeMutablePointer<pthread_cond_t>
  // Under the mutex.
  private var isRunning = false
  private var waiting = 0
  private var rounds = 0

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

  /// How often it was done.
  var count: Int {
    unsafe pthread_mutex_lock(mutex)
    defer { unsafe pthread_mutex_unlock(mutex) }
    return rounds
  }

  /// Returns once `isDone`, by this thread's work or another's. What `work` throws is for the thread that does it; the
  /// others find out when they do it themselves.
  func wait(
    until isDone: () throws(StoreError) -> Bool, work: () throws(StoreError) -> Void
  ) throws(StoreError) {
    unsafe pthread_mutex_lock(mutex)
    while isRunning {
      waiting += 1
      unsafe pthread_cond_wait(condition, mutex)
      waiting -= 1
      if isRunning, try check(isDone) { return }
    }
    if try check(isDone) { return }
    isRunning = true
    let others = waiting
    unsafe pthread_mutex_unlock(mutex)
    defer {
      unsafe pthread_mutex_lock(mutex)
      isRunning = false
      rounds += 1
      unsafe pthread_cond_broadcast(condition)
      unsafe pthread_mutex_unlock(mutex)
    }
    // Those that were just woken have something to add: better now than by another round.
    if others > 0 { sched_yield() }
    try work()
  }

  /// Is it done? If so, or if that cannot be told, the mutex is given back.
  private func check(_ isDone: () throws(StoreError) -> Bool) throws(StoreError) -> Bool {
    do throws(StoreError) {
      guard try isDone() else { return false }
      unsafe pthread_mutex_unlock(mutex)
      return true
    } catch {
      unsafe pthread_mutex_unlock(mutex)
      throw error
    }
  }
}
