private import Dispatch

/// Background work of a cache: periodic trims, and releasing memory under pressure.
///
/// Invariant: after `end` has returned nothing new begins; work already under way holds its cache weakly.
final class CacheMaintenance: Sendable {
  private let state = LockedField<(timer: Timer?, listener: MemoryPressure.Listener?)>((nil, nil))

  /// A source is thread-safe; its type does not say so.
  private struct Timer: @unchecked Sendable {
    let source: any DispatchSourceTimer
  }

  private static let queue = DispatchQueue(label: "syncstore.cache", qos: .utility)

  /// Runs `work` every `seconds`, with leeway so that an idle machine is not woken for it.
  func schedule(every seconds: Double, _ work: @escaping @Sendable () -> Void) {
    // A timer cannot count to infinity: once a year stands for never.
    let seconds = min(max(seconds, 0.001), 365 * 86_400)
    let source = DispatchSource.makeTimerSource(queue: Self.queue)
    source.schedule(deadline: .now() + seconds, repeating: seconds, leeway: .milliseconds(Int(seconds * 100)))
    source.setEventHandler(handler: DispatchWorkItem(block: work))
    source.resume()
    let timer = Timer(source: source)
    state.withLock { $0.timer = timer }
  }

  /// Calls `work` when memory is short.
  func onMemoryPressure(_ work: @escaping @Sendable (MemoryPressure.Level) -> Void) {
    let listener = MemoryPressure.listen(work)
    state.withLock { $0.listener = listener }
  }

  func end() {
    let (timer, listener) = state.withLock { state in
      defer { state = (nil, nil) }
      return state
    }
    timer?.source.cancel()
    listener?.cancel()
  }
}
