private import Dispatch
import SyncStore

/// The request to end a command that follows something: SIGINT, SIGTERM or SIGHUP, or standard output without
/// a reader.
final class StopRequest: Sendable {
  private struct State {
    var isMade = false
    /// Runs when the request is made.
    var reaction: (@Sendable () -> Void)?
  }

  private let state = LockedField(State())
  /// Seconds between two looks at standard output.
  private static let outputCheckSeconds = 1.0
  /// Seconds that the main thread has to end the program after a request.
  private static let endingSeconds = 5.0
  private static let pollMicroseconds: UInt32 = 10_000

  /// Whether it was made.
  var isMade: Bool { state.withLock { $0.isMade } }

  /// Waits for it for at most this many seconds. For an effect of a signal that may be seen before the
  /// signal.
  func isMade(within seconds: Double) -> Bool {
    let end = System.monotonicSeconds + seconds
    while !isMade {
      guard System.monotonicSeconds < end else { return false }
      SystemCall.sleep(microseconds: Self.pollMicroseconds)
    }
    return true
  }

  /// Runs `body`. Calls `reaction` if the request is made while `body` runs, or was made before.
  func reacting<Result>(
    _ reaction: @escaping @Sendable () -> Void, during body: () throws -> Result
  ) rethrows -> Result {
    let isMade = state.withLock { state in
      state.reaction = reaction
      return state.isMade
    }
    defer { state.withLock { $0.reaction = nil } }
    if isMade { reaction() }
    return try body()
  }

  /// Waits for signals on a thread of its own. `System.blockSignals` must have been called before any thread
  /// began. With a second signal, or if the program has not ended some seconds after the first, `giveUp` is
  /// called, which must end it: the main thread may wait for a reader of standard output.
  func listen(giveUp: @escaping @Sendable () -> Never) {
    DispatchQueue(label: "sync-cli.stop").async {
      while System.nextSignal(within: Self.outputCheckSeconds) == .none, !System.hasLostReader(1) {}
      self.make()
      _ = System.nextSignal(within: Self.endingSeconds)
      giveUp()
    }
  }

  private func make() {
    let reaction = state.withLock { state in
      state.isMade = true
      return state.reaction
    }
    reaction?()
  }
}
