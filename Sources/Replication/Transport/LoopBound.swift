/// A value confined to the thread of one event loop, carried through other threads.
///
/// This is one of the few files that use `unsafe`: the compiler cannot prove the confinement, so each access
/// checks it.
@safe package final class LoopBound<Value>: Sendable {
  private nonisolated(unsafe) let stored: Value
  private let loop: EventLoop

  /// Binds `value` to `loop`. The caller must not use the value afterwards.
  package init(_ value: Value, to loop: EventLoop) {
    unsafe stored = value
    self.loop = loop
  }

  /// The value. Traps on any other thread.
  package var value: Value {
    loop.checkCurrent()
    return unsafe stored
  }
}
