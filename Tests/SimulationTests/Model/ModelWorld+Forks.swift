/// The oracle's knowledge of rolled-back machines, and their invariants although one dot may have two
/// contents.
extension Model {
  /// History of one copy since it last lost state.
  struct ForkHistory {
    /// The greatest sequences of its present actor that peers have shown it.
    var shown = Vector()
    /// Actors given up after a detected rollback: their writes above a mark may have two contents.
    var left: [State.Suspect] = []
    /// The members' frontiers at its purge.
    var agreed = Vector()
    /// Records held then above the last mark of the abandoned actor.
    var doubted: Set<Int> = []
  }
}

extension Model.World {
  /// Two copies meet: each sees what the other knows of it.
  mutating func show(_ one: Int, _ other: Int) {
    for (copy, peer) in [(one, other), (other, one)] {
      let actor = copies[copy].live.actor
      var seen = copies[peer].live.vector[actor]
      for record in copies[peer].live.held where record.actor == actor { seen = max(seen, record.sequence) }
      forkHistories[copy, default: Model.ForkHistory()].shown[actor] = max(
        forkHistories[copy]?.shown[actor] ?? 0, seen)
    }
  }

  /// The copy abandons an actor whose marks reach up to a sequence.
  mutating func leave(_ actor: Model.Actor, _ copy: Int, above marked: Int) {
    let doubted = copies[copy].live.held.filter { $0.actor == actor && $0.sequence > marked }
    forkHistories[copy, default: Model.ForkHistory()].left.append(
      Model.State.Suspect(actor: actor, above: marked))
    forkHistories[copy]?.doubted.formUnion(doubted.map(\.number))
  }

  /// I3: no dot is reused that a peer has shown.
  func checkName(_ copy: Int, _ actor: Model.Actor, _ sequence: Int) throws(Model.Violation) {
    guard forks, let shown = forkHistories[copy]?.shown[actor], shown >= sequence else { return }
    throw Model.Violation(
      name: "I3", text: "copy \(copy) gives \(actor):\(sequence), which a peer has shown it before")
  }

  /// I1, for a rolled-back copy that has recovered: receivers of its rounds have its writes of that fork, and
  /// it has received what others held of its lost fork.
  func checkClosed(_ sender: Int, _ receiver: Int, _ snapshot: Model.State) throws(Model.Violation) {
    guard forks, count(of: .duplicate) == 0, snapshot.suspects.isEmpty, copies[receiver].live.suspects.isEmpty
    else { return }
    let doubted = forkHistories[sender]?.doubted ?? []
    let left = forkHistories[receiver]?.left ?? []
    guard !doubted.isEmpty || !left.isEmpty else { return }
    let live = copies[receiver].live
    for record in snapshot.held
    where !record.isReserved && !record.isDead(at: now) && record.stamp > live.horizon {
      let isLost = left.contains { $0.actor == record.actor && record.sequence > $0.above }
      guard isLost || doubted.contains(record.number) else { continue }
      guard copies[receiver].wants(record.key) else { continue }
      let held = live.greatest(record.key)
      if let held, held.hasOrder(of: record) || held.isGreater(than: record) { continue }
      throw Model.Violation(
        name: "I1", text: "copy \(receiver) was given all that copy \(sender) holds, but not \(record)")
    }
  }

  /// I5: no record is reissued that the members whose frontiers allowed this copy's purge covered: they knew
  /// it was dead.
  func checkAgreed(_ copy: Int, _ record: Model.Record) throws(Model.Violation) {
    guard let agreed = forkHistories[copy]?.agreed, agreed.covers(record.dot) else { return }
    throw Model.Violation(
      name: "I5", text: "\(record) issued again, though a member covered it when copy \(copy) purged")
  }

  /// I9: after convergence digests differ only where one dot has two contents. Other effects of a rollback
  /// are found at the handshake.
  func checkAlarm() throws(Model.Violation) {
    let dots = written.values.flatMap { $0.map(\.dot) }
    if Set(dots).count < dots.count { return }
    throw Model.Violation(name: "I9", text: "digests differ in step, though no dot has two contents")
  }
}
