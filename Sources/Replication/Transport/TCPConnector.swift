internal import SyncStore

/// Opens a connection: resolves the name off the loop, then tries one address after the other.
///
/// Confined to its loop's thread. It retains itself until it has reported a result.
final class TCPConnector: EventHandler {
  private let loop: EventLoop
  private let endpoint: Endpoint
  private var addresses: ArraySlice<SocketAddress> = []
  private var socket: Socket?
  private var current: SocketAddress?
  private var token: UInt64 = 0
  private var timer: UInt64?
  private var lastError: ReplicationError?
  private var completion: ((Result<TCPConnection, ReplicationError>) -> Void)?

  /// Connects to `endpoint` and calls `completion` on the loop, once. The connection is not started yet.
  static func connect(
    to endpoint: Endpoint, loop: EventLoop,
    completion: @escaping (Result<TCPConnection, ReplicationError>) -> Void
  ) {
    let connector = TCPConnector(endpoint, loop: loop, completion: completion)
    let bound = LoopBound(connector, to: loop)
    Background.runBlocking {
      let found = Result { () throws(ReplicationError) in try SocketAddress.resolve(endpoint) }
      loop.execute { bound.value.resolved(found) }
    }
  }

  private init(
    _ endpoint: Endpoint, loop: EventLoop,
    completion: @escaping (Result<TCPConnection, ReplicationError>) -> Void
  ) {
    (self.endpoint, self.loop, self.completion) = (endpoint, loop, completion)
  }

  private func resolved(_ found: Result<[SocketAddress], ReplicationError>) {
    switch found {
    case .success(let found):
      addresses = found[...]
      tryNext()
    case .failure(let error): answer(.failure(error))
    }
  }

  private func tryNext() {
    guard let address = addresses.popFirst() else {
      return answer(
        .failure(
          lastError
            ?? ReplicationError(.network, "\(endpoint) has no address: check the name, or give an address")))
    }
    current = address
    do throws(ReplicationError) {
      let socket = try Socket.connecting(to: address)
      guard let token = loop.add(socket.descriptor, interest: .write, self) else {
        throw ReplicationError(
          .network, "cannot watch the connection to \(address): no memory is left: end other programs")
      }
      self.token = token
      self.socket = consume socket
      timer = loop.schedule(after: TransportLimits.connectMilliseconds) { [weak self] in
        self?.failed(
          ReplicationError(
            .timeout,
            "\(address) did not answer in \(TransportLimits.connectMilliseconds / 1000) s: check that it is up"
          ))
      }
    } catch {
      failed(error)
    }
  }

  func handle(_ event: Epoll.Event) {
    guard let address = current, let socket = takeSocket() else { return }
    if let code = socket.pendingError {
      failed(
        ReplicationError(
          .network, "cannot connect to \(address): \(SystemCall.text(of: code)): check that it is up"))
    } else {
      answer(.success(TCPConnection(socket, remote: address, loop: loop)))
    }
  }

  private func failed(_ error: ReplicationError) {
    lastError = error
    _ = takeSocket()
    tryNext()
  }

  private func takeSocket() -> Socket? {
    if let timer { loop.cancel(timer) }
    timer = nil
    guard let taken = socket.take() else { return nil }
    loop.remove(taken.descriptor, token: token)
    return taken
  }

  private func answer(_ result: Result<TCPConnection, ReplicationError>) {
    let completion = completion
    self.completion = nil
    completion?(result)
  }
}
