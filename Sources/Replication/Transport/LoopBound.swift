/// Something that belongs to the thread of one event loop, on its way through other threads.
///
/// This is one of the few files that use `unsafe`: the compiler cannot know that the value is only reached on the loop,
/// so each access checks it.
@safe final class LoopBound<Value>: Sendable {
  private nonisolated(unsafe) let stored: Value
  private let loop: EventLoop

  /// Binds `value` to `loop`. Whoever makes it must be done with the value on any other thread.
  init(_ value: Value, to loop: EventLoop) {
    unsafe stored = value
    self.loop = loop
  }

  /// The value; on the loop alone.
  var value: Value {
    loop.checkCurrent()
    return unsafe stored
  }
}
