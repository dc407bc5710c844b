private import CLinux
private import Synchronization

/// An eventcount: a number that threads of this process wait on until it changes. One call wakes all waiters,
/// and a woken thread waits for no lock (D. Reed and R. Kanodia, Synchronization with Eventcounts and
/// Sequencers, 1979).
///
/// This is one of the few files that use `unsafe`: the kernel compares the number in place (futex(2)).
@safe final class EventCount: @unchecked Sendable {
  private let number: UnsafeMutablePointer<Atomic<UInt32>>
  private let sleepers = Atomic(0)

  init() {
    unsafe number = .allocate(capacity: 1)
    unsafe number.initialize(to: Atomic(0))
  }

  deinit { unsafe number.deallocate() }

  var value: UInt32 { unsafe number.pointee.load(ordering: .sequentiallyConsistent) }

  /// Number of threads that wait, or were woken and have not run since. A hint.
  var waiting: Int { sleepers.load(ordering: .relaxed) }

  /// Increments the number if it equals `value`; false otherwise.
  func advance(from value: UInt32) -> Bool {
    unsafe number.pointee.compareExchange(
      expected: value, desired: value &+ 1, ordering: .sequentiallyConsistent
    ).exchanged
  }

  /// Wakes all waiters. To be called after the number has changed.
  func wakeAll() {
    // A thread not counted here yet loads the number after it is counted, and does not sleep.
    guard sleepers.load(ordering: .sequentiallyConsistent) > 0 else { return }
    unsafe sync_futex_wake_own(UnsafeRawPointer(number).assumingMemoryBound(to: UInt32.self))
  }

  /// Returns once the number is no longer `value`, or spuriously: the caller must check again.
  func wait(while value: UInt32) {
    sleepers.add(1, ordering: .sequentiallyConsistent)
    unsafe sync_futex_wait_own(UnsafeRawPointer(number).assumingMemoryBound(to: UInt32.self), value)
    sleepers.subtract(1, ordering: .relaxed)
  }
}
