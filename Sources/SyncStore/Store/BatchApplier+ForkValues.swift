/// After a fork: preserving own values whose dot another incarnation of the actor also used.
extension BatchApplier {
  private static let recordsPerLookBackStep = 4096

  /// Keeps, as conflict losers, the values of the present actor that others have overwritten, as far as the
  /// journal still has them. A write that names such a dot as its base may mean the other incarnation's
  /// content of that dot; this cannot be told any more. Of several own writes of a key the last one counts.
  ///
  /// Costs a pass over the journal, in steps, so that writers do not wait for long. Must run before the copy
  /// becomes a new actor: after a crash in between, it is repeated.
  func preserveOverwrittenForkValues() throws(StoreError) {
    let last = try lastOwnWrites()
    let now = environment.now()
    let oldest = now - min(now, Limits.conflictMilliseconds)
    try writes.append(limit: .max) { builder throws(StoreError) in
      for (key, version) in last where version.version.stamp.milliseconds >= oldest {
        let (held, record, kept) = try core.engine.withLock { engine throws(StoreError) in
          (try engine.held(key), try? engine.record(at: version.location), engine.losers.digests)
        }
        guard let held, !builder.state.isMine(held.dot), let record,
          record.version == version.version, record.key == key,
          !record.isTombstone, !record.isReserved, !kept.contains(StateDigest(of: record))
        else { continue }
        try builder.keepLoser(record)
      }
    }
  }

  private struct WriteLocation {
    var version: Version
    var location: Location
  }

  /// The last write of the present actor to each key that now holds another record.
  private func lastOwnWrites() throws(StoreError) -> [[UInt8]: WriteLocation] {
    var last: [[UInt8]: WriteLocation] = [:]
    var position: UInt64 = 1
    var isAtEnd = false
    while !isAtEnd {
      isAtEnd = try reading { engine throws(StoreError) in
        var visited = 0
        try engine.visit(from: engine.start(of: position)) { view throws(StoreError) in
          guard view.position >= position else { return true }
          position = view.position + 1
          visited += 1
          if view.isWrite, let dot = view.dot, dot.actor == engine.state.actor, let record = view.decoded() {
            last[record.key] =
              engine.isCurrent(view) ? nil : WriteLocation(version: record.version, location: view.location)
          }
          return visited < Self.recordsPerLookBackStep
        }
        return visited < Self.recordsPerLookBackStep
      }
    }
    return last
  }
}
