private import Dispatch
private import Glibc

/// Work beside the callers.
enum Background {
  /// What is soon done: syncing at intervals.
  private static let queue = DispatchQueue(label: "syncstore.background", qos: .utility)

  /// One segment after the other: the one that is needed first is ready first.
  private static let preparingQueue = DispatchQueue(label: "syncstore.preparing", qos: .utility)

  /// A store that is being tidied must not hold up another one.
  private static let tidyingQueue = DispatchQueue(
    label: "syncstore.tidying", qos: .utility, attributes: .concurrent)

  /// What callers wait for without a thread.
  private static let blockingQueue = DispatchQueue(
    label: "syncstore.blocking", qos: .userInitiated, attributes: .concurrent)

  /// Work that may block, and that somebody waits for.
  static func block(_ work: @escaping @Sendable () -> Void) { blockingQueue.async(execute: work) }

  static func prepare(_ work: @escaping @Sendable () -> Void) { preparingQueue.async(execute: work) }

  static func tidy(_ work: @escaping @Sendable () -> Void) { tidyingQueue.async(execute: work) }

  /// Processors that the machine has, at least 1.
  static var processors: Int { max(1, sysconf(Int32(_SC_NPROCESSORS_ONLN))) }

  /// Does so many pieces of work, as many at once as there are processors, and returns when all are done.
  static func atOnce(_ count: Int, _ work: @Sendable (Int) -> Void) {
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
  struct Line: Sendable {
    private let queue: DispatchQueue

    init(_ label: StaticString) { queue = DispatchQueue(label: "\(label)", qos: .userInitiated) }

    func run(_ work: @escaping @Sendable () -> Void) { queue.async(execute: work) }

    func run(after milliseconds: Int, _ work: @escaping @Sendable () -> Void) {
      queue.asyncAfter(deadline: .now() + .milliseconds(milliseconds), execute: work)
    }
  }
}
