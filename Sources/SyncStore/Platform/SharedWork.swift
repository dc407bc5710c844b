private import Glibc

/// Work that one thread does for all that wait for it: a sync makes durable what many have written. Who comes while it is
/// being done waits; when it is done, all it was done for go on at once, and one of the others does it again.
final class SharedWork: @unchecked Sendable {
  private let monitor = Monitor()
  // Under its lock.
  private var isRunning = false
  private var waiting = 0
  private var rounds = 0

  /// How often it was done.
  var count: Int { monitor.withLock { rounds } }

  /// Returns once `isDone`, by this thread's work or another's. What `work` throws is for the thread that does it; the
  /// others find out when they do it themselves.
  func wait(
    until isDone: () throws(StoreError) -> Bool, work: () throws(StoreError) -> Void
  ) throws(StoreError) {
    monitor.lock()
    while isRunning {
      waiting += 1
      monitor.wait()
      waiting -= 1
      if isRunning, try check(isDone) { return }
    }
    if try check(isDone) { return }
    isRunning = true
    let others = waiting
    monitor.unlock()
    defer {
      monitor.lock()
      isRunning = false
      rounds += 1
      monitor.notifyAll()
      monitor.unlock()
    }
    // Those that were just woken have something to add: better now than by another round.
    if others > 0 { sched_yield() }
    try work()
  }

  /// Is it done? If so, or if that cannot be told, the lock is given back.
  private func check(_ isDone: () throws(StoreError) -> Bool) throws(StoreError) -> Bool {
    do throws(StoreError) {
      guard try isDone() else { return false }
      monitor.unlock()
      return true
    } catch {
      monitor.unlock()
      throw error
    }
  }
}
