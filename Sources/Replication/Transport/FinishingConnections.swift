internal import SyncStore

/// Connections whose last words are on their way: an alert, a refusal, what was queued before it. Belongs to its loop's
/// thread.
///
/// Invariant: all together have at most `limit` bytes queued, or there is one alone, and they are at most `most`; the oldest ones are
/// closed for it. Who ends session after session with much queued would have the node hold all of it, and who is refused again and again
/// a descriptor for each time.
final class FinishingConnections {
  private let limit: Int
  private let most: Int
  private var connections: [UInt64: TCPConnection] = [:]

  /// There are none yet. The bounds are those of `TransportLimits` but in tests.
  init(limit: Int = TransportLimits.finishingBytes, most: Int = TransportLimits.finishingConnections) {
    (self.limit, self.most) = (limit, most)
  }

  /// How many there are.
  var count: Int { connections.count }

  /// Bytes queued in all of them.
  var queuedBytes: Int { connections.values.reduce(0) { $0 + $1.queuedBytes } }

  /// Takes over a connection that is finishing, or closed already. `gone` is called once, when its descriptor is closed.
  /// Numbers rise with time.
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
