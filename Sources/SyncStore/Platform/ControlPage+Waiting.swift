private import CLinux
private import Synchronization

/// Waiting for the journal to grow. One word of the page says that a thread waits and, if there is only one,
/// which.
///
/// A writer without waiters only loads that word, and a sole waiter that waits for its own writes need not be
/// woken through the page.
///
/// This is one of the few files that use `unsafe`: the kernel wakes threads that sleep at an address
/// (futex(2)).
extension ControlPage {
  /// More than one thread waits.
  private static let multipleWaiters = UInt32.max

  /// Both halves are set, so that the futex compares a non-zero half on either byte order.
  private static func word(_ name: UInt32) -> UInt64 { UInt64(name) << 32 | UInt64(name) }

  /// Whether a thread of any process waits.
  @inline(__always)
  var hasWaiters: Bool { mapping.withAtomic(Field.waiters) { $0.load(ordering: .relaxed) } != 0 }

  /// Registers `name`, neither zero nor the greatest number, as waiting. Returns the value that `waitOnFutex`
  /// expects.
  ///
  /// The caller must check for new records afterwards: those appended before the call woke no waiter.
  @discardableResult
  func registerWaiter(_ name: UInt32) -> UInt32 {
    mapping.withAtomic(Field.waiters) { word in
      var seen = word.load(ordering: .relaxed)
      while true {
        let next = seen == 0 || seen == Self.word(name) ? Self.word(name) : Self.word(Self.multipleWaiters)
        let (exchanged, original) = word.compareExchange(
          expected: seen, desired: next, ordering: .sequentiallyConsistent)
        if exchanged { return UInt32(truncatingIfNeeded: next) }
        seen = original
      }
    }
  }

  /// Clears the word and wakes all waiters, except `name` if it waits alone: the caller then wakes it.
  func wakeWaiters(except name: UInt32) {
    let before = mapping.withAtomic(Field.waiters) {
      $0.exchange(0, ordering: .sequentiallyConsistent)
    }
    guard before != Self.word(name) else { return }
    unsafe mapping.withPointer(Field.waiters, to: UInt32.self) { unsafe sync_futex_wake($0) }
  }

  /// Sleeps until the waiters are woken, at most `milliseconds`. Returns at once if the waiters have changed
  /// since `announced`.
  func waitOnFutex(expecting announced: UInt32, milliseconds: Int) {
    unsafe mapping.withPointer(Field.waiters, to: UInt32.self) {
      unsafe sync_futex_wait($0, announced, Int32(milliseconds))
    }
  }

  // MARK: Writers' mutex

  /// Waits briefly for another writer, woken when this thread released the mutex, to write; it may have found
  /// nothing to write.
  func yieldToWriters() {
    let tail = tail
    for _ in 0..<50 where self.tail == tail { SystemCall.sleep(microseconds: 20) }
  }
}
