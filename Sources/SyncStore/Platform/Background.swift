private import Dispatch

/// Work beside the callers: preparing segments, syncing at intervals.
enum Background {
  private static let queue = DispatchQueue(label: "syncstore.background", qos: .utility)

  static func run(_ work: @escaping @Sendable () -> Void) { queue.async(execute: work) }

  static func run(after milliseconds: Int, _ work: @escaping @Sendable () -> Void) {
    queue.asyncAfter(deadline: .now() + .milliseconds(milliseconds), execute: work)
  }
}
