private import CLinux
private import Synchronization

/// A number that threads of this process wait on until it has changed (an eventcount: D. Reed and R. Kanodia, Synchronization with
/// Eventcounts and Sequencers, 1979). Who changes it wakes all with one call, and nobody who is woken waits for a lock.
///
/// This is one of the few files that use `unsafe`: the kernel compares the number where it lies (futex(2)).
@safe final class EventCount: @unchecked Sendable {
  private let number: UnsafeMutablePointer<Atomic<UInt32>>
  private let sleepers = Atomic(0)

  init() {
    unsafe number = .allocate(capacity: 1)
    unsafe number.initialize(to: Atomic(0))
  }

  deinit { unsafe number.deallocate() }

  var value: UInt32 { unsafe number.pointee.load(ordering: .sequentiallyConsistent) }

  /// How many threads wait, or were woken and have not run since. A hint.
  var waiting: Int { sleepers.load(ordering: .relaxed) }

  /// Changes it from `value` to the next number. False if it is another one.
  func advance(from value: UInt32) -> Bool {
    unsafe number.pointee.compareExchange(
      expected: value, desired: value &+ 1, ordering: .sequentiallyConsistent
    ).exchanged
  }

  /// Wakes all who wait. To be called after it has changed.
  func wakeAll() {
    // Who is not counted here yet looks at the number after it is, and does not sleep.
    guard sleepers.load(ordering: .sequentiallyConsistent) > 0 else { return }
    unsafe sync_futex_wake_own(UnsafeRawPointer(number).assumingMemoryBound(to: UInt32.self))
  }

  /// Returns once the number is no longer `value`, or for no reason: who calls it looks again.
  func wait(while value: UInt32) {
    sleepers.add(1, ordering: .sequentiallyConsistent)
    unsafe sync_futex_wait_own(UnsafeRawPointer(number).assumingMemoryBound(to: UInt32.self), value)
    sleepers.subtract(1, ordering: .relaxed)
  }
}
