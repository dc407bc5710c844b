import Replication
import SyncStore

/// The HTTP side of the daemon: nothing if the configuration names no address for it.
struct DaemonPages {
  private var monitor: DaemonMonitor?
  private var server: HTTPServer?
  private let configuration: Locked<ServeConfiguration>

  /// Begins to serve the pages, if the configuration says where.
  ///
  /// - Throws: `.network` if it cannot listen there.
  init(store: Store, node: Node, log: DaemonLog, configuration: ServeConfiguration) throws {
    self.configuration = Locked(configuration)
    guard let address = configuration.http else { return }
    let monitor = DaemonMonitor(store: store, node: node)
    let pages = MonitorPages(
      monitor: monitor, log: log, configuration: self.configuration, isPrivate: address.isUnix)
    let server = try HTTPServer(at: address, hosts: configuration.httpHosts, log: { log.write($0, $1) }) {
      pages.answer($0)
    }
    log.write(.notice, "health, metrics and the status page on \(server.address)")
    if !address.isUnix, !server.address.isLoopback {
      log.write(
        .warning,
        "\(server.address) can be read by everybody who reaches it: names of members, sizes and times: use 127.0.0.1 "
          + "or unix:PATH, and a proxy that asks who comes")
    }
    (self.monitor, self.server) = (monitor, server)
  }

  /// Called by the main loop every few seconds.
  func tick() { monitor?.tick() }

  /// Applies a new configuration; the address stays.
  func configure(_ configuration: ServeConfiguration) { self.configuration.withLock { $0 = configuration } }

  /// Ends the pages.
  func stop() { server?.stop() }
}
