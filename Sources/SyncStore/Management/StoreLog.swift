private import Synchronization

/// What stores have to say that no caller asked for: what an opening found and mended, why nothing more is acknowledged.
///
/// Nothing is written anywhere unless the program has it `redirect`ed. Process-wide.
public enum StoreLog {
  /// How much it matters.
  public enum Level: Int, Hashable, Sendable, Comparable, CaseIterable {
    /// How something went.
    case info
    /// Something was put right, and may have cost the last moments.
    case warning
    /// Something was lost, or cannot be done any more.
    case error

    /// By how much it matters.
    public static func < (left: Level, right: Level) -> Bool { left.rawValue < right.rawValue }
  }

  /// One thing to be said.
  public struct Entry: Hashable, Sendable {
    /// How much it matters.
    public let level: Level
    /// The store's directory.
    public let path: String
    /// What happened, and what to do about it, if anything.
    public let message: String
  }

  private struct Target {
    var least: Level
    var write: @Sendable (Entry) -> Void
  }

  private static let target = LockedField<Target?>(nil)
  private static let hasTarget = Atomic(false)

  /// Has all entries from `least` on given to `write`, on the thread that they come from, one after the other; nil for
  /// nobody. `write` must not use a store.
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

/// What an opening found to be damaged.
public struct CorruptionReport: Hashable, Sendable {
  /// The store's directory.
  public let path: String
  /// The places of the journal that are damaged, below what was known durable.
  public let places: [JournalDamage]
  /// Keys whose latest record was lost there, as far as that can be told.
  public let keys: [Key]
}

/// What is to become of a store that was found to be damaged.
public enum CorruptionChoice: Hashable, Sendable {
  /// What is whole is served; the keys that were lost are `.damaged` until they come again from a peer, or are overwritten.
  case serveRest
  /// The opening fails with `.damaged`. What is damaged is left as it is.
  case refuse
}

extension Store {
  /// Asks the program about damage that is not mended; tells the log what was found.
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
