private import SyncStore
import Replication

/// The daemon's log on standard error: lines with journald's priorities in front, or lines of JSON. A person at a terminal
/// gets neither.
final class DaemonLog: Sendable {
  private let settings: Locked<(level: LogLevel, format: ServeConfiguration.LogFormat)>
  private let isTerminal = System.isTerminal(2)

  /// A log as the configuration wants it.
  init(_ configuration: ServeConfiguration) {
    settings = Locked((configuration.logLevel, configuration.logFormat))
  }

  /// Takes over a new configuration.
  func configure(_ configuration: ServeConfiguration) {
    settings.withLock { $0 = (configuration.logLevel, configuration.logFormat) }
  }

  /// One line.
  func write(_ level: LogLevel, _ message: String) {
    let (limit, format) = settings.withLock { $0 }
    guard level <= limit else { return }
    let message = ToolWords.said(message)
    switch format {
    case .journal:
      Diagnostics.write((isTerminal ? "" : "<\(level.rawValue)>") + Text.printable(message.utf8) + "\n")
    case .json:
      let line: JSON = [
        "time": .string(Text.date(milliseconds: System.wallMilliseconds)), "level": .string("\(level)"),
        "message": .string(message),
      ]
      Diagnostics.write(String(decoding: line.encoded, as: UTF8.self) + "\n")
    }
  }
}
