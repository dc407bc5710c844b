private import Dispatch

/// What a cache has done beside its callers: trims at an interval, and giving back when memory is short.
///
/// Invariant: once `end` has returned, nothing new begins; what has begun holds its cache weakly.
final class CacheMaintenance: Sendable {
  private let state = LockedField<(timer: Timer?, listener: MemoryPressure.Listener?)>((nil, nil))

  /// A source is thread-safe; its type does not say so.
  private struct Timer: @unchecked Sendable {
    let source: any DispatchSourceTimer
  }

  private static let queue = DispatchQueue(label: "syncstore.cache", qos: .utility)

  /// Runs `work` every so many seconds, not to the moment: the machine may sleep on.
  func schedule(every seconds: Double, _ work: @escaping @Sendable () -> Void) {
    // A timer cannot count to infinity: once in a year is never.
    let seconds = min(max(seconds, 0.001), 365 * 86_400)
    let source = DispatchSource.makeTimerSource(queue: Self.queue)
    source.schedule(deadline: .now() + seconds, repeating: seconds, leeway: .milliseconds(Int(seconds * 100)))
    source.setEventHandler(handler: DispatchWorkItem(block: work))
    source.resume()
    let timer = Timer(source: source)
    state.withLock { $0.timer = timer }
  }

  /// Has `work` told when memory is short.
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
