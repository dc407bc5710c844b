/// Own writes that a clock which ran ahead has stamped. Others would let them wait until their time has come, and once they
/// have left nothing can be done about it (`Store+Restamp`): so they are looked for before a round begins.
package struct WritesAhead: Hashable, Sendable {
  /// How many they are, deletes and the store's own among them.
  package var writes: Int
  /// From then on others apply all of them, in milliseconds since 1970.
  package var until: UInt64
}

extension Store {
  /// Is what is written here stamped further ahead of the clock than others tolerate? What the group has purged may put
  /// a copy ahead by up to an hour: that is not its clock's fault, and is tolerated.
  package var isClockAhead: Bool {
    get throws(StoreError) {
      let wall = environment.now()
      return try reading { engine throws(StoreError) in
        engine.state.author.clock.last > engine.state.toleratedStamp(at: wall)
      }
    }
  }

  /// Writes that are stamped ahead of the clock, that nobody else can have yet, and that can be given the present time by
  /// `restampUnsent`; nil if there are none. Costs little unless the clock has run ahead; then it reads the journal.
  package func unsentWritesAhead() throws(StoreError) -> WritesAhead? {
    // A clock that was never set would make all of them look so.
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

  /// Records of others that wait here for their time, the earliest first, at most so many; of one key, if it is given.
  package func parkedWrites(of key: Key? = nil, limit: Int) throws(StoreError) -> [LogEntry] {
    try reading { engine throws(StoreError) in
      let places =
        if let key { engine.parked[key.bytes] ?? [] } else {
          Array(engine.parked.values.joined().prefix(limit))
        }
      return places.prefix(limit).compactMap { try? engine.record(at: $0) }
        .filter { !$0.isReserved }.sorted { $0.version < $1.version }
        .map { LogEntry($0, position: 0, isCurrent: false) }
    }
  }

  /// When others apply what is stamped so, in milliseconds since 1970.
  package static func applicationTime(of stamp: Stamp) -> UInt64 {
    stamp.milliseconds - min(stamp.milliseconds, Limits.clockDriftMilliseconds)
  }
}

extension ReplicaState {
  /// Own writes stamped above this are ahead of the clock by more than others tolerate, and than the group's horizon explains.
  fileprivate func toleratedStamp(at wall: UInt64) -> Stamp {
    let limit = Stamp(milliseconds: wall + Limits.clockDriftMilliseconds)
    guard horizon <= Stamp(milliseconds: wall + Limits.horizonLeadMilliseconds) else { return limit }
    return max(limit, Stamp(milliseconds: horizon.milliseconds + Limits.clockDriftMilliseconds))
  }
}
