internal import SyncStore

/// The part of a session that proves two copies equal, and what becomes of it when they are not (F61).
///
/// A session that ends compares at its end. A live one does so from time to time, while both sides rest: the client says what it holds,
/// the server answers only if it covers the same and holds something else. Whether each side has all of the other is not told by
/// cursors then: what a side got from the other is not given back, so the cursor stays behind. It is told by how far each has looked
/// through its own journal for what the other lacks.
extension Exchange {
  // MARK: Live, at rest

  /// The session goes on live.
  mutating func beginComparing(_ port: inout SessionPort) {
    guard progress == .live, repair.isAgreed, sending != nil, receiving != nil else { return }
    port.actions.append(.setTimer(.comparison, seconds: Limits.comparisonSeconds))
  }

  /// It is time to compare, if both sides rest.
  mutating func compareAtRest(_ port: inout SessionPort) {
    beginComparing(&port)
    guard progress == .live, isResting else { return }
    live.isDigesting = true
    port.actions.append(.digestState(at: nil))
  }

  /// Is nothing under way, and nothing to be said that was not?
  private var isResting: Bool { live.isOn && isAtRest && !live.hasGrown && !live.isDigesting }

  /// The other side has said what it holds.
  private mutating func claimed(_ claim: StateClaim, _ port: inout SessionPort) throws(SessionEnd) {
    try requireLive()
    try requireSending()
    try requireReceiving()
    if progress == .live {
      guard let own = live.claim else { throw .violation("an answer to what was not asked") }
      guard own.at == claim.at, own.vector == claim.vector, own.digest != claim.digest else { return }
      live.claim = nil
      try beginRepair(at: own.at, &port)
    } else if isResting {
      live.claim = claim
      live.isDigesting = true
      port.actions.append(.digestState(at: claim.at))
    }
  }

  /// The own state, judged to be compared.
  mutating func stateDigestedAtRest(_ state: DigestedState, _ port: inout SessionPort) {
    live.isDigesting = false
    // What came meanwhile will be compared another time.
    guard isResting, let sending, state.position <= sending.scanned else { return }
    let own = StateClaim(state)
    if progress == .live {
      // Nothing has happened since the last time.
      if let last = live.claim, last.vector == own.vector, last.digest == own.digest { return }
      live.claim = own
    } else {
      guard let theirs = live.claim, theirs.vector == own.vector, theirs.digest != own.digest else { return }
      live.claim = nil
    }
    repair.position = state.position
    port.send(.stateClaim(own))
  }

  // MARK: Repair

  /// The digests of the two sides differ, though they are in step.
  mutating func beginRepair(at time: UInt64, _ port: inout SessionPort) throws(SessionEnd) {
    guard repair.isAgreed else { throw digestsDiffer }
    if progress != .live { progress = .repairing }
    try repair.begin(at: time, &port)
  }

  private var digestsDiffer: SessionEnd {
    .refused(.digestsDiffer, "the two copies cover the same writes, but their digests differ")
  }

  mutating func acceptRepair(_ message: Message, _ port: inout SessionPort) throws(SessionEnd) {
    guard repair.isAgreed else { throw .violation("a comparison that was not agreed") }
    switch message {
    case .stateClaim(let claim): try claimed(claim, &port)
    case .digestGroups(let groups):
      try requireServer()
      try repair.asked(groups, &port)
    case .bucketPrints(let prints):
      try requireServer()
      try repair.asked(prints, &port)
    case .groupBuckets(let groups): try ended(repair.received(groups, &port), &port)
    case .differingRecords(let records): try ended(repair.received(records, &port), &port)
    case .repaired(_, let isRenewed): try repair.otherRepaired(isRenewed: isRenewed, &port)
    default: throw .violation("a message out of place")
    }
  }

  private func requireServer() throws(SessionEnd) {
    guard progress == .answering else { throw .violation("a comparison begun by the server") }
  }

  mutating func answeredRepair(_ event: SessionEvent, _ port: inout SessionPort) throws(SessionEnd) {
    switch event {
    case .bucketsDigested(let digests): repair.digested(digests, &port)
    case .fingerprinted(let prints): repair.fingerprinted(prints, &port)
    case .recordsExchanged(let records, let keys): repair.exchanged(records, keys: keys, &port)
    case .repaired(let outcome): try ended(repair.repaired(outcome, &port), &port)
    default: preconditionFailure("not an answer: \(event)")
    }
  }

  /// The client has compared all there was, and so many keys were put right: now both come into step by another round.
  private mutating func ended(_ found: Int?, _ port: inout SessionPort) throws(SessionEnd) {
    guard let found else { return }
    if repair.isRenewed { throw renewed }
    repair.fruitless = found == 0 ? repair.fruitless + 1 : 0
    // Both may have changed while they were compared. If it is found twice it was not that.
    guard repair.fruitless < 2, found > 0 || sending != nil else { throw digestsDiffer }
    guard progress == .repairing else { return }
    try pass(.firstPass, &port)
  }

  /// One of the sides has given a dot twice, and is another actor from now on (rule R9).
  var renewed: SessionEnd {
    .tryAgain("one write had two contents, and the side that made it has taken a new actor")
  }
}
