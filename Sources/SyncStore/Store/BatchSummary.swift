/// What a batch has beside its records.
package struct BatchSummary: Sendable {
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
  /// Takes records of the ordinary form, in place: their keys and values lie in `bytes`, which are there for the time of the call, and
  /// the entries name actors of the list.
  mutating func write(_ entries: [CompactBatch.Entry], of actors: [ActorID], in bytes: Span<UInt8>)
  /// Takes any record.
  mutating func write(_ record: PositionedRecord)
}
