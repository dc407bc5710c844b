import SyncStore

import Replication
import SyncStore

/// The daemon's configuration file; `schemas/config.md` describes it.
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
  /// Which large values the copy takes and keeps; nil for the store's own settings.
  var blobs: BlobConfiguration?
  /// Where health, metrics and the status page can be read; nil for nowhere.
  var http: HTTPAddress?
  /// Seconds within which some member must have been in step, or the daemon counts as unhealthy.
  var healthyWithinSeconds = 3600

  static let fileBytes = 1 << 20

  /// Creates the default configuration.
  init() {}

  /// Reads a file. Without `waiting`, a pipe without a writer is an error.
  init(fileAt path: Argument, waiting: Bool = true) throws(Failure) {
    let text = try Descriptor.reading(path.bytes, waiting: waiting).readAll(limit: Self.fileBytes)
    do {
      try self.init(json: try JSONParser.parse(text, comments: true))
    } catch let failure as JSONFailure {
      throw Failure(
        .usage, "serve: \(path.shown), \(failure): mend it: \"sync-cli serve --check --config F\" checks it")
    } catch let reason as Reason {
      throw Failure(.usage, "serve: \(path.shown): \(reason.text): mend it: schemas/config.md describes it")
    } catch {
      throw Failure(error)
    }
  }

  /// Decodes the content of a file.
  init(json: JSON) throws(Reason) {
    guard case .object(let members) = json else { throw Reason("it does not hold an object") }
    for member in members {
      let text = member.value.text ?? ""
      switch member.name {
      case "listen":
        guard let endpoint = Endpoint(text) else {
          throw Reason("\"listen\" is no address such as \"127.0.0.1:7420\"")
        }
        listen = endpoint
      case "log":
        guard let format = LogFormat(rawValue: text) else {
          throw Reason("\"log\" is neither \"journal\" nor \"json\"")
        }
        logFormat = format
      case "log_level":
        guard let level = LogLevel.allCases.first(where: { "\($0)" == text }) else {
          throw Reason(
            "\"log_level\" is none of \(LogLevel.allCases.map { "\"\($0)\"" }.joined(separator: ", "))")
        }
        logLevel = level
      case "peers":
        keeping.peers = try Self.peers(member.value)
      case "blobs": blobs = try BlobConfiguration(member.value)
      case "schedule":
        keeping.schedule = try Self.schedule(member.value)
      case "retry_seconds":
        guard case .number(let number) = member.value, let seconds = UInt64(number),
          (1...86_400).contains(seconds)
        else { throw Reason("\"retry_seconds\" is no whole number from 1 to 86400") }
        keeping.retry = min(1_000, seconds * 1000)...seconds * 1000
      case "ping_seconds":
        guard case .number(let number) = member.value, let seconds = Int(number), (1...3600).contains(seconds)
        else { throw Reason("\"ping_seconds\" is no whole number from 1 to 3600") }
        pingSeconds = seconds
      case "http":
        guard let address = HTTPAddress(text) else {
          throw Reason("\"http\" is neither an address such as \"127.0.0.1:7421\" nor \"unix:PATH\"")
        }
        http = address
      case "healthy_within_seconds":
        guard case .number(let number) = member.value, let seconds = Int(number),
          (1...31_536_000).contains(seconds)
        else { throw Reason("\"healthy_within_seconds\" is no whole number from 1 to 31536000") }
        healthyWithinSeconds = seconds
      default: throw Reason("\"\(Text.printable(member.name.utf8))\" is no setting")
      }
    }
  }

  /// `"all"`, or the names of peers and members; an empty list means none.
  private static func peers(_ value: JSON) throws(Reason) -> StringSet? {
    if value.text == "all" { return nil }
    guard case .array(let items) = value else {
      throw Reason("\"peers\" is neither \"all\" nor a list of names")
    }
    var names: StringSet = []
    for item in items {
      guard let name = item.text else { throw Reason("\"peers\" holds something that is no name") }
      names.insert(name)
    }
    return names
  }

  /// Fails if a named peer does not exist: otherwise it would silently never be kept in step.
  func checkPeers(in store: Store) throws {
    guard let names = keeping.peers else { return }
    let membership = Membership(store)
    let known = try Set(membership.peers().map(\.name) + membership.members().map(\.name))
    guard let unknown = names.filter({ !known.contains($0) }).min() else { return }
    throw Failure(
      .usage,
      "serve: \"peers\" names \(Text.printable(unknown.utf8)), and no peer or member is called so: \"sync-cli peer list\" shows "
        + "those there are")
  }

  /// `"live"`, or the seconds between two sessions.
  private static func schedule(_ value: JSON) throws(Reason) -> KeepPolicy.Schedule {
    if value.text == "live" { return .live }
    guard case .number(let number) = value, let seconds = Int(number), (1...604_800).contains(seconds) else {
      throw Reason("\"schedule\" is neither \"live\" nor a whole number of seconds from 1 to 604800")
    }
    return .every(seconds: seconds)
  }
}

extension ServeConfiguration {
  /// The settings in force, as the status page shows them.
  var json: JSON {
    let json: JSON = [
      "listen": .string("\(listen)"), "log": .string(logFormat.rawValue), "log_level": .string("\(logLevel)"),
      "ping_seconds": .integer(pingSeconds), "healthy_within_seconds": .integer(healthyWithinSeconds),
      "retry_seconds": .integer(keeping.retry.upperBound / 1000),
      "peers": keeping.peers.map { .array($0.sorted { $0 < $1 }.map { .string($0) }) } ?? "all",
    ]
    return json.with("http", http.map { .string("\($0)") })
  }
}
