private import Dispatch

/// SHA-256 of bytes that arrive piece by piece, computed on a thread of its own, so that who gives them goes on meanwhile. At most
/// `most` pieces wait.
final class HashingBeside: Sendable {
  /// Pieces that are kept for hashing.
  private static let most = 4

  private let hasher = LockedField(SHA256Hasher())
  private let line = Background.Line("syncstore.hashing")
  private let room = DispatchSemaphore(value: most)

  /// Takes in the next bytes; waits if those before are not hashed yet.
  func update(_ bytes: [UInt8]) {
    room.wait()
    line.run { [self] in
      hasher.withLock { $0.update(bytes) }
      room.signal()
    }
  }

  /// The 32-byte hash of all that was taken in. Once only.
  func finish() -> [UInt8] { line.wait { hasher.withLock { $0.finish() } } }
}
