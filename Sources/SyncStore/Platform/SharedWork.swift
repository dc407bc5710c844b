import Glibc

/// Work that one thread does for all that wait for it: a sync makes durable what many have written. Who comes while it is
/// being done waits; when it is done, all it was done for go on at once, and one of the others does it again.
final class SharedWork: @unchecked Sendable {
  private typealias Check = @Sendable () throws(StoreError) -> Bool
  private typealias Work = @Sendable () throws(StoreError) -> Void

  /// Who is told, rather than waiting.
  private struct Listener {
    var isDone: Check
    var work: Work
    var tell: @Sendable (StoreError?) -> Void
  }

  private let monitor = Monitor()
  // Under its lock.
  private var isRunning = false
  private var waiting = 0
  private var rounds = 0
  private var listeners: [Listener] = []

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
    defer { end() }
    // Those that were just woken have something to add: better now than by another round.
    if others > 0 { sched_yield() }
    try work()
  }

  /// The same without waiting for another thread that is at it: that one calls `then`, once, when it is done, or with the
  /// reason why it will not be. Where nobody is at it, this thread does the work, and `then` was called when this returns.
  func whenDone(
    until isDone: @escaping @Sendable () throws(StoreError) -> Bool,
    work: @escaping @Sendable () throws(StoreError) -> Void,
    then tell: @escaping @Sendable (StoreError?) -> Void
  ) {
    let isLeft = monitor.withLock {
      if isRunning { listeners.append(Listener(isDone: isDone, work: work, tell: tell)) }
      return isRunning
    }
    if !isLeft { finish(Listener(isDone: isDone, work: work, tell: tell)) }
  }

  private func finish(_ listener: Listener) {
    do throws(StoreError) {
      try wait(until: listener.isDone, work: listener.work)
      listener.tell(nil)
    } catch {
      listener.tell(error)
    }
  }

  /// A round is over. Who is told is told first: whoever waits will be woken by the kernel, and takes longer.
  private func end() {
    tell(monitor.withLock { takeListeners() })
    monitor.lock()
    isRunning = false
    rounds += 1
    let late = takeListeners()
    monitor.notifyAll()
    monitor.unlock()
    tell(late)
  }

  private func takeListeners() -> [Listener] {
    defer { listeners = [] }
    return listeners
  }

  private func tell(_ listeners: [Listener]) {
    for listener in listeners {
      do throws(StoreError) {
        if try listener.isDone() {
          listener.tell(nil)
        } else {
          // It came too late for this round. The thread that did it has its own to do.
          Background.block { self.finish(listener) }
        }
      } catch {
        listener.tell(error)
      }
    }
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
