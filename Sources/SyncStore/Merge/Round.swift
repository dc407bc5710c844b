/// Replication cursor: how far a copy has received the journal of one sender (rule R10).
package struct Cursor: Hashable, Sendable {
  /// The last position of the sender's journal that is durable here.
  package var position: UInt64
  /// The round in which it was received. A sender that does not know the mark was rolled back (rule R9).
  package var mark: RoundMark
  /// True if that round was received to its end.
  package var closed: Bool

  /// All fields.
  package init(position: UInt64, mark: RoundMark, closed: Bool) {
    (self.position, self.mark, self.closed) = (position, mark, closed)
  }
}

/// A copy's assessment of its own state.
package enum ReplicaHealth: UInt8, Hashable, Sendable, CaseIterable {
  /// Vector and own records are reliable.
  case healthy = 0
  /// It was rolled back: own records of the lost incarnation are in doubt (rule R9).
  case unconfirmed = 1
  /// It was damaged: its vector is unknown.
  case recovering = 2
}

/// A copy's description of itself at the handshake. All of it is durable.
package struct ReplicaSummary: Hashable, Sendable {
  /// The data set.
  package var store: StoreID
  /// Its present incarnation.
  package var actor: ActorID
  /// The last sequence that `actor` has written.
  package var sequence: UInt64
  /// The writes that it covers.
  package var vector: VersionVector
  /// For each actor, the highest sequence among the dead records it has purged (rule R8).
  package var floor: VersionVector
  /// The highest stamp among them.
  package var horizon: Stamp
  /// The last position of its journal.
  package var position: UInt64
  /// Its assessment of its own state.
  package var health = ReplicaHealth.healthy
  /// The keys that it holds; nil for all.
  package var scope: KeyScope?
  /// Expansion of its scope in progress. Local: not sent at the handshake.
  package var scopeExpansion: ScopeExpansion?
  /// Former incarnations that it gave up because it was rolled back or cloned. Local, too.
  package var abandonedActors: Set<ActorID> = []

  /// The summary of a healthy copy that holds all keys and has given up no incarnation.
  package init(
    store: StoreID, actor: ActorID, sequence: UInt64, vector: VersionVector, floor: VersionVector,
    horizon: Stamp, position: UInt64
  ) {
    (self.store, self.actor, self.sequence, self.vector) = (store, actor, sequence, vector)
    (self.floor, self.horizon, self.position) = (floor, horizon, position)
  }

  /// True if it needs all that `sender` holds, rather than a delta (rule R8). The vector of a sender that
  /// holds only some keys is not merged, so its purges need no full state.
  package func needsFullState(of sender: ReplicaSummary) -> Bool {
    health != .healthy || sender.scope == nil && !vector.covers(sender.floor)
  }

  /// True if it can send `receiver` its full state, and its absences are reliable, too.
  package func canGiveFullState(to receiver: ReplicaSummary) -> Bool {
    guard scope == nil, health != .recovering, vector.covers(floor) else { return false }
    return receiver.health != .recovering || health == .healthy && vector.covers(receiver.floor)
  }
}

/// The receiver that requests a round.
package struct RoundReceiver: Hashable, Sendable {
  /// How far it has received the sender's journal.
  package var cursor: Cursor?
  /// The writes that it covers.
  package var covered: VersionVector
  /// Its own floor.
  package var floor: VersionVector
  /// Its assessment of its own state.
  package var health: ReplicaHealth
  /// The keys that it holds; nil for all.
  package var scope: KeyScope?
  /// Requests only these keys, of which it has nothing after the cursor; nil in an ordinary round.
  package var missingScope: MissingScope?
  /// For a round that goes to a relay: what is known of that from then on. Such a round is an increment
  /// whatever its readers cover, and only a copy that is sound makes it (rule L7).
  package var publication: RelayRecord?

  /// All fields.
  package init(
    cursor: Cursor?, covered: VersionVector, floor: VersionVector = VersionVector(),
    health: ReplicaHealth = .healthy, scope: KeyScope? = nil, lacking: MissingScope? = nil
  ) {
    (self.cursor, self.covered, self.floor, self.health) = (cursor, covered, floor, health)
    (self.scope, self.missingScope) = (scope, lacking)
  }
}

/// A record and its position in its sender's journal.
package struct PositionedRecord: Hashable, Sendable {
  /// The position.
  package var position: UInt64
  /// The record.
  package var record: Record

  /// Both fields.
  package init(position: UInt64, record: Record) { (self.position, self.record) = (position, record) }
}

/// One atomic append at the receiver: records of one round, in the sender's order, whole transactions.
package struct IncomingBatch: Hashable, Sendable {
  /// The sender's actor.
  package var sender: ActorID
  /// The round's mark.
  package var mark: RoundMark
  /// The sender's position up to which the journal has been received once this batch is applied.
  package var position: UInt64
  /// The records.
  package var records: BatchRecords
  /// In a full state: dots that the sender also holds up to this position and the receiver has already.
  package var present: [Dot]
  /// The receiver's scope as the sender knew it; nil for all keys.
  package var scope: KeyScope?
  /// In a round of missing keys: the scope that the receiver will hold.
  package var scopeExpansion: ScopeExpansion?
  /// In such a round: the cursor after the batch before this one; nil for the first one.
  package var previousCursor: Cursor?
  /// The receiver's state that the session relies on; nil without a session.
  package var expectedState: ExpectedReplicaState?
  /// If it comes from a relay: which one, and what is known of that once the batch is applied. No cursor
  /// moves then.
  package var relay: RelayRecord?

  /// All fields.
  package init(
    sender: ActorID, mark: RoundMark, position: UInt64, records: [PositionedRecord], present: [Dot] = [],
    scope: KeyScope? = nil, expansion: ScopeExpansion? = nil
  ) {
    self.init(
      sender: sender, mark: mark, position: position, records: .list(records), present: present, scope: scope,
      expansion: expansion)
  }

  /// All fields, with records in either form.
  package init(
    sender: ActorID, mark: RoundMark, position: UInt64, records: BatchRecords, present: [Dot],
    scope: KeyScope?, expansion: ScopeExpansion?
  ) {
    (self.sender, self.mark, self.position) = (sender, mark, position)
    (self.records, self.present, self.scope, self.scopeExpansion) = (records, present, scope, expansion)
  }
}

/// The receiving copy, as the session knows it. If it has changed its actor since, the session would assume
/// records that it has forgotten.
package struct ExpectedReplicaState: Hashable, Sendable {
  /// Its actor at the handshake.
  package var actor: ActorID
  /// The cursor for the sender as the session left it, where no other session may move it; else nil.
  package var cursor: Cursor?

  /// Both fields.
  package init(actor: ActorID, cursor: Cursor? = nil) { (self.actor, self.cursor) = (actor, cursor) }
}

/// The progress in a relay, recorded in the same append as what was read there.
package struct RelayRecord: Hashable, Sendable {
  /// The relay.
  package var relay: RelayID
  /// The progress from then on.
  package var progress: RelayProgress

  /// Both fields.
  package init(relay: RelayID, progress: RelayProgress) { (self.relay, self.progress) = (relay, progress) }
}

/// The close of a round: the sender's state when it took its snapshot.
package struct RoundClose: Hashable, Sendable {
  /// The kind of the round, which decides how the receiver may merge the vector.
  package enum Kind: Hashable, Sendable {
    /// A delta. At the receiver: of a sender that holds all keys.
    case delta
    /// At the receiver: a delta of a sender that holds only some keys.
    case narrowDelta
    /// A full state (rule R8). A sender that holds only some keys never gives it.
    case fullState
  }

  /// The sender's actor.
  package var sender: ActorID
  /// The round's mark.
  package var mark: RoundMark
  /// The last position of the snapshot.
  package var position: UInt64
  /// The writes that the snapshot covers. The receiver merges it now and never earlier.
  package var vector: VersionVector
  /// The sender's floor.
  package var floor: VersionVector
  /// The sender's horizon.
  package var horizon: Stamp
  /// The kind of the round.
  package var kind: Kind
  /// The receiver's scope as the sender knew it; nil for all keys.
  package var scope: KeyScope?
  /// In a round of missing keys: the scope that the receiver will hold.
  package var scopeExpansion: ScopeExpansion?
  /// At the receiver: the state that the session relies on; nil without a session.
  package var expectedState: ExpectedReplicaState?
  /// If it comes from a relay: which one, and what is known of that once the close is merged. No cursor moves
  /// then.
  package var relay: RelayRecord?

  /// The fields that the sender states; the receiver sets the others.
  package init(
    sender: ActorID, mark: RoundMark, position: UInt64, vector: VersionVector, floor: VersionVector,
    horizon: Stamp, kind: Kind = .delta
  ) {
    (self.sender, self.mark, self.position, self.vector) = (sender, mark, position, vector)
    (self.floor, self.horizon, self.kind) = (floor, horizon, kind)
  }

  /// True after a full state, false after a delta.
  package var isFull: Bool { kind == .fullState }
}
