private import Dispatch
import SyncStore

/// The thread that waits for signals, and the code that gets them at the moment.
///
/// A process that runs one command has it only if that command follows something. A shell has it from its
/// start: the prompt, and each command, take their turn.
///
/// Invariant: the signals are blocked in all threads, so that only this one gets them.
enum SignalListener {
  /// Receives a signal number, or nil about once a second. Returns false to request the default action.
  typealias Handler = @Sendable (Int32?) -> Bool

  private struct State {
    var isRunning = false
    var handlers: [Handler] = []
  }

  private static let state = LockedField(State())
  /// Seconds between two calls without a signal.
  private static let tickSeconds = 1.0

  /// Whether the thread runs.
  static var isRunning: Bool { state.withLock { $0.isRunning } }

  /// Starts the thread, unless it runs. `System.blockSignals` must have been called with these numbers before
  /// any thread began.
  static func start(_ numbers: [Int32] = System.endingSignals) {
    let wasRunning = state.withLock { exchange(&$0.isRunning, with: true) }
    guard !wasRunning else { return }
    DispatchQueue(label: "sync-cli.signals").async {
      while true { deliver(System.awaitSignal(among: numbers, within: tickSeconds)) }
    }
  }

  /// Makes `handler` the one that gets signals, until `pop`.
  static func push(_ handler: @escaping Handler) { state.withLock { $0.handlers.append(handler) } }

  /// Gives the signals back to the handler before.
  static func pop() { state.withLock { _ = $0.handlers.popLast() } }

  /// Gives the signals back to the handler before, if there is one.
  static func popUnlessLast() { state.withLock { if $0.handlers.count > 1 { $0.handlers.removeLast() } } }

  /// Passes a signal to the handler, or takes its default action.
  static func deliver(_ number: Int32?) {
    let handler = state.withLock { $0.handlers.last }
    guard handler?(number) != true, let number else { return }
    System.takeDefaultAction(of: number)
  }
}
