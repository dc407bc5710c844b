internal import SyncStore

/// Finds keys whose contents differ although two copies cover the same writes, and repairs both copies (F61).
///
/// The client asks, the server answers, step by step:
///
/// | client | server |
/// | --- | --- |
/// | the digests of 256 groups of keys | the digests of the 256 buckets of each group that differs |
/// | the fingerprints of all keys in the buckets that differ | its records of the keys that differ |
/// | keeps what these beat; its records of them | keeps what these beat, issues again what beats them |
/// | issues again what beats the server's | |
///
/// Invariants: a side reissues a winner only after the other has durably kept the loser: the winner is
/// reissued as the successor of the write that both have, so the loser would be lost without a trace
/// otherwise. Each list is bounded on its own, and the rest follows with the next comparison. Records that
/// either side received after the digests were compared are left alone.
struct Repair {
  private enum Step {
    case idle
    // Client states.
    case digesting
    case awaitingBuckets([StateDigest])
    case listing
    case awaitingRecords(buckets: Set<UInt16>)
    case exchanging
    case awaitingRepaired(hashes: [UInt64])
    case issuing
    // Server states.
    case answeringGroups(DigestGroups)
    case awaitingPrints
    case answeringPrints(BucketPrints)
    case answeringRecords
    case awaitingTheirs(hashes: [UInt64])
    case repairing
    case statingKeys
  }

  private var step = Step.idle
  /// Whether both sides support repair.
  let isAgreed: Bool
  /// The own journal's last position at the latest comparison of digests.
  var position: UInt64
  private var scope = RepairScope(time: 0, position: 0)
  /// Number of comparisons of all buckets.
  private(set) var passes = 0
  /// Consecutive comparisons that found nothing.
  var fruitless = 0
  /// Differing keys in this comparison.
  private var found = 0
  /// Whether either side has become another actor. Nothing more can be repaired in this session.
  private(set) var isRenewed = false
  /// Number of questions about keys that were answered without a repair.
  private var answers: UInt64 = 0

  init(own: Hello, peer: Hello) {
    isAgreed =
      own.compatibleFeatures & peer.compatibleFeatures & SessionFeature.repair != 0
      && own.summary.scope == nil && peer.summary.scope == nil
    position = own.summary.position
  }

  /// Whether this side waits for nothing.
  var isQuiet: Bool {
    switch step {
    case .idle, .awaitingPrints: true
    default: false
    }
  }

  private var index: UInt64 { UInt64(passes) }

  // MARK: Client side

  /// Begins. `time` is the one at which both sides evaluated the differing digests.
  mutating func begin(at time: UInt64, _ port: inout SessionPort) throws(SessionEnd) {
    guard isQuiet else { throw .violation("a comparison inside a comparison") }
    try pass()
    (step, found) = (.digesting, 0)
    scope = RepairScope(time: time, position: position)
    port.actions.append(.digestBuckets(at: time))
  }

  private mutating func pass() throws(SessionEnd) {
    guard passes < WireLimits.repairPasses else {
      throw .tryAgain(
        "the two copies differ in very many keys: what was put right is kept, the rest comes in the next session"
      )
    }
    passes += 1
  }

  /// Handles the server's buckets. Returns the number of differing keys if that ends the comparison.
  mutating func received(_ groups: [GroupBuckets], _ port: inout SessionPort) throws(SessionEnd) -> Int? {
    guard case .awaitingBuckets(let own) = step else { throw .violation("digests that were not asked for") }
    var buckets: [UInt16] = []
    for group in groups {
      let first = Int(group.group) * DigestGroups.count
      for (number, digest) in group.digests.enumerated() where own[first + number] != digest {
        buckets.append(UInt16(first + number))
      }
    }
    guard !buckets.isEmpty else { return end() }
    step = .listing
    port.actions.append(.fingerprint(buckets: Array(buckets.prefix(WireLimits.repairBuckets)), scope))
    return nil
  }

  /// Handles the other side's records. At the client, returns as `received` of buckets does.
  mutating func received(_ records: DifferingRecords, _ port: inout SessionPort) throws(SessionEnd) -> Int? {
    switch step {
    case .awaitingRecords(let buckets):
      guard records.hashes.allSatisfy({ buckets.contains(RecordFingerprint.bucket(of: $0)) }) else {
        throw .violation("records of keys that were not compared")
      }
      guard !records.hashes.isEmpty else { return end() }
      step = .exchanging
      port.actions.append(
        .exchangeRecords(hashes: records.hashes, theirs: records.encrypted, scope, index: index))
      return nil
    case .awaitingTheirs(let hashes):
      guard !records.hashes.isEmpty, Set(hashes).isSuperset(of: records.hashes) else {
        throw .violation("records of keys that do not differ")
      }
      step = .repairing
      port.actions.append(.repair(hashes: records.hashes, theirs: records.encrypted, scope, index: index))
      return nil
    default: throw .violation("records that were not asked for")
    }
  }

  /// The server has repaired its side.
  mutating func otherRepaired(isRenewed: Bool, _ port: inout SessionPort) throws(SessionEnd) {
    guard case .awaitingRepaired(let hashes) = step else {
      throw .violation("a repair that was not asked for")
    }
    self.isRenewed = self.isRenewed || isRenewed
    step = .issuing
    port.actions.append(.repair(hashes: hashes, theirs: nil, scope, index: index))
  }

  private mutating func end() -> Int {
    step = .idle
    return found
  }

  // MARK: Server side

  mutating func asked(_ groups: DigestGroups, _ port: inout SessionPort) throws(SessionEnd) {
    guard isQuiet else { throw .violation("a comparison inside a comparison") }
    try pass()
    scope = RepairScope(time: groups.at, position: position)
    step = .answeringGroups(groups)
    port.actions.append(.digestBuckets(at: groups.at))
  }

  mutating func asked(_ prints: BucketPrints, _ port: inout SessionPort) throws(SessionEnd) {
    guard case .awaitingPrints = step else { throw .violation("fingerprints before digests") }
    step = .answeringPrints(prints)
    port.actions.append(.fingerprint(buckets: prints.buckets, scope))
  }

  /// The client wants to know what is held of the keys that differ, and repairs nothing.
  mutating func askedForKeys(_ prints: BucketPrints, _ port: inout SessionPort) throws(SessionEnd) {
    guard case .awaitingPrints = step else { throw .violation("fingerprints before digests") }
    guard answers < WireLimits.comparisonAnswers else {
      throw .tryAgain("a comparison asked for the keys of more buckets than one session answers")
    }
    answers += 1
    step = .statingKeys
    port.actions.append(.stateKeys(prints, scope, index: answers))
  }

  // MARK: Store results

  mutating func keysStated(_ states: KeyStates, _ port: inout SessionPort) {
    guard case .statingKeys = step else { preconditionFailure("no keys were being stated") }
    step = .awaitingPrints
    port.send(.keyStates(states))
  }

  mutating func digested(_ buckets: [StateDigest], _ port: inout SessionPort) {
    switch step {
    case .digesting:
      step = .awaitingBuckets(buckets)
      port.send(.digestGroups(DigestGroups(at: scope.time, digests: Self.groups(of: buckets))))
    case .answeringGroups(let theirs):
      let differing = zip(Self.groups(of: buckets), theirs.digests).enumerated()
        .filter { $0.element.0 != $0.element.1 }.prefix(WireLimits.repairGroups)
      port.send(
        .groupBuckets(
          differing.map { number, _ in
            let first = number * DigestGroups.count
            return GroupBuckets(
              group: UInt8(number), digests: Array(buckets[first..<(first + DigestGroups.count)]))
          }))
      step = .awaitingPrints
    default: preconditionFailure("no buckets were being digested")
    }
  }

  static func groups(of buckets: [StateDigest]) -> [StateDigest] {
    stride(from: 0, to: buckets.count, by: DigestGroups.count).map { first in
      buckets[first..<(first + DigestGroups.count)].reduce(into: StateDigest()) { $0.add($1) }
    }
  }

  mutating func fingerprinted(_ prints: BucketPrints, _ port: inout SessionPort) {
    switch step {
    case .listing:
      step = .awaitingRecords(buckets: Set(prints.buckets))
      port.send(.bucketPrints(prints))
    case .answeringPrints(let theirs):
      let buckets = Set(prints.buckets)
      let others = theirs.prints.filter { buckets.contains(RecordFingerprint.bucket(of: $0.keyHash)) }
      let hashes = RecordFingerprint.differences(prints.prints, others).prefix(WireLimits.repairKeys)
      guard !hashes.isEmpty else {
        step = .idle
        return port.send(.differingRecords(DifferingRecords(hashes: [], encrypted: [])))
      }
      step = .answeringRecords
      port.actions.append(.exchangeRecords(hashes: Array(hashes), theirs: nil, scope, index: index))
    default: preconditionFailure("no fingerprints were being taken")
    }
  }

  mutating func exchanged(_ records: DifferingRecords, keys: [[UInt8]], _ port: inout SessionPort) {
    switch step {
    case .exchanging:
      recordRepaired(keys, &port)
      step = .awaitingRepaired(hashes: records.hashes)
    case .answeringRecords: step = .awaitingTheirs(hashes: records.hashes)
    default: preconditionFailure("no records were being exchanged")
    }
    port.send(.differingRecords(records))
  }

  /// The own side is repaired. At the client, returns as `received` of buckets does.
  mutating func repaired(_ outcome: RepairOutcome, _ port: inout SessionPort) -> Int? {
    isRenewed = isRenewed || outcome.hasNewActor
    switch step {
    case .issuing: return end()
    case .repairing:
      recordRepaired(outcome.keys, &port)
      step = .idle
      port.send(.repaired(keys: UInt64(outcome.keys.count), isRenewed: outcome.hasNewActor))
      return nil
    default: preconditionFailure("nothing was being repaired")
    }
  }

  private mutating func recordRepaired(_ keys: [[UInt8]], _ port: inout SessionPort) {
    found += keys.count
    port.figures.repairedKeys += keys.count
    port.figures.repaired += keys.prefix(max(0, WireLimits.repairNames - port.figures.repaired.count))
  }
}
