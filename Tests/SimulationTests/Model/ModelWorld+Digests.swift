/// Digests, and the repair when they differ.
extension Model.World {
  /// Input of a copy's digest.
  struct Digested: Equatable {
    let key: Int
    let dot: Model.Dot
    let value: Int
  }

  func digest(_ copy: Int, at time: Int) -> [Digested] { digest(copies[copy].live, at: time) }

  func digest(_ state: Model.State, at time: Int) -> [Digested] {
    (0..<keys).compactMap { key in
      let record = rules.digestParked ? state.greatest(key) : state.held(key)
      guard let record, record.isLive(at: time) else { return nil }
      return Digested(key: key, dot: record.dot, value: record.value)
    }
  }

  private func areInStep(_ one: Int, _ other: Int) -> Bool {
    let (left, right) = (copies[one].live, copies[other].live)
    guard left.vector == right.vector else { return false }
    guard rules.digestInStep else { return true }
    guard let here = left.cursors[right.actor], let there = right.cursors[left.actor] else { return false }
    return here.isClosed && there.isClosed && here.position == right.position
      && there.position == left.position
  }

  mutating func compare(_ one: Int, _ other: Int) throws(Model.Violation) {
    let (left, right) = (copies[one], copies[other])
    guard left.isAlive, right.isAlive, left.scope == nil, right.scope == nil, areInStep(one, other) else {
      return
    }
    let time = min(wall(one), wall(other))
    let here = digest(one, at: rules.digestTime ? time : wall(one))
    let there = digest(other, at: rules.digestTime ? time : wall(other))
    count(.comparison)
    if here == there { return }
    guard forks else {
      throw Model.Violation(name: "I4", text: "in step, but the digests differ: \(here) \(there)")
    }
    count(.alarm)
    try checkAlarm()
    if rules.repairs { try repair(one, other) }
  }

  /// The digests differ after convergence, so a dot has two contents: every differing key is reissued (F61).
  private mutating func repair(_ one: Int, _ other: Int) throws(Model.Violation) {
    touched.formUnion([one, other])
    let time = min(wall(one), wall(other))
    let forks = (0..<keys).compactMap { key -> Model.Actor? in
      let (left, right) = (copies[one].live.greatest(key), copies[other].live.greatest(key))
      guard let left, let right, left != right, left.dot == right.dot else { return nil }
      return isWorthRepairing([left, right], at: time) ? left.actor : nil
    }
    if isLikeStore { renew(one, other, forks) }
    for key in 0..<keys {
      let (left, right) = (copies[one].live.greatest(key), copies[other].live.greatest(key))
      if left == right { continue }
      let both = [left, right].compactMap { $0 }
      guard isWorthRepairing(both, at: time) else { continue }
      count(.repairedKey)
      loud += both.filter { !$0.isDead }
      let isLeft =
        if let left, let right {
          left.isGreater(than: right) || left.hasOrder(of: right) && isContentGreater(left, right)
        } else { right == nil }
      let (holder, loserCopy) = isLeft ? (one, other) : (other, one)
      guard let winner = isLeft ? left : right else { continue }
      if let loser = isLeft ? right : left, !loser.isDead, !isLikeStore || loser.isLive(at: time) {
        copies[loserCopy].live.lose(loser)
      }
      try issue(
        holder, key: key, value: winner.value, isDead: winner.isDead, deadline: winner.deadline,
        source: winner)
      guard !isLikeStore, let left, let right, left.dot == right.dot else { continue }
      renew(one, other, [left.actor])
    }
  }

  /// Whether one of them is a value. Like the store, repair ignores expired records: no digest includes them.
  private func isWorthRepairing(_ records: [Model.Record], at time: Int) -> Bool {
    records.contains { isLikeStore ? $0.isLive(at: time) : !$0.isDead }
  }

  /// Whichever copy owns one of the names becomes a new actor.
  private mutating func renew(_ one: Int, _ other: Int, _ actors: [Model.Actor]) {
    for copy in [one, other] where actors.contains(copies[copy].live.actor) {
      if rules.keepsDoubtful { copies[copy].live.retracted.append(copies[copy].live.actor) }
      copies[copy].live.mint(newActor())
      dropRounds(of: copy)
      count(.rebornAfterFork)
    }
  }

  /// Which of two contents of one dot wins. The store compares deadlines before values.
  private func isContentGreater(_ left: Model.Record, _ right: Model.Record) -> Bool {
    guard isLikeStore else { return left.value > right.value }
    func deadline(_ record: Model.Record) -> Int { record.deadline == Model.never ? 0 : record.deadline }
    return (deadline(left), left.value) > (deadline(right), right.value)
  }
}
