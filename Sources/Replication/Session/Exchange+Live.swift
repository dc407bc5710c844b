internal import SyncStore

/// What a live session remembers beside its two halves.
struct LiveState {
  /// Has the client said that its plan is done?
  var isOn = false
  /// Has the own journal grown since the last round was opened?
  var hasGrown = false
  /// What the other side covers, as far as it is known.
  var covered = VersionVector()
  /// Is the own state being judged, to be compared?
  var isDigesting = false
  /// What is compared: at the client what it said last, at the server what the client said.
  var claim: StateClaim?
}

/// The live part of a session: both halves open rounds by themselves, one for each burst of writes.
///
/// Invariants: a round of the own half is opened only while none is under way, behind the position up to which the
/// last one has said everything; the other side is taken to cover what it covered at the beginning, what its own
/// rounds said that it covers, and what it acknowledged, and nothing else.
extension Exchange {
  /// Do both sides want the session to stay open?
  static func agrees(own: Hello, peer: Hello) -> Bool {
    own.compatibleFeatures & peer.compatibleFeatures & SessionFeature.live != 0
  }

  /// How many batches of a round may be under way.
  static func batchesInFlight(own: Hello, peer: Hello) -> Int {
    own.compatibleFeatures & peer.compatibleFeatures & SessionFeature.moreBatches == 0
      ? WireLimits.batchesInFlight : WireLimits.moreBatchesInFlight
  }

  func requireLive() throws(SessionEnd) {
    guard live.isOn || progress == .live else { throw .violation("a round was begun unasked") }
  }

  /// The client has said that its plan is done.
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

  /// The other side covers this, too. Where it covers just what this side does, as it does at rest, both are one in memory.
  mutating func mergePeerCoverage(_ vector: VersionVector) {
    live.covered.merge(vector)
    if let own = sending?.covered, live.covered == own { live.covered = own }
  }

  /// The same of what a round has said. Of who holds only some keys nobody merges it: no store refuses what is too much.
  mutating func mergePeerCoverage(statedBy burst: LiveUpdate) throws(SessionEnd) {
    mergePeerCoverage(burst.vector)
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

  mutating func liveUpdateOpened(_ burst: LiveUpdateOpening, _ port: inout SessionPort) throws(SessionEnd) {
    // What was purged here meanwhile is missing there, or the other way round (rule R8): the hellos will tell.
    guard live.covered.covers(burst.close.floor), burst.close.sender == own.summary.actor else {
      throw .tryAgain("what the two sides know of each other does not hold any more")
    }
    sending?.opened(burst, &port)
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

  /// Before anything is sealed for the other side it gets the keys that it lacks.
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
    // Each message waits in memory to be taken: what the hello lacked fits into one.
    guard !hasGroupKeys else { throw .violation("group keys were sent twice") }
    hasGroupKeys = true
    port.actions.append(.mergeGroupKeys(text))
  }
}
