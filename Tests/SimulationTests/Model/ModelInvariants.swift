/// Invariants: some are checked after every step for the touched copies, the rest after healing.
extension Model.World {
  /// Checked after every step.
  mutating func checkStep() throws(Model.Violation) {
    for copy in copies {
      lastSequences[copy.live.actor] = max(lastSequences[copy.live.actor], copy.live.sequence)
    }
    if forks { return }
    for index in touched where index < copies.count {
      if copies[index].isAlive, !copies[index].live.isMending { try check(index) }
    }
  }

  private func check(_ index: Int) throws(Model.Violation) {
    let copy = copies[index]
    let live = copy.live
    // I1, R6: every record covered by the vector is held, beaten by a held record, or dead here.
    for (key, ghosts) in ghosts where copy.wants(key) {
      var top: Model.Record?
      for ghost in ghosts where live.covers(ghost.dot) && top.map({ ghost.isGreater(than: $0) }) ?? true {
        top = ghost
      }
      guard let top else { continue }
      let held = live.greatest(key)
      if let held, held.hasOrder(of: top) || held.isGreater(than: top) { continue }
      if top.isDead(at: now), held?.isDead(at: now) ?? true { continue }
      throw Model.Violation(name: "I1", text: "copy \(index) covers \(top) but holds \(text(held))")
    }
    // I2: the vector covers no dot that was never written; the floor is below the vector.
    guard lastSequences.covers(live.vector) else {
      throw Model.Violation(name: "I2", text: "the vector of copy \(index) names what was never written")
    }
    if live.suspects.isEmpty, !live.isMending, !live.vector.covers(live.floor) {
      throw Model.Violation(name: "I2", text: "the floor of copy \(index) is above its vector")
    }
    try checkJournal(index, live)
  }

  /// IR: the index can be rebuilt from the journal.
  private func checkJournal(_ index: Int, _ live: Model.State) throws(Model.Violation) {
    var best: [Model.Record] = []
    for entry in live.log {
      let record = entry.record
      if !live.parked.isEmpty, live.parked(record.key).contains(record) { continue }
      if let place = best.firstIndex(where: { $0.key == record.key }) {
        if record.isGreater(than: best[place]) { best[place] = record }
      } else {
        best.append(record)
      }
    }
    let isSame = best.count == live.held.count && best.allSatisfy { live.held($0.key) == $0 }
    if !isSame {
      throw Model.Violation(name: "IR", text: "rebuilt from its journal copy \(index) holds \(best)")
    }
  }

  private func text(_ record: Model.Record?) -> String { record?.description ?? "nothing" }

  // MARK: After healing

  private func liveValues(_ copy: Int) -> [[Int]] {
    copies[copy].live.held.filter { !$0.isReserved && !$0.isDead(at: now) }.map { [$0.key, $0.value] }
      .sorted { $0[0] < $1[0] }
  }

  /// I4, I5, I6, after every pair has met repeatedly.
  func checkHealed() throws(Model.Violation) {
    let alive = copies.indices.filter { copies[$0].isAlive }
    let complete = alive.filter { copies[$0].scope == nil }
    guard let first = complete.first else { return }
    let whole = liveValues(first)
    for copy in alive where liveValues(copy) != whole.filter({ copies[copy].wants($0[0]) }) {
      throw Model.Violation(
        name: "I4", text: "after healing copy \(copy) has \(liveValues(copy)), copy \(first) \(whole)")
    }
    for copy in complete where copies[copy].live.vector != copies[first].live.vector {
      throw Model.Violation(
        name: "I4", text: "the vectors of copies \(first) and \(copy) differ after healing")
    }
    for copy in alive where copies[first].live.vector[copies[copy].live.actor] < copies[copy].live.sequence {
      throw Model.Violation(name: "I4", text: "after healing no copy covers the writes of copy \(copy)")
    }
    if forks { return }
    for key in 0..<keys { try checkWinner(of: key, alive, complete) }
  }

  private func checkWinner(of key: Int, _ alive: [Int], _ complete: [Int]) throws(Model.Violation) {
    var top: Model.Record?
    for ghost in ghosts[key] ?? [] where top.map({ ghost.isGreater(than: $0) }) ?? true {
      if complete.contains(where: { copies[$0].live.covers(ghost.dot) || copies[$0].live.isCurrent(ghost) }) {
        top = ghost
      }
    }
    for copy in alive where copies[copy].wants(key) {
      let held = copies[copy].live.greatest(key)
      if let top, top.isDead(at: now) {
        if let held, !held.isDead(at: now) {
          throw Model.Violation(name: "I5", text: "key \(key): \(held) lives, though \(top) is greater")
        }
      } else if held != top {
        throw Model.Violation(
          name: "I6", text: "key \(key): \(text(held)), but the greatest surviving write is \(text(top))")
      }
    }
  }

  /// I8: in a live group every tombstone is purged, except those over a write that will never be covered.
  mutating func checkPurged() throws(Model.Violation) {
    for copy in copies where copy.isAlive {
      for record in copy.live.held where !record.isReserved && record.isDead(at: now - 4 * Model.drift) {
        if copy.live.covers(record.dot), past(record).open.allSatisfy({ copy.live.covers($0) }) {
          throw Model.Violation(name: "I8", text: "member \(copy.member) still holds \(record)")
        }
        count(.keptOverOpenBase)
      }
    }
  }

  /// Every live user record that some copy shows.
  var shown: [Model.Record] {
    copies.filter(\.isAlive).flatMap { copy in
      copy.live.held.filter { !$0.isReserved && !$0.isDead(at: now) }
    }
  }

  /// After rollbacks: a value that a copy showed is live, beaten by a greater surviving write, or set aside.
  mutating func checkSilentLoss(of before: [Model.Record]) throws(Model.Violation) {
    let alive = copies.filter(\.isAlive)
    let known = Set((alive.flatMap(\.live.losers) + loud + shown).map(\.value))
    for record in before where !known.contains(record.value) && !record.isDead(at: now) {
      let isBeaten = (written[record.key] ?? []).contains { other in
        other.isGreater(than: record)
          && alive.contains { $0.live.covers(other.dot) || $0.live.isCurrent(other) }
      }
      if isBeaten { continue }
      count(.silentlyLost)
      if isStrict {
        throw Model.Violation(
          name: "I6", text: "\(record) was shown by a living copy, and is gone without a word")
      }
    }
  }

  // MARK: Healing

  /// Clocks are correct, no copy is away, and what was parked is due.
  mutating func endFaults() throws(Model.Violation) {
    rounds = []
    for copy in copies.indices {
      (copies[copy].skew, copies[copy].isAway) = (0, false)
      if copies[copy].isAlive { try unpark(copy) }
    }
    now += Model.ahead + 3 * Model.drift
  }

  /// All faults stop, all pairs meet repeatedly; then all acknowledge, purge, and meet again.
  mutating func heal() throws(Model.Violation) {
    if relay.use == .ending || relay.use == .alone { return try healThroughRelay() }
    try endFaults()
    let alive = copies.indices.filter { copies[$0].isAlive }
    let before = shown
    try mingle(alive, forks ? 6 : 3)
    // If one is damaged, or all are unconfirmed, and none can send full state, a fresh member must.
    let unsettled = alive.filter { copies[$0].live.isMending || !copies[$0].live.suspects.isEmpty }
    if unsettled.contains(where: { copies[$0].live.isMending }) || unsettled.count == alive.count,
      !unsettled.isEmpty
    {
      return count(.unmendable)
    }
    if let copy = unsettled.first {
      throw Model.Violation(name: "I1", text: "\(copy) stays in doubt, though others are not")
    }
    try checkHealed()
    if forks { try checkSilentLoss(of: before) }
    now += retirement + 5
    for _ in 0..<3 {
      try each(alive.map { .acknowledge($0) })
      try mingle(alive, 2)
      try each(alive.map { .purge($0) })
      now += 1
    }
    try mingle(alive, 3)
    try checkHealed()
    try checkPurged()
  }

  private mutating func mingle(_ alive: [Int], _ times: Int) throws(Model.Violation) {
    for _ in 0..<times {
      for one in alive {
        for other in alive where one < other { try each([.meet(one, other)]) }
      }
    }
  }

  mutating func each(_ operations: [Model.Operation]) throws(Model.Violation) {
    for operation in operations {
      try step(operation)
      try checkStep()
    }
  }
}
