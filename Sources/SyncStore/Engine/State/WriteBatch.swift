/// Local writes of one append, in order, whose replaced records have not been looked up yet. All keys and
/// values share one buffer, so that iterating does no reference counting.
struct WriteBatch: Sendable {
  /// One write of the batch.
  struct Write: Sendable {
    /// Ranges of the key and the value in `memory`.
    var key: Range<Int>
    var value: Range<Int>
    var type: ValueType
    var isTombstone: Bool
    /// Hash of the key under the seed of the index.
    var hash: UInt64
    /// The index of the append's previous record of the key, as numbered by the transaction builder.
    var previous: Int?
  }

  private(set) var list: [Write] = []
  /// The bytes of all keys and values.
  private(set) var memory: [UInt8] = []

  var count: Int { list.count }

  /// Appends a write; nil for the value deletes the key.
  mutating func append(
    key: [UInt8], value: [UInt8]?, type: ValueType, hash: UInt64, previous: Int?
  ) {
    let start = memory.count
    memory.append(contentsOf: key)
    let middle = memory.count
    if let value { memory.append(contentsOf: value) }
    list.append(
      Write(
        key: start..<middle, value: middle..<memory.count, type: type, isTombstone: value == nil, hash: hash,
        previous: previous))
  }

  /// A copy of a range of `memory`.
  func bytes(_ range: Range<Int>) -> [UInt8] { Array(memory[range]) }

  /// Whether the write with this number is of this key.
  func isKey(_ key: [UInt8], at number: Int) -> Bool { memory[list[number].key].elementsEqual(key) }
}
