/// Comparing a copy with the full state of another one, and closing it.
extension BatchApplier {
  /// Whether writes of this copy are unconfirmed (rule R9).
  var isInDoubt: Bool {
    get throws(StoreError) {
      try reading { engine throws(StoreError) in !engine.state.incarnations.unconfirmedRanges.isEmpty }
    }
  }

  /// Issues unconfirmed writes again that the receiver of a round does not cover, as the receiver's full
  /// state would do.
  ///
  /// Unconfirmed writes are not sent, but hide what they have replaced: a receiver of a round without the
  /// replaced write would cover it and never get it; in a full state it would count as dead. Writes that the
  /// receiver covers hide nothing from it. Those up to `begin` were handled before an earlier round.
  func reissueUnknown(to covered: VersionVector, after begin: UInt64) throws(StoreError) {
    let pin = SnapshotPin()
    let places = try reading { engine throws(StoreError) in
      guard engine.position > begin else { return [Location]() }
      engine.retainSegments(for: pin)
      return try engine.liveLocations(from: engine.start(of: begin + 1)) ?? []
    }
    try applyVerdicts(to: places, rule: .unknown(covered), pin: pin)
  }

  /// Records compared or dropped per step, while writers wait.
  private static let recordsPerVerdictStep = 256

  /// Compares the records held here with the full state of another copy, and closes it; durable on return.
  ///
  /// Works in steps, so that no writer waits for long. Floor and horizon are raised first, so that this copy
  /// gives no full state itself, and does not purge, until its vector is merged at the end. Records arriving
  /// concurrently, in this process or another one, are declared dead nowhere else: they are compared too, the
  /// last of them in the step that merges the vector. They were not compared on arrival with the deletes that
  /// this copy itself has purged (`TransactionBuilder.receive`): that is done here as well.
  func finish(_ full: FullState, close: RoundClose) throws(StoreError) {
    let (raised, _) = try writes.append(limit: .max) {
      builder throws(StoreError) -> (after: UInt64, horizon: Stamp) in
      try requireReceiver(of: close, builder.state)
      let covered = close.covered(by: builder.state)
      // Check before the floor is raised: a copy unable to merge the vector would not cover the floor.
      try requirePlaces(in: [covered].reduce(into: builder.state.vector) { $0.merge($1) }, builder.state)
      try builder.raiseFloor(to: close.floor, horizon: close.horizon)
      try builder.recordReconcileFrom()
      try builder.restartScopeExpansion()
      return (builder.state.reconcileFrom ?? builder.position, builder.state.purged.horizon)
    }
    let losses = try keysToRecover()
    let pin = SnapshotPin()
    let rule = VerdictRule.fullState(full, close, after: raised.after, horizon: raised.horizon)
    var (compared, places, waiting) = try writes.readingExclusively { engine, isAlone throws(StoreError) in
      engine.retainSegments(for: pin)
      let waiting = engine.dueParked(upTo: .maximum)
      let compared = ComparedPosition(position: engine.position, waiting: Set(waiting))
      return (compared, try engine.locations(isExclusive: isAlone), waiting)
    }
    try applyVerdicts(to: places, rule: rule, pin: pin)
    for place in waiting { try applyVerdict(parked: place, rule: rule, pin: pin) }
    // Free them: there may be millions.
    (places, waiting) = ([], [])
    /// Arrivals since the last comparison; nil if they are few enough to be compared while writers wait.
    func much() throws(StoreError) -> Arrivals? {
      try reading { engine throws(StoreError) in
        guard engine.position > compared.position + UInt64(Self.recordsPerVerdictStep) else { return nil }
        return try arrivals(after: compared, rule: rule, pin: pin, engine: engine)
      }
    }
    for _ in 0..<Self.maxPasses {
      guard let rest = try much() else { break }
      try applyVerdicts(rest, rule: rule, pin: pin)
      compared = rest.compared
    }
    while true {
      let (left, tail) = try writes.append(limit: .max) { builder throws(StoreError) -> Arrivals? in
        let rest = try core.engine.withLock { engine throws(StoreError) in
          try arrivals(after: compared, rule: rule, pin: pin, engine: engine)
        }
        guard rest.fitsClosingStep else { return rest }
        try carryOut(rest.affected[...], rule: rule, &builder)
        try merge(close, &builder)
        try builder.finishRecovering()
        return nil
      }
      guard let left else {
        try journalSync.sync(upTo: tail)
        return logUnrecovered(of: losses)
      }
      try applyVerdicts(left, rule: rule, pin: pin)
      compared = left.compared
    }
  }

  /// Bounds the passes over arrivals that run concurrently with writers.
  private static let maxPasses = 8

  /// Position up to which the journal was compared.
  private struct ComparedPosition {
    var position: UInt64
    /// Records parked at that point: they may have been applied since, at the same location.
    var waiting: Set<Location>
  }

  /// A record with a verdict other than `keep`.
  private struct Affected {
    var key: [UInt8]
    var version: Version
    var position: UInt64
    var bytes: Int
  }

  /// Records after the compared position whose verdict is not `keep`.
  private struct Arrivals {
    var affected: [Affected]
    var waiting: [Location]
    var compared: ComparedPosition

    /// Whether they fit into the closing step: one transaction must not become too large to be sent.
    var fitsClosingStep: Bool {
      waiting.isEmpty && affected.count <= BatchApplier.recordsPerVerdictStep
        && (affected.count <= 1 || affected.reduce(0) { $0 + $1.bytes } <= Limits.transactionBytes / 2)
    }
  }

  private func arrivals(
    after compared: ComparedPosition, rule: VerdictRule, pin: SnapshotPin, engine: borrowing Engine
  ) throws(StoreError) -> Arrivals {
    try pin.check(path)
    let (position, waiting) = (engine.position, engine.dueParked(upTo: .maximum))
    let now = ComparedPosition(position: position, waiting: Set(waiting))
    var places: [Location] = []
    if position > compared.position {
      let start = engine.start(of: compared.position + 1)
      // Writes of the present actor since then are stamped above everything purged, and reissued ones must
      // not be reissued again.
      places = (try engine.liveLocations(from: start, options: .toleratesDamage) ?? []).filter {
        (try? engine.journal.record(at: $0))?.dot?.actor != engine.state.actor
      }
    }
    places += compared.waiting.subtracting(now.waiting)
    let doomed = waiting.filter { place in
      guard !compared.waiting.contains(place), let view = try? engine.journal.record(at: place),
        let record = try? engine.decoded(view), engine.state.scope.holds(record.key)
      else { return false }
      return rule.verdict(onParked: record, at: view.position) != .keep
    }
    return Arrivals(
      affected: affected(places[...], rule: rule, engine: engine).sorted { $0.version < $1.version },
      waiting: doomed, compared: now)
  }

  private func applyVerdicts(_ rest: Arrivals, rule: VerdictRule, pin: SnapshotPin) throws(StoreError) {
    for start in stride(from: 0, to: rest.affected.count, by: Self.recordsPerVerdictStep) {
      let end = min(start + Self.recordsPerVerdictStep, rest.affected.count)
      try applyVerdicts(rest.affected[start..<end], rule: rule)
    }
    for place in rest.waiting { try applyVerdict(parked: place, rule: rule, pin: pin) }
  }

  /// Fails if scope or state changed since: the sender has not mentioned keys that another session has
  /// brought since, and all of these would count as dead.
  private func requireReceiver(of close: RoundClose, _ state: ReplicaState) throws(StoreError) {
    try requireScope(close.scope, state: state)
    try requireExpectedState(close.expectedState, of: close.sender, state)
  }

  /// Compares these records and applies the verdicts.
  private func applyVerdicts(to places: [Location], rule: VerdictRule, pin: SnapshotPin) throws(StoreError) {
    var affected: [Affected] = []
    for start in stride(from: 0, to: places.count, by: Self.recordsPerVerdictStep) {
      affected += try reading { engine throws(StoreError) in
        try pin.check(path)
        return self.affected(
          places[start..<min(start + Self.recordsPerVerdictStep, places.count)], rule: rule, engine: engine)
      }
      core.engine.yieldToWaiters()
    }
    // Reissued writes keep their original order.
    affected.sort { $0.version < $1.version }
    for start in stride(from: 0, to: affected.count, by: Self.recordsPerVerdictStep) {
      yieldEngineLock()
      try applyVerdicts(affected[start..<min(start + Self.recordsPerVerdictStep, affected.count)], rule: rule)
    }
  }

  /// The records whose verdict is not `keep`.
  private func affected(
    _ places: ArraySlice<Location>, rule: VerdictRule, engine: borrowing Engine
  ) -> [Affected] {
    let time = environment.now()
    var affected: [Affected] = []
    for place in places {
      // A damaged record cannot be compared; reading it fails anyway.
      guard let view = try? engine.journal.record(at: place), let dot = view.dot,
        rule.concerns(dot, state: engine.state), let record = view.decoded(),
        rule.verdict(on: record, at: view.position, engine.state, at: time) != .keep
      else { continue }
      affected.append(
        Affected(
          key: record.key, version: record.version, position: view.position, bytes: record.transferSize))
    }
    return affected
  }

  /// Applies verdicts in one transaction, or in several if one would be too large to be sent.
  private func applyVerdicts(_ affected: ArraySlice<Affected>, rule: VerdictRule) throws(StoreError) {
    do throws(StoreError) { try applyInOneTransaction(affected, rule: rule) } catch {
      guard error.code == .outOfBounds, affected.count > 1 else { throw error }
      let half = affected.count / 2
      try applyVerdicts(affected.prefix(half), rule: rule)
      try applyVerdicts(affected.dropFirst(half), rule: rule)
    }
  }

  private func applyInOneTransaction(_ affected: ArraySlice<Affected>, rule: VerdictRule) throws(StoreError) {
    try writes.append(limit: Limits.transactionBytes) { builder throws(StoreError) in
      if case .fullState(_, let close, _, _) = rule { try requireReceiver(of: close, builder.state) }
      try carryOut(affected, rule: rule, &builder)
    }
  }

  private func carryOut(
    _ affected: ArraySlice<Affected>, rule: VerdictRule, _ builder: inout TransactionBuilder
  ) throws(StoreError) {
    guard !affected.isEmpty else { return }
    var doomed: [TransactionBuilder.RecordToPurge] = []
    var again: [Record] = []
    let kept = core.engine.withLock { $0.losers.digests }
    for item in affected {
      let (held, isOutdated) = core.engine.withLock { ($0.readable(item.key), $0.isOutdated(item.key)) }
      guard let record = held, record.version == item.version else { continue }
      var verdict = rule.verdict(on: record, at: item.position, builder.state, at: builder.wall)
      if isOutdated { verdict = verdict.forOutdated(record, at: builder.wall) }
      let isLive = !record.isTombstone && record.deadline.map { $0 > builder.wall } ?? true
      switch verdict {
      case .keep: continue
      case .reissue: again.append(record)
      case .setAside, .drop:
        if verdict == .setAside, !kept.contains(StateDigest(of: record)) { try builder.keepLoser(record) }
        doomed.append(
          TransactionBuilder.RecordToPurge(key: item.key, version: item.version, hadValue: isLive))
      }
    }
    try builder.dropDeadRecords(doomed)
    for record in again { try builder.reissue(record) }
  }

  private func applyVerdict(
    parked place: Location, rule: VerdictRule, pin: SnapshotPin
  ) throws(StoreError) {
    try writes.append(limit: .max) { builder throws(StoreError) in
      if case .fullState(_, let close, _, _) = rule { try requireReceiver(of: close, builder.state) }
      let (record, position, held) = try core.engine.withLock { engine throws(StoreError) in
        try pin.check(path)
        guard let view = try? engine.journal.record(at: place), let record = try? engine.decoded(view),
          engine.isParked(record)
        else { return (Record?.none, UInt64(0), Record?.none) }
        return (record, view.position, engine.readable(record.key))
      }
      guard let record, builder.state.scope.holds(record.key) else { return }
      let verdict = rule.verdict(onParked: record, at: position)
      guard verdict != .keep else { return }
      try builder.dropDeadRecords(
        [
          TransactionBuilder.RecordToPurge(
            key: record.key, version: record.version, isParked: true, held: held)
        ])
      if verdict == .reissue { try builder.reissue(record) }
    }
  }
}

extension Engine {
  /// Whether the record is still parked.
  fileprivate func isParked(_ record: Record) -> Bool {
    (parked[record.key] ?? []).contains { (try? journal.record(at: $0).version) == record.version }
  }
}
