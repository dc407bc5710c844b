internal import SyncStore

/// The worker queues of a session. Confined to the loop's thread; the queues themselves are thread-safe.
///
/// Each half of the session waits for its own work only. Received batches are decrypted, appended and made
/// durable as a pipeline; a batch with none before it takes one step on `receiving` instead.
struct SessionWorkQueues {
  let sending: WorkerQueue
  let receiving: WorkerQueue
  let decryption: WorkerQueue
  let durability: WorkerQueue
  /// Reads large values through for the other side, concurrently with everything else and never on workers
  /// that others wait for.
  let scanning = WorkerPool.scans.queue()
  /// Batches, and group keys that later batches are decrypted with, that are on the queues.
  private var batchesInProgress = 0

  init(_ workers: WorkerPool) {
    (sending, receiving) = (workers.queue(), workers.queue())
    (decryption, durability) = (workers.queue(), workers.queue())
  }

  /// Counts a batch or group keys. False if others are in progress: the work must follow them in the
  /// pipeline.
  mutating func beginBatch() -> Bool {
    batchesInProgress += 1
    return batchesInProgress == 1
  }

  /// Ends the count of `beginBatch`, if the action was counted.
  mutating func worked(_ action: SessionAction) {
    switch action {
    case .applyBatch, .applyLast, .mergeGroupKeys: batchesInProgress -= 1
    default: break
    }
  }
}
