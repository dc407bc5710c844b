/// What a copy does with its own writes after its clock ran ahead: which of them are given the present time, and whether that can be
/// done without a trace. A value, without I/O: who drives it shows it the journal.
///
/// A write can be taken back only if nobody else can have it. Nothing leaves before a mark is durable (rules R7, R9), and a mark says
/// how far its author had written: what came after the last one is here alone.
struct RestampPlan {
  /// Who has written.
  let actor: ActorID
  /// Milliseconds since 1970.
  let wall: UInt64
  /// What is stamped above this is ahead.
  let limit: Stamp
  /// Own writes up to this sequence may be known elsewhere.
  let sentUpTo: UInt64
  /// Own writes to be issued again, one list for each transaction, in their order.
  private(set) var transactions: [[Record]] = []
  /// Bytes that those take up in the journal, about.
  private(set) var bytes = 0
  /// Own writes that are ahead, and that others may have.
  private(set) var sent = 0
  /// Writes of others that are ahead, and count here: they were taken in by the clock that ran ahead.
  private(set) var foreign = 0
  /// The last own write that is not ahead.
  private(set) var lastInTime: UInt64 = 0
  /// The greatest stamp that is not ahead.
  private(set) var latest = Stamp.zero
  /// The greatest stamp that was seen.
  private(set) var furthest = Stamp.zero
  private let state: ReplicaState
  private var isGroupOpen = false
  private var counted = 0

  /// For a copy in `state`, at `wall` milliseconds since 1970. Nil if it has no name yet.
  init?(_ state: ReplicaState, wall: UInt64) {
    guard let actor = state.actor else { return nil }
    (self.state, self.actor, self.wall) = (state, actor, wall)
    limit = Stamp(milliseconds: wall + Limits.clockDriftMilliseconds)
    sentUpTo = state.marks.values.map(\.sequence).max() ?? 0
  }

  /// The next write of the journal.
  enum Kind {
    /// Others' record that waits for its time, or one that does not count any more.
    case passive
    /// The one that counts for its key.
    case current
  }

  /// Takes notice of the next write of the journal; true if it is to be issued again: then `add` follows.
  mutating func classify(_ version: Version, _ kind: Kind) -> Bool {
    let (dot, isOwn) = (version.dot, state.isMine(version.dot))
    guard version.stamp > limit else {
      latest = max(latest, version.stamp)
      if dot.actor == actor { lastInTime = max(lastInTime, dot.sequence) }
      return false
    }
    if isOwn || kind == .current { furthest = max(furthest, version.stamp) }
    guard isOwn else {
      if kind == .current { foreign += 1 }
      return false
    }
    // Of a former life it is not known any more how far it had come.
    if dot.actor != actor || dot.sequence <= sentUpTo {
      // One that was overwritten since may come alive elsewhere when its time has come.
      sent += 1
      return false
    }
    return kind == .current
  }

  /// A write is to be issued again that takes up so many bytes; `endsTransaction` if no more of its transaction follow.
  mutating func add(_ record: Record, bytes: Int) {
    if !isGroupOpen { transactions.append([]) }
    isGroupOpen = true
    transactions[transactions.count - 1].append(record)
    self.bytes += bytes
  }

  /// A write is to be issued again that the caller does not need.
  mutating func countOnly() { counted += 1 }

  /// A transaction of the journal has ended.
  mutating func endTransaction() { isGroupOpen = false }

  /// How many writes are issued again.
  var count: Int { transactions.reduce(counted) { $0 + $1.count } }

  /// Is there anything to be put right?
  var isNeeded: Bool { count > 0 || state.author.clock.last > limit }

  /// May writes that are ahead have left, though none of them is left here?
  private var mayHaveSentOthers: Bool {
    state.marks.values.contains { mark in mark.clock.map { $0 > limit } ?? (mark.sequence > lastInTime) }
  }

  /// Is it known, without a look at the journal, that writes that are ahead may have left?
  var hasMarkAhead: Bool {
    state.marks.values.contains { mark in mark.clock.map { $0 > limit } ?? false }
  }

  /// Why it cannot be done, what to do, or nil.
  var refusal: (why: String, remedy: String)? {
    let ahead = "stamped up to \(Self.lead(furthest, wall)) ahead of this clock"
    if sent > 0 || mayHaveSentOthers {
      let writes = sent > 0 ? "\(sent) writes" : "writes that were overwritten since"
      return (
        "\(writes), \(ahead), may have reached other members or a backup already, where they wait for their time",
        "if this clock is right, make a new store of what this one holds (`Store.importAll(from:)`), and have the members join that"
      )
    }
    if foreign > 0 {
      return (
        "\(foreign) writes of other members, \(ahead), were taken in while this clock ran ahead as theirs did",
        "put the clocks of those members right, and make a new store of what this one holds (`Store.importAll(from:)`)"
      )
    }
    return nil
  }

  /// Up to this sequence the present actor's writes stay what they are.
  var kept: UInt64 {
    // What was purged, and was not ahead, stays purged.
    max(sentUpTo, lastInTime, isHorizonAhead ? 0 : state.floor[actor])
  }

  /// Were own deletes purged that were ahead?
  var isHorizonAhead: Bool { state.horizon > limit }

  /// What the clock is put back to: nothing that stays is above it.
  var clock: Stamp { max(latest, Stamp(milliseconds: wall), isHorizonAhead ? .zero : state.horizon) }

  /// By how much a stamp is ahead, for people.
  static func lead(_ stamp: Stamp, _ wall: UInt64) -> String {
    text(milliseconds: stamp.milliseconds - min(wall, stamp.milliseconds))
  }

  /// A length of time for people.
  static func text(milliseconds: UInt64) -> String {
    let (seconds, hours) = (milliseconds / 1000, milliseconds / 3_600_000)
    return seconds < 7200 ? "\(seconds) s" : hours < 72 ? "\(hours) h" : "\(hours / 24) days"
  }
}

/// Writes of a former life that were taken back: nobody has them, but maybe a copy that was made of the directory.
struct RetractedWrites: Hashable, Sendable {
  /// Those above this sequence.
  var above: UInt64

  /// As a local record has it.
  var bytes: [UInt8] { ReplicaState.encode(position: above) }
}

extension TransactionBuilder {
  /// Takes back what `plan` says, and becomes `next`, whose first write is the next one. The vector covers nothing of what was
  /// taken back, so that a copy of the directory that has it is not believed to be covered.
  mutating func retract(_ plan: RestampPlan, as next: ActorID) throws(StoreError) {
    var (vector, floor) = (state.vector, state.floor)
    vector[plan.actor] = plan.kept
    for mark in state.marks.keys.sorted() { try setLocal(StateKey.mark(mark), nil) }
    if plan.isHorizonAhead {
      // Who has not heard of the purged deletes must still be given full state: the floor names a write that nobody else has.
      floor[plan.actor] = min(floor[plan.actor], plan.kept)
      floor[next] = 1
      try setLocal(StateKey.floor, ReplicaState.encode(floor: floor, horizon: plan.clock))
    }
    try setLocal(StateKey.retracted(plan.actor), RetractedWrites(above: plan.kept).bytes)
    let former = state.ownActors.sorted().prefix(Limits.actors)
    try setLocal(StateKey.actor, next.bytes + former.flatMap(\.bytes))
    try setLocal(StateKey.vector, ReplicaState.encode(vector))
    // Last: nothing before it raises the clock any more when the journal is read.
    try setLocal(StateKey.clock, ReplicaState.encode(position: plan.clock.rawValue))
  }
}
