private import Glibc
private import Synchronization

/// A value and the lock that guards it, as a part of the object that owns it.
///
/// No object of its own: each `Locked` is a type that the runtime has to make when it is first met (decision 42), and one more step to
/// the lock. Over a pthread mutex rather than `Synchronization.Mutex`, whose futexes the thread sanitizer does not see on Linux: it would
/// report every guarded access as a race, and hide the true ones among them.
@safe package struct LockedField<State: ~Copyable>: ~Copyable, @unchecked Sendable {
  private let mutex: UnsafeMutablePointer<pthread_mutex_t>
  /// Threads that sleep until they get the lock.
  private let waiting = Atomic(0)
  // Not a stored variable: the lock alone decides who has it, a check at each access would do so again.
  private let state: UnsafeMutablePointer<State>

  /// Guards `state`.
  package init(_ state: consuming sending State) {
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

  /// Works on the value while nobody else can. Not reentrant.
  @inline(__always)
  package borrowing func withLock<Result, Failure: Error>(
    _ body: (inout State) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    if unsafe pthread_mutex_trylock(mutex) != 0 { lockContended() }
    defer { unsafe pthread_mutex_unlock(mutex) }
    return try unsafe body(&state.pointee)
  }

  @inline(never)
  private borrowing func lockContended() {
    waiting.add(1, ordering: .relaxed)
    unsafe pthread_mutex_lock(mutex)
    waiting.subtract(1, ordering: .relaxed)
  }

  /// Sleeps until no thread waits for the lock, and at most about 1 ms. Call it between two acquisitions in a
  /// loop: the mutex is not fair, and a loop that reacquires it at once starves the waiters that are being woken.
  borrowing func yieldToWaiters() {
    var attempts = 0
    while attempts < 10, waiting.load(ordering: .relaxed) > 0 {
      SystemCall.sleep(microseconds: 50)
      attempts += 1
    }
  }

  /// The same, if nobody else works on it at the moment; nil otherwise.
  @inline(__always)
  package borrowing func withLockIfFree<Result>(_ body: (inout State) -> Result) -> Result? {
    guard unsafe pthread_mutex_trylock(mutex) == 0 else { return nil }
    defer { unsafe pthread_mutex_unlock(mutex) }
    return unsafe body(&state.pointee)
  }
}

/// The same, as an object: for what several hold.
package final class Locked<State: ~Copyable>: Sendable {
  private let field: LockedField<State>

  /// Guards `state`.
  package init(_ state: consuming sending State) { field = LockedField(state) }

  /// Works on the value while nobody else can. Not reentrant.
  @inline(__always)
  package func withLock<Result, Failure: Error>(
    _ body: (inout State) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    try field.withLock(body)
  }
}
