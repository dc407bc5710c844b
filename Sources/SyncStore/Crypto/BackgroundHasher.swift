private import Dispatch

/// SHA-256 of bytes that arrive piece by piece, computed on a thread of its own while the caller continues.
///
/// At most `maxQueuedPieces` pieces wait.
final class BackgroundHasher: Sendable {
  /// Maximum number of pieces waiting to be hashed.
  private static let maxQueuedPieces = 4

  private let hasher = LockedField(SHA256Hasher())
  private let queue = Background.SerialQueue("syncstore.hashing")
  private let queueSlots = DispatchSemaphore(value: maxQueuedPieces)

  /// Queues the next bytes; blocks while the queue is full.
  func update(_ bytes: [UInt8]) {
    queueSlots.wait()
    queue.run { [self] in
      hasher.withLock { $0.update(bytes) }
      queueSlots.signal()
    }
  }

  /// The 32-byte hash of all bytes. May be called once.
  func finish() -> [UInt8] { queue.wait { hasher.withLock { $0.finish() } } }
}
