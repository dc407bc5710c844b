private import Dispatch

/// Work beside the callers: preparing segments, syncing at intervals.
enum Background {
  private static let queue = DispatchQueue(label: "syncstore.background", qos: .utility)

  /// What may take long must not hold up a sync.
  private static let longQueue = DispatchQueue(label: "syncstore.upkeep", qos: .utility)

  static func runLong(_ work: @escaping @Sendable () -> Void) { longQueue.async(execute: work) }

  /// Work that never ends gets a thread that is not of a queue.
  static func runForever(_ work: @escaping @Sendable () -> Void) {
    DispatchQueue(label: "syncstore.watch", qos: .utility).async(execute: work)
  }

  static func run(_ work: @escaping @Sendable () -> Void) { queue.async(execute: work) }

  static func run(after milliseconds: Int, _ work: @escaping @Sendable () -> Void) {
    queue.asyncAfter(deadline: .now() + .milliseconds(milliseconds), execute: work)
  }
}
