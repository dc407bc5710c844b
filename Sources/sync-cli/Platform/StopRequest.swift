import SyncStore

/// The request to end a command that follows something: SIGINT, SIGTERM or SIGHUP, or standard output without
/// a reader.
final class StopRequest: Sendable {
  private struct State {
    /// Monotonic seconds when it was made.
    var time: Double?
    /// Runs when the request is made.
    var reaction: (@Sendable () -> Void)?
  }

  private let state = LockedField(State())
  /// Seconds that the main thread has to end the program after a request.
  private static let endingSeconds = 5.0
  private static let pollMicroseconds: UInt32 = 10_000

  /// Whether it was made.
  var isMade: Bool { state.withLock { $0.time != nil } }

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
      return state.time != nil
    }
    defer { state.withLock { $0.reaction = nil } }
    if isMade { reaction() }
    return try body()
  }

  // MARK: - Signals

  /// Runs `body`, which ends soon after the request that it gets is made. `System.blockSignals` must have
  /// been called before any thread began.
  ///
  /// In a shell it is the shell's request for the command. Otherwise `giveUp` is called with a second signal,
  /// or if `body` has not ended some seconds after the first: the main thread may wait for a reader of
  /// standard output. It must end the program.
  static func following<Result>(
    giveUp: @escaping @Sendable () -> Never, _ body: (StopRequest) throws -> Result
  ) rethrows -> Result {
    if let request = Interruption.request {
      return try Interruption.with(nil) { try body(request) }
    }
    let request = StopRequest()
    SignalListener.start()
    SignalListener.push { number in
      guard let number else {
        if request.isOverdue { giveUp() }
        if System.hasLostReader(1) { request.make() }
        return true
      }
      guard System.endingSignals.contains(number) else { return false }
      if request.isMade { giveUp() }
      request.make()
      return true
    }
    // Without a shell around it, the end of `body` is that of the program.
    defer { SignalListener.popUnlessLast() }
    return try body(request)
  }

  /// Runs a command of a shell: a signal makes the request, a second one has its default action. `notice` is
  /// called before the command can react.
  func listening<Result>(
    notice: @escaping @Sendable () -> Void, during body: () throws -> Result
  ) rethrows -> Result {
    SignalListener.push { [self] number in
      guard let number else { return true }
      guard System.endingSignals.contains(number), !isMade else { return false }
      notice()
      make()
      return true
    }
    defer { SignalListener.pop() }
    return try body()
  }

  private var isOverdue: Bool {
    state.withLock { $0.time.map { System.monotonicSeconds - $0 >= Self.endingSeconds } ?? false }
  }

  /// Makes the request.
  func make() {
    let reaction = state.withLock { state in
      state.time = state.time ?? System.monotonicSeconds
      return state.reaction
    }
    reaction?()
  }
}
