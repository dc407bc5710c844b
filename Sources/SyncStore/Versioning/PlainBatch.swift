/// Records of a batch that all have the ordinary form, as they came: those that have their value with them, or are tombstones, and name
/// neither a deadline nor open dots. Their keys and values lie where they came in, so that a million of them are no two million arrays.
package struct PlainBatch: Hashable, Sendable {
  /// One of them.
  package struct Entry: Hashable, Sendable {
    /// Its place in its sender's journal.
    package var position: UInt64
    /// Its stamp.
    package var stamp: Stamp
    /// Which actor wrote it, among `actors`, and as which write.
    package var author: Int
    /// The author's number of it.
    package var sequence: UInt64
    /// Whose write it replaced, among `actors`, and which: meaningless unless it `hasBase`.
    package var baseAuthor = 0
    /// That author's number of the write that was replaced.
    package var baseSequence: UInt64 = 0
    /// Does it name a base dot?
    package var hasBase = false
    /// Does it delete its key?
    package var isTombstone: Bool
    /// Do more records of its transaction follow?
    package var continues: Bool
    /// What the value is.
    package var type: ValueType
    /// Where its key lies.
    package var key: Range<Int>
    /// Where its value lies.
    package var value: Range<Int>

    /// All fields but those of the base, of which it has none.
    package init(
      position: UInt64, stamp: Stamp, author: Int, sequence: UInt64, isTombstone: Bool, continues: Bool,
      type: ValueType, key: Range<Int>, value: Range<Int>
    ) {
      (self.position, self.stamp, self.author, self.sequence) = (position, stamp, author, sequence)
      (self.isTombstone, self.continues, self.type) = (isTombstone, continues, type)
      (self.key, self.value) = (key, value)
    }
  }

  /// In which keys and values lie.
  package let bytes: [UInt8]
  /// Those that the entries name.
  package let actors: [ActorID]
  /// The records, in the sender's order.
  package let entries: [Entry]
  /// Which of `actors` the entries name.
  let used: [Int]

  /// The ranges of all entries must lie in `bytes`, their actors in `actors`, and no key may be empty.
  package init(bytes: [UInt8], actors: [ActorID], entries: [Entry]) {
    (self.bytes, self.actors, self.entries) = (bytes, actors, entries)
    var isUsed = [Bool](repeating: false, count: actors.count)
    for entry in entries {
      isUsed[entry.author] = true
      if entry.hasBase { isUsed[entry.baseAuthor] = true }
    }
    used = isUsed.indices.filter { isUsed[$0] }
  }

  /// The record of an entry.
  package func record(_ entry: Entry) -> PositionedRecord {
    let base =
      entry.hasBase ? Dot(actor: actors[entry.baseAuthor], sequence: entry.baseSequence) : nil
    return PositionedRecord(
      position: entry.position,
      record: Record(
        dot: Dot(actor: actors[entry.author], sequence: entry.sequence), stamp: entry.stamp, base: base,
        type: entry.type, key: Array(bytes[entry.key]),
        content: entry.isTombstone ? .tombstone : .inline(Array(bytes[entry.value])),
        continues: entry.continues))
  }

  /// Is the entry's key one of the store's own?
  package func isReserved(_ entry: Entry) -> Bool { bytes[entry.key.lowerBound] == ReservedKey.first }
}

/// The records that a batch brings.
package enum BatchRecords: Hashable, Sendable {
  /// One by one.
  case list([PositionedRecord])
  /// As they came.
  case plain(PlainBatch)

  /// One by one, which takes an allocation or two for each.
  package var list: [PositionedRecord] {
    switch self {
    case .list(let records): records
    case .plain(let batch): batch.entries.map { batch.record($0) }
    }
  }

  /// How many there are.
  package var count: Int {
    switch self {
    case .list(let records): records.count
    case .plain(let batch): batch.entries.count
    }
  }

  /// How many are of users. What the store says of its members goes with them, and is of interest to nobody.
  package var countOfUsers: Int {
    switch self {
    case .list(let records): records.count { !ReservedKey.isReserved($0.record.key) }
    case .plain(let batch): batch.entries.count { !batch.isReserved($0) }
    }
  }
}
