private import Dispatch
private import Glibc

/// Queues and threads for background work.
///
/// Every dispatch queue here is serial. libdispatch counts the running threads of concurrent queues once per
/// second, in the files of `/proc/self/task`, and ends the process if one is missing: without `/proc`, and in
/// a PID namespace that sees the `/proc` of another. It does not count those of serial queues.
package enum Background {
  /// Short work: syncing at intervals.
  private static let queue = DispatchQueue(label: "syncstore.background", qos: .utility)

  /// Serial: the segment that is needed first is ready first.
  private static let preparingQueue = DispatchQueue(label: "syncstore.preparing", qos: .utility)

  /// Populating memory that a writer is about to need.
  private static let populatingQueue = DispatchQueue(label: "syncstore.populating", qos: .utility)

  /// Several threads, so that tidying one store does not delay another. `.background` is a niceness of 10:
  /// writers keep the processor.
  ///
  /// A writer that shares its processor with a compaction of its own niceness waits for four ticks of the
  /// scheduler at a time. Where writers have to wait for a compaction, they leave it the processor.
  private static let maintenancePool = ThreadPool(
    "syncstore.tidying", qos: .background, limit: processors + 4)

  /// Serial: the disk gains nothing from several removals at once.
  private static let releasingQueue = DispatchQueue(label: "syncstore.releasing", qos: .utility)

  /// For work that may block: readers do not wait for writers that wait for each other. The limit is that of
  /// libdispatch, less the other queues here.
  private static let blockingPool = ThreadPool("syncstore.blocking", qos: .userInitiated, limit: 224)

  /// For the shares of `concurrentPerform`.
  private static let sharePool = ThreadPool("syncstore.shares", qos: .userInitiated, limit: processors)

  /// Runs work that may block, while its caller waits without a thread.
  package static func runBlocking(_ work: @escaping @Sendable () -> Void) { blockingPool.run(work) }

  static func prepare(_ work: @escaping @Sendable () -> Void) { preparingQueue.async(execute: work) }

  static func populate(_ work: @escaping @Sendable () -> Void) { populatingQueue.async(execute: work) }

  static func release(_ work: @escaping @Sendable () -> Void) { releasingQueue.async(execute: work) }

  /// Waits until the files given to `release` so far are gone and their blocks are free.
  static func waitForReleases() { releasingQueue.sync {} }

  /// Runs compaction, purging and the like, at a low priority.
  package static func runMaintenance(_ work: @escaping @Sendable () -> Void) { maintenancePool.run(work) }

  /// Number of processors, at least 1.
  package static var processors: Int { max(1, sysconf(Int32(_SC_NPROCESSORS_ONLN))) }

  /// Calls `work` `count` times, in parallel on all processors, and returns when all calls have.
  package static func concurrentPerform(_ count: Int, _ work: @escaping @Sendable (Int) -> Void) {
    let loop = SharedLoop(count, work)
    for _ in 1..<max(1, min(count, processors)) { sharePool.run { loop.join() } }
    loop.join()
    loop.waitForOthers()
  }

  /// Runs work that never ends on its own queue, hence its own thread.
  static func runForever(_ work: @escaping @Sendable () -> Void) {
    DispatchQueue(label: "syncstore.watch", qos: .utility).async(execute: work)
  }

  static func run(_ work: @escaping @Sendable () -> Void) { queue.async(execute: work) }

  static func run(after milliseconds: Int, _ work: @escaping @Sendable () -> Void) {
    queue.asyncAfter(deadline: .now() + .milliseconds(milliseconds), execute: work)
  }

  /// A serial queue: work runs one piece at a time, in order of submission.
  struct SerialQueue: Sendable {
    private let queue: DispatchQueue

    init(_ label: StaticString) { queue = DispatchQueue(label: "\(label)", qos: .userInitiated) }

    func run(_ work: @escaping @Sendable () -> Void) { queue.async(execute: work) }

    /// Runs `work` after everything submitted before, and waits for it.
    func wait<Result>(_ work: () -> Result) -> Result { queue.sync(execute: work) }

    func run(after milliseconds: Int, _ work: @escaping @Sendable () -> Void) {
      queue.asyncAfter(deadline: .now() + .milliseconds(milliseconds), execute: work)
    }
  }
}

/// Threads for pieces of work in no order: one thread for each piece under way, up to a limit.
///
/// Each thread is that of a serial dispatch queue, which exists only while the queue has work.
private final class ThreadPool: Sendable {
  private struct State {
    var idle: [DispatchQueue] = []
    var count = 0
    /// Pieces without a thread, oldest first from `next` on.
    var waiting: [@Sendable () -> Void] = []
    var next = 0

    mutating func popWaiting() -> (@Sendable () -> Void)? {
      guard next < waiting.count else { return nil }
      defer {
        next += 1
        if next == waiting.count { (waiting, next) = ([], 0) }
      }
      return waiting[next]
    }
  }

  private let label: String
  private let qos: DispatchQoS
  private let limit: Int
  private let state = LockedField(State())

  /// A pool of at most `limit` threads.
  init(_ label: StaticString, qos: DispatchQoS, limit: Int) {
    (self.label, self.qos, self.limit) = ("\(label)", qos, limit)
  }

  /// Runs `work` on a thread of the pool; later, if all are busy.
  func run(_ work: @escaping @Sendable () -> Void) {
    let lane = state.withLock { state -> DispatchQueue? in
      if let lane = state.idle.popLast() { return lane }
      guard state.count < limit else {
        state.waiting.append(work)
        return nil
      }
      state.count += 1
      return DispatchQueue(label: label, qos: qos)
    }
    lane?.async { self.run(work, on: lane) }
  }

  private func run(_ work: @Sendable () -> Void, on lane: DispatchQueue?) {
    work()
    let next = state.withLock { state in
      let next = state.popWaiting()
      if next == nil, let lane { state.idle.append(lane) }
      return next
    }
    // A turn of the queue for each piece: whatever a piece leaves to be freed at its end is freed.
    if let next { lane?.async { self.run(next, on: lane) } }
  }
}

/// A loop whose passes are shared by the threads that join it.
private final class SharedLoop: Sendable {
  private let count: Int
  private let work: @Sendable (Int) -> Void
  /// The passes that were begun, and those that have ended.
  private let passes = LockedField((begun: 0, ended: 0))
  private let hasEnded = Monitor()

  init(_ count: Int, _ work: @escaping @Sendable (Int) -> Void) { (self.count, self.work) = (count, work) }

  /// Makes passes until none is left to begin.
  func join() {
    while let pass = begin() {
      work(pass)
      let isLast = passes.withLock { passes in
        passes.ended += 1
        return passes.ended == count
      }
      // Under the lock: a waiter that has just looked must not miss it.
      if isLast { hasEnded.withLock { hasEnded.notifyAll() } }
    }
  }

  private func begin() -> Int? {
    passes.withLock { passes in
      guard passes.begun < count else { return nil }
      passes.begun += 1
      return passes.begun - 1
    }
  }

  /// Waits until all passes have ended. All must have begun.
  func waitForOthers() {
    hasEnded.withLock {
      while passes.withLock({ $0.ended < count }) { hasEnded.wait() }
    }
  }
}
