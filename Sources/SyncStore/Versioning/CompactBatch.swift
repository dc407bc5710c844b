/// Records of a batch that all have the ordinary form, as they came: those that have their value with them, or are tombstones, and name
/// neither a deadline nor open dots. Their keys and values lie where they came in, so that a million of them are no two million arrays.
package struct CompactBatch: Hashable, Sendable {
  /// One of them. Small, for there are thousands in a batch: what has bounds takes no more room than those need.
  package struct Entry: Hashable, Sendable {
    /// Its place in its sender's journal.
    package var position: UInt64
    /// Its stamp.
    package var stamp: Stamp
    /// The author's number of it.
    package var sequence: UInt64
    /// The number that its author gave the write that it replaced: meaningless unless it `hasBase`.
    package private(set) var baseSequence: UInt64 = 0
    @usableFromInline let keyStart: UInt32
    @usableFromInline let valueStart: UInt32
    @usableFromInline let valueCount: UInt32
    @usableFromInline let keyCount: UInt16
    @usableFromInline let authorIndex: UInt16
    @usableFromInline var baseIndex: UInt16 = 0
    /// What the value is.
    package var type: ValueType
    /// Does it name a base dot?
    package private(set) var hasBase = false
    /// Does it delete the key?
    package var isTombstone: Bool
    /// Do more records of its transaction follow?
    package var continues: Bool

    /// All fields but those of the base, of which it has none. The ranges are where its key, of 65,535 bytes at most, and its value lie,
    /// both below 4 GiB; the author is one of the first 65,536 of `actors`.
    @inlinable
    package init(
      position: UInt64, stamp: Stamp, author: Int, sequence: UInt64, isTombstone: Bool, continues: Bool,
      type: ValueType, key: Range<Int>, value: Range<Int>
    ) {
      (self.position, self.stamp, self.sequence) = (position, stamp, sequence)
      (keyStart, keyCount) = (UInt32(key.lowerBound), UInt16(key.count))
      (valueStart, valueCount) = (UInt32(value.lowerBound), UInt32(value.count))
      (authorIndex, self.isTombstone, self.continues, self.type) = (
        UInt16(author), isTombstone, continues, type
      )
    }

    /// Which actor wrote it, among `actors`.
    @inlinable package var author: Int { Int(authorIndex) }
    /// Whose write it replaced, among `actors`: meaningless unless it `hasBase`.
    @inlinable package var baseAuthor: Int { Int(baseIndex) }
    /// Where its key lies.
    @inlinable package var key: Range<Int> { Int(keyStart)..<Int(keyStart) + Int(keyCount) }
    /// Where its value lies.
    @inlinable package var value: Range<Int> { Int(valueStart)..<Int(valueStart) + Int(valueCount) }

    /// It replaced the write of one of `actors` with this sequence.
    package mutating func setBase(author: Int, sequence: UInt64) {
      (baseIndex, baseSequence, hasBase) = (UInt16(author), sequence, true)
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
  case compact(CompactBatch)

  /// One by one, which takes an allocation or two for each.
  package var list: [PositionedRecord] {
    switch self {
    case .list(let records): records
    case .compact(let batch): batch.entries.map { batch.record($0) }
    }
  }

  /// How many there are.
  package var count: Int {
    switch self {
    case .list(let records): records.count
    case .compact(let batch): batch.entries.count
    }
  }

  /// How many are of users. What the store says of its members goes with them, and is of interest to nobody.
  package var userCount: Int {
    switch self {
    case .list(let records): records.count { !ReservedKey.isReserved($0.record.key) }
    case .compact(let batch): batch.entries.count { !batch.isReserved($0) }
    }
  }
}
