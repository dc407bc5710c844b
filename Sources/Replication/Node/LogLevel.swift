/// Severity of a log line: the syslog priorities used here.
public enum LogLevel: Int, Sendable, Comparable, CaseIterable {
  /// An operator must act.
  case error = 3
  /// Something went wrong and was handled.
  case warning = 4
  /// Worth knowing in normal operation.
  case notice = 5
  /// Progress of normal operation.
  case info = 6
  /// For fault finding.
  case debug = 7

  /// More serious levels sort first.
  public static func < (left: LogLevel, right: LogLevel) -> Bool { left.rawValue < right.rawValue }
}
