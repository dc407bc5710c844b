/// Summary of one batch: what goes with its records.
package struct BatchSummary: Sendable {
  /// Position up to which the batch reaches.
  package var position: UInt64
  /// Number of records.
  package var records = 0
  /// Number of records of users' keys; the store's own member records are not counted.
  package var users = 0
  /// Full state only: writes up to `position` that the sender holds and the receiver already has, in order.
  package var present: [Dot] = []
}

/// Encodes the records of a batch, in their order, for transfer.
package protocol BatchWriter {
  /// Writes simple records in place: keys and values lie in `bytes`, valid during the call only; the entries
  /// refer to `actors` by index.
  mutating func write(_ entries: [CompactBatch.Entry], of actors: [ActorID], in bytes: Span<UInt8>)
  /// Writes any record.
  mutating func write(_ record: PositionedRecord)
}
