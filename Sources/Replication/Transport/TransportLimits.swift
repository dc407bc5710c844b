private import SyncStore

/// Bounds of the transport, with their units. Those that the product promises are in `Limits`.
enum TransportLimits {
  /// Bytes read per call.
  static let readBytes = 64 << 10
  /// Bytes read from one connection before others have their turn.
  static let readBudget = 256 << 10
  /// Connections accepted before open ones have their turn.
  static let acceptBudget = 64
  /// Bytes queued for a peer before it is dropped (F90): what a session may queue, and what TLS adds to it.
  static let queueBytes = Limits.connectionBytes + Limits.connectionBytes / 128
  /// Milliseconds in which a peer must take at least a byte of what is queued for it (F90).
  static let stallMilliseconds = 30_000
  /// Total bytes queued in all finishing connections.
  static let finishingBytes = 2 * Limits.connectionBytes
  /// Maximum number of finishing connections: the oldest are closed first.
  static let finishingConnections = 256
  /// Milliseconds between the last byte sent and the close, to let the peer close first.
  static let lingerMilliseconds = 2_000
  /// Milliseconds for a connection attempt, per address.
  static let connectMilliseconds = 10_000
  /// Milliseconds that accepting pauses when descriptors are exhausted: at first, and at most (F33).
  static let acceptPause = 50...2_000
  /// Connections that have sent and wait for a place in the handshake; and as many silent ones.
  static let waitingConnections = 256
  /// Milliseconds that an unauthenticated connection keeps its place for certain while others wait for it.
  static let graceMilliseconds: UInt64 = 2_000
  /// Grace if the network of the waiting connection holds no place. One round trip by satellite (600 ms)
  /// fits.
  static let newcomerGraceMilliseconds: UInt64 = 800
  /// Grace if the holder's network has at least two places more than that of the waiting connection.
  static let fairGraceMilliseconds: UInt64 = 500
  /// Milliseconds between two checks for places held too long, while others wait.
  static let admissionTickMilliseconds = 100
}
