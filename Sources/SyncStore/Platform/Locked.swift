private import Glibc
private import Synchronization

/// A value and the lock that guards it, stored inline in the owning object.
///
/// Inline because each `Locked` is a type that the runtime has to instantiate at first use (decision 42), and
/// costs one more indirection to the lock. A pthread mutex rather than `Synchronization.Mutex`, whose futexes
/// the thread sanitizer does not see on Linux: it would report every guarded access as a race, and hide the
/// true ones among them.
@safe package struct LockedField<State: ~Copyable>: ~Copyable, @unchecked Sendable {
  private let mutex: UnsafeMutablePointer<pthread_mutex_t>
  /// Number of threads that sleep on the lock.
  private let waiting = Atomic(0)
  // Not a stored variable: the lock already gives exclusive access, and the runtime's exclusivity check would
  // repeat that at each access.
  private let state: UnsafeMutablePointer<State>
  /// Nil: not checked.
  private let rank: LockRank?

  /// Guards `state`. `rank` says which locks the thread may hold then, and which it may take under this one.
  package init(_ state: consuming sending State, rank: LockRank? = .leaf) {
    self.rank = rank
    unsafe mutex = .allocate(capacity: 1)
    unsafe pthread_mutex_init(mutex, nil)
    unsafe self.state = .allocate(capacity: 1)
    unsafe self.state.initialize(to: state)
  }

  deinit {
    unsafe state.deinitialize(count: 1)
    unsafe state.deallocate()
    unsafe pthread_mutex_destroy(mutex)
    unsafe mutex.deallocate()
  }

  /// Calls `body` with the value under the lock. Not reentrant.
  @inline(__always)
  package borrowing func withLock<Result, Failure: Error>(
    _ body: (inout State) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    rank?.willAcquire()
    if unsafe pthread_mutex_trylock(mutex) != 0 { lockContended() }
    defer {
      unsafe pthread_mutex_unlock(mutex)
      rank?.didRelease()
    }
    return try unsafe body(&state.pointee)
  }

  @inline(never)
  private borrowing func lockContended() {
    waiting.add(1, ordering: .relaxed)
    unsafe pthread_mutex_lock(mutex)
    waiting.subtract(1, ordering: .relaxed)
  }

  /// Sleeps until no thread waits for the lock, and at most about 1 ms.
  ///
  /// Call it between two acquisitions in a loop: the mutex is not fair, and a loop that reacquires it at once
  /// starves the waiters that are being woken.
  borrowing func yieldToWaiters() {
    var attempts = 0
    while attempts < 10, waiting.load(ordering: .relaxed) > 0 {
      SystemCall.sleep(microseconds: 50)
      attempts += 1
    }
  }

  /// Calls `body` under the lock if it is free; nil otherwise.
  @inline(__always)
  package borrowing func withLockIfFree<Result>(_ body: (inout State) -> Result) -> Result? {
    guard unsafe pthread_mutex_trylock(mutex) == 0 else { return nil }
    rank?.willAcquire()
    defer {
      unsafe pthread_mutex_unlock(mutex)
      rank?.didRelease()
    }
    return unsafe body(&state.pointee)
  }
}

/// A `LockedField` as an object, for shared ownership.
package final class Locked<State: ~Copyable>: Sendable {
  private let field: LockedField<State>

  /// Guards `state`. Its rank is not checked, unless one is given: it may belong to a program.
  package init(_ state: consuming sending State, rank: LockRank? = nil) {
    field = LockedField(state, rank: rank)
  }

  /// Calls `body` with the value under the lock. Not reentrant.
  @inline(__always)
  package func withLock<Result, Failure: Error>(
    _ body: (inout State) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    try field.withLock(body)
  }
}
