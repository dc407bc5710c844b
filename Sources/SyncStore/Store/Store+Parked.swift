/// Records that were stamped ahead of this machine's clock, once their time has come.
extension Store {
  /// Applies parked records whose time has come, with what the rules make of them. The caller holds the mutex.
  ///
  /// On a full disk they go on waiting until there is room for that: a delete or a compaction, which makes room, must not wait
  /// for them. Readers see them meanwhile, so what is written comes after them.
  @inline(never)
  func applyDueParked(_ engine: inout Engine) throws(StoreError) {
    let wall = environment.now()
    let limit = Stamp(milliseconds: wall + Limits.clockDriftMilliseconds)
    engine.overdueParkedUpTo = nil
    var due = engine.dueParkedByKey(upTo: limit)[...]
    while !due.isEmpty {
      var composer = engine.transactionBuilder(wall: wall, limit: Limits.transactionBytes)
      var count = 0
      do throws(StoreError) {
        // With this the append says that it has applied all of them: whoever takes it in does so, too.
        try composer.setLocal(StateKey.unparked, ReplicaState.encode(unparked: limit))
        for group in due {
          try unpark(group, in: &engine, &composer, isAlone: count == 0)
          count += 1
        }
      } catch {
        // What follows from all of them is more than one transaction may have; of one key alone it never is.
        guard error.code == .outOfBounds, count > 0 else { throw error }
        composer = engine.transactionBuilder(wall: wall, limit: Limits.transactionBytes)
        for (number, group) in due.prefix(count).enumerated() {
          try unpark(group, in: &engine, &composer, isAlone: number == 0)
        }
      }
      // First what follows from them: should that fail, they are still parked.
      do throws(StoreError) { try commit(composer, &engine) } catch {
        guard error.code == .diskFull, !control.poisoned else { throw error }
        if let last = engine.dueParked(upTo: limit).last, let stamp = try? engine.record(at: last).stamp {
          engine.state.author.clock.observe(stamp)
        }
        engine.overdueParkedUpTo = limit
        return
      }
      guard count < due.count else { return }
      do throws(StoreError) {
        for location in due.prefix(count).joined() { try engine.unpark(location) }
      } catch {
        // It may be in neither by now: in an index that is built anew all that had waited does so once more.
        engine.index.failure = engine.index.failure ?? error
        return engine.rebuildIndex()
      }
      due = due.dropFirst(count)
    }
  }

  private func unpark(
    _ places: [Location], in engine: inout Engine, _ composer: inout TransactionBuilder, isAlone: Bool
  ) throws(StoreError) {
    var records: [Record] = []
    for place in places { records.append(try engine.record(at: place)) }
    try composer.unpark(
      records, held: engine.readable(records[0].key), kept: engine.loserDigests, isAlone: isAlone)
  }
}

extension Engine {
  /// A value that had waited, whose time has come, and that could not be applied yet, where it beats what is applied.
  struct EffectiveRecord {
    var record: Record
    /// Names that what it beats has open: whoever replaces it has to bear them, too (`Resolution.names`).
    fileprivate var open: [Dot]

    /// What a write that replaces it has to know.
    var replaced: ReplacedRecord {
      var replaced = record.replaced
      replaced.open += open.filter { !replaced.open.contains($0) && $0 != record.dot }
      return replaced
    }
  }

  /// What a reader sees of a key in place of what is applied; nil if it sees that.
  @inline(never)
  mutating func effectiveRecord(_ key: [UInt8]) -> EffectiveRecord? {
    guard let limit = overdueParkedUpTo, let places = parked[key] else { return nil }
    let held = readable(key)
    let due = places.compactMap { try? record(at: $0) }.filter { $0.stamp <= limit }
    guard let greatest = due.max(by: { $0.version < $1.version }),
      held.map({ $0.version < greatest.version }) ?? true
    else { return nil }
    return EffectiveRecord(record: greatest, open: (held?.open ?? []) + due.flatMap(\.open))
  }
}
