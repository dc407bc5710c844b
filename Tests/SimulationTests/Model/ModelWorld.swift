extension Model {
  /// Events counted while a history runs.
  enum Event: Int, CaseIterable {
    case put, deletion, conflict, crash, clone, restore, join, lostMachine, damage, rollback, duplicate
    case parked, purge, drop, setAside, round, fullRound, refusedClocks, refusedFullState, refusedMending,
      sameActor
    case reissueAtReceiver, reissueByReturning, reissueForNames, reborn, rebornAfterFork
    case comparison, alarm, repairedKey, keptOverOpenBase, silentlyLost, unmendable
    case published, ownEntryFound, checkpoint, entryRead, checkpointAsIncrement, checkpointAsFullState,
      startedOver, collected, relayLoss, newcomer, relayComparison, relayAlarm
  }

  /// All copies, and the oracle's knowledge of them.
  struct World {
    let rules: Rules
    /// The user's keys are 0 ..< keys.
    let keys: Int
    /// Stamps per unit of time.
    let tick: Int
    /// One dot may get two contents.
    let forks: Bool
    /// Whether all members acknowledge often enough that no copy purges what another still needs.
    var isActive = false
    /// Whether a silent loss after a rollback is a violation.
    var isStrict = false
    /// Probability, in percent, that a joining member is selective.
    var scopedPercent = 0

    var now: Int
    /// Whether to work in the store's order: records are reissued in version order, a mark is made only for a
    /// round that is opened, and a copy that reused a dot becomes a new actor before reissuing anything.
    var isLikeStore = false
    /// The retirement period.
    var retirement = Model.retirement
    var copies: [Copy] = []
    var rounds: [Round] = []
    private(set) var actorCount = 0
    var values = 0
    var markCount = 0
    private var members = 0
    /// Histories of records, by record number.
    private(set) var pasts: [Past] = []
    /// By key: records written, except those lost with a tail that no other copy has.
    var ghosts: [Int: [Record]] = [:]
    /// By key: all records ever written.
    private(set) var written: [Int: [Record]] = [:]
    /// What happened to copies since they last lost state.
    var forkHistories: [Int: ForkHistory] = [:]
    /// The last sequence that each actor ever wrote.
    var lastSequences = Vector()
    private(set) var counts = [Int](repeating: 0, count: Event.allCases.count)
    /// Values that were set aside or reported.
    var loud: [Record] = []
    /// States of copies within one operation, in the store's order: a power loss may return to them.
    var between: [(copy: Int, state: State)] = []
    var relay = Relay()
    /// The copies that the last operation touched.
    var touched: Set<Int> = []

    init(
      _ rules: Rules = Rules(), copies count: Int, keys: Int, forks: Bool = false, now: Int = 100,
      tick: Int = Model.tick
    ) {
      (self.rules, self.keys, self.forks, self.now, self.tick) = (rules, keys, forks, now, tick)
      for _ in 0..<count { addCopy() }
    }

    mutating func count(_ event: Event) { counts[event.rawValue] += 1 }
    func count(of event: Event) -> Int { counts[event.rawValue] }

    mutating func newActor() -> Actor {
      actorCount += 1
      return Actor(number: actorCount)
    }

    /// Adds a new member, or a copy of one.
    mutating func addCopy(_ state: State? = nil, of member: Int? = nil, scope: [Int]? = nil) {
      let state = state ?? State(newActor())
      copies.append(Copy(member: member ?? members, state, scope: scope))
      if member == nil { members += 1 }
    }

    /// The copy becomes another actor, and that is durable.
    mutating func renew(_ copy: Int) {
      copies[copy].live.mint(newActor())
      sync(copy)
    }

    func wall(_ copy: Int) -> Int { now + copies[copy].skew }
    func past(_ record: Record) -> Past { pasts[record.number] }
    /// Stamps above this are parked at a copy.
    func limit(_ copy: Int) -> Int { (wall(copy) + Model.drift) * tick }

    mutating func sync(_ copy: Int) { copies[copy].durable = copies[copy].live }

    mutating func dropRounds(of copy: Int) { rounds.removeAll { $0.sender == copy || $0.receiver == copy } }

    /// Whether any other copy has this dot. A dot reused after a lost tail must be unknown to all.
    func isKnown(_ dot: Dot, but copy: Int) -> Bool {
      copies.indices.contains { other in
        other != copy && copies[other].isAlive
          && (copies[other].live.covers(dot) || copies[other].live.held.contains { $0.dot == dot })
      }
    }

    private mutating func register(_ record: Record, _ past: Past) {
      pasts.append(past)
      written[record.key, default: []].append(record)
      if let same = ghosts[record.key]?.firstIndex(where: { $0.dot == record.dot }) {
        ghosts[record.key]![same] = record
      } else {
        ghosts[record.key, default: []].append(record)
      }
    }

    // MARK: The rules of one copy

    /// A local write, or with `source` the reissue of that record as a new write. With `isUnreadable` the
    /// replaced record is unknown.
    @discardableResult
    mutating func issue(
      _ copy: Int, key: Int, value: Int, isDead: Bool = false, deadline: Int = Model.never,
      source: Record? = nil, isUnreadable: Bool = false,
      stamp given: Int? = nil, names: [Dot] = [], frontier: Vector = Vector()
    ) throws(Violation) -> Record {
      copies[copy].live.sequence += 1
      let stamp: Int
      if let given {
        stamp = given
      } else {
        copies[copy].live.clock = max(copies[copy].live.clock + 1, wall(copy) * tick)
        stamp = copies[copy].live.clock
      }
      let (actor, sequence) = (copies[copy].live.actor, copies[copy].live.sequence)
      var past = Past(frontier: frontier)
      if !isUnreadable, let old = source ?? copies[copy].live.held(key) {
        let before = pasts[old.number]
        past.base = old.actor == actor ? before.base : old.dot
        // A suspect dot may belong to another value elsewhere.
        let live = copies[copy].live
        if rules.keepsDoubtful, let base = past.base, live.isUnconfirmed(base.actor) {
          past.base = before.base.flatMap { live.isUnconfirmed($0.actor) ? nil : $0 }
        }
        past.open = ([old.dot] + before.open + names).filter { !copies[copy].live.covers($0) }
        past.replaced = before.replaced + [old.dot]
      }
      let record = Record(
        number: pasts.count, stamp: stamp, actor: actor, sequence: sequence, key: key, value: value,
        isDead: isDead,
        deadline: deadline)
      copies[copy].live.vector[actor] = sequence
      try checkName(copy, actor, sequence)
      if !forks, isKnown(record.dot, but: copy) {
        throw Violation(name: "I3", text: "\(record) reuses a dot that another copy covers or holds")
      }
      register(record, past)
      copies[copy].live.append(record)
      if stamp > limit(copy), rules.parksOwn {
        copies[copy].live.park(record)
      } else {
        copies[copy].live.hold(record)
      }
      return record
    }

    /// Reissues a record. With `isBeaten` a greater one of its key is reissued next.
    mutating func reissue(
      _ copy: Int, _ record: Record, as event: Event, isBeaten: Bool = false
    ) throws(Violation) {
      count(event)
      if isActive {
        throw Violation(name: "I7", text: "\(record) issued again, though all members are active")
      }
      if !isBeaten { try checkReissue(copy, record) }
      try issue(
        copy, key: record.key, value: record.value, isDead: record.isDead, deadline: record.deadline,
        source: record)
    }

    /// I5: no record covered by this copy has replaced the reissued one.
    private func checkReissue(_ copy: Int, _ record: Record) throws(Violation) {
      let live = copies[copy].live
      // A parked record will beat it in any case.
      if forks || live.greatest(record.key).map({ $0.isGreater(than: record) }) ?? false { return }
      for other in ghosts[record.key] ?? [] where live.covers(other.dot) && !live.isCurrent(other) {
        if pasts[other.number].replaced.contains(record.dot) {
          throw Violation(name: "I5", text: "\(record) issued again, though \(other) had replaced it")
        }
      }
    }

    /// One record of a round arrives.
    mutating func receive(_ copy: Int, _ record: Record) throws(Violation) {
      if rules.ignoresCovered, copies[copy].live.covers(record.dot), !copies[copy].live.isMending { return }
      if copies[copy].live.isCurrent(record) { return }
      if isLikeStore, let held = copies[copy].live.held(record.key), held.dot == record.dot {
        // The other content of the dot is kept: the held one is reissued, or the digests detect it.
        if copies[copy].live.isSuspect(held), !record.isDead, !record.isReserved {
          copies[copy].live.lose(record)
        }
        return
      }
      let old = copies[copy].live.held(record.key)
      let wins = old.map { beats(record, $0) } ?? true
      if rules.horizon, !copies[copy].live.isMending, !record.isReserved,
        record.stamp <= copies[copy].live.horizon,
        !isOver(record, copy), old == nil || (rules.horizonOfAny && wins)
      {
        try checkAgreed(copy, record)
        return try reissue(copy, record, as: .reissueAtReceiver)
      }
      if record.stamp > limit(copy), rules.parksOwn || !copies[copy].live.mine.contains(record.actor) {
        if !copies[copy].live.parked(record.key).contains(where: { $0.dot == record.dot }) {
          copies[copy].live.append(record)
          copies[copy].live.park(record)
          count(.parked)
        }
        return
      }
      copies[copy].live.clock = max(copies[copy].live.clock, record.stamp)
      let outcome = apply(copy, record)
      try pass(copy, outcome.names, to: outcome.winner)
    }

    /// Whether it is dead, so that it need not be reissued.
    func isOver(_ record: Record, _ copy: Int) -> Bool {
      record.isDead || !rules.reissuesExpired && record.isGone(at: wall(copy))
    }

    private func beats(_ record: Record, _ old: Record) -> Bool {
      // A fork: one dot, two contents.
      if record.hasOrder(of: old), !record.isReserved { return record.value > old.value }
      return record.isGreater(than: old)
    }

    /// Last writer wins; beaten concurrent values are kept as conflicts. Returns the winner, and the
    /// uncovered dots with which it must be reissued.
    private mutating func apply(_ copy: Int, _ record: Record) -> (winner: Record, names: [Dot]) {
      let old = copies[copy].live.held(record.key)
      let wins = old.map { beats(record, $0) } ?? true
      if wins {
        if !copies[copy].live.isCurrent(record),
          !copies[copy].live.log.contains(where: { $0.record == record })
        {
          copies[copy].live.append(record)
        }
        copies[copy].live.hold(record)
      }
      guard let old, !record.isReserved else { return (record, []) }
      let (winner, loser) = wins ? (record, old) : (old, record)
      let past = pasts[winner.number]
      let live = copies[copy].live
      let isDoubtful = rules.keepsDoubtful && (live.isAmbiguous(loser.actor) || live.isSuspect(winner))
      if !loser.isDead, past.base != loser.dot && winner.actor != loser.actor || isDoubtful {
        copies[copy].live.lose(loser)
        count(.conflict)
      }
      return (winner, pasts[loser.number].open)
    }

    /// Passes on the names of uncovered dots.
    private mutating func pass(_ copy: Int, _ names: [Dot], to winner: Record) throws(Violation) {
      let past = pasts[winner.number]
      let lost = names.filter {
        !copies[copy].live.covers($0) && !past.open.contains($0) && $0 != winner.dot
      }
      guard !lost.isEmpty, rules.openPassed else { return }
      count(.reissueForNames)
      try checkReissue(copy, winner)
      try issue(
        copy, key: winner.key, value: winner.value, isDead: winner.isDead, deadline: winner.deadline,
        source: winner, names: lost)
    }

    /// Applies parked records that are due.
    mutating func unpark(_ copy: Int) throws(Violation) {
      guard !copies[copy].live.parked.isEmpty else { return }
      let limit = limit(copy)
      if copies[copy].live.parked.contains(where: { $0.records.contains { $0.stamp <= limit } }) {
        let position = copies[copy].live.position
        copies[copy].live.releases.append(State.Release(position: position, limit: limit))
      }
      for key in copies[copy].live.parked.map(\.key) {
        let waiting = copies[copy].live.parked(key)
        let due = waiting.filter { $0.stamp <= limit }.sorted { $1.isGreater(than: $0) }
        guard !due.isEmpty else { continue }
        copies[copy].live.setParked(key, waiting.filter { $0.stamp > limit })
        var names: [Dot] = []
        for record in due {
          copies[copy].live.clock = max(copies[copy].live.clock, record.stamp)
          let outcome = apply(copy, record)
          names += outcome.names
          guard !rules.releasesTogether || record == due.last else { continue }
          try pass(copy, names, to: outcome.winner)
          names = []
        }
      }
    }
  }
}
