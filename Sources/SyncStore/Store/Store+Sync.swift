/// Durability of appended records, by group commit (rules R4, R7).
extension Store {
  /// Makes everything committed so far durable.
  ///
  /// - Throws: `.poisoned` if the sync fails, or one did before: nothing more is written until the store is
  ///   opened again; `.diskFull`, `.busy` and `.inputOutput` if large values cannot become durable at the
  ///   moment: the next sync tries again; `.closed`, `.forked`.
  public func sync() throws(StoreError) {
    try checkUsable()
    guard isWritable else { return }
    try sync(upTo: control.tail)
  }

  /// Waits until `target`, a packed location, is durable.
  package func sync(upTo target: UInt64) throws(StoreError) { try journalSync.sync(upTo: target) }

  /// Calls `body` once when `target` is durable, as `JournalSync.whenDurable`.
  package func whenDurable(upTo target: UInt64, _ body: @escaping @Sendable (StoreError?) -> Void) {
    journalSync.whenDurable(upTo: target, body)
  }

  /// Waits until `target` is durable, or schedules a sync, as the durability mode requires.
  func awaitDurability(_ target: UInt64, durability: Durability?) throws(StoreError) {
    switch durability ?? configuration.durability {
    case .full: try sync(upTo: deltas.live.isAwaited ? deltas.appendingMark(to: target) : target)
    case .relaxed: break
    case .interval(let milliseconds): journalSync.schedule(after: milliseconds)
    }
  }
}
