private import Glibc

/// Lets any number of threads use something, or one keep all others out. A thread that is in may enter again.
///
/// This is one of the few files that use `unsafe`: a condition variable is C's.
@safe final class Gate: @unchecked Sendable {
  private let mutex: UnsafeMutablePointer<pthread_mutex_t>
  private let condition: UnsafeMutablePointer<pthread_cond_t>
  // Under the mutex.
  private var inside: [UInt: Int] = [:]
  /// Who has shut it, while it is shut.
  private var owner: UInt?

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

  private static var thread: UInt { UInt(pthread_self()) }

  /// Is it shut, or being shut?
  var isShut: Bool { locked { owner != nil } }

  /// Waits while it is shut. False, at once, for the thread that has shut it: it would wait for itself.
  func enter() -> Bool {
    let thread = Self.thread
    return locked {
      while owner != nil, inside[thread] == nil {
        if owner == thread { return false }
        unsafe pthread_cond_wait(condition, mutex)
      }
      inside[thread, default: 0] += 1
      return true
    }
  }

  /// Once for each `enter`, by the same thread.
  func leave() {
    let thread = Self.thread
    locked {
      let count = (inside[thread] ?? 0) - 1
      inside[thread] = count > 0 ? count : nil
      if inside.isEmpty { unsafe pthread_cond_broadcast(condition) }
    }
  }

  /// Lets nobody in any more and waits until all have left. False, at once, for a thread that is in, or has shut it.
  func shut() -> Bool {
    let thread = Self.thread
    return locked {
      if inside[thread] != nil || owner == thread { return false }
      while owner != nil { unsafe pthread_cond_wait(condition, mutex) }
      owner = thread
      while !inside.isEmpty { unsafe pthread_cond_wait(condition, mutex) }
      return true
    }
  }

  /// Lets them in again. By any thread; does nothing if it is open.
  func open() {
    locked {
      owner = nil
      unsafe pthread_cond_broadcast(condition)
    }
  }

  private func locked<Result>(_ body: () -> Result) -> Result {
    unsafe pthread_mutex_lock(mutex)
    defer { unsafe pthread_mutex_unlock(mutex) }
    return body()
  }
}
