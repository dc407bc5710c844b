/// What a copy was told that another one holds, while that one's full state comes in (rule R8).
package final class FullState: Sendable {
  private struct Known {
    var present = DotSet()
    /// Keys of which the sender holds a record, and it or the one held here is in doubt: is what this copy holds then the same?
    var doubtful: [[UInt8]: Bool] = [:]
  }

  private let known = LockedField(Known())

  /// Nothing was told yet.
  package init() {}

  /// About how many bytes it takes up in memory to know which writes the sender holds.
  package var bytes: Int { known.withLock { $0.present.bytes } }

  /// Takes notice of what a batch says.
  func record(_ batch: IncomingBatch) {
    known.withLock { known in
      for item in batch.records.list { known.present.insert(item.record.dot) }
      for dot in batch.present { known.present.insert(dot) }
    }
  }

  /// The sender holds `record`, and `held` is held here of its key; the dot of one of them may have been given twice.
  /// `isTaken` unless the sender's is stamped too far ahead to be held yet, or this copy covers its dot, be it by another content.
  func record(doubtful record: Record, beside held: Record?, isTaken: Bool) {
    var (record, held) = (record, held)
    record.continues = false
    held?.continues = false
    // What wins is held from now on, and then it is the sender's. One of two that bear the same name stays where it is.
    let wins = isTaken && held.map { $0.dot != record.dot && $0.version < record.version } ?? true
    let isSame = wins || record == held
    known.withLock { $0.doubtful[record.key] = isSame }
  }

  /// Does the sender hold a write of this name?
  func isPresent(_ dot: Dot) -> Bool { known.withLock { $0.present.contains(dot) } }

  /// Of a key whose record is in doubt: does the sender hold that one, or another? Nil if none.
  func isSame(_ key: [UInt8]) -> Bool? { known.withLock { $0.doubtful[key] } }
}

/// What becomes of a record that is held here, once another copy's full state has come: a decision without I/O.
enum FullStateVerdict: Equatable {
  case keep
  /// The sender covers it and does not hold it: it is dead.
  case drop
  /// It is issued again as a new write: what had beaten it may have been purged, or its name is in doubt.
  case reissue
  /// It cannot be told whether it was deleted: it goes, but is kept among the beaten.
  case setAside

  /// For a record that this copy, in `state`, holds and that counts for its key. `isPresent`: the sender holds that very write;
  /// `isContested`: it holds another of the key, which does not beat it. Up to `horizon` a delete that is purged may have beaten it.
  init(
    _ record: Record, state: ReplicaState, close: RoundClose, horizon: Stamp, isPresent: Bool,
    isContested: Bool, at time: UInt64
  ) {
    let isCovered = close.vector.covers(record.dot)
    if record.isReserved || isPresent {
      self = .keep
    } else if state.isUnconfirmed(record.dot) {
      if !isCovered || isContested || record.stamp > close.horizon {
        self = .reissue
      } else {
        self = record.isGone(at: time) ? .drop : .setAside
      }
    } else if isCovered {
      // What the sender covers may be the other content of the name.
      self = state.isAmbiguous(record.dot) && !record.isGone(at: time) ? .setAside : .drop
    } else if state.isRecovering, state.isMine(record.dot) {
      self = .reissue
    } else {
      // Whether it has expired is a question of clocks, and this one's may be wrong.
      self = record.stamp <= horizon && !record.isTombstone ? .reissue : .keep
    }
  }

  /// The same for one whose time has not come.
  init(parked record: Record, _ close: RoundClose, horizon: Stamp, isPresent: Bool) {
    let isCovered = close.vector.covers(record.dot)
    if isCovered {
      self = isPresent ? .keep : .drop
    } else {
      self = record.stamp <= horizon && !record.isTombstone ? .reissue : .keep
    }
  }
}

/// Who says what becomes of the records that are held here.
private enum VerdictRule {
  /// Another copy's full state, once it has come. What stands behind the position given was not measured as it came by the deletes that
  /// were purged here, up to that horizon.
  case fullState(FullState, RoundClose, behind: UInt64, horizon: Stamp)
  /// This copy, about to give a round to one that covers this: what is in doubt and not covered there is issued again.
  case unknown(VersionVector)

  /// Can anything but `keep` come out?
  func concerns(_ dot: Dot, state: ReplicaState) -> Bool {
    switch self {
    case .fullState(let full, _, _, _): return !full.isPresent(dot) || state.isUnconfirmed(dot)
    case .unknown(let covered): return state.isUnconfirmed(dot) && !covered.covers(dot)
    }
  }

  func verdict(
    on record: Record, at position: UInt64, _ state: ReplicaState, at time: UInt64
  ) -> FullStateVerdict {
    // What has come of keys that are not held yet is another round's: it is given up, and brought anew. An own write under such a key would
    // be given up with it, and this copy would go on covering it.
    guard state.scope.holds(record.key), concerns(record.dot, state: state) else { return .keep }
    switch self {
    case .fullState(let full, let close, let behind, let horizon):
      let horizon = position > behind ? horizon : close.horizon
      let isSame = state.isUnconfirmed(record.dot) ? full.isSame(record.key) : full.isPresent(record.dot)
      return FullStateVerdict(
        record, state: state, close: close, horizon: horizon, isPresent: isSame ?? false,
        isContested: isSame == false,
        at: time)
    case .unknown: return record.isReserved ? .keep : .reissue
    }
  }

  /// The same for one whose time has not come.
  func verdict(onParked record: Record, at position: UInt64) -> FullStateVerdict {
    guard case .fullState(let full, let close, let behind, let horizon) = self else { return .keep }
    return FullStateVerdict(
      parked: record, close, horizon: position > behind ? horizon : close.horizon,
      isPresent: full.isPresent(record.dot))
  }
}

extension Store {
  /// What is in doubt does not leave, and hides what it has replaced: whoever had a round without it would cover that, and never be given
  /// it; in a full state it would be dead. So what the receiver of a round does not cover is issued again before, as the receiver's full
  /// state would have it. What it does cover hides nothing from it. What lies up to `begin` was looked at when it had another round.
  func reissueUnknown(to covered: VersionVector, behind begin: UInt64) throws(StoreError) {
    let pin = SnapshotPin()
    let places = try reading { engine throws(StoreError) in
      guard engine.position > begin else { return [Location]() }
      engine.retainSegments(for: pin)
      return try engine.liveLocations(from: engine.start(of: begin + 1)) ?? []
    }
    try judgeAll(places, judge: .unknown(covered), pin: pin)
  }

  /// How many keys are held here, of users and of the store itself, deletes among them.
  package func heldKeyCount() throws(StoreError) -> UInt64 {
    try reading { engine throws(StoreError) in engine.keyCount }
  }

  /// Is anything that this copy wrote in doubt (rule R9)?
  var isInDoubt: Bool {
    get throws(StoreError) {
      try reading { engine throws(StoreError) in !engine.state.unconfirmedRanges.isEmpty }
    }
  }

  /// Records that are looked at, or given up, while others wait.
  private static let recordsPerJudgement = 256

  /// Does with the records held here what the full state of another copy says of them, and closes it; durable on return. In parts, so that
  /// nobody waits for long: floor and horizon come first, so that this copy gives no full state itself, nor purges, until its vector is
  /// merged at the end. What comes from others until then, into this process or another one of the store, is not taken for dead by
  /// anybody but here: so it is judged, too, and the last of it in the step that merges the vector. Nor was it measured by the deletes that
  /// this copy itself has purged (`TransactionBuilder.receive`): that is done here as well.
  func finish(_ full: FullState, close: RoundClose) throws(StoreError) {
    let (raised, _) = try append(limit: .max) {
      composer throws(StoreError) -> (behind: UInt64, horizon: Stamp) in
      try requireReceiver(of: close, composer.state)
      let covered = close.covered(by: composer.state)
      // Before the floor: who cannot take over the vector would not cover that.
      try requirePlaces(in: [covered].reduce(into: composer.state.vector) { $0.merge($1) }, composer.state)
      try composer.raiseFloor(to: close.floor, horizon: close.horizon)
      try composer.recordReconcileFrom()
      try composer.restartScopeExpansion()
      return (composer.state.reconcileFrom ?? composer.position, composer.state.horizon)
    }
    let losses = try keysToRecover()
    let pin = SnapshotPin()
    let judge = VerdictRule.fullState(full, close, behind: raised.behind, horizon: raised.horizon)
    var (judged, places, waiting) = try readingExclusively { engine, isAlone throws(StoreError) in
      engine.retainSegments(for: pin)
      let waiting = engine.dueParked(upTo: .maximum)
      let judged = JudgedPosition(position: engine.position, waiting: Set(waiting))
      return (judged, try engine.locations(isExclusive: isAlone), waiting)
    }
    try judgeAll(places, judge: judge, pin: pin)
    for place in waiting { try applyVerdict(parked: place, judge: judge, pin: pin) }
    // There may be millions.
    (places, waiting) = ([], [])
    /// What has come since; nil if it is little enough for those who write to wait for it.
    func much() throws(StoreError) -> Arrivals? {
      try reading { engine throws(StoreError) in
        guard engine.position > judged.position + UInt64(Self.recordsPerJudgement) else { return nil }
        return try arrivals(behind: judged, judge: judge, pin: pin, engine: engine)
      }
    }
    for _ in 0..<Self.maxPasses {
      guard let rest = try much() else { break }
      try applyVerdicts(rest, judge: judge, pin: pin)
      judged = rest.judged
    }
    while true {
      let (left, tail) = try append(limit: .max) { composer throws(StoreError) -> Arrivals? in
        let rest = try engine.withLock { engine throws(StoreError) in
          try arrivals(behind: judged, judge: judge, pin: pin, engine: engine)
        }
        guard rest.fitsClosingStep else { return rest }
        try carryOut(rest.affected[...], judge: judge, &composer)
        try merge(close, &composer)
        try composer.finishRecovering()
        return nil
      }
      guard let left else {
        try sync(upTo: tail)
        return logUnrecovered(of: losses)
      }
      try applyVerdicts(left, judge: judge, pin: pin)
      judged = left.judged
    }
  }

  /// How often what has come meanwhile is judged while others go on.
  private static let maxPasses = 8

  /// How far the journal was judged.
  private struct JudgedPosition {
    var position: UInt64
    /// What waited for its time then: it may have come since, at its old place.
    var waiting: Set<Location>
  }

  /// A record that is not simply kept.
  private struct Affected {
    var key: [UInt8]
    var version: Version
    var position: UInt64
    var bytes: Int
  }

  /// What has come behind what was judged, as far as it is not simply kept.
  private struct Arrivals {
    var affected: [Affected]
    var waiting: [Location]
    var judged: JudgedPosition

    /// Does it fit into the step that closes the full state? One transaction must not be too large to be sent.
    var fitsClosingStep: Bool {
      waiting.isEmpty && affected.count <= Store.recordsPerJudgement
        && (affected.count <= 1 || affected.reduce(0) { $0 + $1.bytes } <= Limits.transactionBytes / 2)
    }
  }

  private func arrivals(
    behind judged: JudgedPosition, judge: VerdictRule, pin: SnapshotPin, engine: borrowing Engine
  ) throws(StoreError) -> Arrivals {
    try pin.check(path)
    let (position, waiting) = (engine.position, engine.dueParked(upTo: .maximum))
    let now = JudgedPosition(position: position, waiting: Set(waiting))
    var places: [Location] = []
    if position > judged.position {
      let start = engine.start(of: judged.position + 1)
      // What the present actor has written since is stamped above all that was purged, and what was issued again must not be so anew.
      places = (try engine.liveLocations(from: start, isComplete: false) ?? []).filter {
        (try? engine.journal.record(at: $0))?.dot?.actor != engine.state.actor
      }
    }
    places += judged.waiting.subtracting(now.waiting)
    let doomed = waiting.filter { place in
      guard !judged.waiting.contains(place), let view = try? engine.journal.record(at: place),
        let record = try? engine.decoded(view), engine.state.scope.holds(record.key)
      else { return false }
      return judge.verdict(onParked: record, at: view.position) != .keep
    }
    return Arrivals(
      affected: affected(places[...], judge: judge, engine: engine).sorted { $0.version < $1.version },
      waiting: doomed, judged: now)
  }

  private func applyVerdicts(_ rest: Arrivals, judge: VerdictRule, pin: SnapshotPin) throws(StoreError) {
    for start in stride(from: 0, to: rest.affected.count, by: Self.recordsPerJudgement) {
      let end = min(start + Self.recordsPerJudgement, rest.affected.count)
      try applyVerdicts(rest.affected[start..<end], judge: judge)
    }
    for place in rest.waiting { try applyVerdict(parked: place, judge: judge, pin: pin) }
  }

  /// The sender has said nothing of keys that another session has brought meanwhile: all of those would seem dead.
  private func requireReceiver(of close: RoundClose, _ state: ReplicaState) throws(StoreError) {
    try requireScope(close.scope, state: state)
    try requireExpectedState(close.expectedState, of: close.sender, state)
  }

  /// Judges all of the records, and carries out what comes out.
  private func judgeAll(_ places: [Location], judge: VerdictRule, pin: SnapshotPin) throws(StoreError) {
    var affected: [Affected] = []
    for start in stride(from: 0, to: places.count, by: Self.recordsPerJudgement) {
      affected += try reading { engine throws(StoreError) in
        try pin.check(path)
        return self.affected(
          places[start..<min(start + Self.recordsPerJudgement, places.count)], judge: judge, engine: engine)
      }
      engine.yieldToWaiters()
    }
    // What is issued again keeps the order in which it was written.
    affected.sort { $0.version < $1.version }
    for start in stride(from: 0, to: affected.count, by: Self.recordsPerJudgement) {
      yieldEngineLock()
      try applyVerdicts(affected[start..<min(start + Self.recordsPerJudgement, affected.count)], judge: judge)
    }
  }

  /// Those of the records that are not simply kept.
  private func affected(
    _ places: ArraySlice<Location>, judge: VerdictRule, engine: borrowing Engine
  ) -> [Affected] {
    let time = environment.now()
    var affected: [Affected] = []
    for place in places {
      // One that is damaged cannot be told of: whoever reads it is told so.
      guard let view = try? engine.journal.record(at: place), let dot = view.dot,
        judge.concerns(dot, state: engine.state), let record = view.decoded(),
        judge.verdict(on: record, at: view.position, engine.state, at: time) != .keep
      else { continue }
      affected.append(
        Affected(
          key: record.key, version: record.version, position: view.position, bytes: record.transferSize))
    }
    return affected
  }

  /// Carries out the verdicts on some records, in one transaction, or in more where that would be too large to be sent.
  private func applyVerdicts(_ affected: ArraySlice<Affected>, judge: VerdictRule) throws(StoreError) {
    do throws(StoreError) { try applyInOneTransaction(affected, judge: judge) } catch {
      guard error.code == .outOfBounds, affected.count > 1 else { throw error }
      let half = affected.count / 2
      try applyVerdicts(affected.prefix(half), judge: judge)
      try applyVerdicts(affected.dropFirst(half), judge: judge)
    }
  }

  private func applyInOneTransaction(_ affected: ArraySlice<Affected>, judge: VerdictRule) throws(StoreError)
  {
    try append(limit: Limits.transactionBytes) { composer throws(StoreError) in
      if case .fullState(_, let close, _, _) = judge { try requireReceiver(of: close, composer.state) }
      try carryOut(affected, judge: judge, &composer)
    }
  }

  private func carryOut(
    _ affected: ArraySlice<Affected>, judge: VerdictRule, _ composer: inout TransactionBuilder
  ) throws(StoreError) {
    guard !affected.isEmpty else { return }
    var doomed: [TransactionBuilder.RecordToPurge] = []
    var again: [Record] = []
    let kept = engine.withLock { $0.loserDigests }
    for item in affected {
      let (held, isOutdated) = engine.withLock { ($0.readable(item.key), $0.isOutdated(item.key)) }
      guard let record = held, record.version == item.version else { continue }
      var verdict = judge.verdict(on: record, at: item.position, composer.state, at: composer.wall)
      if isOutdated { verdict = verdict.forOutdated(record, at: composer.wall) }
      let isLive = !record.isTombstone && record.deadline.map { $0 > composer.wall } ?? true
      switch verdict {
      case .keep: continue
      case .reissue: again.append(record)
      case .setAside, .drop:
        if verdict == .setAside, !kept.contains(StateDigest(of: record)) { try composer.keepLoser(record) }
        doomed.append(
          TransactionBuilder.RecordToPurge(key: item.key, version: item.version, hadValue: isLive))
      }
    }
    try composer.dropDeadRecords(doomed)
    for record in again { try composer.reissue(record) }
  }

  private func applyVerdict(
    parked place: Location, judge: VerdictRule, pin: SnapshotPin
  ) throws(StoreError) {
    try append(limit: .max) { composer throws(StoreError) in
      if case .fullState(_, let close, _, _) = judge { try requireReceiver(of: close, composer.state) }
      let (record, position, held) = try engine.withLock { engine throws(StoreError) in
        try pin.check(path)
        guard let view = try? engine.journal.record(at: place), let record = try? engine.decoded(view),
          engine.isParked(record)
        else { return (Record?.none, UInt64(0), Record?.none) }
        return (record, view.position, engine.readable(record.key))
      }
      guard let record, composer.state.scope.holds(record.key) else { return }
      let verdict = judge.verdict(onParked: record, at: position)
      guard verdict != .keep else { return }
      try composer.dropDeadRecords(
        [
          TransactionBuilder.RecordToPurge(
            key: record.key, version: record.version, isParked: true, held: held)
        ])
      if verdict == .reissue { try composer.reissue(record) }
    }
  }
}

extension Engine {
  /// Does the record still wait for its time?
  fileprivate func isParked(_ record: Record) -> Bool {
    (parked[record.key] ?? []).contains { (try? journal.record(at: $0).version) == record.version }
  }
}
