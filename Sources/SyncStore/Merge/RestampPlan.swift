/// Plans how a copy corrects its own writes after its clock ran ahead: which get the present time, and
/// whether that can be done without a trace. A value, without I/O: the caller passes it the journal's writes.
///
/// A write can be retracted only if no other copy can have it. Nothing is sent before a mark is durable
/// (rules R7, R9), and a mark states its author's last sequence: later writes are on this copy alone.
struct RestampPlan {
  /// The author.
  let actor: ActorID
  /// Milliseconds since 1970.
  let wall: UInt64
  /// Stamps above this are ahead.
  let limit: Stamp
  /// Own writes up to this sequence may be known elsewhere.
  let sentUpTo: UInt64
  /// Own writes to be issued again, one list for each transaction, in order.
  private(set) var transactions: [[Record]] = []
  /// Their approximate size in the journal, in bytes.
  private(set) var bytes = 0
  /// Number of own writes that are ahead and may be on other copies.
  private(set) var sent = 0
  /// Number of current writes of others that are ahead: the clock that ran ahead accepted them.
  private(set) var foreign = 0
  /// Sequence of the last own write that is not ahead.
  private(set) var lastInTime: UInt64 = 0
  /// The greatest stamp that is not ahead.
  private(set) var latest = Stamp.zero
  /// The greatest stamp seen.
  private(set) var furthest = Stamp.zero
  private let state: ReplicaState
  private var isGroupOpen = false
  private var counted = 0

  /// A plan for a copy in `state`, at `wall` milliseconds since 1970. Nil if it has no actor yet.
  init?(_ state: ReplicaState, wall: UInt64) {
    guard let actor = state.actor else { return nil }
    (self.state, self.actor, self.wall) = (state, actor, wall)
    limit = Stamp(milliseconds: wall + Limits.clockDriftMilliseconds)
    sentUpTo = state.marks.values.map(\.sequence).max() ?? 0
  }

  /// Kind of a write in the journal.
  enum Kind {
    /// A parked record of another copy, or one that is not current any more.
    case passive
    /// The current record of its key.
    case current
  }

  /// Accounts for the next write of the journal. Returns true if it must be issued again: then `add` follows.
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
    // For a former incarnation, how far it was sent is unknown.
    if dot.actor != actor || dot.sequence <= sentUpTo {
      // One that was overwritten since may become live elsewhere once its time has come.
      sent += 1
      return false
    }
    return kind == .current
  }

  /// Adds a write of this size to be issued again; `endTransaction` separates transactions.
  mutating func add(_ record: Record, bytes: Int) {
    if !isGroupOpen { transactions.append([]) }
    isGroupOpen = true
    transactions[transactions.count - 1].append(record)
    self.bytes += bytes
  }

  /// Counts a write to be issued again whose record the caller does not need.
  mutating func countOnly() { counted += 1 }

  /// Ends a transaction of the journal.
  mutating func endTransaction() { isGroupOpen = false }

  /// Number of writes issued again.
  var count: Int { transactions.reduce(counted) { $0 + $1.count } }

  /// True if there is anything to correct.
  var isNeeded: Bool { count > 0 || state.author.clock.last > limit }

  /// True if writes that are ahead may have been sent, though none of them is left here.
  private var mayHaveSentOthers: Bool {
    state.marks.values.contains { mark in mark.clock.map { $0 > limit } ?? (mark.sequence > lastInTime) }
  }

  /// True if the marks alone show that writes that are ahead may have been sent.
  var hasMarkAhead: Bool {
    state.marks.values.contains { mark in mark.clock.map { $0 > limit } ?? false }
  }

  /// Why the plan cannot be carried out, and the remedy; nil if it can.
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

  /// The present actor's writes up to this sequence stay unchanged.
  var kept: UInt64 {
    // Purged writes that were not ahead stay purged.
    max(sentUpTo, lastInTime, isHorizonAhead ? 0 : state.purged.floor[actor])
  }

  /// True if own deletes that were ahead were purged.
  var isHorizonAhead: Bool { state.purged.horizon > limit }

  /// The stamp to which the clock is set back: no remaining write is above it.
  var clock: Stamp { max(latest, Stamp(milliseconds: wall), isHorizonAhead ? .zero : state.purged.horizon) }

  /// The lead of a stamp, as text for people.
  static func lead(_ stamp: Stamp, _ wall: UInt64) -> String {
    text(milliseconds: stamp.milliseconds - min(wall, stamp.milliseconds))
  }

  /// A duration, as text for people.
  static func text(milliseconds: UInt64) -> String {
    let (seconds, hours) = (milliseconds / 1000, milliseconds / 3_600_000)
    return seconds < 7200 ? "\(seconds) s" : hours < 72 ? "\(hours) h" : "\(hours / 24) days"
  }
}

/// Retracted writes of a former incarnation: no copy has them, except possibly a copy of the directory.
struct RetractedWrites: Hashable, Sendable {
  /// The range has the sequences above this one.
  var above: UInt64

  /// Encoded as a local record.
  var bytes: [UInt8] { ReplicaState.encode(position: above) }
}
