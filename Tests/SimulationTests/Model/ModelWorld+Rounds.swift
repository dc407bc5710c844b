/// Sessions: handshakes, rounds, full state.
extension Model.World {
  typealias Violation = Model.Violation

  /// Whether `other` knows writes of the actor of `copy` that `copy` does not (R9).
  private func knowsMore(of copy: Int, _ other: Int) -> Bool {
    let (own, theirs) = (copies[copy].live, copies[other].live)
    if rules.echo {
      if theirs.vector[own.actor] > own.sequence { return true }
      if theirs.held.contains(where: { $0.actor == own.actor && $0.sequence > own.sequence }) { return true }
    }
    guard rules.cursorMark, let cursor = theirs.cursors[own.actor] else { return false }
    return !own.marks.contains(cursor.mark)
  }

  /// A copy learns that it was rolled back: it becomes a new actor.
  mutating func rolledBack(_ copy: Int) throws(Violation) {
    count(.reborn)
    guard forks else {
      throw Violation(
        name: "R9", text: "copy \(copy), which never lost anything, takes itself for rolled back")
    }
    let old = copies[copy].live.actor
    let marked = copies[copy].live.markedSequence
    leave(old, copy, above: marked)
    if rules.suspects { copies[copy].live.suspects.append(Model.State.Suspect(actor: old, above: marked)) }
    if rules.keepsDoubtful { copies[copy].live.retracted.append(old) }
    if rules.forgets {
      copies[copy].live.vector[old] = max(marked, copies[copy].live.floor[old])
      copies[copy].live.cursors = Model.Table()
    }
    copies[copy].live.mint(newActor())
    if rules.relay.forgetsSeen { copies[copy].live.relay.forgetSeen() }
    dropRounds(of: copy)
    sync(copy)
    touched.insert(copy)
    noteBetween(copy)
  }

  /// A power loss in the middle of an operation may return to this state.
  mutating func noteBetween(_ copy: Int) {
    if isLikeStore { between.append((copy, copies[copy].live)) }
  }

  private mutating func shakeHands(_ sender: Int, _ receiver: Int) throws(Violation) -> Bool {
    guard abs(copies[sender].skew - copies[receiver].skew) <= Model.drift else {
      count(.refusedClocks)
      return false
    }
    if copies[sender].live.actor == copies[receiver].live.actor {
      count(.sameActor)
      try rolledBack(receiver)
    }
    for (copy, other) in [(sender, receiver), (receiver, sender)]
    where copies[other].live.retracted.contains(copies[copy].live.actor) {
      try rolledBack(copy)
    }
    if knowsMore(of: sender, receiver) { try rolledBack(sender) }
    if knowsMore(of: receiver, sender) { try rolledBack(receiver) }
    if forks { show(sender, receiver) }
    return true
  }

  private func isRetired(_ receiver: Int, for sender: Int) -> Bool {
    guard let frontier = copies[sender].live.held(Model.member + copies[receiver].member) else {
      return false
    }
    return frontier.stamp < (wall(sender) - retirement) * tick
  }

  func round(_ sender: Int, _ receiver: Int) -> Int? {
    rounds.firstIndex { $0.sender == sender && $0.receiver == receiver }
  }

  /// Makes a mark, unless nothing was written since the last one.
  private mutating func makeMark(_ sender: Int) {
    guard
      copies[sender].live.position > copies[sender].live.markedPosition || copies[sender].live.mark == nil
    else { return }
    newMark(sender)
    if rules.shipsDurable { sync(sender) }
  }

  mutating func newMark(_ copy: Int) {
    markCount += 1
    copies[copy].live.mark = markCount
    copies[copy].live.marks.append(markCount)
    copies[copy].live.markedPosition = copies[copy].live.position
    copies[copy].live.markedSequence = copies[copy].live.sequence
  }

  /// Suspect writes are not sent, although later writes of that fork may have been purged.
  private func given(_ snapshot: Model.State) -> Model.State {
    guard rules.keepsDoubtful else { return snapshot }
    var given = snapshot
    for suspect in snapshot.suspects {
      given.vector[suspect.actor] = min(given.vector[suspect.actor], suspect.above)
    }
    return given
  }

  /// A suspect record also hides what it replaced from a receiver that does not cover it, so it is reissued
  /// first. Returns true if there was any.
  private mutating func reissueUnknown(_ sender: Int, to receiver: Int) throws(Violation) -> Bool {
    guard rules.reissuesUnknown else { return false }
    let (live, theirs) = (copies[sender].live, copies[receiver].live)
    let unknown = live.held.filter { !$0.isReserved && live.isSuspect($0) && !theirs.covers($0.dot) }
    for record in unknown.sorted(by: { $1.isGreater(than: $0) }) {
      try reissue(sender, record, as: .reissueByReturning)
      noteBetween(sender)
    }
    return !unknown.isEmpty
  }

  /// Opens a round. Returns false if there is nothing to send, or it is refused.
  mutating func open(_ sender: Int, _ receiver: Int) throws(Violation) -> Bool {
    guard sender != receiver, max(sender, receiver) < copies.count, round(sender, receiver) == nil,
      copies[sender].isAlive, copies[receiver].isAlive, !copies[sender].isAway, !copies[receiver].isAway
    else { return false }
    try unpark(sender)
    try unpark(receiver)
    guard try shakeHands(sender, receiver) else { return false }
    let isNarrow = copies[sender].scope != nil
    // Selective copies are leaves: they talk to full copies only.
    if isNarrow, copies[receiver].scope != nil { return false }
    if !isLikeStore { makeMark(sender) }
    var snapshot = rules.shipsDurable ? copies[sender].durable : copies[sender].live
    let state = copies[receiver].live
    // The vector of a sender with a narrower scope is never adopted.
    let isBehind =
      (rules.floor ? !state.vector.covers(snapshot.floor) : isRetired(receiver, for: sender)) && !isNarrow
    let isFull = isBehind || !state.suspects.isEmpty || state.isMending
    if state.isMending, !snapshot.suspects.isEmpty || !snapshot.vector.covers(state.floor) {
      count(.refusedMending)
      return false
    }
    let stated = rules.givesCovered ? given(snapshot) : snapshot
    if isFull, isNarrow || snapshot.isMending || !stated.vector.covers(stated.floor) {
      count(.refusedFullState)
      return false
    }
    let isKnown = try !reissueUnknown(sender, to: receiver)
    if isLikeStore || !isKnown { makeMark(sender) }
    if !isKnown { snapshot = rules.shipsDurable ? copies[sender].durable : copies[sender].live }
    // The store names a full state's records up to the cursor, and sends them only to an unconfirmed
    // receiver.
    let isFromStart = isFull && (!isLikeStore || !state.suspects.isEmpty)
    let start = isFromStart ? 0 : state.cursors[snapshot.actor]?.position ?? 0
    let wanted = copies[receiver]
    let items = snapshot.log.filter { entry in
      let record = entry.record
      return entry.position > start && (state.isMending || !state.covers(record.dot))
        && wanted.wants(record.key)
        && !snapshot.isSuspect(record) && (!rules.winnersOnly || snapshot.isCurrent(record))
    }
    rounds.append(
      Model.Round(
        sender: sender, receiver: receiver, isFull: isFull, snapshot: given(snapshot), items: items,
        mark: copies[sender].live.mark ?? 0, isNarrow: isNarrow))
    count(isFull ? .fullRound : .round)
    if !rules.wholeRound { copies[receiver].live.vector.merge(snapshot.vector) }
    return true
  }

  /// Delivers `count` more records of a round.
  mutating func deliver(_ sender: Int, _ receiver: Int, _ count: Int) throws(Violation) {
    guard let index = round(sender, receiver) else { return }
    try unpark(receiver)
    touched.insert(receiver)
    let round = rounds[index]
    for entry in round.items[round.next...].prefix(count) {
      rounds[index].next += 1
      // Compacted or purged since, where the sender reads its live journal.
      if !rules.snapshot, !copies[sender].live.isCurrent(entry.record) { continue }
      let reissued = self.count(of: .reissueAtReceiver)
      try receive(receiver, entry.record)
      if self.count(of: .reissueAtReceiver) > reissued, !round.snapshot.isCurrent(entry.record) {
        throw Violation(name: "I5", text: "\(entry.record) issued again, though its sender had replaced it")
      }
      if !round.isFull {
        copies[receiver].live.cursors[round.snapshot.actor] = Model.State.Cursor(
          position: entry.position, mark: round.mark, isClosed: false)
      }
    }
  }

  /// Delivers the rest of a round and closes it.
  mutating func close(_ sender: Int, _ receiver: Int) throws(Violation) {
    try deliver(sender, receiver, .max)
    guard let index = round(sender, receiver) else { return }
    let round = rounds.remove(at: index)
    let snapshot = round.snapshot
    if round.isFull { try closeFull(receiver, snapshot) }
    if snapshot.isMending {
      // A damaged copy's vector is unreliable and never merged.
    } else if round.isNarrow, rules.narrow {
      var rest = snapshot.vector
      rest[snapshot.actor] = 0
      if snapshot.sequence > 0, copies[receiver].live.vector.covers(rest),
        copies[receiver].live.vector.covers(snapshot.floor)
      {
        copies[receiver].live.vector[snapshot.actor] = max(
          copies[receiver].live.vector[snapshot.actor], snapshot.sequence)
      }
    } else {
      copies[receiver].live.vector.merge(snapshot.vector)
    }
    copies[receiver].live.cursors[snapshot.actor] = Model.State.Cursor(
      position: snapshot.position, mark: round.mark, isClosed: true)
    try checkClosed(sender, receiver, snapshot)
  }

  /// The receiver does not cover the sender's purges: it drops records that are dead there, and reissues
  /// those at risk.
  mutating func closeFull(_ receiver: Int, _ snapshot: Model.State) throws(Violation) {
    let live = copies[receiver].live
    var again: [Model.Record] = []
    var dropped: [Int] = []
    for record in live.held {
      if record.isReserved || snapshot.isCurrent(record) && !snapshot.isSuspect(record) { continue }
      // Covered records are not sent but named, and a name may have two contents. Digests detect that;
      // nothing is dropped.
      if isLikeStore, !live.isSuspect(record), snapshot.names(record.dot) { continue }
      var theirs = snapshot.greatest(record.key)
      if let known = theirs, snapshot.isSuspect(known) { theirs = nil }
      if live.isSuspect(record) {
        // Two forks may have written identical records. Only the bytes can be compared, and nothing is lost.
        if isLikeStore, let theirs, hasSameBytes(record, theirs) { continue }
        judge(suspect: record, theirs, receiver, snapshot, &again, &dropped)
      } else if snapshot.covers(record.dot) {
        if theirs == nil || rules.horizonOfAny {
          dropped.append(record.key)
          if rules.keepsDoubtful, live.isAmbiguous(record.actor), !record.isGone(at: wall(receiver)) {
            copies[receiver].live.lose(record)
            loud.append(record)
          }
        }
      } else if live.isMending, live.mine.contains(record.actor) {
        // So that its dots can be covered again.
        again.append(record)
      } else if theirs == nil || rules.horizonOfAny, !isOver(record, receiver) {
        if record.stamp <= snapshot.horizon || !rules.floor,
          rules.reissuesAny || live.mine.contains(record.actor)
        {
          again.append(record)
        }
      }
    }
    var parked = judgeParked(receiver, snapshot)
    if isLikeStore {
      again.sort { $1.isGreater(than: $0) }
      parked.sort { $1.isGreater(than: $0) }
    }
    again += parked
    drop(receiver, dropped)
    if rules.inherit {
      copies[receiver].live.floor.merge(snapshot.floor)
      copies[receiver].live.horizon = max(copies[receiver].live.horizon, snapshot.horizon)
    }
    if rules.mergesClock { copies[receiver].live.clock = max(copies[receiver].live.clock, snapshot.horizon) }
    if copies[receiver].live.isMending {
      // It was forgotten with the damage: anything it covers since was written later.
      if !isLikeStore {
        copies[receiver].live.vector = Model.Vector()
        copies[receiver].live.vector[copies[receiver].live.actor] = copies[receiver].live.sequence
      }
      copies[receiver].live.isMending = false
    }
    // The store works sequentially: its reissued records name what it does not cover before the close.
    if !isLikeStore { copies[receiver].live.vector.merge(snapshot.vector) }
    try reissue(receiver, again)
    copies[receiver].live.vector.merge(snapshot.vector)
    copies[receiver].live.suspects = []
  }

  private mutating func drop(_ receiver: Int, _ keys: [Int]) {
    for key in keys {
      count(.drop)
      copies[receiver].live.drop(key)
      copies[receiver].live.strip(key)
      noteGivenUp(receiver)
    }
  }

  /// Reissues the records at risk. The one of a key that was held comes before those that were parked.
  private mutating func reissue(_ receiver: Int, _ again: [Model.Record]) throws(Violation) {
    for (index, record) in again.enumerated() {
      let isBeaten = again[(index + 1)...].contains { $0.key == record.key && $0.isGreater(than: record) }
      try reissue(receiver, record, as: .reissueByReturning, isBeaten: isBeaten)
    }
  }

  /// The store records what it has dropped at a position: the next round has another mark.
  private mutating func noteGivenUp(_ copy: Int) { if isLikeStore { copies[copy].live.position += 1 } }

  /// Whether the two are indistinguishable in the data that is sent.
  private func hasSameBytes(_ left: Model.Record, _ right: Model.Record) -> Bool {
    left.key == right.key && left.hasOrder(of: right) && left.isDead == right.isDead
      && left.value == right.value
      && left.deadline == right.deadline && past(left).base == past(right).base
      && past(left).open == past(right).open
  }

  /// A record whose dot a lost fork of the receiver may also have used.
  private mutating func judge(
    suspect record: Model.Record, _ theirs: Model.Record?, _ receiver: Int, _ snapshot: Model.State,
    _ again: inout [Model.Record], _ dropped: inout [Int]
  ) {
    if !snapshot.covers(record.dot) || theirs == nil && record.stamp > snapshot.horizon {
      again.append(record)
    } else if let theirs {
      if isLikeStore || record.isGreater(than: theirs) { again.append(record) }
    } else {
      // Indistinguishable from a deleted record: set aside, and reported.
      dropped.append(record.key)
      guard !record.isGone(at: wall(receiver)) else { return }
      copies[receiver].live.lose(record)
      loud.append(record)
      count(.setAside)
    }
  }

  /// Removes the parked records that are dead at the sender. Returns those at risk, to be reissued.
  private mutating func judgeParked(_ receiver: Int, _ snapshot: Model.State) -> [Model.Record] {
    var again: [Model.Record] = []
    for group in copies[receiver].live.parked {
      var left: [Model.Record] = []
      for record in group.records {
        let isCovered = snapshot.covers(record.dot)
        if isCovered, !snapshot.isCurrent(record), !(isLikeStore && snapshot.names(record.dot)) {
          copies[receiver].live.removeBytes(of: record)
          noteGivenUp(receiver)
        } else if !isCovered, record.stamp <= snapshot.horizon, !record.isDead, rules.parkedRisk {
          again.append(record)
          copies[receiver].live.removeBytes(of: record)
          noteGivenUp(receiver)
        } else {
          left.append(record)
        }
      }
      copies[receiver].live.setParked(group.key, left)
    }
    return again
  }

  /// A whole session: the copy that lags behind receives first, then both have everything.
  mutating func meet(_ one: Int, _ other: Int) throws(Violation) {
    guard max(one, other) < copies.count else { return }
    for (sender, receiver) in [(one, other), (other, one)] {
      if let index = round(sender, receiver) { rounds.remove(at: index) }
      if copies[sender].isAlive, !copies[sender].isAway { sync(sender) }
      if try open(sender, receiver) { try close(sender, receiver) }
    }
    try compare(one, other)
  }
}
