private import SyncStore

/// Bounds of the transport, with their units; those that are part of the product's promise are in `Limits`.
enum TransportLimits {
  /// Bytes taken with one call.
  static let readBytes = 64 << 10
  /// Bytes taken from one connection before the others have their turn.
  static let readBudget = 256 << 10
  /// Connections accepted before those that are open have their turn.
  static let acceptBudget = 64
  /// Bytes queued for a peer before it is dropped (F90): what a session may queue, and what TLS adds to it.
  static let queueBytes = Limits.connectionBytes + Limits.connectionBytes / 128
  /// Milliseconds in which a peer must take at least a byte of what is queued for it (F90).
  static let stallMilliseconds = 30_000
  /// Bytes that all connections together have queued which are finishing.
  static let finishingBytes = 2 * Limits.connectionBytes
  /// Connections that are finishing, at most: the oldest are closed first.
  static let finishingConnections = 256
  /// Milliseconds between the own last byte and the end of the connection, for the peer to close it first.
  static let lingerMilliseconds = 2_000
  /// Milliseconds for a connection to be made, for each address that is tried.
  static let connectMilliseconds = 10_000
  /// Milliseconds for which accepting rests when no descriptors are left: at first, and at most (F33).
  static let acceptPause = 50...2_000
  /// Connections that have spoken and wait for a place to prove who they are; and as many silent ones.
  static let waitingConnections = 256
  /// Milliseconds that an unproven connection has for sure while others wait for its place.
  static let graceMilliseconds: UInt64 = 2_000
  /// The same where the network of the waiting connection holds no place. One round trip by satellite (600 ms) fits.
  static let newcomerGraceMilliseconds: UInt64 = 800
  /// The same where its network holds at least two places more than that of the waiting connection.
  static let fairGraceMilliseconds: UInt64 = 500
  /// Milliseconds between two looks at who holds a place for too long, while others wait.
  static let admissionTickMilliseconds = 100
}
