/// Rule R8: what a copy does with deletes that all have seen, and with what another copy has purged.
extension TransactionBuilder {
  /// A record that is to be given up.
  struct RecordToPurge {
    var key: [UInt8]
    var version: Version
    var isParked = false
    var hadValue = false
    /// What is held of the key beside a parked one.
    var held: Record?
  }

  /// Gives up dead records, the last of them at `position`. In the same append floor and horizon rise above them.
  mutating func purge(_ dead: [RecordToPurge], position: UInt64) throws(StoreError) {
    guard !dead.isEmpty else { return }
    var (floor, horizon) = (state.floor, state.horizon)
    for record in dead {
      let dot = record.version.dot
      floor[dot.actor] = max(floor[dot.actor], dot.sequence)
      horizon = max(horizon, record.version.stamp)
    }
    try raiseFloor(to: floor, horizon: horizon)
    // Who follows the journal from before one of them would not learn of it.
    if position > state.purged ?? 0 { try recordPurge(upTo: position) }
    for record in dead { try purgeRecord(record) }
  }

  /// Gives up records that are dead where the full state came from.
  mutating func dropDeadRecords(_ doomed: [RecordToPurge]) throws(StoreError) {
    // Who follows the journal is told of nothing that had a value: whoever stands before these purges is to begin anew.
    if doomed.contains(where: \.hadValue) {
      try recordPurge(upTo: max(state.purged ?? 0, position + UInt64(doomed.count)))
    }
    for record in doomed {
      try purgeRecord(record)
      // Were the journal read anew after its time had come, the parked record would have beaten what is held.
      if record.isParked, let held = record.held { try append(.write(held, position: nil)) }
    }
  }

  /// Raises floor and horizon to those given, where they are below: before anything that they account for is given up.
  mutating func raiseFloor(to floor: VersionVector, horizon: Stamp) throws(StoreError) {
    var merged = state.floor
    merged.merge(floor)
    // What was purged elsewhere by more than a vector can name could be told to nobody.
    guard merged.count <= max(Limits.actors, state.vector.count) else {
      throw StoreError(
        .outOfBounds,
        "the peer's floor and this copy's name more than \(Limits.actors) actors: its program may be damaged")
    }
    let highest = max(state.horizon, horizon)
    guard merged != state.floor || highest != state.horizon else { return }
    try setLocal(StateKey.floor, ReplicaState.encode(floor: merged, horizon: highest))
  }

  /// Notes, where the floor is not covered, from where on what comes is not measured by the horizon as it comes (`receive`).
  mutating func recordReconcileFrom() throws(StoreError) {
    guard state.reconcileFrom == nil, !state.vector.covers(state.floor) else { return }
    try setLocal(StateKey.reconcileFrom, ReplicaState.encode(position: position))
  }

  private mutating func recordPurge(upTo position: UInt64) throws(StoreError) {
    try setLocal(StateKey.purged, ReplicaState.encode(position: position))
  }

  private mutating func purgeRecord(_ record: RecordToPurge) throws(StoreError) {
    try append(
      .purge(
        Purge(key: record.key, version: record.version, isParked: record.isParked, hadValue: record.hadValue))
    )
  }
}
