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

  private static let target = LockedField<Target?>(nil)
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

/// Damage found at an opening.
public struct CorruptionReport: Hashable, Sendable {
  /// The store's directory.
  public let path: String
  /// Damaged places of the journal, below the watermark.
  public let places: [JournalDamage]
  /// Keys whose latest record was lost there, as far as known.
  public let keys: [Key]
}

/// How to open a damaged store.
public enum CorruptionChoice: Hashable, Sendable {
  /// Serve what is intact; lost keys are `.damaged` until a peer sends them again or they are overwritten.
  case serveRest
  /// The opening fails with `.damaged`. The damage is left unchanged.
  case refuse
}

extension Store {
  /// Logs unresolved damage, and lets the program decide how to go on.
  func reportDamage() throws(StoreError) {
    let report = try reading { engine throws(StoreError) -> CorruptionReport? in
      let open = engine.gaps.filter { !engine.state.resolvedDamage.contains($0.location) }
      if open.isEmpty { return nil }
      let keys = engine.damagedKeys.filter { !engine.state.resolvedDamage.contains($0.value) }.keys
      return CorruptionReport(
        path: path, places: open,
        keys: keys.filter { !ReservedKey.isReserved($0) }.map { Key(unchecked: $0) }.sorted())
    }
    guard let report else { return }
    StoreLog.log(
      .error, path: path,
      "\(CountText.of(report.places.count, noun: "place")) of the journal \(report.places.count == 1 ? "is" : "are") damaged, the rest is served: run `Store.verify`"
    )
    guard let choose = configuration.onCorruption, choose(report) == .refuse else { return }
    try? close()
    throw StoreError(
      .damaged,
      "\(CountText.of(report.places.count, noun: "place")) of the journal \(report.places.count == 1 ? "is" : "are") damaged, and the program does not want the rest: restore the store "
        + "from a backup", path: path)
  }
}
