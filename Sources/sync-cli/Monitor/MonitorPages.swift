import SyncStore

/// The pages of the daemon: answers requests by reading the monitor. Blocks.
struct MonitorPages: Sendable {
  let monitor: DaemonMonitor
  let log: DaemonLog
  /// The configuration in force.
  let configuration: Locked<ServeConfiguration>
  /// Whether access is controlled by the permissions of a Unix socket.
  let isPrivate: Bool

  /// Whether the pages may name keys.
  private var hasDetails: Bool { isPrivate || configuration.withLock { $0.httpDetails } }

  /// The answer to a request.
  func answer(_ request: HTTPRequest) -> HTTPResponse {
    do {
      switch request.path {
      case "/livez": return try livez()
      case "/readyz", "/healthz": return try health(String(request.path.dropFirst()))
      case "/metrics": return try metrics()
      case "/status.json": return try status()
      case "/": return StatusPage.response
      default:
        return .text(
          "there is no such page: /, /status.json, /metrics, /livez, /readyz and /healthz\n", .notFound)
      }
    } catch {
      // The daemon's own checks detect whether it can continue.
      let why = hasDetails ? Failure(error).message : "see the daemon's log"
      return .text("the store cannot be read: \(why)\n", .internalError)
    }
  }

  /// The loop answers, or this would not run; a read of the store is what is left.
  private func livez() throws -> HTTPResponse {
    _ = try monitor.store.versionVector()
    return .text("ok\n")
  }

  private func checks(_ snapshot: MonitorSnapshot) -> [HealthCheck] {
    HealthCheck.all(snapshot, age: configuration.withLock { $0.healthyWithinSeconds })
  }

  private func health(_ page: String) throws -> HTTPResponse {
    let checks = checks(try monitor.snapshot())
    return .text(
      HealthCheck.text(checks, page: page), checks.allSatisfy(\.passes) ? .ok : .unavailable)
  }

  private func metrics() throws -> HTTPResponse {
    let snapshot = try monitor.snapshot()
    return .text(Metrics.text(snapshot, checks: checks(snapshot)), type: Metrics.type)
  }

  private func status() throws -> HTTPResponse {
    let snapshot = try monitor.snapshot()
    let document = StatusDocument(
      snapshot: snapshot, checks: checks(snapshot), history: monitor.history,
      configuration: configuration.withLock { $0.json }, log: hasDetails ? log.recent : nil)
    return HTTPResponse(type: "application/json", body: document.json.encoded)
  }
}
