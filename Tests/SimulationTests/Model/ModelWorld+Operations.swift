extension Model.World {
  /// Does one operation.
  mutating func step(_ operation: Model.Operation) throws(Model.Violation) {
    touched = []
    if let first = operation.copies.first, first >= copies.count { return }
    switch operation {
    case .time(let units): now += units
    case .put(let copy, let key, let life): try put(copy, key, life)
    case .delete(let copy, let key): try delete(copy, key)
    case .future(let copy, let key, let isDelete): try future(copy, key, isDelete)
    case .sync(let copy): if try wake(copy) { sync(copy) }
    case .crash(let copy): try crash(copy)
    case .open(let from, let to): _ = try open(from, to)
    case .deliver(let from, let to, let count): try deliver(from, to, count)
    case .close(let from, let to): try close(from, to)
    case .cut(let from, let to): if let index = round(from, to) { rounds.remove(at: index) }
    case .meet(let one, let other):
      try meet(one, other)
      touched.formUnion([one, other])
    case .acknowledge(let copy): try acknowledge(copy)
    case .purge(let copy): if try wake(copy) { purge(copy) }
    case .compact(let copy): if try wake(copy) { compact(copy) }
    case .skew(let copy, let units): copies[copy].skew = units
    case .away(let copy, let isAway):
      copies[copy].isAway = isAway
      if isAway { dropRounds(of: copy) }
    case .backup(let copy):
      if try wake(copy) { copies[copy].backups = (copies[copy].backups + [copies[copy].durable]).suffix(3) }
    case .restore(let copy, let which): restore(copy, which)
    case .clone(let copy, let ofBackup): clone(copy, ofBackup)
    case .join(let copy, let isScoped): try join(copy, isScoped)
    case .lose(let copy): lose(copy)
    case .damage(let copy, let key): try damage(copy, key)
    case .rollback(let copy, let which): rollback(copy, which)
    case .duplicate(let copy): duplicate(copy)
    case .relay(let operation): try step(operation)
    }
  }

  /// Returns false if the copy no longer exists.
  mutating func wake(_ copy: Int) throws(Model.Violation) -> Bool {
    guard copies[copy].isAlive else { return false }
    touched.insert(copy)
    try unpark(copy)
    return true
  }

  private mutating func put(_ copy: Int, _ key: Int, _ life: Int) throws(Model.Violation) {
    guard try wake(copy), copies[copy].wants(key) else { return }
    values += 1
    try issue(copy, key: key, value: values, deadline: life == 0 ? Model.never : wall(copy) + life)
    count(.put)
  }

  private mutating func delete(_ copy: Int, _ key: Int) throws(Model.Violation) {
    guard try wake(copy), copies[copy].live.held(key)?.isLive(at: wall(copy)) ?? false else { return }
    try issue(copy, key: key, value: 0, isDead: true)
    count(.deletion)
  }

  /// As `delete`, for a key with a damaged record: ends that record, whatever it was.
  mutating func deleteUnreadable(_ copy: Int, _ key: Int) throws(Model.Violation) {
    guard try wake(copy), copies[copy].wants(key) else { return }
    try issue(copy, key: key, value: 0, isDead: true, isUnreadable: true)
    count(.deletion)
  }

  private mutating func future(_ copy: Int, _ key: Int, _ isDelete: Bool) throws(Model.Violation) {
    guard try wake(copy), copies[copy].wants(key), !isDelete || copies[copy].live.held(key) != nil else {
      return
    }
    values += 1
    var stamp = (now + Model.ahead) * tick + values % tick
    if !rules.parksOwn {
      // The author's clock has seen its own writes.
      stamp = max(copies[copy].live.clock + 1, (now + Model.ahead) * tick)
      copies[copy].live.clock = stamp
    }
    try issue(copy, key: key, value: isDelete ? 0 : values, isDead: isDelete, stamp: stamp)
  }

  mutating func crash(_ copy: Int) throws(Model.Violation) {
    guard try wake(copy) else { return }
    forgetTail(copy)
    forkHistories[copy]?.agreed = Model.Vector()
    copies[copy].live = copies[copy].durable
    dropRounds(of: copy)
    count(.crash)
  }

  /// Own records lost with the tail never existed. (That no other copy has them is checked when a dot is
  /// reused.)
  private mutating func forgetTail(_ copy: Int) {
    let (live, durable) = (copies[copy].live, copies[copy].durable)
    guard live.actor == durable.actor, rules.shipsDurable, rules.cutsClones else { return }
    guard live.sequence > durable.sequence else { return }
    for sequence in (durable.sequence + 1)...live.sequence {
      let dot = Model.Dot(actor: live.actor, sequence: sequence)
      guard !isKnown(dot, but: copy) else { continue }
      for key in ghosts.keys { ghosts[key]!.removeAll { $0.dot == dot } }
    }
  }

  private mutating func acknowledge(_ copy: Int) throws(Model.Violation) {
    guard try wake(copy), copies[copy].live.suspects.isEmpty, !copies[copy].live.isMending,
      copies[copy].live.vector.covers(copies[copy].live.floor)
    else { return }
    try issue(copy, key: Model.member + copies[copy].member, value: 0, frontier: copies[copy].live.vector)
  }

  /// An old backup replaces the directory: detected at opening, so a new actor.
  private mutating func restore(_ copy: Int, _ which: Int) {
    guard copies[copy].isAlive, !copies[copy].backups.isEmpty else { return }
    copies[copy].live = copies[copy].backups[which % copies[copy].backups.count]
    copies[copy].live.mint(newActor())
    if isLikeStore { copies[copy].live.cursors = Model.Table() }
    forkHistories[copy] = nil
    sync(copy)
    dropRounds(of: copy)
    touched.insert(copy)
    count(.restore)
  }

  /// A copied directory on another machine: detected at opening, so a new actor of the same member.
  private mutating func clone(_ copy: Int, _ ofBackup: Bool) {
    guard copies.count < Model.mostCopies, copies[copy].isAlive else { return }
    if ofBackup, copies[copy].backups.isEmpty { return }
    var state =
      ofBackup ? copies[copy].backups[0] : rules.cutsClones ? copies[copy].durable : copies[copy].live
    state.mint(newActor())
    if isLikeStore { state.cursors = Model.Table() }
    addCopy(state, of: copies[copy].member, scope: copies[copy].scope)
    copies[copies.count - 1].skew = copies[copy].skew
    touched.insert(copies.count - 1)
    count(.clone)
  }

  /// A new, empty member; its first round comes from `copy`, or later from any member.
  private mutating func join(_ copy: Int, _ isScoped: Bool) throws(Model.Violation) {
    guard copies.count < Model.mostCopies, copies[copy].isAlive else { return }
    addCopy(scope: isScoped ? Array(stride(from: 0, to: keys, by: 2)) : nil)
    count(.join)
    try meet(copy, copies.count - 1)
  }

  /// The machine is lost for good.
  private mutating func lose(_ copy: Int) {
    guard copies[copy].scope != nil || copies.count(where: { $0.isAlive && $0.scope == nil }) > 2 else {
      return
    }
    copies[copy].isAlive = false
    dropRounds(of: copy)
    count(.lostMachine)
  }

  /// A record at or below the watermark is unreadable: the copy does not know which one.
  private mutating func damage(_ copy: Int, _ key: Int) throws(Model.Violation) {
    guard try wake(copy), let gone = copies[copy].live.held(key), copies[copy].live.suspects.isEmpty else {
      return
    }
    dropRounds(of: copy)
    forkHistories[copy] = nil
    copies[copy].live.drop(key)
    copies[copy].live.strip(key)
    if rules.mends {
      copies[copy].live.cursors = Model.Table()
      copies[copy].live.isMending = true
      if rules.forgetsDamaged { copies[copy].live.vector = Model.Vector() }
      copies[copy].live.mint(newActor())
      if rules.relay.forgetsSeen { copies[copy].live.relay.forgetSeen() }
    }
    sync(copy)
    count(.damage)
    let isElsewhere = copies.indices.contains { other in
      copies[other].isAlive
        && (copies[other].backups + (other == copy ? [] : [copies[other].live])).contains {
          $0.covers(gone.dot) || $0.isCurrent(gone)
        }
    }
    // No other copy ever had it, nor the relay: lost for good.
    if !isElsewhere, !relay.holds(gone) { ghosts[key]?.removeAll { $0.dot == gone.dot } }
  }

  // MARK: Rollbacks that no check at opening detects

  private mutating func rollback(_ copy: Int, _ which: Int) {
    guard copies[copy].isAlive, !copies[copy].backups.isEmpty else { return }
    copies[copy].live = copies[copy].backups[which % copies[copy].backups.count]
    forkHistories[copy] = nil
    sync(copy)
    dropRounds(of: copy)
    touched.insert(copy)
    count(.rollback)
  }

  private mutating func duplicate(_ copy: Int) {
    guard copies[copy].isAlive, copies.count < Model.mostCopies else { return }
    addCopy(copies[copy].live, of: copies[copy].member, scope: copies[copy].scope)
    copies[copies.count - 1].skew = copies[copy].skew
    count(.duplicate)
  }
}
