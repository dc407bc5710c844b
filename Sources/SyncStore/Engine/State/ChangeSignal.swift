/// Wakes waiters when this or another process has appended to the journal.
///
/// Invariants: a waiter registers in the control page before it checks for new records. It checks under the
/// engine's lock, under which writers of this process append and then look for waiters: so it misses none of
/// them. It may miss a writer of another process whose store of the new tail is not visible yet, or that was
/// killed before waking it: the tail is therefore polled every `pollMilliseconds` milliseconds.
final class ChangeSignal: Sendable {
  /// Interval at which waiters that were not woken check the tail, in milliseconds.
  static let pollMilliseconds = 100

  private let control: ControlPage
  /// Whether other processes may write.
  private let isShared: Bool
  private let state = LockedField(State())
  private let watchQueue = Background.SerialQueue("syncstore.changes")
  /// Name in the control page, random so that no other waiter is likely to have the same.
  private let name = UInt32.random(in: 1..<UInt32.max)

  private struct State {
    var waiters: [UInt64: @Sendable () -> Void] = [:]
    var last: UInt64 = 0
    var isWatching = false
    /// A tail beyond this one wakes the waiters: the journal's tail when the first of them came, or when all
    /// were last woken because of another process.
    var tail: UInt64 = 0
  }

  init(_ control: ControlPage, isShared: Bool) { (self.control, self.isShared) = (control, isShared) }

  /// Number of waiters at present.
  var count: Int { state.withLock { $0.waiters.count } }

  /// Calls `body` once, when something has been written after this call. `body` must return at once. Returns
  /// the number that `remove` takes.
  func add(_ body: @escaping @Sendable () -> Void) -> UInt64 {
    let (number, watches) = state.withLock { state -> (UInt64, Bool) in
      // A new waiter itself checks for earlier writes.
      if state.waiters.isEmpty { state.tail = control.tail }
      state.last += 1
      state.waiters[state.last] = body
      defer { state.isWatching = isShared }
      return (state.last, isShared && !state.isWatching)
    }
    control.registerWaiter(name)
    if watches { watchQueue.run { self.watch() } }
    return number
  }

  /// Removes a waiter.
  func remove(_ number: UInt64) { state.withLock { _ = $0.waiters.removeValue(forKey: number) } }

  /// Wakes all waiters after a write of this process.
  @inline(never)
  func wake() {
    control.wakeWaiters(except: name)
    wakeLocal()
  }

  /// Wakes the waiters of this process.
  func wakeLocal() {
    let waiters = state.withLock { state in
      defer { state.waiters = [:] }
      return state.waiters.values
    }
    for waiter in waiters { waiter() }
  }

  /// Polls for writes of other processes as long as there are waiters.
  private func watch() {
    while true {
      let isAwaited = state.withLock { state in
        state.isWatching = !state.waiters.isEmpty
        return state.isWatching
      }
      guard isAwaited else { return }
      let announced = control.registerWaiter(name)
      let tail = control.tail
      let isNew = state.withLock { state in
        defer { state.tail = tail }
        return state.tail != tail
      }
      if isNew {
        wakeLocal()
      } else {
        control.waitOnFutex(expecting: announced, milliseconds: Self.pollMilliseconds)
      }
    }
  }
}
