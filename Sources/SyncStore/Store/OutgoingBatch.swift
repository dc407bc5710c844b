/// What a batch has beside its records.
package struct OutgoingBatch: Sendable {
  /// The position up to which it reaches.
  package var position: UInt64
  /// How many records it has.
  package var records = 0
  /// How many of them are of users, not of what the store says of its members.
  package var users = 0
  /// Of a full state: what else is held here up to there, and the receiver has already; in order.
  package var present: [Dot] = []
}

/// Takes the records of a batch in their order, and puts them into the form in which they travel.
package protocol BatchWriter {
  /// Takes a record of the ordinary form, in place: it is there for the time of the call.
  mutating func write(_ heading: OutgoingHeading, key: Span<UInt8>, value: Span<UInt8>)
  /// Takes any record.
  mutating func write(_ record: PositionedRecord)
}

/// The fields of a record that has its value in the journal, or is a tombstone, and names neither a deadline nor open dots.
package struct OutgoingHeading: Sendable {
  /// Its place in its sender's journal.
  package var position: UInt64
  /// Its dot and stamp.
  package var version: Version
  /// Which write it replaced; nil if it replaced none.
  package var base: Dot?
  /// What the value is.
  package var type: ValueType
  /// Does it delete the key?
  package var isTombstone: Bool
  /// Do more records of its transaction follow in the batch?
  package var continues: Bool
}
