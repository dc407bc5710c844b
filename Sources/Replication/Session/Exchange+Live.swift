internal import SyncStore

/// State of a live session, apart from its two halves.
struct LiveState {
  /// Whether the client has reported that its plan is done.
  var isOn = false
  /// Whether the own journal has grown since the last round was opened.
  var hasGrown = false
  /// Known coverage of the other side.
  var covered = VersionVector()
  /// Whether the own state is being digested for a comparison.
  var isDigesting = false
  /// The claim being compared: the client's last one, on both sides.
  var claim: StateClaim?
}

/// The live part of a session: both halves open rounds on their own, one per burst of writes.
///
/// Invariants: a half opens a round only while none is in flight, after the position up to which the last one
/// was complete; the other side is taken to cover its initial vector, what its rounds announced and what it
/// acknowledged, nothing else.
extension Exchange {
  /// Whether both sides want the session to stay open.
  static func agrees(own: Hello, peer: Hello) -> Bool {
    own.compatibleFeatures & peer.compatibleFeatures & SessionFeature.live != 0
  }

  /// Batches of a round that may be in flight.
  static func batchesInFlight(own: Hello, peer: Hello) -> Int {
    own.compatibleFeatures & peer.compatibleFeatures & SessionFeature.moreBatches == 0
      ? WireLimits.batchesInFlight : WireLimits.moreBatchesInFlight
  }

  func requireLive() throws(SessionEnd) {
    guard live.isOn || progress == .live else { throw .violation("a round was begun unasked") }
  }

  /// Handles the client's report that its plan is done.
  mutating func goLive(_ port: inout SessionPort) throws(SessionEnd) {
    guard progress == .answering, staysOpen, !live.isOn, sending?.isDelivered ?? true,
      receiving?.isReceived ?? true
    else { throw .violation("going live was not agreed, or comes too early") }
    revertScopeExpansion()
    beginLive(&port)
  }

  mutating func beginLive(_ port: inout SessionPort) {
    live.isOn = true
    live.covered = sending?.receipt?.state.vector ?? peer.summary.vector
    if let said = receiving?.coveredBySender { mergePeerCoverage(said) }
    if let taken = sending?.covered { mergePeerCoverage(taken) }
    receiving?.goLive()
    own.summary.vector = VersionVector()
    peer.summary.vector = VersionVector()
    followJournal(&port)
    beginComparing(&port)
    scheduleKeyRetry(&port)
  }

  /// Adds to the known coverage of the other side. If it then equals this side's, as it does at rest, both
  /// share memory.
  mutating func mergePeerCoverage(_ vector: VersionVector) {
    live.covered.merge(vector)
    if let own = sending?.covered, live.covered == own { live.covered = own }
  }

  /// Adds what a round of the other side announced. The bound is checked here: the vector of a scoped copy is
  /// never merged by a store, so no store would refuse an oversized one.
  mutating func mergePeerCoverage(statedBy update: LiveUpdate) throws(SessionEnd) {
    mergePeerCoverage(update.vector)
    guard live.covered.count <= 2 * Limits.actors else {
      throw .violation("its rounds name more than \(Limits.actors) actors")
    }
  }

  private func followJournal(_ port: inout SessionPort) {
    if let sending { port.actions.append(.followJournal(after: sending.scanned)) }
  }

  /// Opens a round if there may be something to send.
  mutating func openLiveUpdate(_ port: inout SessionPort) {
    guard live.isOn, live.hasGrown, sending?.isDelivered ?? false else { return }
    live.hasGrown = false
    let covered = live.covered
    sending?.openLiveUpdate(covered: covered, scope: peer.summary.scope, &port)
  }

  mutating func liveUpdateOpened(_ opening: LiveUpdateOpening, _ port: inout SessionPort) throws(SessionEnd) {
    // One side has purged what the other lacks (rule R8): the hellos of a new session settle it.
    guard live.covered.covers(opening.close.floor), opening.close.sender == own.summary.actor else {
      throw .tryAgain("what the two sides know of each other does not hold any more")
    }
    sending?.opened(opening, &port)
  }

  mutating func liveUpdateWasEmpty(upTo position: UInt64, _ port: inout SessionPort) {
    sending?.liveUpdateWasEmpty(upTo: position)
    followJournal(&port)
  }

  mutating func liveUpdateReceived(_ position: UInt64, _ port: inout SessionPort) throws(SessionEnd) {
    try sending?.received(liveUpdateUpTo: position)
    if let news = sending?.vectorDelta { mergePeerCoverage(news) }
    port.figures.acknowledged = position
    followJournal(&port)
  }

  // MARK: Group keys

  /// Sends group keys that the other side lacks, before anything is encrypted for it.
  func sendMissingGroupKeys(_ port: inout SessionPort) {
    guard own.compatibleFeatures & peer.compatibleFeatures & SessionFeature.groupKeys != 0 else { return }
    let known = Set(peer.epochs.map(\.epoch))
    let lacking = own.epochs.map(\.epoch).filter { !known.contains($0) }
    if !lacking.isEmpty { port.actions.append(.readGroupKeys(lacking)) }
  }

  mutating func groupKeysReceived(_ text: [UInt8], _ port: inout SessionPort) throws(SessionEnd) {
    guard own.compatibleFeatures & peer.compatibleFeatures & SessionFeature.groupKeys != 0 else {
      throw .violation("group keys were sent, but not agreed")
    }
    // Each message is queued in memory, and one holds all keys that the hello lacked.
    guard !hasGroupKeys else { throw .violation("group keys were sent twice") }
    hasGroupKeys = true
    port.actions.append(.mergeGroupKeys(text))
  }
}
