/// Tells those who wait that the journal has grown, by this process or another one.
///
/// Invariants: who waits has said so in the control page before it looks whether there is anything new. It
/// looks under the engine's lock, under which writers of this process append and then look whether anybody
/// waits: so none of them is missed. A writer of another process may be missed, for as long as its processor
/// keeps the new tail to itself, or because it was killed before it could wake anybody: then the tail is
/// looked at again after `pollMilliseconds` milliseconds.
final class ChangeSignal: Sendable {
  /// Milliseconds after which one who was not woken looks by itself.
  static let pollMilliseconds = 100

  private let control: ControlPage
  /// May other processes write?
  private let isShared: Bool
  private let state = LockedField(State())
  private let watchQueue = Background.SerialQueue("syncstore.changes")
  /// What it is called in the control page: no other one there is likely to be called so.
  private let name = UInt32.random(in: 1..<UInt32.max)

  private struct State {
    var waiters: [UInt64: @Sendable () -> Void] = [:]
    var last: UInt64 = 0
    var isWatching = false
    /// What is behind this tail wakes those who wait: that of the journal when the first of them came, or when all were last
    /// woken because of another process.
    var tail: UInt64 = 0
  }

  init(_ control: ControlPage, isShared: Bool) { (self.control, self.isShared) = (control, isShared) }

  /// How many wait at present.
  var count: Int { state.withLock { $0.waiters.count } }

  /// Has `body` called once, when something was written after this call. It must return at once. Returns what
  /// `remove` takes.
  func add(_ body: @escaping @Sendable () -> Void) -> UInt64 {
    let (number, watches) = state.withLock { state -> (UInt64, Bool) in
      // Who comes looks for itself at what was written before.
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

  /// It does not wait any more.
  func remove(_ number: UInt64) { state.withLock { _ = $0.waiters.removeValue(forKey: number) } }

  /// Wakes all who wait: something was written by this process.
  @inline(never)
  func wake() {
    control.wakeWaiters(except: name)
    wakeLocal()
  }

  /// Wakes those of this process.
  func wakeLocal() {
    let waiters = state.withLock { state in
      defer { state.waiters = [:] }
      return state.waiters.values
    }
    for waiter in waiters { waiter() }
  }

  /// Looks after what other processes write, as long as anybody waits.
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
