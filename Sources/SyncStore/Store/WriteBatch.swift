/// Local writes of one append, in their order, of which it was not looked up yet what they replace. Their bytes lie side by
/// side, so that nothing is counted as they are gone through.
struct WriteBatch: Sendable {
  /// One of them.
  struct Write: Sendable {
    /// Where its key and its value lie.
    var key: Range<Int>
    var value: Range<Int>
    var type: ValueType
    var isTombstone: Bool
    /// Of the key, under the seed of the index.
    var hash: UInt64
    /// What the append made of the key before, as the composer numbers it.
    var previous: Int?
  }

  private(set) var list: [Write] = []
  /// The bytes in which keys and values lie.
  private(set) var memory: [UInt8] = []

  var count: Int { list.count }

  /// Appends one; nil for the value ends the key.
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

  /// A copy of some of their bytes.
  func bytes(_ range: Range<Int>) -> [UInt8] { Array(memory[range]) }

  /// Is it the key of the write with this number?
  func isKey(_ key: [UInt8], at number: Int) -> Bool { memory[list[number].key].elementsEqual(key) }
}
