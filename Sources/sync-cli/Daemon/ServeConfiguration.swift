import Replication
import SyncStore

/// The daemon's configuration. `Settings` lists its settings, `schemas/config.md` describes them.
struct ServeConfiguration: Equatable {
  enum LogFormat: String, CaseIterable { case journal, json }

  /// The address to listen at.
  var listen = Endpoint(host: "")
  var logFormat = LogFormat.journal
  /// Less important lines are omitted.
  var logLevel = LogLevel.info
  /// The peers to keep in step, and how.
  var keeping = KeepPolicy()
  /// Seconds of silence on a connection before a ping.
  var pingSeconds = Limits.pingSeconds
  /// The path of the file whose first line opens the store; nil if the configuration names none.
  var passphraseFile: String?
  /// Which large values the copy takes and keeps; nil for the store's own settings.
  var blobs: BlobConfiguration?
  /// Where health, metrics and the status page can be read; nil for nowhere.
  var http: HTTPAddress?
  /// Names under which requests may ask for this machine, besides its own.
  var httpHosts: [String] = []
  /// Whether the pages name keys and show the log to every reader.
  var httpDetails = false
  /// Seconds within which some member must have been in step, or the daemon counts as unhealthy.
  var healthyWithinSeconds = 3600

  /// This configuration, read again, with the settings of `former` that only a restart changes.
  func keepingWhatNeedsRestart(of former: Self) -> Self {
    var configuration = self
    configuration.listen = former.listen
    configuration.pingSeconds = former.pingSeconds
    configuration.passphraseFile = former.passphraseFile
    (configuration.http, configuration.httpHosts) = (former.http, former.httpHosts)
    return configuration
  }

  /// Names in `peers` that no peer and no member has: they would silently never be kept in step.
  func unknownPeers(in store: Store) throws -> [ConfigurationMistake.Peer] {
    guard let names = keeping.peers else { return [] }
    let membership = Membership(store)
    let known =
      try membership.peers().map(\.name) + membership.members().map(\.name)
      + membership.relays().map(\.name)
    return names.filter { !StringSet(known).contains($0) }.sorted().map {
      ConfigurationMistake.Peer(name: $0, near: ArgumentParser.nearest(to: $0, in: known))
    }
  }
}

/// The daemon's configuration of large values.
struct BlobConfiguration: Equatable {
  var policy = BlobPolicy.eager
  var limits = BlobLimits()

  /// Saves it in the store, for all processes that use the store.
  func keep(in store: Store) throws(StoreError) {
    try store.setBlobLimits(limits)
    try store.setBlobPolicy(policy)
  }
}

extension ServeConfiguration {
  /// The settings in force, as the status page shows them.
  var json: JSON {
    let json: JSON = [
      "listen": .string("\(listen)"), "log": .string(logFormat.rawValue), "log_level": .string("\(logLevel)"),
      "ping_seconds": .integer(pingSeconds), "healthy_within_seconds": .integer(healthyWithinSeconds),
      "publish_seconds": .integer(keeping.publishSeconds), "poll_seconds": .integer(keeping.pollSeconds),
      "retry_seconds": .integer(keeping.retry.upperBound / 1000),
      "peers": keeping.peers.map { .array($0.sorted { $0 < $1 }.map { .string($0) }) } ?? "all",
    ]
    let schedule: JSON =
      switch keeping.schedule {
      case .live: "live"
      case .every(let seconds): .integer(seconds)
      }
    return json.with("schedule", schedule).with("http", http.map { .string("\($0)") })
      .with("http_hosts", .array(httpHosts.map { .string($0) })).with("http_details", .bool(httpDetails))
      .with("passphrase_file", passphraseFile.map { .string($0) })
  }
}
