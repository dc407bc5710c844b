import Replication
import SyncStore

/// Whole sessions instead of single calls: the model mirrors each store action of a session.
extension Twin {
  /// Two copies meet in a session with events in seeded random order.
  func meetBySession(_ one: Int, _ other: Int) throws {
    guard canTalk(one, other) else { return }
    for (sender, receiver) in [(one, other), (other, one)] { try cut(sender, receiver) }
    for copy in [one, other] { try sync(copy) }
    let client = SessionSide(.client(.sync), machines[one].store, peerName: "copy \(other)")
    let server = SessionSide(.server, machines[other].store, peerName: "copy \(one)")
    client.onWork = { [unowned self] in try follow($0, at: one, with: other) }
    server.onWork = { [unowned self] in try follow($0, at: other, with: one) }
    try SessionPair.run(client, server, &random)
    let isInTime = abs(model.copies[one].skew - model.copies[other].skew) <= Model.drift
    guard (client.outcome == .done) == isInTime else {
      throw Mismatch("the session of \(one) and \(other) ended with \(String(describing: client.outcome))")
    }
    if isInTime { try compareDigests(one, other) }
  }

  /// A copy is about to perform a store action of a session.
  private func follow(_ action: SessionAction, at copy: Int, with peer: Int) throws {
    switch action {
    case .loadReplica, .digestState: try sync(copy)
    case .openRound:
      try cut(copy, peer)
      try sync(copy)
      guard try model.open(copy, peer) else {
        throw Mismatch("a round of \(copy) for \(peer), which the model refuses")
      }
      capture(copy)
      settle(copy)
    case .applyBatch(_, _, _, _, isFull: true, _):
      // Applied at the close, as one step.
      break
    case .applyLast:
      try closeInSteps(peer, copy)
      settle(copy)
    case .applyBatch:
      // All records of these small rounds fit in one batch.
      try model.deliver(peer, copy, .max)
      capture(copy)
      settle(copy)
    case .finishRound:
      try closeInSteps(peer, copy)
      settle(copy)
    default: break
    }
  }

  /// The model applies the rest of a round record by record: a copied directory may be cut after any of them.
  func closeInSteps(_ sender: Int, _ receiver: Int) throws {
    while let index = model.round(sender, receiver),
      model.rounds[index].next < model.rounds[index].items.count
    {
      try model.deliver(sender, receiver, 1)
      capture(receiver)
    }
    try model.close(sender, receiver)
    capture(receiver)
  }
}
