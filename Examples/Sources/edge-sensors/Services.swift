import DemoSupport
import Replication
import SyncStore

/// The hub: a store that other processes may also open (`invite` does), and a node that members dial.
enum Hub {
  static let shared = Configuration(mode: .shared)

  static func run(at path: String, listen: String) async throws {
    guard let endpoint = Endpoint(listen) else { throw DemoFailure("\(listen) is no address") }
    let isThere = try Store.exists(at: path)
    let store =
      isThere
      ? try Store.open(at: path, configuration: shared) : try Store.create(at: path, configuration: shared)
    try Node.prepare(store, name: "hub")
    let node = try Node(store: store)
    say("listening on \(try await node.start(listen: endpoint))")
    while true { try await Task.sleep(for: .seconds(3600)) }
  }

  /// A token with which one edge can join within ten minutes.
  static func invite(at path: String) throws -> String {
    try Node.invite(to: try Store.open(at: path, configuration: shared))
  }
}

/// An edge: it logs regardless of the network, and pushes when the hub can be reached.
enum Edge {
  /// Joins at the first start, which needs the hub; later starts do not.
  static func open(at path: String, site: String, token: String?) async throws -> Store {
    if try Store.exists(at: path) { return try Store.open(at: path) }
    guard let token else { throw DemoFailure("the first start needs a token") }
    return try await Node.join(token, at: path, name: site).store
  }

  static func run(at path: String, site: String, retention: UInt64, token: String?) async throws {
    let store = try await open(at: path, site: site, token: token)
    let log = SensorLog(store: store, site: site, retention: retention)
    let node = try Node(store: store)
    let pushing = Task { await push(node) }
    defer { pushing.cancel() }
    say("goes on behind \(try log.last)")
    while true {
      // A burst of readings in one durable transaction: 16 of them cost as much as one.
      let time = milliseconds()
      let last = try log.append(
        (0..<16).map { Reading(time: time, celsius: 20 + Double($0) / 8) })
      say("logged \(last)")
      try await Task.sleep(for: .milliseconds(20))
    }
  }

  /// Pushes every quarter of a second; backs off after each failure, up to two seconds.
  private static func push(_ node: Node) async {
    var backoff = Backoff(base: 250, cap: 2_000)
    while !Task.isCancelled {
      var wait: UInt64 = 250
      do {
        let report = try await node.synchronize(with: "hub", direction: .push)
        backoff.succeeded()
        if report.sentRecords > 0 { say("pushed \(report.sentRecords)") }
      } catch {
        say("offline: \(error.message)")
        wait = backoff.failed(random: .random(in: .min ... .max))
      }
      try? await Task.sleep(for: .milliseconds(wait))
    }
  }
}

/// One push, for the demonstration.
func pushOnce(_ store: Store) async throws {
  let node = try Node(store: store)
  _ = try await node.synchronize(with: "hub", direction: .push)
  await node.stop()
}
