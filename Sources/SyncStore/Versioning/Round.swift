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

  /// All fields.
  package init(
    store: StoreID, actor: ActorID, sequence: UInt64, vector: VersionVector, floor: VersionVector,
    horizon: Stamp,
    position: UInt64
  ) {
    (self.store, self.actor, self.sequence, self.vector) = (store, actor, sequence, vector)
    (self.floor, self.horizon, self.position) = (floor, horizon, position)
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
  package var records: [PositionedRecord]

  /// All fields.
  package init(sender: ActorID, mark: RoundMark, position: UInt64, records: [PositionedRecord]) {
    (self.sender, self.mark, self.position, self.records) = (sender, mark, position, records)
  }
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

  /// All fields.
  package init(
    sender: ActorID, mark: RoundMark, position: UInt64, vector: VersionVector, floor: VersionVector,
    horizon: Stamp
  ) {
    (self.sender, self.mark, self.position, self.vector) = (sender, mark, position, vector)
    (self.floor, self.horizon) = (floor, horizon)
  }
}
