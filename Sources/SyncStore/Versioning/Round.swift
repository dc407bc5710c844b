/// How far a copy has received the journal of one sender (rule R10).
package struct Cursor: Hashable, Sendable {
  /// The last position of the sender's journal that is durable here.
  package var position: UInt64
  /// The round in which it was received. A sender that does not know the mark was rolled back (rule R9).
  package var mark: RoundMark
  /// Was that round received to its end?
  package var closed: Bool

  /// All fields.
  package init(position: UInt64, mark: RoundMark, closed: Bool) {
    (self.position, self.mark, self.closed) = (position, mark, closed)
  }
}

/// What a copy thinks of its own state.
package enum ReplicaHealth: UInt8, Hashable, Sendable, CaseIterable {
  /// All is well.
  case healthy = 0
  /// It was rolled back: own records of the life it lost are in doubt (rule R9).
  case unconfirmed = 1
  /// It was damaged: what it covers is not known any more.
  case recovering = 2
}

/// What a copy says of itself at the handshake. All of it is durable.
package struct ReplicaSummary: Hashable, Sendable {
  /// Which data set it is a copy of.
  package var store: StoreID
  /// Its present incarnation.
  package var actor: ActorID
  /// The last sequence that `actor` has written.
  package var sequence: UInt64
  /// What it covers.
  package var vector: VersionVector
  /// For each actor, the highest sequence among the dead records it has purged (rule R8).
  package var floor: VersionVector
  /// The highest stamp among them.
  package var horizon: Stamp
  /// The last position of its journal.
  package var position: UInt64
  /// What it thinks of its own state.
  package var health: ReplicaHealth
  /// Which keys it holds; nil for all.
  package var scope: KeyScope?
  /// More of them that it is to hold. Its own affair: it is not said at the handshake.
  package var scopeExpansion: ScopeExpansion?
  /// Former incarnations that it gave up because it found itself put back, or cloned. Its own affair, too.
  package var abandonedActors: Set<ActorID> = []

  /// All fields.
  package init(
    store: StoreID, actor: ActorID, sequence: UInt64, vector: VersionVector, floor: VersionVector,
    horizon: Stamp, position: UInt64, standing: ReplicaHealth = .healthy, scope: KeyScope? = nil,
    widening: ScopeExpansion? = nil, parted: Set<ActorID> = []
  ) {
    (self.store, self.actor, self.sequence, self.vector) = (store, actor, sequence, vector)
    (self.floor, self.horizon, self.position, self.health) = (floor, horizon, position, standing)
    (self.scope, self.scopeExpansion, self.abandonedActors) = (scope, widening, parted)
  }

  /// Must it be given all that `sender` holds, rather than what changed (rule R8)? Of a sender that holds only some keys nobody takes
  /// over what it covers, and so needs nothing of what that purged.
  package func needsFullState(of sender: ReplicaSummary) -> Bool {
    health != .healthy || sender.scope == nil && !vector.covers(sender.floor)
  }

  /// Can it give `receiver` all that it holds, with the truth about what it does not hold?
  package func canGiveFullState(to receiver: ReplicaSummary) -> Bool {
    guard scope == nil, health != .recovering, vector.covers(floor) else { return false }
    return receiver.health != .recovering || health == .healthy && vector.covers(receiver.floor)
  }
}

/// Who asks for a round.
package struct RoundReceiver: Hashable, Sendable {
  /// How far it has received the sender's journal.
  package var cursor: Cursor?
  /// What it covers.
  package var covered: VersionVector
  /// Its own floor.
  package var floor: VersionVector
  /// What it thinks of its own state.
  package var health: ReplicaHealth
  /// Which keys it holds; nil for all.
  package var scope: KeyScope?
  /// It asks for these keys only, of which it has nothing behind the cursor; nil in an ordinary round.
  package var missingScope: MissingScope?

  /// All fields.
  package init(
    cursor: Cursor?, covered: VersionVector, floor: VersionVector = VersionVector(),
    standing: ReplicaHealth = .healthy, scope: KeyScope? = nil, lacking: MissingScope? = nil
  ) {
    (self.cursor, self.covered, self.floor, self.health) = (cursor, covered, floor, standing)
    (self.scope, self.missingScope) = (scope, lacking)
  }
}

/// A record and its place in its sender's journal.
package struct PositionedRecord: Hashable, Sendable {
  /// The place.
  package var position: UInt64
  /// The record.
  package var record: Record

  /// Both fields.
  package init(position: UInt64, record: Record) { (self.position, self.record) = (position, record) }
}

/// What one atomic append at the receiver takes in: records of one round, in the sender's order, whole transactions.
package struct IncomingBatch: Hashable, Sendable {
  /// The sender's actor.
  package var sender: ActorID
  /// The round's mark.
  package var mark: RoundMark
  /// The sender's position up to which the journal has been received once this batch is applied.
  package var position: UInt64
  /// The records.
  package var records: BatchRecords
  /// Of a full state: what else the sender holds up to this position, which the receiver has already.
  package var present: [Dot]
  /// The keys that the sender took the receiver to hold; nil for all.
  package var scope: KeyScope?
  /// Of a round of keys that were lacking: what the receiver will hold.
  package var scopeExpansion: ScopeExpansion?
  /// Of such a round: the cursor that the batch before this one has left; nil for the first one.
  package var behind: Cursor?
  /// For whom the session brings it; nil if no session does.
  package var expectedState: ExpectedReplicaState?

  /// All fields.
  package init(
    sender: ActorID, mark: RoundMark, position: UInt64, records: [PositionedRecord], present: [Dot] = [],
    scope: KeyScope? = nil, widening: ScopeExpansion? = nil
  ) {
    self.init(
      sender: sender, mark: mark, position: position, records: .list(records), present: present, scope: scope,
      widening: widening)
  }

  /// The same with records as they came.
  package init(
    sender: ActorID, mark: RoundMark, position: UInt64, records: BatchRecords, present: [Dot],
    scope: KeyScope?, widening: ScopeExpansion?
  ) {
    (self.sender, self.mark, self.position) = (sender, mark, position)
    (self.records, self.present, self.scope, self.scopeExpansion) = (records, present, scope, widening)
  }
}

/// The copy to which a session brings something, as the session knows it. One that has become another since would be taken to have what
/// it has forgotten.
package struct ExpectedReplicaState: Hashable, Sendable {
  /// Its actor at the handshake.
  package var actor: ActorID
  /// The cursor for the sender that the session has left, where nobody else is to have moved it; else nil.
  package var cursor: Cursor?

  /// Both fields.
  package init(actor: ActorID, cursor: Cursor? = nil) { (self.actor, self.cursor) = (actor, cursor) }
}

/// What closes a round: the sender's state when it fixed its snapshot.
package struct RoundClose: Hashable, Sendable {
  /// The sender's actor.
  package var sender: ActorID
  /// The round's mark.
  package var mark: RoundMark
  /// The last position of the snapshot.
  package var position: UInt64
  /// What the snapshot covers. The receiver merges it now and never earlier.
  package var vector: VersionVector
  /// The sender's floor.
  package var floor: VersionVector
  /// The sender's horizon.
  package var horizon: Stamp
  /// Was it all that the sender holds, rather than what changed (rule R8)?
  package var isFull: Bool
  /// Does the sender hold only some keys?
  package var isNarrow: Bool
  /// The keys that the sender took the receiver to hold; nil for all.
  package var scope: KeyScope?
  /// Of a round of keys that were lacking: what the receiver will hold.
  package var scopeExpansion: ScopeExpansion?
  /// At the receiver: for whom the session brings it; nil if no session does.
  package var expectedState: ExpectedReplicaState?

  /// All fields but the addressee.
  package init(
    sender: ActorID, mark: RoundMark, position: UInt64, vector: VersionVector, floor: VersionVector,
    horizon: Stamp, isFull: Bool = false, isNarrow: Bool = false, scope: KeyScope? = nil,
    widening: ScopeExpansion? = nil
  ) {
    (self.sender, self.mark, self.position, self.vector) = (sender, mark, position, vector)
    (self.floor, self.horizon, self.isFull) = (floor, horizon, isFull)
    (self.isNarrow, self.scope, self.scopeExpansion) = (isNarrow, scope, widening)
  }
}
