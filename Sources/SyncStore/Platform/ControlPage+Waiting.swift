private import CLinux
private import Synchronization

/// Waiting for the journal to grow. One word of the page says that somebody waits, and who, as long as it is one alone: all
/// that a writer does for nobody is to load it, and who alone waits for its own writes need not be woken through the page.
///
/// This is one of the few files that use `unsafe`: the kernel wakes those who sleep at an address (futex(2)).
extension ControlPage {
  /// More than one waits.
  private static let multipleWaiters = UInt32.max

  /// Both halves are set: whichever the kernel looks at, it is not zero.
  private static func word(_ name: UInt32) -> UInt64 { UInt64(name) << 32 | UInt64(name) }

  /// Does anybody wait, in any process?
  @inline(__always)
  var hasWaiters: Bool { mapping.withAtomic(Field.waiters) { $0.load(ordering: .relaxed) } != 0 }

  /// From now on `name` waits, which is neither zero nor the greatest number. Who says so looks afterwards whether there is
  /// anything new. Returns what `sleep` takes.
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

  /// Nobody waits any more: they are all woken, but for `name`, if it waits alone: who calls it sees to that itself.
  func wakeWaiters(except name: UInt32) {
    let before = mapping.withAtomic(Field.waiters) {
      $0.exchange(0, ordering: .sequentiallyConsistent)
    }
    guard before != Self.word(name) else { return }
    unsafe mapping.withPointer(Field.waiters, to: UInt32.self) { unsafe sync_futex_wake($0) }
  }

  /// Sleeps until those who wait are woken, and at most so long; not at all if others wait by now than those that were
  /// `announced`.
  func waitOnFutex(expecting announced: UInt32, milliseconds: Int) {
    unsafe mapping.withPointer(Field.waiters, to: UInt32.self) {
      unsafe sync_futex_wait($0, announced, Int32(milliseconds))
    }
  }

  // MARK: The writers' mutex

  /// Waits until somebody else has written, who was woken when this thread gave the mutex back; not for long,
  /// since it may have found nothing to write.
  func yieldToWriters() {
    let tail = tail
    for _ in 0..<50 where self.tail == tail { SystemCall.sleep(microseconds: 20) }
  }
}
