private import CLinux
private import Glibc
private import Synchronization

/// Waiting for the journal to grow. One word of the page says that somebody waits, in whatever process: all
/// that a writer does for nobody is to load it.
///
/// This is one of the few files that use `unsafe`: the kernel wakes those who sleep at an address (futex(2)).
extension ControlPage {
  /// Both halves are set: whichever the kernel looks at, it is not zero.
  private static let someone: UInt64 = 1 << 32 | 1

  /// Does anybody wait, in any process?
  @inline(__always)
  var isAwaited: Bool { mapping.withAtomic(Field.awaited) { $0.load(ordering: .relaxed) } != 0 }

  /// From now on somebody waits. Who says so looks afterwards whether there is anything new.
  func announceWaiting() {
    mapping.withAtomic(Field.awaited) { $0.store(Self.someone, ordering: .sequentiallyConsistent) }
  }

  /// Nobody waits any more: they are all woken, those of this process aside.
  func endWaiting(wakes: Bool) {
    mapping.withAtomic(Field.awaited) { $0.store(0, ordering: .sequentiallyConsistent) }
    guard wakes else { return }
    unsafe mapping.withPointer(Field.awaited, to: UInt32.self) { unsafe sync_futex_wake($0) }
  }

  /// Sleeps until those who wait are woken, and at most so long.
  func sleepWhileAwaited(milliseconds: Int) {
    unsafe mapping.withPointer(Field.awaited, to: UInt32.self) {
      unsafe sync_futex_wait($0, 1, Int32(milliseconds))
    }
  }

  // MARK: The writers' mutex

  /// Does anybody sleep because this thread has the writers' mutex? A hint.
  var isWantedByOthers: Bool {
    unsafe mapping.withPointer(Field.mutex, to: pthread_mutex_t.self) {
      unsafe sync_mutex_is_awaited($0) != 0
    }
  }

  /// Waits until somebody else has written, who was woken when this thread gave the mutex back; not for long,
  /// since it may have found nothing to write.
  func letOthersWrite() {
    let tail = tail
    for _ in 0..<50 where self.tail == tail { SystemCall.sleep(microseconds: 20) }
  }
}
