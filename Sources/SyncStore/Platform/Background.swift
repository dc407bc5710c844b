private import Dispatch
private import Glibc

/// Queues and threads for background work.
enum Background {
  /// Short work: syncing at intervals.
  private static let queue = DispatchQueue(label: "syncstore.background", qos: .utility)

  /// Serial: the segment that is needed first is ready first.
  private static let preparingQueue = DispatchQueue(label: "syncstore.preparing", qos: .utility)

  /// Populating memory that a writer is about to need.
  private static let populatingQueue = DispatchQueue(label: "syncstore.populating", qos: .utility)

  /// Concurrent, so that tidying one store does not delay another. `.background` is a niceness of 10: writers
  /// keep the processor.
  ///
  /// A writer that shares its processor with a compaction of its own niceness waits for four ticks of the
  /// scheduler at a time. Where writers have to wait for a compaction, they leave it the processor.
  private static let maintenanceQueue = DispatchQueue(
    label: "syncstore.tidying", qos: .background, attributes: .concurrent)

  /// Serial: the disk gains nothing from several removals at once.
  private static let releasingQueue = DispatchQueue(label: "syncstore.releasing", qos: .utility)

  private static let threadPool = ThreadPool()

  /// Runs work that may block, while its caller waits without a thread.
  static func runBlocking(_ work: @escaping @Sendable () -> Void) { threadPool.run(work) }

  static func prepare(_ work: @escaping @Sendable () -> Void) { preparingQueue.async(execute: work) }

  static func populate(_ work: @escaping @Sendable () -> Void) { populatingQueue.async(execute: work) }

  static func release(_ work: @escaping @Sendable () -> Void) { releasingQueue.async(execute: work) }

  /// Waits until the files given to `release` so far are gone and their blocks are free.
  static func waitForReleases() { releasingQueue.sync {} }

  static func runMaintenance(_ work: @escaping @Sendable () -> Void) { maintenanceQueue.async(execute: work) }

  /// Number of processors, at least 1.
  static var processors: Int { max(1, sysconf(Int32(_SC_NPROCESSORS_ONLN))) }

  /// Calls `work` `count` times, in parallel on all processors, and returns when all calls have.
  static func concurrentPerform(_ count: Int, _ work: @Sendable (Int) -> Void) {
    DispatchQueue.concurrentPerform(iterations: count, execute: work)
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

/// Threads for blocking work, one per piece under way, so that readers do not wait for writers that wait for
/// each other.
///
/// A concurrent dispatch queue has as many threads as processors, and gets only one more per second while
/// those are blocked; a serial queue gets its own at once.
private final class ThreadPool: Sendable {
  /// Work beyond this many threads goes to a concurrent queue.
  private static let maxThreads = 64

  private struct State {
    var idle: [DispatchQueue] = []
    var count = 0
  }

  private let state = LockedField(State())
  private let overflowQueue = DispatchQueue(
    label: "syncstore.blocking.others", qos: .userInitiated, attributes: .concurrent)

  func run(_ work: @escaping @Sendable () -> Void) {
    let lane = state.withLock { state -> DispatchQueue? in
      if let lane = state.idle.popLast() { return lane }
      guard state.count < Self.maxThreads else { return nil }
      state.count += 1
      return DispatchQueue(label: "syncstore.blocking", qos: .userInitiated)
    }
    guard let lane else { return overflowQueue.async(execute: work) }
    lane.async {
      work()
      self.state.withLock { $0.idle.append(lane) }
    }
  }
}
