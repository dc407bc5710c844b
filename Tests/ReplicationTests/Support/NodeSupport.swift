import SyncStore
import SyncTestSupport

@testable import Replication

/// One copy with its node, in a private directory.
final class TestCopy: Sendable {
  let directory: TemporaryDirectory
  let store: Store
  let node: Node
  let log: TestLog

  init(_ directory: TemporaryDirectory, _ store: Store, log: TestLog = TestLog()) throws {
    (self.directory, self.store, self.log) = (directory, store, log)
    node = try Node(store: store, configuration: Node.Configuration { log.add($0, $1) })
  }

  /// A new store that can have members.
  static func first(_ name: String = "first") throws -> TestCopy {
    let directory = TemporaryDirectory()
    let store = try Store.create(
      at: directory.path + "/store", name: "shop", configuration: Self.configuration)
    try Node.prepare(store, name: name)
    return try TestCopy(directory, store)
  }

  /// A copy that joined with the token and has pulled nothing.
  static func joined(_ token: String, _ name: String, scope: KeyScope? = nil) async throws -> TestCopy {
    let directory = TemporaryDirectory()
    let joined = try await Node.join(
      token, at: directory.path + "/store", name: name, scope: scope, configuration: Self.configuration)
    return try TestCopy(directory, joined.store)
  }

  static let configuration = Configuration(durability: .relaxed, blobThreshold: 1000)

  func listen() async throws -> Endpoint {
    try await node.start(listen: Endpoint(host: "127.0.0.1", port: 0))
  }

  func put(_ key: String, _ value: String) throws { try store.put(Key(key), Array(value.utf8)) }

  func get(_ key: String) throws -> String? {
    try store.get(Key(key)).map { String(decoding: $0.bytes, as: UTF8.self) }
  }

  func digest() throws -> StateDigest { try store.digest() }
}

/// Keeps the lines of a log.
final class TestLog: Sendable {
  private let state = Locked<[String]>([])
  var lines: [String] { state.withLock { $0 } }
  func add(_ level: LogLevel, _ line: String) { state.withLock { $0.append("\(level) \(line)") } }
}

/// A first copy that listens, and a second one that joined it and pulled.
func pair() async throws -> (server: TestCopy, client: TestCopy, address: Endpoint) {
  let server = try TestCopy.first()
  let address = try await server.listen()
  let client = try await TestCopy.joined(try Node.invite(to: server.store), "second")
  _ = try await client.node.synchronize(with: "first", direction: .pull)
  return (server, client, address)
}

/// Waits until the condition holds. The suite's time limit ends an endless wait.
func until(_ isSo: () async throws -> Bool) async throws {
  while try await !isSo() { try await Task.sleep(for: .milliseconds(2)) }
}

/// Incompressible bytes.
func noise(_ count: Int, seed: UInt64) -> [UInt8] {
  var random = SplitMix64(seed: seed)
  return random.bytes(count)
}

/// A link to `address` as `identity`, started as soon as it is connected and `prepare` has set its handlers:
/// a test may get a thread only after a silent connection was dropped. Only its own closures keep it alive.
func startLink(
  to address: Endpoint, as identity: DeviceIdentity, protocols: [String] = [WireLimits.sessionProtocol],
  prepare: @escaping @Sendable (PeerLink) -> Void
) async throws {
  let loop = try EventLoop.shared()
  let engine = try HandshakeEngine(
    TLSContext(role: .client, identity: identity), protocols: protocols, accept: { _, _ in true })
  _ = try await connect(loop, to: address) { connection in
    let link = PeerLink(connection, engine: engine, worker: WorkerPool.shared.queue(), loop: loop)
    prepare(link)
    link.start()
  }
}

/// A raw TCP connection, not speaking the protocol.
final class RawClient: Sendable {
  let received = Awaited<[UInt8]>()
  let ended = Awaited<Bool>()
  private let connection: LoopBound<TCPConnection>
  private let loop: EventLoop

  /// Connects and sends something at once: a test may get a thread only after a silent connection was
  /// dropped. If it is `deaf` it never reads.
  init(_ loop: EventLoop, to address: Endpoint, saying bytes: [UInt8] = [], isDeaf: Bool = false) async throws
  {
    self.loop = loop
    let (received, ended) = (received, ended)
    connection = try await connect(loop, to: address) { connection in
      connection.onBytes = { received.put($0) }
      connection.onEnd = { _ in ended.put(true) }
      _ = connection.start()
      connection.send(bytes)
      if isDeaf { connection.pause() }
    }
  }

  func close() async throws {
    let connection = connection
    try await on(loop) { connection.value.close() }
  }
}

/// The files below a directory, to be restored into the same files: the view of a machine that is rolled
/// back.
struct FileImage {
  private var files: [(path: String, bytes: [UInt8])] = []

  init(of directory: String) { read(directory, DiskStorage()) }

  private mutating func read(_ directory: String, _ storage: DiskStorage) {
    for name in (try? storage.list(directory)) ?? [] {
      let path = directory + "/" + name
      guard let status = try? storage.status(path) else { continue }
      if status.kind == .directory {
        read(path, storage)
      } else if let bytes = try? storage.contents(of: path, limit: 1 << 28) {
        files.append((path, bytes))
      }
    }
  }

  func restore() {
    let storage = DiskStorage()
    for file in files {
      guard let open = try? storage.open(file.path, .openOrCreate) else { continue }
      try? open.resize(to: 0)
      try? open.write(file.bytes, at: 0)
    }
  }
}
