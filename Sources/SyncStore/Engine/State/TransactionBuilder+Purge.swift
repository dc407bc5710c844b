/// Rule R8: purging tombstones that all members have seen, and applying the purges of another copy.
extension TransactionBuilder {
  /// A record to be purged.
  struct RecordToPurge {
    var key: [UInt8]
    var version: Version
    var isParked = false
    var hadValue = false
    /// The applied record of the key, for a parked one.
    var held: Record?
  }

  /// Purges dead records, the last of them at `position`. The same append raises floor and horizon above
  /// them.
  mutating func purge(_ dead: [RecordToPurge], position: UInt64) throws(StoreError) {
    guard !dead.isEmpty else { return }
    var (floor, horizon) = (state.purged.floor, state.purged.horizon)
    for record in dead {
      let dot = record.version.dot
      floor[dot.actor] = max(floor[dot.actor], dot.sequence)
      horizon = max(horizon, record.version.stamp)
    }
    try raiseFloor(to: floor, horizon: horizon)
    // A follower positioned before one of the purged records would not learn of its removal.
    if position > state.purged.position ?? 0 { try recordPurge(upTo: position) }
    for record in dead { try purgeRecord(record) }
  }

  /// Purges records that are dead at the sender of a full state.
  mutating func dropDeadRecords(_ doomed: [RecordToPurge]) throws(StoreError) {
    // Followers get no event for purged values: one positioned before these purges must begin anew.
    if doomed.contains(where: \.hadValue) {
      try recordPurge(upTo: max(state.purged.position ?? 0, position + UInt64(doomed.count)))
    }
    for record in doomed {
      try purgeRecord(record)
      // If the journal were replayed once the parked record is due, it would have beaten the applied one,
      // which is therefore appended again.
      if record.isParked, let held = record.held { try append(.write(held, position: nil)) }
    }
  }

  /// Raises floor and horizon to at least the given ones. Must precede the purges that they account for.
  mutating func raiseFloor(to floor: VersionVector, horizon: Stamp) throws(StoreError) {
    var merged = state.purged.floor
    merged.merge(floor)
    // A merged floor with more actors than a vector can name could not be sent to any member.
    guard merged.count <= max(Limits.actors, state.vector.count) else {
      throw StoreError(
        .outOfBounds,
        "the peer's floor and this copy's name more than \(Limits.actors) actors: its program may be damaged")
    }
    let highest = max(state.purged.horizon, horizon)
    guard merged != state.purged.floor || highest != state.purged.horizon else { return }
    try setLocal(StateKey.floor, ReplicaState.encode(floor: merged, horizon: highest))
  }

  /// If the floor is not covered, records the position from which received records are not compared with the
  /// horizon on arrival (`receive`).
  mutating func recordReconcileFrom() throws(StoreError) {
    guard state.reconcileFrom == nil, !state.vector.covers(state.purged.floor) else { return }
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
