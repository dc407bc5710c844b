private import Dispatch

/// SHA-256 of bytes that arrive piece by piece, computed on a thread of its own, so that who gives them goes on meanwhile. At most
/// `most` pieces wait.
final class BackgroundHasher: Sendable {
  /// Pieces that are kept for hashing.
  private static let maxQueuedPieces = 4

  private let hasher = LockedField(SHA256Hasher())
  private let queue = Background.SerialQueue("syncstore.hashing")
  private let queueSlots = DispatchSemaphore(value: maxQueuedPieces)

  /// Takes in the next bytes; waits if those before are not hashed yet.
  func update(_ bytes: [UInt8]) {
    queueSlots.wait()
    queue.run { [self] in
      hasher.withLock { $0.update(bytes) }
      queueSlots.signal()
    }
  }

  /// The 32-byte hash of all that was taken in. Once only.
  func finish() -> [UInt8] { queue.wait { hasher.withLock { $0.finish() } } }
}
