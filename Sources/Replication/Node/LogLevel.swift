/// How much a line in the log matters: the priorities of syslog that are used here.
public enum LogLevel: Int, Sendable, Comparable, CaseIterable {
  /// Somebody must act.
  case error = 3
  /// Something is not as it should be, and was dealt with.
  case warning = 4
  /// A thing worth knowing when all is well.
  case notice = 5
  /// What goes on.
  case info = 6
  /// For whoever looks for a fault.
  case debug = 7

  /// More serious first.
  public static func < (left: LogLevel, right: LogLevel) -> Bool { left.rawValue < right.rawValue }
}
