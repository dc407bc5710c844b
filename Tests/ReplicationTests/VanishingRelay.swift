import SyncStore
import SyncTestSupport

@testable import Replication

/// Hands bytes on between a client and a server, until the machine behind it vanishes: then the connections that are open stay
/// open, and whatever is sent on them goes nowhere. Later ones work again.
final class VanishingRelay: Sendable {
  let address: Endpoint
  private let listener: LoopBound<TCPListener>
  private let state: Locked<State>

  private struct State {
    var generation = 0
    var connections = 0
  }

  /// How many connections there were.
  var connections: Int { state.withLock { $0.connections } }

  init(to target: Endpoint) async throws {
    let loop = try EventLoop.shared()
    let state = Locked(State())
    self.state = state
    listener = try await on(loop) {
      let address = try SocketAddress.resolve(Endpoint(host: "127.0.0.1", port: 0), listening: true)[0]
      let listener = try TCPListener(at: address, loop: loop, log: { _, _ in }) { socket, remote in
        let generation = state.withLock { state in
          state.connections += 1
          return state.generation
        }
        let isThere = { state.withLock { $0.generation } == generation }
        Relayed(TCPConnection(socket, remote: remote, loop: loop), isThere).connect(to: target, loop)
      }
      return LoopBound(listener, to: loop)
    }
    let listener = listener
    address = try await on(loop) { Endpoint(host: "127.0.0.1", port: listener.value.address.port) }
  }

  /// The machine is gone.
  func vanish() { state.withLock { $0.generation += 1 } }

  /// One connection through the relay; its closures keep it alive.
  private final class Relayed {
    let client: TCPConnection
    let isThere: () -> Bool

    init(_ client: TCPConnection, _ isThere: @escaping () -> Bool) {
      (self.client, self.isThere) = (client, isThere)
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
      from.onBytes = { [self] in if isThere() { to.send($0) } }
      from.onEnd = { [self] _ in if isThere() { to.finish() } }
    }
  }
}
