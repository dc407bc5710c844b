import SyncTestSupport
import Testing

@testable import SyncStore

/// Each condition of rule R8 in isolation: if one is missing, the others would hide it.
@Suite("The purge rule")
struct PurgeRuleTests {
  private let mine = ActorID(high: 0, low: 1)
  private let theirs = ActorID(high: 0, low: 2)
  private let time: UInt64 = 1_700_000_000_000

  private func stamp(_ seconds: Int) -> Stamp {
    Stamp(milliseconds: UInt64(Int(time) + seconds * 1000))
  }

  /// A copy that covers ten writes of its own and five of another.
  private var state: ReplicaState {
    var state = ReplicaState()
    state.author.actor = mine
    state.author.sequence = 10
    state.vector = VersionVector([mine: 10, theirs: 5])
    return state
  }

  /// Whether a delete with the other copy's fifth write may be purged. `covered` is the only member's
  /// frontier, stated at `said` seconds.
  private func allows(
    _ state: ReplicaState, covered: [ActorID: UInt64], said: Int = 0, sequence: UInt64 = 5, open: [Dot] = []
  ) -> Bool {
    let frontier = Frontier(vector: VersionVector(covered), stamp: stamp(said))
    let version = Version(stamp: stamp(-10), dot: Dot(actor: theirs, sequence: sequence))
    return PurgeRule(state, frontiers: [frontier], at: time)
      .allows(version, open: open, isTombstone: true, deadline: nil)
  }

  @Test("allows a tombstone that all members cover and have acknowledged since")
  func allowed() {
    #expect(allows(state, covered: [theirs: 5]))
    #expect(allows(state, covered: [mine: 10, theirs: 5], open: [Dot(actor: mine, sequence: 3)]))
  }

  @Test("waits for a member that has not seen the tombstone, though it has acknowledged since")
  func unseen() { #expect(!allows(state, covered: [theirs: 4])) }

  @Test("waits for a member that has not acknowledged since the tombstone, though it covered it then")
  func spokenBefore() {
    #expect(!allows(state, covered: [theirs: 5], said: -10))
    #expect(allows(state, covered: [theirs: 5], said: -9))
  }

  @Test("waits until the tombstone itself is covered here")
  func uncovered() {
    var state = state
    state.vector = VersionVector([mine: 10, theirs: 6])
    #expect(allows(state, covered: [theirs: 6], sequence: 6))
    state.vector = VersionVector([mine: 10, theirs: 5])
    // Records held from an open round are not covered yet.
    let rule = PurgeRule(state, frontiers: [], at: time)
    let version = Version(stamp: stamp(-10), dot: Dot(actor: theirs, sequence: 6))
    #expect(!rule.allows(version, open: [], isTombstone: true, deadline: nil))
  }

  @Test("waits until everything that the tombstone replaced is covered here")
  func replacedUnseen() {
    #expect(!allows(state, covered: [theirs: 5], open: [Dot(actor: theirs, sequence: 6)]))
    #expect(!allows(state, covered: [theirs: 5], open: [Dot(actor: ActorID(high: 0, low: 3), sequence: 1)]))
  }

  @Test("forbids purging while a member covers what this copy does not")
  func memberAhead() { #expect(!allows(state, covered: [theirs: 6])) }

  @Test("forbids purging while this copy does not cover its own floor")
  func belowFloor() {
    var state = state
    state.purged.floor = VersionVector([theirs: 6])
    #expect(!allows(state, covered: [theirs: 5]))
  }

  @Test("forbids purging while this copy is unconfirmed or recovering")
  func unconfirmed() {
    var doubtful = state
    doubtful.incarnations.unconfirmedRanges = [Incarnations.UnconfirmedRange(actor: mine, above: 3)]
    #expect(!allows(doubtful, covered: [theirs: 5]))
    var mending = state
    mending.isRecovering = true
    #expect(!allows(mending, covered: [theirs: 5]))
  }

  @Test("treats a value as expired only once it is on every clock within the drift limit")
  func expired() {
    let rule = PurgeRule(state, frontiers: [], at: time)
    let version = Version(stamp: stamp(-1000), dot: Dot(actor: mine, sequence: 1))
    for (deadline, isGone) in [
      (time - Limits.clockDriftMilliseconds - 1, true), (time - Limits.clockDriftMilliseconds, false),
      (time, false), (.max, false),
    ] {
      #expect(rule.allows(version, open: [], isTombstone: false, deadline: deadline) == isGone)
    }
    #expect(!rule.allows(version, open: [], isTombstone: false, deadline: nil))
  }

  @Test("keeps a tombstone as long as a parked record that it beats (F50)")
  func withParked() throws {
    let host = SimulatedHost(machine: "one")
    let store = try Store.create(on: host)
    try store.put("key", "first")
    try store.delete("key")
    let later = host.time
    host.time -= 100_000
    let ahead = SimulatedHost(seed: 2, time: later - 20_000, machine: "two")
    let other = try Store.create(on: ahead, id: store.id)
    try other.put("key", "beaten")
    try store.receive(from: other)
    #expect(try store.purge() == 0)
    host.time = later + 1_000_000
    try store.put("another", "write")
    #expect(try store.get("key") == nil)
    #expect(try store.purge() == 1)
    #expect(try store.get("key") == nil)
  }
}
