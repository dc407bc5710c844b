private import Dispatch
private import Glibc

/// Work beside the callers.
enum Background {
  /// What is soon done: syncing at intervals.
  private static let queue = DispatchQueue(label: "syncstore.background", qos: .utility)

  /// One segment after the other: the one that is needed first is ready first.
  private static let preparingQueue = DispatchQueue(label: "syncstore.preparing", qos: .utility)

  /// Memory that a writer is about to need.
  private static let populatingQueue = DispatchQueue(label: "syncstore.populating", qos: .utility)

  /// A store that is being tidied must not hold up another one, and nobody's processor is to be taken for it: `.background` is a niceness of
  /// 10. A writer that has to share its processor with a compaction of its own niceness waits for four ticks of the scheduler at a time.
  /// Where writers have to wait for a compaction, they leave it the processor.
  private static let maintenanceQueue = DispatchQueue(
    label: "syncstore.tidying", qos: .background, attributes: .concurrent)

  /// One file after the other: the disk takes no more at once.
  private static let releasingQueue = DispatchQueue(label: "syncstore.releasing", qos: .utility)

  private static let threadPool = ThreadPool()

  /// Work that may block, and that somebody waits for without a thread.
  static func runBlocking(_ work: @escaping @Sendable () -> Void) { threadPool.run(work) }

  static func prepare(_ work: @escaping @Sendable () -> Void) { preparingQueue.async(execute: work) }

  static func populate(_ work: @escaping @Sendable () -> Void) { populatingQueue.async(execute: work) }

  static func release(_ work: @escaping @Sendable () -> Void) { releasingQueue.async(execute: work) }

  /// Waits until the files that were given to `release` so far are gone, and their blocks are free.
  static func waitForReleases() { releasingQueue.sync {} }

  static func runMaintenance(_ work: @escaping @Sendable () -> Void) { maintenanceQueue.async(execute: work) }

  /// Processors that the machine has, at least 1.
  static var processors: Int { max(1, sysconf(Int32(_SC_NPROCESSORS_ONLN))) }

  /// Does so many pieces of work, as many at once as there are processors, and returns when all are done.
  static func concurrentPerform(_ count: Int, _ work: @Sendable (Int) -> Void) {
    DispatchQueue.concurrentPerform(iterations: count, execute: work)
  }

  /// Work that never ends gets a thread that is not of a queue.
  static func runForever(_ work: @escaping @Sendable () -> Void) {
    DispatchQueue(label: "syncstore.watch", qos: .utility).async(execute: work)
  }

  static func run(_ work: @escaping @Sendable () -> Void) { queue.async(execute: work) }

  static func run(after milliseconds: Int, _ work: @escaping @Sendable () -> Void) {
    queue.asyncAfter(deadline: .now() + .milliseconds(milliseconds), execute: work)
  }

  /// Work that is done one piece after the other, in the order in which it comes.
  struct SerialQueue: Sendable {
    private let queue: DispatchQueue

    init(_ label: StaticString) { queue = DispatchQueue(label: "\(label)", qos: .userInitiated) }

    func run(_ work: @escaping @Sendable () -> Void) { queue.async(execute: work) }

    /// Does it behind all that came before, and waits for it.
    func wait<Result>(_ work: () -> Result) -> Result { queue.sync(execute: work) }

    func run(after milliseconds: Int, _ work: @escaping @Sendable () -> Void) {
      queue.asyncAfter(deadline: .now() + .milliseconds(milliseconds), execute: work)
    }
  }
}

/// Threads for work that may block: one for each piece that is under way, so that what only reads does not wait for writers that wait
/// for each other. A concurrent queue has as many as there are processors, and gets one more each second while those are blocked; a
/// serial queue gets its own at once.
private final class ThreadPool: Sendable {
  /// Beyond these a concurrent queue serves.
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
