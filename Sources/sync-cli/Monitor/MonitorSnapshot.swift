import Replication
import SyncStore

/// The figures of the daemon's pages, as of one moment.
struct MonitorSnapshot: Sendable {
  /// Milliseconds since 1970, of this snapshot and of the daemon's start.
  var time: UInt64
  var startTime: UInt64
  /// The store.
  var name: String
  var store: StoreID
  var actor: ActorID?
  var figures: StoreFigures
  var counters: StoreCounters
  /// The last pass over all keys; nil before the first has ended.
  var counted: CountedKeys?
  var conditions: StoreConditions
  /// The other members, in the order of their names.
  var members: [MemberFigures]
  var node: NodeState
  var sessions: NodeCounters
  var process: ProcessFigures

  /// Figures that need a pass over all keys: a background queue makes it now and then.
  struct CountedKeys: Sendable {
    var time: UInt64
    var status: StoreStatus
    var absent: AbsentValues
    var files: [FileUsage]
  }

  /// Conditions of the copy that an operator must know.
  struct StoreConditions: Sendable {
    var health = ReplicaHealth.healthy
    var denial: WriteDenial?
    /// The clock's fault, as a sentence; nil if there is none.
    var clockWarning: String?
    /// Milliseconds by which the stamps of this copy are ahead of its clock.
    var clockLead: UInt64 = 0
  }

  /// Another member, as this copy knows it.
  struct MemberFigures: Sendable {
    var name: String
    var device: DeviceID
    var right: Member.Right
    /// The facts of its last session; nil if there was none.
    var contact: Contact?
    /// The writes that it is not known to have.
    var unknown: UnknownWrites
    /// Its sessions since the daemon began.
    var counters: NodeCounters.MemberCounters
    /// How it is kept in step; nil if this copy does not dial it.
    var peer: PeerState?

    /// When it was last connected, in milliseconds since 1970.
    var lastSeen: UInt64? { [contact?.time, counters.lastSeen].compactMap { $0 }.max() }
    /// When it was last in step, since the daemon began.
    var lastSuccess: UInt64? { [peer?.lastSuccess, counters.lastSuccess].compactMap { $0 }.max() }
    /// Whether it is not known what it has: this copy never meets it, but others, or its writes were not
    /// counted yet.
    var isIndirect: Bool
    /// Number of keys that it is not known to have, as far as they are counted.
    var lacking: Int { min(unknown.count, OtherCopies.countedWrites) }
    /// Whether there are more than those.
    var isBounded: Bool { unknown.count > OtherCopies.countedWrites }
    /// Whether it has everything that is here.
    var isInStep: Bool { contact != nil && unknown.count == 0 }
  }
}
