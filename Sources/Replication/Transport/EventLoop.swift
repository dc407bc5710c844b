private import SyncStore
private import Dispatch
private import Glibc
private import Synchronization

/// What is told about a descriptor. Called on the loop.
protocol EventHandler: AnyObject {
  /// Something happened to the descriptor.
  func handle(_ event: Epoll.Event)
}

/// One thread that waits for all descriptors, timers and tasks (docs/decisions/0001-event-loop.md).
///
/// Invariants:
/// - handlers, timers and what they hold are touched on the loop's own thread alone;
/// - a token is never used twice, so that an event of a closed descriptor finds no handler;
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

  /// A loop that runs until `stop`. Fails only for want of descriptors.
  package init() throws(ReplicationError) {
    epoll = try Epoll()
    wakeDescriptor = epoll.wakeDescriptor
    DispatchQueue(label: "syncstore.loop", qos: .userInitiated).async { self.run() }
  }

  private static let sharedLoop = Result { () throws(ReplicationError) in try EventLoop() }

  /// The loop that the nodes of this process share. It is never stopped.
  package static func shared() throws(ReplicationError) -> EventLoop { try sharedLoop.get() }

  /// Runs `task` on the loop, after those given before. From any thread. After `stop` it is dropped.
  package func execute(_ task: @escaping @Sendable () -> Void) {
    let mustWake = shared.withLock { shared in
      guard !shared.isStopping else { return false }
      shared.tasks.append(task)
      return shared.tasks.count == 1
    }
    // The loop itself looks before it waits.
    if mustWake, !isCurrent { Epoll.wake(wakeDescriptor) }
  }

  /// Ends the loop once the tasks given so far are done. From any thread.
  package func stop() {
    shared.withLock { $0.isStopping = true }
    Epoll.wake(wakeDescriptor)
  }

  /// Is this the loop's own thread?
  package var isCurrent: Bool { thread.load(ordering: .relaxed) == UInt(pthread_self()) }

  /// Ends the program if this is not the loop's own thread: whoever comes here breaks the first invariant.
  func checkCurrent() { precondition(isCurrent, "state of the event loop touched from another thread") }

  // MARK: On the loop

  /// Watches a descriptor; nil if the operating system has no room for it. The handler is kept until `remove`.
  func add(_ descriptor: Int32, reading: Bool, writing: Bool, _ handler: any EventHandler) -> UInt64? {
    checkCurrent()
    unsafe state.lastToken += 1
    let token = unsafe state.lastToken
    guard epoll.add(descriptor, reading: reading, writing: writing, token: token) else { return nil }
    unsafe state.handlers[token] = handler
    return token
  }

  /// Changes what is watched for.
  func change(_ descriptor: Int32, reading: Bool, writing: Bool, token: UInt64) {
    checkCurrent()
    epoll.change(descriptor, reading: reading, writing: writing, token: token)
  }

  /// Watches the descriptor no more. To be called before it is closed.
  func remove(_ descriptor: Int32, token: UInt64) {
    checkCurrent()
    epoll.remove(descriptor)
    unsafe state.handlers[token] = nil
  }

  /// Runs `body` once, `milliseconds` from now. The number is for `cancel`.
  func schedule(after milliseconds: Int, _ body: @escaping () -> Void) -> UInt64 {
    checkCurrent()
    return unsafe state.timers.insert(
      deadline: MonotonicClock.milliseconds() + UInt64(max(0, milliseconds)), body)
  }

  /// The timer is no longer wanted; one that has run already is no error.
  func cancel(_ timer: UInt64) {
    checkCurrent()
    unsafe state.timers.remove(timer)
  }

  // MARK: The thread

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
    // Breaks the cycles between the loop and what it served.
    unsafe state = State()
  }

  private func timeout() -> Int32 {
    if shared.withLock({ !$0.tasks.isEmpty || $0.isStopping }) { return 0 }
    guard let deadline = unsafe state.timers.nextDeadline() else { return -1 }
    let now = MonotonicClock.milliseconds()
    return deadline <= now ? 0 : Int32(clamping: deadline - now)
  }
}
