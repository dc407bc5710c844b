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
      let open = engine.damage.gaps.filter { !engine.state.handledDamage.isResolved($0.location) }
      if open.isEmpty { return nil }
      let keys = engine.damage.keys.filter { !engine.state.handledDamage.isResolved($0.value) }.keys
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
