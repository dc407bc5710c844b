import Glibc
import Synchronization

/// Work that one thread does for all that wait for it: a sync makes durable what many have written. Who comes while it is
/// being done waits; when it is done, all it was done for go on at once, and one of the others does it again.
final class GroupCommit: Sendable {
  private typealias Check = @Sendable () throws(StoreError) -> Bool
  private typealias Work = @Sendable () throws(StoreError) -> Void

  /// Who is told, rather than waiting.
  private struct Listener {
    var isDone: Check
    var work: Work
    var tell: @Sendable (StoreError?) -> Void
  }

  /// Odd while a thread is at it.
  private let leadership = EventCount()
  private let rounds = Atomic(0)
  private let listeners = LockedField<[Listener]>([])

  /// How often it was done.
  var count: Int { rounds.load(ordering: .relaxed) }

  /// Returns once `isDone`, by this thread's work or another's. What `work` throws is for the thread that does it; the
  /// others find out when they do it themselves.
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

  /// It is this thread's turn.
  private func lead(
    _ turn: UInt32, isDone: () throws(StoreError) -> Bool, work: () throws(StoreError) -> Void
  ) throws(StoreError) {
    // A thread that were cancelled in the work would leave the turn to nobody.
    try SystemCall.uncancelled { () throws(StoreError) in
      defer { end(turn) }
      if try isDone() { return }
      try leadUncancelled(work)
    }
  }

  private func leadUncancelled(_ work: () throws(StoreError) -> Void) throws(StoreError) {
    // Those that were just woken have something to add: better now than by another round.
    if leadership.waiting > 0 { sched_yield() }
    defer { rounds.add(1, ordering: .relaxed) }
    try work()
  }

  /// The same without waiting for another thread that is at it: that one calls `then`, once, when it is done, or with the
  /// reason why it will not be. Where nobody is at it, this thread does the work, and `then` was called when this returns.
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

  /// The turn is over. Who is told is told first: whoever waits will be woken by the kernel, and takes longer.
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
          // It came too late for this round. The thread that did it has its own to do.
          Background.runBlocking { self.finish(listener) }
        }
      } catch {
        listener.tell(error)
      }
    }
  }
}
