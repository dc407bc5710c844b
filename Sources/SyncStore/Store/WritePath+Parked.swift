/// Applying records stamped ahead of this machine's clock, once they are due.
extension WritePath {
  /// Applies the parked records that are due. The caller holds the mutex.
  ///
  /// On a full disk they stay parked until there is room: a delete or a compaction, which makes room, must
  /// not wait for them. Readers already see them, so new writes must be stamped after them.
  @inline(never)
  func applyDueParked(_ engine: inout Engine) throws(StoreError) {
    let wall = environment.now()
    let limit = Stamp(milliseconds: wall + Limits.clockDriftMilliseconds)
    engine.parked.overdueUpTo = nil
    var due = engine.dueParkedByKey(upTo: limit)[...]
    while !due.isEmpty {
      var builder = engine.transactionBuilder(wall: wall, limit: Limits.transactionBytes)
      var count = 0
      do throws(StoreError) {
        // Declares that this append has applied all of them; replay then does the same.
        try builder.setLocal(StateKey.unparked, ReplicaState.encode(unparked: limit))
        for group in due {
          try unpark(group, in: &engine, &builder, isAlone: count == 0)
          count += 1
        }
      } catch {
        // The consequences of all of them may exceed one transaction; those of a single key never do.
        guard error.code == .outOfBounds, count > 0 else { throw error }
        builder = engine.transactionBuilder(wall: wall, limit: Limits.transactionBytes)
        for (number, group) in due.prefix(count).enumerated() {
          try unpark(group, in: &engine, &builder, isAlone: number == 0)
        }
      }
      // Commits the consequences first: if that fails, the records are still parked.
      do throws(StoreError) { try commit(builder, &engine) } catch {
        guard error.code == .diskFull, !control.poisoned else { throw error }
        if let last = engine.dueParked(upTo: limit).last, let stamp = try? engine.record(at: last).stamp {
          engine.state.author.clock.observe(stamp)
        }
        engine.parked.overdueUpTo = limit
        return
      }
      guard count < due.count else { return }
      do throws(StoreError) {
        for location in due.prefix(count).joined() { try engine.unpark(location) }
      } catch {
        // The record may now be in neither: rebuilding the index parks all of them again.
        engine.index.failure = engine.index.failure ?? error
        return engine.rebuildIndex()
      }
      due = due.dropFirst(count)
    }
  }

  private func unpark(
    _ places: [Location], in engine: inout Engine, _ builder: inout TransactionBuilder, isAlone: Bool
  ) throws(StoreError) {
    var records: [Record] = []
    for place in places { records.append(try engine.record(at: place)) }
    try builder.unpark(
      records, held: engine.readable(records[0].key), kept: engine.losers.digests, isAlone: isAlone)
  }
}

extension Engine {
  /// A parked record that is due, not applied yet, and beats the applied record.
  struct EffectiveRecord {
    var record: Record
    /// Open dots of the records it beats: a write that replaces it must carry them, too (`Resolution.names`).
    fileprivate var open: [Dot]

    /// The part of it that a replacing write needs.
    var replaced: ReplacedRecord {
      var replaced = record.replaced
      replaced.open += open.filter { !replaced.open.contains($0) && $0 != record.dot }
      return replaced
    }
  }

  /// The record that readers see of a key instead of the applied one; nil if they see the applied one.
  @inline(never)
  mutating func effectiveRecord(_ key: [UInt8]) -> EffectiveRecord? {
    guard let limit = parked.overdueUpTo, let places = parked[key] else { return nil }
    let held = readable(key)
    let due = places.compactMap { try? record(at: $0) }.filter { $0.stamp <= limit }
    guard let greatest = due.max(by: { $0.version < $1.version }),
      held.map({ $0.version < greatest.version }) ?? true
    else { return nil }
    return EffectiveRecord(record: greatest, open: (held?.open ?? []) + due.flatMap(\.open))
  }
}
