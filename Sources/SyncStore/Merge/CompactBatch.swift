/// Records of a batch in compact form, as received: inline values and tombstones, without deadline and open
/// dots. Keys and values stay in the buffer in which they arrived, so that a million records do not take two
/// million arrays.
package struct CompactBatch: Hashable, Sendable {
  /// A dot whose actor is an index among `actors`.
  package struct IndexedDot {
    /// Index of the actor: below 65,536.
    package var author: Int
    /// The sequence that it gave the write.
    package var sequence: UInt64

    /// Both fields.
    @inlinable
    package init(author: Int, sequence: UInt64) { (self.author, self.sequence) = (author, sequence) }
  }

  /// A record of the batch. Small, since a batch has thousands: bounded fields are no wider than their bounds
  /// require.
  package struct Entry: Hashable, Sendable {
    /// Its position in its sender's journal.
    package var position: UInt64
    /// Its stamp.
    package var stamp: Stamp
    /// The sequence that its author gave it.
    package var sequence: UInt64
    /// Sequence of the write that it replaced; meaningless unless it `hasBase`.
    package private(set) var baseSequence: UInt64 = 0
    @usableFromInline let keyStart: UInt32
    @usableFromInline let valueStart: UInt32
    @usableFromInline let valueCount: UInt32
    @usableFromInline let keyCount: UInt16
    @usableFromInline let authorIndex: UInt16
    @usableFromInline var baseIndex: UInt16 = 0
    /// Type of the value.
    package var type: ValueType
    /// True if it names a base dot.
    package private(set) var hasBase = false
    /// True if it deletes the key.
    package var isTombstone: Bool
    /// True if more records of its transaction follow.
    package var continues: Bool

    /// All fields; the entry has no base. The ranges are those of its key, of 65,535 bytes at most, and of
    /// its value, both below 4 GiB; without a value it is a tombstone.
    @inlinable
    package init(
      position: UInt64, stamp: Stamp, dot: IndexedDot, continues: Bool, type: ValueType, key: Range<Int>,
      value: Range<Int>?
    ) {
      (self.position, self.stamp, sequence) = (position, stamp, dot.sequence)
      (keyStart, keyCount) = (UInt32(key.lowerBound), UInt16(key.count))
      (valueStart, valueCount) = (UInt32(value?.lowerBound ?? key.upperBound), UInt32(value?.count ?? 0))
      (authorIndex, isTombstone) = (UInt16(dot.author), value == nil)
      (self.continues, self.type) = (continues, type)
    }

    /// Index of its author among `actors`.
    @inlinable package var author: Int { Int(authorIndex) }
    /// Index among `actors` of the author of the write that it replaced; meaningless unless it `hasBase`.
    @inlinable package var baseAuthor: Int { Int(baseIndex) }
    /// Range of its key.
    @inlinable package var key: Range<Int> { Int(keyStart)..<Int(keyStart) + Int(keyCount) }
    /// Range of its value.
    @inlinable package var value: Range<Int> { Int(valueStart)..<Int(valueStart) + Int(valueCount) }

    /// Sets the base.
    package mutating func setBase(_ base: IndexedDot) {
      (baseIndex, baseSequence, hasBase) = (UInt16(base.author), base.sequence, true)
    }
  }

  /// The buffer with the keys and values.
  package let bytes: [UInt8]
  /// The actors that the entries name.
  package let actors: [ActorID]
  /// The records, in the sender's order.
  package let entries: [Entry]
  /// Indices of those `actors` that the entries use.
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
        version: Version(stamp: entry.stamp, dot: Dot(actor: actors[entry.author], sequence: entry.sequence)),
        context: CausalContext(base: base), type: entry.type, key: Array(bytes[entry.key]),
        content: entry.isTombstone ? .tombstone : .inline(Array(bytes[entry.value])),
        continues: entry.continues))
  }

  /// True if the entry's key is one of the store's own.
  package func isReserved(_ entry: Entry) -> Bool { bytes[entry.key.lowerBound] == ReservedKey.first }
}

/// The records of a batch.
package enum BatchRecords: Hashable, Sendable {
  /// Decoded one by one.
  case list([PositionedRecord])
  /// In compact form, as received.
  case compact(CompactBatch)

  /// The records one by one; takes an allocation or two for each.
  package var list: [PositionedRecord] {
    switch self {
    case .list(let records): records
    case .compact(let batch): batch.entries.map { batch.record($0) }
    }
  }

  /// Number of records.
  package var count: Int {
    switch self {
    case .list(let records): records.count
    case .compact(let batch): batch.entries.count
    }
  }

  /// Number of records with users' keys. The store's own records of its members travel with them and are not
  /// reported.
  package var userCount: Int {
    switch self {
    case .list(let records): records.count { !ReservedKey.isReserved($0.record.key) }
    case .compact(let batch): batch.entries.count { !batch.isReserved($0) }
    }
  }
}
