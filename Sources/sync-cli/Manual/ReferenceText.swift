/// Text of the reference that is written both as a manual page and as an article of the site.
enum ReferenceText {
  /// A part of it. Texts may hold code between backticks; the ends of their lines mean nothing.
  enum Block {
    case section(String)
    case text(String)
    /// An entry of a list.
    case entry(String, String)
    /// Lines that are shown as they are.
    case code([String])
  }

  /// The environment variables of the program.
  static let variables = [
    ("SYNC_STORE", "The directory of the store, unless --store names one."),
    ("SYNC_PASSPHRASE_FILE", "A file whose first line opens an encrypted store."),
    ("SYNC_PASSPHRASE", "The passphrase of an encrypted store, if no file is named."),
    (
      "CREDENTIALS_DIRECTORY",
      "Its files \"passphrase\", if none of these is set, and \"s3-credentials\": see systemd.exec(5)."
    ),
    ("AWS_ACCESS_KEY_ID", "With AWS_SECRET_ACCESS_KEY: for buckets without a --credentials-file."),
    ("AWS_SECRET_ACCESS_KEY", "The secret key that belongs to it."),
    ("AWS_SESSION_TOKEN", "For temporary keys: the token that belongs to them."),
    (
      "AWS_SHARED_CREDENTIALS_FILE",
      "For buckets, if neither is there (default: .aws/credentials in HOME)."
    ),
    ("AWS_PROFILE", "The section of that file (default: default)."),
    ("SYNC_NEW_PASSPHRASE_FILE", "A file whose first line is the new passphrase, for rekey."),
    ("SYNC_NEW_PASSPHRASE", "The new passphrase for rekey, if no file is named."),
    ("XDG_DATA_HOME", "The directory of the store is sync-store below it, unless one is named."),
    ("HOME", "Stands for XDG_DATA_HOME as its directory .local/share."),
    ("SYNC_COMPLETE_TIMEOUT", "Milliseconds that completion may take to read names from the store: 180."),
    ("SYNC_HISTORY_FILE", "The file for the lines typed in a shell; none are kept if the name is empty."),
    ("XDG_STATE_HOME", "Those lines are in sync-store/history below it (default: .local/state in HOME)."),
    ("VISUAL", "The editor of \"sync-cli edit\"."), ("EDITOR", "That editor, if VISUAL is not set."),
    ("XDG_RUNTIME_DIR", "Where a value lies while it is edited; else TMPDIR, else /tmp."),
    ("NO_COLOR", "If it is set, messages and prompts have no colours."),
    ("NOTIFY_SOCKET", "Where the daemon reports to the service manager: see sd_notify(3)."),
    ("WATCHDOG_USEC", "How often the service manager wants to hear from the daemon, in microseconds."),
    ("WATCHDOG_PID", "The process that WATCHDOG_USEC is meant for."),
  ]

  static let description = """
    An offline-first store of keys and values that comes into step with its copies whenever it can reach
    one. Every command works while the daemon of the store runs, except those that replace or remove the
    store.

    Options are long: --name value or --name=value, before or after the command and between its operands;
    -- ends them. Data goes to standard output, messages go to standard error: "sync-cli: what failed: why:
    what to do".
    """

  static let json = """
    With --json each line of standard output is one object. Members may be added, and keep their names and
    meanings. Numbers are whole up to 64 bits: read them as such.
    """

  /// What the daemon's pages are for.
  static let monitoring = [
    """
    With "http" in its configuration, or --http, the daemon serves pages over HTTP. They can be read and change
    nothing. At an address of loopback, or a Unix socket, only this machine reads them; elsewhere, put a proxy
    with TLS and a password in front.
    """,
    """
    Each check has a name. /healthz and /readyz answer 200 if all pass, else 503, with a line for each that
    says what failed and which command helps. A scrape of the metrics takes a few milliseconds whatever the
    number of keys: keys, tombstones, values and blobs are counted in the background, and
    syncstore_counted_timestamp_seconds says when. Alert rules and a dashboard are in packaging/.
    """,
  ]

  /// The paths of the daemon's pages.
  static let httpPages = [
    ("/livez", "200 and \"ok\" while the daemon runs and reaches its store, for watchdogs."),
    ("/readyz", "The checks, for load balancers and orchestrators."),
    ("/healthz", "The same checks, for monitoring."),
    ("/metrics", "All metrics in Prometheus' text format, version 0.0.4."),
    ("/status.json", "What the status page shows."),
    ("/", "The status page: the verdict, members, plots of the last hour, log and configuration."),
  ]

  static let example = [
    "sync-cli --store here init --name here",
    "sync-cli --store here put greeting hello",
    "sync-cli --store here serve --listen 127.0.0.1:7420 &",
    "sync-cli --store there join \"$(sync-cli --store here invite)\" --name there",
    "sync-cli --store there get greeting",
  ]

  /// The commands of the same family as a command, and those that its texts name.
  static func related(_ command: Command, among commands: [Command]) -> [Command] {
    let family = command.family ?? command.name
    let texts = ([command.summary, command.notes] + command.options.map(\.help)).joined(separator: " ")
    return commands.filter { other in
      guard other.name != command.name else { return false }
      return other.name == family || other.family == family || texts.mentions("\"sync-cli \(other.name)")
        || texts.mentions("\"\(other.name)\"")
    }
  }

  /// The name of a command's page.
  static func page(of command: Command) -> String {
    "sync-cli-" + String(command.name.map { $0 == " " ? "-" : $0 })
  }
}

extension String {
  fileprivate func mentions(_ words: String) -> Bool {
    let (text, words) = (Array(utf8), Array(words.utf8))
    return text.indices.contains { text[$0...].starts(with: words) }
  }
}
