import Replication
import SyncStore

/// The daemon's log on standard error: lines with journald's priorities in front, or lines of JSON; on a
/// terminal neither.
///
/// Writing never blocks on the reader: unread lines are buffered, then dropped and counted.
final class DaemonLog: Sendable {
  private let settings: LockedField<(level: LogLevel, format: ServeConfiguration.LogFormat)>
  private let isTerminal = System.isTerminal(2)
  private let lines = LockedField<[Line]>([])

  /// A line that was written, for the status page.
  struct Line: Equatable, Sendable {
    /// Milliseconds since 1970.
    let time: UInt64
    let level: LogLevel
    let message: String
  }

  private static let keptLines = 100

  /// Creates a log with the settings of a configuration.
  init(_ configuration: ServeConfiguration) {
    settings = LockedField((configuration.logLevel, configuration.logFormat))
    Diagnostics.setNonBlocking { [self] lost in
      line(
        .warning,
        "\(Text.count(lost, noun: "line")) of this log \(lost == 1 ? "was" : "were") lost: the reader was too slow"
      )
    }
  }

  /// Also logs what stores report on their own: damage, a lost end of the journal, a copied directory.
  func subscribeToStores() {
    StoreLog.redirect { [self] entry in
      let level: LogLevel =
        switch entry.level {
        case .info: .info
        case .warning: .warning
        case .error: .error
        }
      write(level, "\(entry.path): \(entry.message)")
    }
  }

  /// Applies a new configuration.
  func configure(_ configuration: ServeConfiguration) {
    settings.withLock { $0 = (configuration.logLevel, configuration.logFormat) }
  }

  /// One line.
  func write(_ level: LogLevel, _ message: String) {
    guard level <= settings.withLock({ $0.level }) else { return }
    let message = ToolWords.translated(message)
    Diagnostics.write(line(level, message))
    lines.withLock { lines in
      if lines.count >= Self.keptLines { lines.removeFirst() }
      lines.append(Line(time: System.wallMilliseconds, level: level, message: message))
    }
  }

  /// The last lines, the oldest first.
  var recent: [Line] { lines.withLock { $0 } }

  private func line(_ level: LogLevel, _ message: String) -> String {
    switch settings.withLock({ $0.format }) {
    case .journal:
      return (isTerminal ? "" : "<\(level.rawValue)>") + Text.printable(message.utf8) + "\n"
    case .json:
      let line: JSON = [
        "time": .string(Text.date(milliseconds: System.wallMilliseconds)), "level": .string("\(level)"),
        "message": .string(message),
      ]
      return String(decoding: line.encoded, as: UTF8.self) + "\n"
    }
  }
}
