import SyncStore
import SyncTestSupport

@testable import Replication

/// Forwards bytes between a client and a server while each connection's gate permits.
final class Relay: Sendable {
  /// What to do with received bytes.
  enum Fate {
    case passed
    /// Drop them and close both connections.
    case cut
    /// Drop them silently.
    case swallowed
  }

  let address: Endpoint
  private let listener: LoopBound<TCPListener>

  /// `admit` is called for each connection, and returns its gate: called with the number of bytes, both
  /// directions together.
  init(to target: Endpoint, admit: @escaping @Sendable () -> (Int) -> Fate) async throws {
    let loop = try EventLoop.shared()
    listener = try await on(loop) {
      let address = try SocketAddress.resolve(Endpoint(host: "127.0.0.1", port: 0), listening: true)[0]
      let listener = try TCPListener(at: address, loop: loop, log: { _, _ in }) { socket, remote in
        Relayed(TCPConnection(socket, remote: remote, loop: loop), admit()).connect(to: target, loop)
      }
      return LoopBound(listener, to: loop)
    }
    let listener = listener
    address = try await on(loop) { Endpoint(host: "127.0.0.1", port: listener.value.address.port) }
  }

  /// A relay that cuts each connection after that many bytes.
  static func cutting(to target: Endpoint, allowance: Int) async throws -> Relay {
    try await Relay(to: target) {
      var left = allowance
      return { count in
        left -= count
        return left > 0 ? .passed : .cut
      }
    }
  }

  /// One connection through the relay; its closures keep it alive.
  private final class Relayed {
    let client: TCPConnection
    let gate: (Int) -> Fate

    init(_ client: TCPConnection, _ gate: @escaping (Int) -> Fate) {
      (self.client, self.gate) = (client, gate)
    }

    func connect(to target: Endpoint, _ loop: EventLoop) {
      TCPConnector.connect(to: target, loop: loop) { [self] result in
        guard let server = try? result.get() else { return client.close() }
        couple(client, server)
        couple(server, client)
        _ = server.start()
        _ = client.start()
      }
    }

    private func couple(_ from: TCPConnection, _ to: TCPConnection) {
      from.onBytes = { [self] bytes in
        switch gate(bytes.count) {
        case .passed: to.send(bytes)
        case .cut:
          from.close()
          to.close()
        case .swallowed: break
        }
      }
      from.onEnd = { [self] _ in
        if gate(0) != .swallowed { to.finish() }
      }
    }
  }
}

/// A relay to a machine that vanishes: open connections stay open, and whatever is sent on them is lost.
/// Later connections work again.
final class VanishingRelay: Sendable {
  private struct State {
    var generation = 0
    var connections = 0
  }

  private let relay: Relay
  private let state: Locked<State>

  var address: Endpoint { relay.address }
  /// Number of connections so far.
  var connections: Int { state.withLock { $0.connections } }

  init(to target: Endpoint) async throws {
    let state = Locked(State())
    self.state = state
    relay = try await Relay(to: target) {
      let generation = state.withLock { state in
        state.connections += 1
        return state.generation
      }
      return { _ in state.withLock { $0.generation } == generation ? .passed : .swallowed }
    }
  }

  /// The machine vanishes.
  func vanish() { state.withLock { $0.generation += 1 } }
}
