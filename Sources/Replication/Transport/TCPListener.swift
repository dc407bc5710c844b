internal import SyncStore

/// Accepts connections at one address. Confined to its loop's thread.
///
/// When descriptors are exhausted it pauses, for longer each time, instead of spinning (F33).
package final class TCPListener: EventHandler {
  /// The address, with the actual port.
  package let address: SocketAddress

  private let loop: EventLoop
  private var socket: Socket?
  private let descriptor: Int32
  private var token: UInt64 = 0
  private var pause = TransportLimits.acceptPause.lowerBound
  private var pauseTimer: UInt64?
  private let log: (LogLevel, String) -> Void
  private let accept: (borrowing Socket) -> Socket.Accepting
  private let onConnection: (consuming Socket, SocketAddress) -> Void

  /// Listens at `address`; `onConnection` takes over each connection. `accept` is replaced only in tests.
  init(
    at address: SocketAddress, loop: EventLoop, log: @escaping (LogLevel, String) -> Void,
    accept: @escaping (borrowing Socket) -> Socket.Accepting = { $0.accept() },
    onConnection: @escaping (consuming Socket, SocketAddress) -> Void
  ) throws(ReplicationError) {
    let socket = try Socket.listening(at: address)
    self.address = socket.localAddress
    descriptor = socket.descriptor
    self.socket = consume socket
    (self.loop, self.log, self.accept, self.onConnection) = (loop, log, accept, onConnection)
    guard let token = loop.add(descriptor, interest: .read, self) else {
      throw ReplicationError(.network, "cannot watch \(address): no memory is left: end other programs")
    }
    self.token = token
  }

  /// Listens at `address`, which may be a Unix socket; `onConnection` gets each connection, which reads once
  /// it was started.
  package convenience init(
    plain address: SocketAddress, loop: EventLoop, log: @escaping (LogLevel, String) -> Void,
    onConnection: @escaping (TCPConnection) -> Void
  ) throws(ReplicationError) {
    try self.init(at: address, loop: loop, log: log) { socket, remote in
      onConnection(TCPConnection(socket, remote: remote, loop: loop))
    }
  }

  /// Stops accepting connections.
  package func close() {
    guard socket != nil else { return }
    loop.remove(descriptor, token: token)
    if let pauseTimer { loop.cancel(pauseTimer) }
    socket = nil
  }

  func handle(_ event: Epoll.Event) {
    for _ in 0..<TransportLimits.acceptBudget {
      guard socket != nil else { return }
      switch accept(socket!) {
      case .accepted(let connection, let remote):
        pause = TransportLimits.acceptPause.lowerBound
        onConnection(connection, remote)
      case .wouldBlock: return
      case .gone: continue
      case .exhausted: return rest()
      }
    }
  }

  private func rest() {
    log(
      .warning,
      "accepting rests for \(pause) ms: no descriptors are left: raise the limit on open files (ulimit -n)")
    loop.change(descriptor, interest: [], token: token)
    pauseTimer = loop.schedule(after: pause) { [weak self] in
      guard let self, socket != nil else { return }
      loop.change(descriptor, interest: .read, token: token)
    }
    pause = min(pause * 2, TransportLimits.acceptPause.upperBound)
  }
}
