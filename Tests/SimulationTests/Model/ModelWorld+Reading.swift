/// Reading from the relay (L3, L4, L8 to L10, L12).
extension Model.World {
  typealias Entry = Model.Relay.Entry

  /// Reads the next entry of a stream and closes it, or only `count` records of it. Returns false if there is
  /// none that can be read yet.
  @discardableResult
  mutating func fetch(_ copy: Int, _ stream: Int, _ count: Int? = nil) throws(Violation) -> Bool {
    guard try wake(copy), copies[copy].live.relay.stream != stream else { return false }
    detectLoss(copy)
    // An entry that was collected is nil, too: a checkpoint is needed.
    let next = copies[copy].live.relay.progress(stream) + 1
    guard let entry = relay.entry(stream, next), try !findsRollback(copy, entry) else { return false }
    let live = copies[copy].live
    // Only a full state recovers the copy.
    guard live.suspects.isEmpty, !live.isMending else { return false }
    if rules.relay.floor, !entry.isNarrow, !live.vector.covers(entry.snapshot.floor) { return false }
    if rules.relay.awaitsDeps, !hasDeps(copy, of: entry), count ?? 0 == 0 { return false }
    if !rules.relay.wholeEntry { copies[copy].live.vector.merge(entry.closing) }
    // The store reads no records of an entry if it covers all that the entry covers.
    let needsNone = isLikeStore && live.vector.covers(entry.snapshot.vector)
    for record in needsNone ? [] : entry.records.prefix(count ?? .max) where copies[copy].wants(record.key) {
      try receive(copy, record)
      noteBetween(copy)
    }
    guard count == nil else { return true }
    try closeEntry(copy, entry)
    self.count(.entryRead)
    return true
  }

  /// L3: whether the copy has read, or written, the entries that this one presumes.
  private func hasDeps(_ copy: Int, of entry: Entry) -> Bool {
    entry.deps.allSatisfy { copies[copy].live.relay.progress($0.stream) >= $0.number && !isLost($0) }
  }

  /// L8, L9: whether an entry knows more of the copy than the copy itself, which then becomes another actor.
  private mutating func findsRollback(_ copy: Int, _ entry: Entry) throws(Violation) -> Bool {
    guard rules.relay.echo else { return false }
    let (live, theirs) = (copies[copy].live, entry.snapshot)
    let own = live.relay
    var knowsMore =
      theirs.vector[live.actor] > live.sequence || theirs.retracted.contains(live.actor)
      || entry.records.contains { $0.actor == live.actor && $0.sequence > live.sequence }
    if rules.relay.twins, theirs.actor == live.actor, !own.own.contains(entry.id.stream) { knowsMore = true }
    if let stream = own.stream, entry.dep(on: stream) > own.number + (own.pending == nil ? 0 : 1) {
      knowsMore = true
    }
    if let cursor = theirs.cursors[live.actor], !live.marks.contains(cursor.mark) { knowsMore = true }
    if knowsMore { try rolledBack(copy) }
    return knowsMore
  }

  private mutating func closeEntry(_ copy: Int, _ entry: Entry) throws(Violation) {
    var merged = entry.closing
    if entry.isNarrow {
      merged = closeNarrow(copy, owed(entry))
    } else {
      copies[copy].live.vector.merge(merged)
    }
    copies[copy].live.relay.see(entry.id, merged: merged)
    if try differs(copy, entry) { copies[copy].live.relay.hasAlarm = true }
  }

  // MARK: Selective publishers

  private func owed(_ entry: Entry) -> Model.RelayState.Owed {
    let snapshot = entry.snapshot
    var rest = snapshot.vector
    rest[snapshot.actor] = 0
    return Model.RelayState.Owed(
      id: entry.id, actor: snapshot.actor, sequence: snapshot.sequence, rest: rest, floor: snapshot.floor)
  }

  /// L12: of a selective publisher only its own writes are merged, once the rest is covered; until then the
  /// close is owed. Returns what was merged.
  private mutating func closeNarrow(_ copy: Int, _ owed: Model.RelayState.Owed) -> Model.Vector {
    var merged = Model.Vector()
    guard owed.sequence > 0 else { return merged }
    if copies[copy].live.vector.covers(owed.rest), copies[copy].live.vector.covers(owed.floor) {
      merged[owed.actor] = owed.sequence
      copies[copy].live.vector.merge(merged)
    } else if rules.relay.owes, !copies[copy].live.relay.owed.contains(owed) {
      copies[copy].live.relay.owed.append(owed)
    }
    return merged
  }

  /// L12: merges the owed closes whose rest is covered by now.
  mutating func mergeOwed(_ copy: Int) {
    var isMerged = true
    while isMerged {
      isMerged = false
      for owed in copies[copy].live.relay.owed {
        // If it was forgotten, it is read again.
        let seen = copies[copy].live.relay.seen(owed.id.stream)
        let isForgotten = seen.map { $0.id.number < owed.id.number } ?? true
        var merged = isForgotten ? Model.Vector() : closeNarrow(copy, owed)
        guard isForgotten || !merged.isEmpty else { continue }
        copies[copy].live.relay.owed.removeAll { $0 == owed }
        guard let seen, !isForgotten else { continue }
        merged.merge(seen.merged)
        copies[copy].live.relay.see(seen.id, merged: merged)
        isMerged = true
      }
    }
  }

  // MARK: Digests

  /// L10: whether an entry's digest differs from the copy's, although both cover the same writes and hold no
  /// others.
  private mutating func differs(_ copy: Int, _ entry: Entry) throws(Violation) -> Bool {
    let (live, snapshot, time) = (copies[copy].live, entry.snapshot, entry.wall)
    guard rules.relay.digests, copies[copy].scope == nil, !entry.isNarrow, live.vector == snapshot.vector,
      live.isComplete(keys: keys), snapshot.isComplete(keys: keys)
    else { return false }
    // An entry carries the digest of one moment, and the first deadline after it.
    let first = (0..<keys).compactMap { snapshot.greatest($0) }
      .filter { !$0.isDead && $0.deadline > time }.map(\.deadline).min()
    if let first, first != Model.never, first + Model.drift < wall(copy) { return false }
    count(.relayComparison)
    if digest(copy, at: time) == digest(snapshot, at: time) { return false }
    guard forks else {
      throw Violation(name: "I4", text: "copy \(copy) covers what \(entry.id) covers, but the digests differ")
    }
    count(.relayAlarm)
    try checkAlarm()
    return true
  }

  /// Keys that differ from a checkpoint of equal vector: the winner is reissued, the loser kept.
  private mutating func repair(_ copy: Int, with checkpoint: Entry) throws(Violation) {
    var isTwin = false
    for key in 0..<keys {
      let (own, other) = (copies[copy].live.greatest(key), checkpoint.snapshot.greatest(key))
      let values = [own, other].compactMap { $0 }.filter { !$0.isDead }
      if own == other || values.isEmpty { continue }
      count(.repairedKey)
      loud += values
      var isOwn = other == nil
      if let own, let other {
        isOwn = own.isGreater(than: other) || own.hasOrder(of: other) && own.value > other.value
        if own.dot == other.dot, own.actor == copies[copy].live.actor { isTwin = true }
      }
      guard let winner = isOwn ? own : other else { continue }
      if let loser = isOwn ? other : own, !loser.isDead { copies[copy].live.lose(loser) }
      try issue(
        copy, key: key, value: winner.value, isDead: winner.isDead, deadline: winner.deadline, source: winner)
    }
    copies[copy].live.relay.hasAlarm = false
    guard isTwin else { return }
    if rules.keepsDoubtful { copies[copy].live.retracted.append(copies[copy].live.actor) }
    copies[copy].live.mint(newActor())
    count(.rebornAfterFork)
  }

  // MARK: Checkpoints

  /// Reads a checkpoint: as an increment or, where that is not enough, as a full state.
  mutating func read(_ copy: Int, checkpoint which: Int) throws(Violation) {
    guard try wake(copy), let checkpoint = checkpoint(which) else { return }
    detectLoss(copy)
    guard stands(checkpoint), try !findsRollback(copy, checkpoint) else { return }
    let (live, snapshot) = (copies[copy].live, checkpoint.snapshot)
    if live.isMending, !snapshot.vector.covers(live.floor) { return count(.refusedMending) }
    let isBehind = !live.vector.covers(snapshot.floor) || !live.suspects.isEmpty || live.isMending
    let isFull = isBehind && rules.relay.fullState
    if !isBehind, checkpoint.deps.allSatisfy({ live.relay.progress($0.stream) >= $0.number }) {
      if try differs(copy, checkpoint) { try repair(copy, with: checkpoint) }
      return
    }
    let needsNone = isLikeStore && !isFull && live.vector.covers(snapshot.vector)
    for record in needsNone ? [] : checkpoint.records where copies[copy].wants(record.key) {
      if copies[copy].live.isMending || !copies[copy].live.covers(record.dot) { try receive(copy, record) }
      noteBetween(copy)
    }
    if isFull { try closeFull(copy, snapshot) }
    count(isFull ? .checkpointAsFullState : .checkpointAsIncrement)
    copies[copy].live.vector.merge(snapshot.vector)
    let state = copies[copy].live.relay
    for dep in checkpoint.deps where dep.stream != state.stream && state.progress(dep.stream) < dep.number {
      copies[copy].live.relay.see(dep, merged: snapshot.vector)
    }
  }

  /// By index, modulo their number; -1 is the newest.
  func checkpoint(_ which: Int) -> Entry? {
    let count = relay.checkpoints.count
    return count == 0 ? nil : relay.checkpoints[((which % count) + count) % count]
  }

  /// Whether all is there that a checkpoint stands for.
  func stands(_ checkpoint: Entry) -> Bool {
    !rules.relay.standing || !checkpoint.deps.contains(where: isLost)
  }
}
