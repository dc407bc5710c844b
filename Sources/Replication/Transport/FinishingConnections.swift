internal import SyncStore

/// Connections that are closing but still have bytes to send: an alert, a refusal, and what was queued
/// before. Confined to its loop's thread.
///
/// Invariant: there are at most `most`, with at most `limit` bytes queued in total unless there is only one;
/// the oldest are closed to keep this. Otherwise a peer that ends session after session with much queued
/// would fill the node's memory, and one that is refused repeatedly would use up its descriptors.
final class FinishingConnections {
  private let limit: Int
  private let most: Int
  private var connections: [UInt64: TCPConnection] = [:]

  /// Creates an empty set. The bounds are those of `TransportLimits`, except in tests.
  init(limit: Int = TransportLimits.finishingBytes, most: Int = TransportLimits.finishingConnections) {
    (self.limit, self.most) = (limit, most)
  }

  /// Number of connections.
  var count: Int { connections.count }

  /// Total of their queued bytes.
  var queuedBytes: Int { connections.values.reduce(0) { $0 + $1.queuedBytes } }

  /// Takes over a connection that is finishing or already closed.
  ///
  /// `gone` is called once, when its descriptor is closed. Numbers must rise over time.
  func add(_ number: UInt64, connection: TCPConnection, gone: @escaping () -> Void) {
    guard connection.isOpen else { return gone() }
    connections[number] = connection
    connection.onClose = { [weak self] in
      self?.connections[number] = nil
      gone()
    }
    while connections.count > 1, connections.count > most || queuedBytes > limit,
      let oldest = connections.keys.min()
    { close(oldest) }
  }

  /// Closes the connection, if it is still there.
  func close(_ number: UInt64) { connections.removeValue(forKey: number)?.close() }
}
