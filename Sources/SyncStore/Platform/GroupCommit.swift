import Glibc
import Synchronization

/// Group commit: one thread runs the sync for all waiters. Threads that arrive during the sync wait; the next
/// waiter leads the next round.
final class GroupCommit: Sendable {
  private typealias Check = @Sendable () throws(StoreError) -> Bool
  private typealias Work = @Sendable () throws(StoreError) -> Void

  /// An asynchronous waiter: a callback instead of a blocked thread.
  private struct Listener {
    var isDone: Check
    var work: Work
    var tell: @Sendable (StoreError?) -> Void
  }

  /// Odd while a thread leads.
  private let leadership = EventCount()
  private let rounds = Atomic(0)
  private let listeners = LockedField<[Listener]>([])

  /// Number of rounds.
  var count: Int { rounds.load(ordering: .relaxed) }

  /// Returns once `isDone`, by this thread's work or another's. An error of `work` is thrown only in the
  /// thread that ran it; the other waiters meet it when they lead.
  func wait(
    until isDone: () throws(StoreError) -> Bool, work: () throws(StoreError) -> Void
  ) throws(StoreError) {
    while true {
      let turn = leadership.value
      if turn & 1 == 0 {
        if leadership.advance(from: turn) { return try lead(turn &+ 1, isDone: isDone, work: work) }
      } else {
        leadership.wait(while: turn)
        if try isDone() { return }
      }
    }
  }

  /// Runs one round as leader.
  private func lead(
    _ turn: UInt32, isDone: () throws(StoreError) -> Bool, work: () throws(StoreError) -> Void
  ) throws(StoreError) {
    // A thread cancelled in the work would never end its round, and all waiters would hang.
    try SystemCall.uncancelled { () throws(StoreError) in
      defer { end(turn) }
      if try isDone() { return }
      try leadUncancelled(work)
    }
  }

  private func leadUncancelled(_ work: () throws(StoreError) -> Void) throws(StoreError) {
    // Threads just woken have more to add: let them write first, which saves another round.
    if leadership.waiting > 0 { sched_yield() }
    defer { rounds.add(1, ordering: .relaxed) }
    try work()
  }

  /// Asynchronous form of `wait`. While another thread leads, that thread calls `then`, once, when the work
  /// is done, or with the error that prevents it. Otherwise this thread does the work, and `then` has been
  /// called on return.
  func whenDone(
    until isDone: @escaping @Sendable () throws(StoreError) -> Bool,
    work: @escaping @Sendable () throws(StoreError) -> Void,
    then tell: @escaping @Sendable (StoreError?) -> Void
  ) {
    let isLeft = listeners.withLock { listeners in
      guard leadership.value & 1 != 0 else { return false }
      listeners.append(Listener(isDone: isDone, work: work, tell: tell))
      return true
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

  /// Ends the round. Callbacks run before the waiting threads are woken, which takes longer.
  private func end(_ turn: UInt32) {
    tell(listeners.withLock { exchange(&$0, with: []) })
    let late = listeners.withLock { listeners in
      _ = leadership.advance(from: turn)
      return exchange(&listeners, with: [])
    }
    leadership.wakeAll()
    tell(late)
  }

  private func tell(_ listeners: [Listener]) {
    for listener in listeners {
      do throws(StoreError) {
        if try listener.isDone() {
          listener.tell(nil)
        } else {
          // It arrived too late for this round. The leader has its own work to do.
          Background.runBlocking { self.finish(listener) }
        }
      } catch {
        listener.tell(error)
      }
    }
  }
}
