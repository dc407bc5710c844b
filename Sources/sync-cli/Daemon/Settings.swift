import Replication
import SyncStore

/// All settings of the daemon's configuration. Its parser, `schemas/config.md`, `schemas/config.schema.json`
/// and sync-cli.conf(5) are made from this list: a new setting is one entry here.
enum Settings {
  static let all: [Setting] = peers + log + monitoring + [blobs] + blobMembers

  private static let peers = [
    Setting(
      "listen",
      .text(words: "an address such as \"127.0.0.1:7420\", or \":7420\" for every address") {
        Endpoint($0) != nil
      }, default: ":7420", reload: .restart,
      about: .init(
        example: "127.0.0.1:7420",
        "where the daemon accepts members: `host:port`; `:port` for every address, port 0 for any")
    ) { if case .text(let text) = $0, let endpoint = Endpoint(text) { $1.listen = endpoint } },
    Setting(
      "peers", .either(.words(["all"]), or: .list(most: .max, bytes: .max)), default: "all",
      about: .init(
        example: ["harbour"],
        """
        `"all"`: every peer, every relay and every member with an address is kept in step; or a list of their names, which \
        `--check` and SIGHUP look up; `[]` for none
        """)
    ) {
      if case .list(let names) = $0 { $1.keeping.peers = StringSet(names) } else { $1.keeping.peers = nil }
    },
    Setting(
      "schedule", .either(.words(["live"]), or: .whole(1...604_800)), unit: .seconds, default: "live",
      about: .init(
        example: 300,
        """
        `"live"`: connections stay open, and writes are sent at once; or the time between two \
        sessions
        """)
    ) {
      if case .whole(let seconds) = $0 {
        $1.keeping.schedule = .every(seconds: Int(seconds))
      } else {
        $1.keeping.schedule = .live
      }
    },
    Setting(
      "retry_seconds", .whole(1...86_400), unit: .seconds, default: 20,
      about: .init(
        example: 60,
        """
        the longest pause between two failed attempts; the first is 1 s at most, each is up to twice the one \
        before. SIGHUP, and an address or a link that comes back, has all peers tried at once
        """)
    ) {
      guard case .whole(let seconds) = $0 else { return }
      $1.keeping.retry = min(1_000, seconds * 1000)...seconds * 1000
    },
    Setting(
      "publish_seconds", .whole(1...86_400), unit: .seconds, default: 5,
      about: .init(
        example: 60,
        "the time within which what is written here is published in the relays: each costs requests")
    ) { if case .whole(let seconds) = $0 { $1.keeping.publishSeconds = Int(seconds) } },
    Setting(
      "poll_seconds", .whole(1...604_800), unit: .seconds, default: 10,
      about: .init(
        example: 300,
        """
        the time between two looks into a relay, which cost a request each; every pause is 80 to 120 % of it. \
        SIGHUP has all relays looked at at once
        """)
    ) { if case .whole(let seconds) = $0 { $1.keeping.pollSeconds = Int(seconds) } },
    Setting(
      "ping_seconds", .whole(1...3600), unit: .seconds, default: .integer(Limits.pingSeconds),
      reload: .restart,
      about: .init(example: 30, "the time without a byte after which a connection is pinged")
    ) { if case .whole(let seconds) = $0 { $1.pingSeconds = Int(seconds) } },
  ]

  private static let log = [
    Setting(
      "log", .words(ServeConfiguration.LogFormat.allCases.map(\.rawValue)), default: "journal",
      about: .init(
        example: "json",
        """
        `"journal"`: lines with journald's priority in front; `"json"`: objects of `time`, `level` and `message`. \
        Lines that are not read are buffered up to 256 KiB; those beyond are lost, and a line states how many
        """)
    ) {
      if case .text(let text) = $0, let format = ServeConfiguration.LogFormat(rawValue: text) {
        $1.logFormat = format
      }
    },
    Setting(
      "log_level", .words(LogLevel.allCases.map { "\($0)" }), default: "info",
      about: .init(example: "notice", "the least serious lines that are written")
    ) {
      if case .text(let text) = $0, let level = LogLevel.allCases.first(where: { "\($0)" == text }) {
        $1.logLevel = level
      }
    },
    Setting(
      "passphrase_file", .file, absent: "none: the environment names it", reload: .restart,
      about: .init(
        example: "/etc/sync-store/passphrase",
        """
        the file whose first line opens an encrypted store, unless `--passphrase-file` names one. The passphrase \
        itself is not written here
        """)
    ) { if case .text(let path) = $0 { $1.passphraseFile = path } },
  ]

  private static let monitoring = [
    Setting(
      "http",
      .text(words: "an address such as \"127.0.0.1:7421\", or \"unix:\" and the path of a socket") {
        HTTPAddress($0) != nil
      }, absent: "nowhere", reload: .restart,
      about: .init(
        example: "127.0.0.1:7421",
        """
        where health, metrics and the status page are served over HTTP: `host:port` or `unix:PATH`. Everybody \
        who reaches it reads the names of members, sizes and times: elsewhere than on loopback, put a proxy with \
        a password before it
        """)
    ) { if case .text(let text) = $0 { $1.http = HTTPAddress(text) } },
    Setting(
      "http_hosts", .list(most: 100, bytes: Endpoint.hostBytes), default: [], reload: .restart,
      about: .init(
        example: ["harbour.example.org"],
        """
        names under which requests may ask for this machine, as a proxy or Prometheus does, besides its host name, \
        `localhost` and any address: another name is refused, because it may be another site's
        """)
    ) { if case .list(let names) = $0 { $1.httpHosts = names } },
    Setting(
      "http_details", .words(["socket", "always"]), default: "socket",
      about: .init(
        example: "always",
        """
        who sees the keys that members lack, and the log, which can name keys: `"socket"`: readers of a Unix \
        socket; `"always"`: every reader, also other users of this machine and those that a proxy lets in
        """)
    ) { if case .text(let text) = $0 { $1.httpDetails = text == "always" } },
    Setting(
      "healthy_within_seconds", .whole(1...31_536_000), unit: .seconds, default: 3600,
      about: .init(
        example: 86_400,
        "`/healthz` and `/readyz` fail when no member was in step with this copy for this time")
    ) { if case .whole(let seconds) = $0 { $1.healthyWithinSeconds = Int(seconds) } },
  ]

  // MARK: - Large values

  private static let blobs = Setting(
    "blobs", .object, absent: "the store keeps what it has",
    about: .init(
      example: ["take": "lazy"],
      """
      which large values the copy takes and keeps; it is stored in the store, for all programs that use it. A \
      member that is not in it has its default
      """)
  ) { if case .object = $0 { $1.blobs = $1.blobs ?? BlobConfiguration() } }

  private static let noLimit = "no limit"

  private static let blobMembers = [
    Setting(
      "blobs.take", .either(.words(["eager", "lazy"]), or: .whole(0...UInt64.max)), unit: .bytes,
      default: "eager",
      about: .init(
        example: 1_048_576,
        """
        `"eager"`: all large values come with their records; `"lazy"`: none, each is fetched when it is read; or \
        the size up to which they come
        """)
    ) {
      switch $0 {
      case .whole(let bytes): $1.blobs?.policy.eagerBytes = bytes
      case .text("lazy"): $1.blobs?.policy.eagerBytes = 0
      default: $1.blobs?.policy.eagerBytes = .max
      }
    },
    Setting(
      "blobs.eager_prefixes", .list(most: BlobPolicy.maximumPrefixes, bytes: Limits.keyBytes), default: [],
      about: .init(
        example: ["photos/"],
        "values of keys that begin with one of them come whatever their size; not with `\"take\": \"eager\"`")
    ) { if case .list(let texts) = $0 { $1.blobs?.policy.eagerPrefixes = texts.map { Array($0.utf8) } } },
    Setting(
      "blobs.max_bytes", .whole(0...UInt64.max), unit: .bytes, absent: noLimit,
      about: .init(example: 20_000_000_000, "large values are evicted while they have more bytes on the disk")
    ) { if case .whole(let bytes) = $0 { $1.blobs?.limits.bytes = bytes } },
    Setting(
      "blobs.max_count", .whole(0...UInt64.max), absent: noLimit,
      about: .init(example: 100_000, "large values are evicted while there are more of them")
    ) { if case .whole(let count) = $0 { $1.blobs?.limits.count = count } },
    Setting(
      "blobs.max_age_seconds", .whole(0...UInt64.max / 1000), unit: .seconds, absent: noLimit,
      about: .init(
        example: 2_592_000, "large values that were neither put nor read for this time are evicted")
    ) { if case .whole(let seconds) = $0 { $1.blobs?.limits.ageMilliseconds = seconds * 1000 } },
    Setting(
      "blobs.min_free_bytes", .whole(0...UInt64.max), unit: .bytes, default: 0,
      about: .init(
        example: 1_000_000_000,
        "large values are evicted while the file system that holds them has fewer bytes free")
    ) { if case .whole(let bytes) = $0 { $1.blobs?.limits.freeDiskBytes = bytes } },
    Setting(
      "blobs.copies", .whole(1...UInt64(Limits.blobCopies)), default: 1,
      about: .init(
        example: 2, "how many other members must confirm that they hold a value before it is evicted")
    ) { if case .whole(let copies) = $0 { $1.blobs?.limits.copies = Int(copies) } },
    Setting(
      "blobs.trim_seconds", .whole(0...604_800), unit: .seconds, default: 60,
      about: .init(example: 600, "the time between two checks of the limits, 0 for none")
    ) { if case .whole(let seconds) = $0 { $1.blobs?.limits.trimSeconds = UInt32(seconds) } },
  ]
}
