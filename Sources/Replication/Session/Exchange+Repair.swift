internal import SyncStore

/// The part of a session that compares the two copies and repairs them if they differ (F61).
///
/// A session that ends compares at its end. A live session compares from time to time while both sides are at
/// rest: the client states its digest, and the server answers only if it covers the same writes and has
/// another digest. Cursors cannot show that the sides are in step: received records are not sent back, so a
/// cursor is not advanced. Instead each side knows how far it has scanned its journal for records that the
/// other lacks.
extension Exchange {
  // MARK: Digest comparison at rest

  /// Starts the timer for comparisons; the session has gone live.
  mutating func beginComparing(_ port: inout SessionPort) {
    guard progress == .live, repair.isAgreed, sending != nil, receiving != nil else { return }
    port.actions.append(.setTimer(.comparison, seconds: Limits.comparisonSeconds))
  }

  /// The comparison timer fired: digests the own state if both sides are at rest.
  mutating func compareAtRest(_ port: inout SessionPort) {
    beginComparing(&port)
    guard progress == .live, isResting else { return }
    live.isDigesting = true
    port.actions.append(.digestState(at: nil))
  }

  /// Whether nothing is in flight and nothing remains to be sent.
  private var isResting: Bool { live.isOn && isAtRest && !live.hasGrown && !live.isDigesting }

  /// The other side has stated its digest.
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

  /// The own state was digested for a comparison.
  mutating func stateDigestedAtRest(_ state: DigestedState, _ port: inout SessionPort) {
    live.isDigesting = false
    // Records arrived during the comparison: the next comparison covers them.
    guard isResting, let sending, state.position <= sending.scanned else { return }
    let own = StateClaim(state)
    if progress == .live {
      // Nothing has changed since the last comparison.
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

  /// Begins a repair: the two sides are in step, but their digests differ.
  mutating func beginRepair(at time: UInt64, _ port: inout SessionPort) throws(SessionEnd) {
    guard repair.isAgreed else { throw digestsDiffer }
    if progress != .live { progress = .repairing }
    try repair.begin(at: time, &port)
  }

  private var digestsDiffer: SessionEnd {
    .refused(.digestsDiffer, "the two copies cover the same writes, but their digests differ")
  }

  mutating func acceptRepair(_ message: Message, _ port: inout SessionPort) throws(SessionEnd) {
    if case .comparingKeys = progress { return try acceptComparison(message, &port) }
    switch message {
    case .digestGroups, .keysWant:
      guard repair.isAgreed || comparesKeys else { throw .violation("a comparison that was not agreed") }
    default: guard repair.isAgreed else { throw .violation("a comparison that was not agreed") }
    }
    switch message {
    case .stateClaim(let claim): try claimed(claim, &port)
    case .digestGroups(let groups):
      try requireServer()
      try repair.asked(groups, &port)
    case .bucketPrints(let prints):
      try requireServer()
      try repair.asked(prints, &port)
    case .keysWant(let prints):
      try requireServer()
      guard comparesKeys else { throw .violation("a comparison that was not agreed") }
      try repair.askedForKeys(prints, &port)
    case .groupBuckets(let groups): try ended(repair.received(groups, &port), &port)
    case .differingRecords(let records): try ended(repair.received(records, &port), &port)
    case .repaired(_, let isRenewed): try repair.otherRepaired(isRenewed: isRenewed, &port)
    default: throw .violation("a message out of place")
    }
  }

  private mutating func acceptComparison(_ message: Message, _ port: inout SessionPort) throws(SessionEnd) {
    switch message {
    case .groupBuckets(let groups): try comparison.received(groups, &port)
    case .keyStates(let states):
      try comparison.received(states, covered: peer.summary.vector, &port)
    default: throw .violation("a message out of place")
    }
    try endIfCompared(&port)
  }

  private func requireServer() throws(SessionEnd) {
    guard progress == .answering else { throw .violation("a comparison begun by the server") }
  }

  mutating func answeredRepair(_ event: SessionEvent, _ port: inout SessionPort) throws(SessionEnd) {
    switch event {
    case .bucketsDigested(let digests):
      if case .comparingKeys = progress { return comparison.digested(digests, &port) }
      repair.digested(digests, &port)
    case .fingerprinted(let prints):
      if case .comparingKeys = progress { return comparison.fingerprinted(prints, &port) }
      repair.fingerprinted(prints, &port)
    case .keysStated(let states): repair.keysStated(states, &port)
    case .keysCompared(let differences): comparison.compared(differences, &port)
    case .recordsExchanged(let records, let keys): repair.exchanged(records, keys: keys, &port)
    case .repaired(let outcome): try ended(repair.repaired(outcome, &port), &port)
    default: preconditionFailure("not an answer: \(event)")
    }
  }

  /// The client has compared all buckets, and `found` keys were repaired. Another round brings both sides
  /// into step.
  private mutating func ended(_ found: Int?, _ port: inout SessionPort) throws(SessionEnd) {
    guard let found else { return }
    if repair.isRenewed { throw renewed }
    repair.fruitless = found == 0 ? repair.fruitless + 1 : 0
    // Both sides may have changed during the comparison. A second fruitless one rules that out.
    guard repair.fruitless < 2, found > 0 || sending != nil else { throw digestsDiffer }
    guard progress == .repairing else { return }
    try pass(.firstPass, &port)
  }

  /// One side has used a dot twice and is another actor from now on (rule R9).
  var renewed: SessionEnd {
    .tryAgain("one write had two contents, and the side that made it has taken a new actor")
  }
}
