package import Dispatch
private import Synchronization

/// Threads for what blocks: the store, and handshakes with strangers. A few queues, each in order; whoever needs order
/// keeps to one queue.
package final class WorkerPool: Sendable {
  /// The pool of this process.
  package static let shared = WorkerPool(width: 8)

  private let queues: [DispatchQueue]
  private let next = Atomic<Int>(0)

  /// A pool of `width` queues. A thread exists only while there is work on its queue.
  package init(width: Int) {
    queues = (0..<width).map { DispatchQueue(label: "syncstore.worker.\($0)", qos: .userInitiated) }
  }

  /// One of the queues, in turn.
  package func queue() -> DispatchQueue {
    queues[next.wrappingAdd(1, ordering: .relaxed).newValue % queues.count]
  }

  /// Runs blocking work on one of the queues, some time soon.
  package func later(_ work: @escaping @Sendable () -> Void) { queue().async(execute: work) }

  /// Runs blocking work off the caller's thread, and waits for it without blocking.
  package func run<Answer: Sendable>(
    _ work: @escaping @Sendable () throws(ReplicationError) -> Answer
  ) async throws(ReplicationError) -> Answer {
    let queue = queue()
    let result = await withCheckedContinuation { continuation in
      queue.async {
        continuation.resume(returning: Result { () throws(ReplicationError) in try work() })
      }
    }
    return try result.get()
  }
}
