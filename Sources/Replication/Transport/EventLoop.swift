private import SyncStore
private import Dispatch
private import Glibc
private import Synchronization

/// Receives the events of a descriptor, on the loop.
protocol EventHandler: AnyObject {
  /// Handles an event of the descriptor.
  func handle(_ event: Epoll.Event)
}

/// One thread that waits for all descriptors, timers and tasks (docs/decisions/0001-event-loop.md).
///
/// Invariants:
/// - handlers, timers and what they hold are accessed only on the loop's own thread;
/// - a token is never reused: otherwise an event of a closed descriptor could reach another handler;
/// - nothing on the loop blocks.
///
/// This is one of the few files that use `unsafe`: the state of the loop's own thread has no lock.
@safe package final class EventLoop: Sendable {
  private struct Shared {
    var tasks: [@Sendable () -> Void] = []
    var isStopping = false
  }

  private struct State {
    var handlers: [UInt64: any EventHandler] = [:]
    var lastToken = Epoll.wakeToken
    var timers = TimerHeap<() -> Void>()
  }

  private let epoll: Epoll
  private let wakeDescriptor: Int32
  private let shared = LockedField(Shared())
  private let thread = Atomic<UInt>(0)
  private nonisolated(unsafe) var state = State()

  /// Creates a loop that runs until `stop`. Fails only if descriptors are exhausted.
  package init() throws(ReplicationError) {
    epoll = try Epoll()
    wakeDescriptor = epoll.wakeDescriptor
    DispatchQueue(label: "syncstore.loop", qos: .userInitiated).async { self.run() }
  }

  private static let sharedLoop = Result { () throws(ReplicationError) in try EventLoop() }

  /// The loop shared by the nodes of this process. It is never stopped.
  package static func shared() throws(ReplicationError) -> EventLoop { try sharedLoop.get() }

  /// Runs `task` on the loop, after earlier ones. Callable from any thread. After `stop` the task is dropped.
  package func execute(_ task: @escaping @Sendable () -> Void) {
    let mustWake = shared.withLock { shared in
      guard !shared.isStopping else { return false }
      shared.tasks.append(task)
      return shared.tasks.count == 1
    }
    // The loop itself checks for tasks before it waits.
    if mustWake, !isCurrent { Epoll.wake(wakeDescriptor) }
  }

  /// Ends the loop after the tasks submitted so far. Callable from any thread.
  package func stop() {
    shared.withLock { $0.isStopping = true }
    Epoll.wake(wakeDescriptor)
  }

  /// Whether the caller is on the loop's own thread.
  package var isCurrent: Bool { thread.load(ordering: .relaxed) == UInt(pthread_self()) }

  /// Traps if the caller is not on the loop's own thread, which would break the first invariant.
  func checkCurrent() { precondition(isCurrent, "state of the event loop touched from another thread") }

  // MARK: Loop thread only

  /// Watches a descriptor; nil if the operating system has no room for it. The handler is retained until
  /// `remove`.
  func add(_ descriptor: Int32, interest: IOInterest, _ handler: any EventHandler) -> UInt64? {
    checkCurrent()
    unsafe state.lastToken += 1
    let token = unsafe state.lastToken
    guard epoll.add(descriptor, interest: interest, token: token) else { return nil }
    unsafe state.handlers[token] = handler
    return token
  }

  /// Changes the watched conditions.
  func change(_ descriptor: Int32, interest: IOInterest, token: UInt64) {
    checkCurrent()
    epoll.change(descriptor, interest: interest, token: token)
  }

  /// Stops watching the descriptor. Must be called before it is closed.
  func remove(_ descriptor: Int32, token: UInt64) {
    checkCurrent()
    epoll.remove(descriptor)
    unsafe state.handlers[token] = nil
  }

  /// Runs `body` once, `milliseconds` from now. Returns the number for `cancel`.
  package func schedule(after milliseconds: Int, _ body: @escaping () -> Void) -> UInt64 {
    checkCurrent()
    return unsafe state.timers.insert(
      deadline: MonotonicClock.milliseconds() + UInt64(max(0, milliseconds)), body)
  }

  /// Cancels a timer; no effect if it has already run.
  package func cancel(_ timer: UInt64) {
    checkCurrent()
    unsafe state.timers.remove(timer)
  }

  // MARK: Loop thread

  private func run() {
    thread.store(UInt(pthread_self()), ordering: .relaxed)
    while true {
      let (tasks, isStopping) = shared.withLock { shared in
        let tasks = shared.tasks
        shared.tasks = []
        return (tasks, shared.isStopping)
      }
      for task in tasks { task() }
      let now = MonotonicClock.milliseconds()
      while let body = unsafe state.timers.popDue(at: now) { body() }
      if isStopping, shared.withLock({ $0.tasks.isEmpty }) { break }
      for event in epoll.wait(milliseconds: timeout()) {
        unsafe state.handlers[event.token]?.handle(event)
      }
    }
    // Breaks the reference cycles between the loop and its handlers.
    unsafe state = State()
  }

  private func timeout() -> Int32 {
    if shared.withLock({ !$0.tasks.isEmpty || $0.isStopping }) { return 0 }
    guard let deadline = unsafe state.timers.nextDeadline() else { return -1 }
    let now = MonotonicClock.milliseconds()
    return deadline <= now ? 0 : Int32(clamping: deadline - now)
  }
}
