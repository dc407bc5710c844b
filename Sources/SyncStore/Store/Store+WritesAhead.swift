/// Own writes stamped by a clock that ran ahead. Other members would park them until they are due, and once
/// sent they cannot be taken back (`Store+Restamp`): so they are searched for before a round begins.
package struct WritesAhead: Hashable, Sendable {
  /// Number of writes, including deletes and the store's own.
  package var writes: Int
  /// When other members will have applied all of them, in milliseconds since 1970.
  package var until: UInt64
}

extension StorePart {
  /// Whether writes made here are stamped further ahead of the clock than other members tolerate.
  ///
  /// The group's purge horizon may put a copy ahead by up to an hour: that is not an error of its clock, and
  /// is tolerated.
  var stampsAreAhead: Bool {
    get throws(StoreError) {
      let wall = environment.now()
      return try reading { engine throws(StoreError) in
        engine.state.author.clock.last > engine.state.toleratedStamp(at: wall)
      }
    }
  }
}

extension Store {
  /// Whether writes made here are stamped further ahead of the clock than other members tolerate.
  package var isClockAhead: Bool { get throws(StoreError) { try stampsAreAhead } }

  /// Writes stamped ahead of the clock that no other member can have yet and that `restampUnsent` can
  /// correct; nil if there are none.
  ///
  /// Costs little unless the clock has run ahead; then it reads the journal.
  package func unsentWritesAhead() throws(StoreError) -> WritesAhead? {
    // With a clock that was never set, all writes would look ahead.
    guard clockWarning == nil else { return nil }
    let wall = environment.now()
    return try reading { engine throws(StoreError) in
      let tolerated = engine.state.toleratedStamp(at: wall)
      guard engine.state.author.clock.last > tolerated, !engine.state.isRecovering,
        var plan = RestampPlan(engine.state, wall: wall), !plan.hasMarkAhead
      else { return nil }
      try engine.feed(&plan, keepsRecords: false)
      guard plan.count > 0, plan.refusal == nil, plan.furthest > tolerated else { return nil }
      return WritesAhead(writes: plan.count, until: Self.applicationTime(of: plan.furthest))
    }
  }

  /// Parked records of other members, at most `limit`, earliest first; of one key only if `key` is given.
  package func parkedWrites(of key: Key? = nil, limit: Int) throws(StoreError) -> [LogEntry] {
    try reading { engine throws(StoreError) in
      let places =
        if let key { engine.parked[key.bytes] ?? [] } else {
          Array(engine.parked.locations.prefix(limit))
        }
      return places.prefix(limit).compactMap { try? engine.record(at: $0) }
        .filter { !$0.isReserved }.sorted { $0.version < $1.version }
        .map { LogEntry($0, position: 0, isCurrent: false) }
    }
  }

  /// When other members apply a record with this stamp, in milliseconds since 1970.
  package static func applicationTime(of stamp: Stamp) -> UInt64 {
    stamp.milliseconds - min(stamp.milliseconds, Limits.clockDriftMilliseconds)
  }
}

extension ReplicaState {
  /// Own writes stamped above this are further ahead of the clock than other members tolerate and the group's
  /// horizon explains.
  fileprivate func toleratedStamp(at wall: UInt64) -> Stamp {
    let limit = Stamp(milliseconds: wall + Limits.clockDriftMilliseconds)
    guard purged.horizon <= Stamp(milliseconds: wall + Limits.horizonLeadMilliseconds) else { return limit }
    return max(limit, Stamp(milliseconds: purged.horizon.milliseconds + Limits.clockDriftMilliseconds))
  }
}
