/// Reads the journal and waits for it to grow. No thread of the cooperative pool blocks: reading runs on a
/// queue of its own, and the task is resumed with the result.
///
/// Back-pressure is inherent: the journal is the buffer, and it is read only on demand.
final class JournalFollower<Output: Sendable>: Sendable {
  /// The result of one step through the journal.
  enum PollResult: Sendable {
    case found(Output)
    /// Nothing yet, but more records to examine.
    case more
    /// Nothing: wait for the journal to grow or, if given, for this long.
    case wait(milliseconds: Int?)
  }

  /// The result of a call of `next`.
  enum Outcome: Sendable {
    case found(Output)
    case cancelled
    case failed(StoreError)
  }

  private let signal: ChangeSignal
  /// Called by one thread at a time.
  private let poll: @Sendable () throws(StoreError) -> PollResult
  private let state = LockedField(State())
  private let queue = Background.SerialQueue("syncstore.follower")

  /// Number of timers set so far.
  var timers: UInt64 { state.withLock { $0.timers } }

  private struct State {
    var waiting: CheckedContinuation<Outcome, Never>?
    var registration: UInt64?
    /// Counts the calls of `next`: the result of one call is never delivered to another.
    var call = 0
    /// The one active timer and when it is due, in monotonic milliseconds. Wakes while it is running do not
    /// add a later one.
    var timer: (number: UInt64, due: UInt64)?
    var timers: UInt64 = 0
  }

  init(_ signal: ChangeSignal, _ look: @escaping @Sendable () throws(StoreError) -> PollResult) {
    (self.signal, self.poll) = (signal, look)
  }

  /// The next result. Ends at once when the task is cancelled. One call at a time.
  func next() async -> Outcome {
    await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        let call = state.withLock { state in
          state.waiting = continuation
          state.call += 1
          return state.call
        }
        // Cancelled before the continuation was stored, or after: one of the two sees the other.
        if Task.isCancelled { finish(.cancelled) } else { queue.run { self.step(call) } }
      }
    } onCancel: {
      finish(.cancelled)
    }
  }

  /// Polls until there is a result or nothing more to read. Runs on `queue`.
  private func step(_ call: Int) {
    do throws(StoreError) {
      var registration: UInt64?
      defer { if let registration { signal.remove(registration) } }
      while state.withLock({ $0.waiting != nil && $0.call == call }) {
        switch try poll() {
        case .found(let output): return finish(.found(output))
        case .more: continue
        case .wait where registration == nil:
          // Later writes wake it; another poll finds those of a moment ago. A step that succeeds at once
          // never registers, so it costs writers nothing.
          registration = signal.add { [self] in queue.run { self.step(call) } }
        case .wait(let milliseconds):
          state.withLock { state in
            guard state.waiting != nil else { return }
            // An earlier step's registration has fired, or is obsolete.
            swap(&state.registration, &registration)
          }
          if let milliseconds { schedulePoll(after: milliseconds) }
          return
        }
      }
    } catch {
      finish(.failed(error))
    }
  }

  /// Schedules another poll, unless a running timer is due earlier.
  private func schedulePoll(after milliseconds: Int) {
    let due = SystemCall.monotonicMilliseconds() + UInt64(milliseconds)
    let number = state.withLock { state -> UInt64? in
      if let timer = state.timer, timer.due <= due { return nil }
      state.timers += 1
      state.timer = (state.timers, due)
      return state.timers
    }
    guard let number else { return }
    queue.run(after: milliseconds) { [weak self] in self?.timerFired(number) }
  }

  private func timerFired(_ number: UInt64) {
    let call = state.withLock { state -> Int? in
      guard state.timer?.number == number else { return nil }
      state.timer = nil
      return state.call
    }
    if let call { step(call) }
  }

  private func finish(_ outcome: Outcome) {
    let (waiting, registration) = state.withLock { state in
      defer { (state.waiting, state.registration) = (nil, nil) }
      return (state.waiting, state.registration)
    }
    if let registration { signal.remove(registration) }
    waiting?.resume(returning: outcome)
  }
}
