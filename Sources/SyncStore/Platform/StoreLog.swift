private import Synchronization

/// Process-wide log of events that no call returns: damage found and repaired at an opening, why nothing more
/// is acknowledged.
///
/// Entries are discarded unless the program calls `redirect`.
public enum StoreLog {
  /// Severity of an entry.
  public enum Level: Int, Hashable, Sendable, Comparable, CaseIterable {
    /// Information about normal operation.
    case info
    /// Something was repaired; the last moments may be lost.
    case warning
    /// Something was lost, or is no longer possible.
    case error

    /// Orders by severity.
    public static func < (left: Level, right: Level) -> Bool { left.rawValue < right.rawValue }
  }

  /// One log entry.
  public struct Entry: Hashable, Sendable {
    /// Its severity.
    public let level: Level
    /// The store's directory.
    public let path: String
    /// The event and, if there is one, the remedy.
    public let message: String
  }

  private struct Target {
    var least: Level
    var write: @Sendable (Entry) -> Void
  }

  private static let target = LockedField<Target?>(nil, rank: .log)
  private static let hasTarget = Atomic(false)

  /// Passes all entries from level `least` on to `write`, serially, on the thread that logs them; nil
  /// discards them. `write` must not use a store.
  public static func redirect(from least: Level = .info, to write: (@Sendable (Entry) -> Void)?) {
    target.withLock { $0 = write.map { Target(least: least, write: $0) } }
    hasTarget.store(write != nil, ordering: .relaxed)
  }

  static func log(_ level: Level, path: String, _ message: @autoclosure () -> String) {
    guard hasTarget.load(ordering: .relaxed) else { return }
    target.withLock { target in
      guard let target, level >= target.least else { return }
      target.write(Entry(level: level, path: path, message: message()))
    }
  }
}
