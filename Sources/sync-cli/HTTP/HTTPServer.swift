import Dispatch
import Replication
import SyncStore

/// Where the daemon's pages can be read: `127.0.0.1:7421`, `[::1]:7421`, or `unix:PATH`.
enum HTTPAddress: Equatable, Sendable, CustomStringConvertible {
  case tcp(Endpoint)
  case unix(path: String)

  /// Nil unless `text` is an address with a port, or the path of a Unix socket.
  init?(_ text: String) {
    if text.utf8.starts(with: "unix:".utf8) {
      let path = String(text.dropFirst("unix:".count))
      guard SocketAddress(unixPath: Array(path.utf8)) != nil else { return nil }
      self = .unix(path: path)
    } else {
      // The port of a node is none for pages, so that it must be stated.
      guard let endpoint = Endpoint(text), text.utf8.last != 0x5D, text.utf8.contains(0x3A) else {
        return nil
      }
      self = .tcp(endpoint)
    }
  }

  var description: String {
    switch self {
    case .tcp(let endpoint): "\(endpoint)"
    case .unix(let path): "unix:\(path)"
    }
  }

  /// Whether it is a Unix socket, whose permissions decide who connects.
  var isUnix: Bool { if case .unix = self { true } else { false } }

  /// The addresses to listen at. Blocks while a name is looked up.
  func resolved() throws(ReplicationError) -> [SocketAddress] {
    switch self {
    case .tcp(let endpoint): try SocketAddress.resolve(endpoint, listening: true)
    case .unix(let path): SocketAddress(unixPath: Array(path.utf8)).map { [$0] } ?? []
    }
  }
}

/// Serves the daemon's pages over HTTP, on the event loop of the process (docs/decisions/0053-http.md).
///
/// Bounds: `mostConnections` at a time, each for one request, whose head must arrive within
/// `headMilliseconds`. Answers are made on a queue of their own, one after the other: making them reads the
/// store, which blocks.
final class HTTPServer: Sendable {
  /// Makes the answer to a request.
  typealias Handler = @Sendable (HTTPRequest) -> HTTPResponse

  static let mostConnections = 32
  static let headMilliseconds = 5_000

  /// Where it listens, with the actual port.
  let address: SocketAddress
  private let loop: EventLoop
  private let connections: LoopBound<Connections>
  /// The file of its Unix socket.
  private let file: (device: UInt64, inode: UInt64)?

  /// Starts to serve. Blocks until it listens.
  ///
  /// - Parameter hosts: names of this machine that a request may give, besides its host name, `localhost` and
  ///   any address.
  /// - Throws: `.network` if it cannot listen there.
  init(
    at address: HTTPAddress, hosts: [String], log: @escaping @Sendable (LogLevel, String) -> Void,
    handler: @escaping Handler
  ) throws {
    let loop = try EventLoop.shared()
    let addresses = try address.resolved()
    let connections = LoopBound(
      Connections(loop: loop, hosts: hosts + [System.hostName, "localhost"], handler: handler, log: log),
      to: loop)
    (self.loop, self.connections) = (loop, connections)
    self.address = try blocking { () async throws -> SocketAddress in
      try await withCheckedContinuation { continuation in
        loop.execute {
          continuation.resume(
            returning: Result { () throws(ReplicationError) in try connections.value.listen(addresses) })
        }
      }.get()
    }
    file = self.address.unixFile
  }

  /// Stops listening, and closes all connections.
  func stop() {
    loop.execute { [connections] in connections.value.stop() }
    address.removeUnixSocket(file)
  }
}

/// The connections of a server. Confined to the loop's thread.
private final class Connections {
  private final class Client {
    var connection: TCPConnection
    var parser = HTTPRequestParser()
    /// Fires if the head has not arrived.
    var timer: UInt64?
    var isAnswered = false

    init(_ connection: TCPConnection) { self.connection = connection }
  }

  private let loop: EventLoop
  private let handler: HTTPServer.Handler
  private let log: @Sendable (LogLevel, String) -> Void
  private let queue = DispatchQueue(label: "sync-cli.http", qos: .utility)
  private var listener: TCPListener?
  private var clients: [UInt64: Client] = [:]
  private var lastNumber: UInt64 = 0
  /// The names that a request may give. Another site's name that resolves to this machine would let that
  /// site's pages read these (DNS rebinding).
  private let hosts: [String]
  /// Whether names matter: no browser reaches a Unix socket under a site's name.
  private var checksHosts = true

  init(
    loop: EventLoop, hosts: [String], handler: @escaping HTTPServer.Handler,
    log: @escaping @Sendable (LogLevel, String) -> Void
  ) {
    (self.loop, self.handler, self.log) = (loop, handler, log)
    self.hosts = hosts.map { $0.lowercased() }
  }

  /// Listens on the first usable address.
  func listen(_ addresses: [SocketAddress]) throws(ReplicationError) -> SocketAddress {
    var failure = ReplicationError(.network, "the address for HTTP was not found: give host:port")
    for address in addresses {
      do throws(ReplicationError) {
        let listener = try TCPListener(plain: address, loop: loop, log: { [log] in log($0, "HTTP: \($1)") }) {
          [weak self] in self?.arrived($0)
        }
        self.listener = listener
        checksHosts = !listener.address.isUnix
        return listener.address
      } catch {
        failure = error
      }
    }
    throw failure
  }

  func stop() {
    listener?.close()
    listener = nil
    for number in clients.keys { drop(number) }
  }

  private func arrived(_ connection: TCPConnection) {
    guard clients.count < HTTPServer.mostConnections else { return connection.close() }
    lastNumber += 1
    let number = lastNumber
    let client = Client(connection)
    clients[number] = client
    connection.onBytes = { [weak self] in self?.received($0, by: number) }
    // A client that has closed its direction is gone, whether or not it still reads.
    connection.onEnd = { [weak self] _ in self?.drop(number) }
    connection.onClose = { [weak self] in self?.forget(number) }
    client.timer = loop.schedule(after: HTTPServer.headMilliseconds) { [weak self] in
      self?.answer(number, HTTPResponse(HTTPRefusal(.timeout, "the request did not arrive in time")))
    }
    if !connection.start() { forget(number) }
  }

  private func received(_ bytes: [UInt8], by number: UInt64) {
    guard let client = clients[number], !client.isAnswered else { return }
    do throws(HTTPRefusal) {
      guard let request = try client.parser.receive(bytes) else { return }
      try checkHost(request)
      client.isAnswered = true
      let this = LoopBound(self, to: loop)
      let (loop, handler) = (loop, handler)
      queue.async {
        let response = handler(request)
        loop.execute { this.value.send(number, response, headOnly: request.wantsHeadOnly) }
      }
    } catch {
      answer(number, HTTPResponse(error))
    }
  }

  private func checkHost(_ request: HTTPRequest) throws(HTTPRefusal) {
    guard checksHosts, let host = request.host, !host.isAddress, !hosts.contains(host) else { return }
    throw HTTPRefusal(
      .forbidden, "this machine is not known as \(host): ask for an address, or name it in \"http_hosts\"")
  }

  /// Answers a request that was not passed on.
  private func answer(_ number: UInt64, _ response: HTTPResponse) {
    guard let client = clients[number], !client.isAnswered else { return }
    client.isAnswered = true
    send(number, response, headOnly: false)
  }

  private func send(_ number: UInt64, _ response: HTTPResponse, headOnly: Bool) {
    guard let client = clients[number] else { return }
    client.connection.send(response.encoded(headOnly: headOnly))
    client.connection.finish()
  }

  private func drop(_ number: UInt64) {
    clients[number]?.connection.close()
    forget(number)
  }

  private func forget(_ number: UInt64) {
    guard let client = clients.removeValue(forKey: number) else { return }
    if let timer = client.timer { loop.cancel(timer) }
  }
}

extension String {
  /// Whether it is an IP address: no name, and so not another site's.
  fileprivate var isAddress: Bool {
    let parts = utf8.split(separator: 0x2E, omittingEmptySubsequences: false)
    return utf8.contains(0x3A)
      || parts.count == 4 && parts.allSatisfy { String($0).flatMap { UInt8($0) } != nil }
  }
}
