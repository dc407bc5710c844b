/// One who reads what the journal says and, where there is nothing new, waits for it to grow. No thread of
/// the cooperative pool waits: the reading is done on a queue of its own, and the task is resumed with what
/// was found.
///
/// Back-pressure is in its nature: the journal is the buffer, and nothing is read before it is asked for.
final class JournalFollower<Output: Sendable>: Sendable {
  /// What a look at the journal has given.
  enum PollResult: Sendable {
    case found(Output)
    /// Nothing yet, but there is more to look at.
    case more
    /// Nothing: it waits for the journal to grow, or, if given, for so many milliseconds.
    case wait(milliseconds: Int?)
  }

  /// How a call of `next` ends.
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

  /// How many timers it has set so far.
  var timers: UInt64 { state.withLock { $0.timers } }

  private struct State {
    var waiting: CheckedContinuation<Outcome, Never>?
    var registration: UInt64?
    /// Counts the calls of `next`: what was begun for one is not given to another.
    var call = 0
    /// The one timer that counts, and when it comes, in milliseconds of the clock that only rises: there may be many wakes while it
    /// runs, and none needs one of its own that comes later.
    var timer: (number: UInt64, due: UInt64)?
    var timers: UInt64 = 0
  }

  init(_ signal: ChangeSignal, _ look: @escaping @Sendable () throws(StoreError) -> PollResult) {
    (self.signal, self.poll) = (signal, look)
  }

  /// The next thing that is found. Ends at once when the task is cancelled. One call at a time.
  func next() async -> Outcome {
    await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        let call = state.withLock { state in
          state.waiting = continuation
          state.call += 1
          return state.call
        }
        // Cancelled before it could be told so, or later: one of both sees the other.
        if Task.isCancelled { finish(.cancelled) } else { queue.run { self.step(call) } }
      }
    } onCancel: {
      finish(.cancelled)
    }
  }

  /// Looks until there is something, or nothing. On the line.
  private func step(_ call: Int) {
    do throws(StoreError) {
      var registration: UInt64?
      defer { if let registration { signal.remove(registration) } }
      while state.withLock({ $0.waiting != nil && $0.call == call }) {
        switch try poll() {
        case .found(let output): return finish(.found(output))
        case .more: continue
        case .wait where registration == nil:
          // What is written from now on wakes it; what was written a moment ago is seen by another look. Writers are not
          // troubled by one who finds something at once.
          registration = signal.add { [self] in queue.run { self.step(call) } }
        case .wait(let milliseconds):
          state.withLock { state in
            guard state.waiting != nil else { return }
            // That of an earlier step was called, or is of no use any more.
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

  /// Looks once more in so many milliseconds, if a timer does not do so before.
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
