internal import SyncStore

/// Finds the keys on which two copies differ, for the client of a session that moves no records.
///
/// | client | server |
/// | --- | --- |
/// | the digests of 256 groups of keys | the digests of the 256 buckets of each group that differs |
/// | the fingerprints of its keys in some of these buckets | what it holds of the keys that differ |
///
/// The second line is repeated until all buckets are compared, then the first one until no group is left. The
/// server lists a limited number of groups: of those that were compared the client sends it the server's own
/// digests, so that they are not listed again.
struct Comparison {
  private enum Step {
    case idle
    case digesting
    case awaitingBuckets
    case listing
    case awaitingStates
    case comparing
    case done
  }

  private var step = Step.idle
  /// The own digests by bucket.
  private var own: [StateDigest] = []
  /// The server's digests of the groups that were listed.
  private var listed: [UInt8: StateDigest] = [:]
  /// Buckets that differ and are not compared yet, ascending.
  private var buckets: ArraySlice<UInt16> = []
  /// Those that the server was asked about.
  private var asked: [UInt16] = []
  /// Number of the last question about keys.
  private var index: UInt64 = 0
  private let scope: RepairScope

  /// A comparison of the states at the time of the client's hello.
  init(own: Hello) {
    scope = RepairScope(time: own.wallMilliseconds, position: own.summary.position)
  }

  /// Whether everything is compared.
  var isDone: Bool {
    if case .done = step { return true }
    return false
  }

  mutating func begin(_ port: inout SessionPort) {
    step = .digesting
    port.actions.append(.digestBuckets(at: scope.time))
  }

  // MARK: Store results

  mutating func digested(_ digests: [StateDigest], _ port: inout SessionPort) {
    own = digests
    askForBuckets(&port)
  }

  private mutating func askForBuckets(_ port: inout SessionPort) {
    var groups = Repair.groups(of: own)
    for (group, digest) in listed { groups[Int(group)] = digest }
    step = .awaitingBuckets
    port.send(.digestGroups(DigestGroups(at: scope.time, digests: groups)))
  }

  mutating func fingerprinted(_ prints: BucketPrints, _ port: inout SessionPort) {
    step = .awaitingStates
    index += 1
    asked = prints.buckets
    port.send(.keysWant(prints))
  }

  mutating func compared(_ differences: [KeyDifference], _ port: inout SessionPort) {
    if !differences.isEmpty { port.notifications.append(.differences(differences)) }
    nextBuckets(&port)
  }

  private mutating func nextBuckets(_ port: inout SessionPort) {
    guard !buckets.isEmpty else { return askForBuckets(&port) }
    step = .listing
    port.actions.append(.fingerprint(buckets: Array(buckets.prefix(WireLimits.repairBuckets)), scope))
  }

  // MARK: Messages

  mutating func received(_ groups: [GroupBuckets], _ port: inout SessionPort) throws(SessionEnd) {
    guard case .awaitingBuckets = step else { throw .violation("digests that were not asked for") }
    // A group that is listed again has changed since: the comparison is of the earlier state.
    let new = groups.filter { listed[$0.group] == nil }
    guard !new.isEmpty else { return step = .done }
    var differing: [UInt16] = []
    for group in new {
      let first = Int(group.group) * DigestGroups.count
      listed[group.group] = group.digests.reduce(into: StateDigest()) { $0.add($1) }
      for (number, digest) in group.digests.enumerated() where own[first + number] != digest {
        differing.append(UInt16(first + number))
      }
    }
    buckets = differing[...]
    nextBuckets(&port)
  }

  /// Handles the server's statement; `covered` is its vector.
  mutating func received(
    _ states: KeyStates, covered: VersionVector, _ port: inout SessionPort
  ) throws(SessionEnd) {
    guard case .awaitingStates = step else { throw .violation("keys that were not asked for") }
    let stated = Set(states.buckets)
    guard !stated.isEmpty, stated.isSubset(of: asked),
      states.hashes.allSatisfy({ stated.contains(RecordFingerprint.bucket(of: $0)) })
    else { throw .violation("a statement about keys that were not asked for") }
    buckets = buckets.filter { !stated.contains($0) }[...]
    step = .comparing
    port.actions.append(.compareKeys(states, covered: covered, scope, index: index))
  }
}

extension Exchange {
  /// Whether both sides can compare keys without moving records.
  var comparesKeys: Bool {
    own.compatibleFeatures & peer.compatibleFeatures & SessionFeature.comparison != 0
      && own.summary.scope == nil && peer.summary.scope == nil
  }

  /// Begins the comparison that the client is here for.
  mutating func beginComparison(_ port: inout SessionPort) throws(SessionEnd) {
    guard own.summary.scope == nil, peer.summary.scope == nil else {
      throw SessionEnd(
        outcome: .failed(
          .notAllowed, "one of the two copies holds only some keys: compare copies that hold all of them"))
    }
    guard comparesKeys else {
      throw SessionEnd(
        outcome: .failed(
          .unavailable, "\(port.peerName) runs a version that cannot compare: update it, or use `sync`"))
    }
    progress = .comparingKeys
    comparison.begin(&port)
  }

  /// Ends the session of a comparison that is done.
  func endIfCompared(_ port: inout SessionPort) throws(SessionEnd) {
    guard comparison.isDone else { return }
    port.send(.goodbye)
    throw SessionEnd(outcome: .done)
  }
}
