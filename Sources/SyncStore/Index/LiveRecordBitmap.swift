/// Which places of the journal the index names, at one moment: a bit for each at which a record can begin. Who goes through the journal
/// in its order need not look up each key.
struct LiveRecordBitmap: Sendable {
  /// Where the words of each segment begin, by its number in the index, and where the last one's end.
  private var starts: [Int] = [0]
  private var words: [UInt64]
  /// How many there are.
  private(set) var count = 0
  /// Was each that was added in one of the segments?
  private(set) var isComplete = true

  /// None yet, of the segments that have a number in the index.
  init(_ table: SegmentTable) {
    let perWord = UInt64.bitWidth * RecordLayout.alignment
    var end = 0
    for bytes in table.bySlot(0, { $0.mapping.count }) {
      end += (bytes + perWord - 1) / perWord
      starts.append(end)
    }
    words = Array(repeating: 0, count: end)
  }

  /// Adds one that is not there yet.
  @inline(__always)
  mutating func insert(_ place: UInt64) {
    guard let word = word(of: place) else { return isComplete = false }
    words[word] |= 1 << (place & 63)
    count &+= 1
  }

  /// Adds those of another one of the same segments, none of which is there yet.
  mutating func add(_ other: LiveRecordBitmap) {
    isComplete = isComplete && other.isComplete
    for index in words.indices { words[index] |= other.words[index] }
    count += other.count
  }

  @inline(__always)
  func contains(_ place: UInt64) -> Bool {
    word(of: place).map { words[$0] & 1 << (place & 63) != 0 } ?? false
  }

  /// The first one at or behind a place in the same segment.
  func first(from place: UInt64) -> UInt64? {
    guard let first = word(of: place) else { return nil }
    let slot = SegmentTable.slot(ofRef: place)
    var bits = words[first] & ~0 << (place & 63)
    for word in first..<starts[slot + 1] {
      if word > first { bits = words[word] }
      if bits != 0 { return self.ref(slot: slot, word: word, bit: bits.trailingZeroBitCount) }
    }
    return nil
  }

  /// The words that have the same share of all places each, in their order.
  func shares(_ count: Int) -> [Range<Int>] {
    var ends: [Int] = []
    var met = 0
    for (index, word) in words.enumerated() where ends.count < count - 1 {
      met += word.nonzeroBitCount
      if met >= self.count * (ends.count + 1) / count { ends.append(index + 1) }
    }
    ends += Array(repeating: words.count, count: count - ends.count)
    return zip([0] + ends.dropLast(), ends).map { $0..<$1 }
  }

  /// Visits the places in these words, in their order.
  @inline(__always)
  func forEach(in range: Range<Int>, _ body: (_ place: UInt64) -> Void) {
    var slot = 0
    for index in range {
      while index >= starts[slot + 1] { slot += 1 }
      var bits = words[index]
      while bits != 0 {
        body(ref(slot: slot, word: index, bit: bits.trailingZeroBitCount))
        bits &= bits &- 1
      }
    }
  }

  @inline(__always)
  private func ref(slot: Int, word: Int, bit: Int) -> UInt64 {
    SegmentTable.ref(slot: slot, offset: ((word &- starts[slot]) << 6 | bit) * RecordLayout.alignment)
  }

  @inline(__always)
  private func word(of place: UInt64) -> Int? {
    let slot = SegmentTable.slot(ofRef: place)
    guard slot < starts.count - 1 else { return nil }
    let word = starts[slot] &+ Int(truncatingIfNeeded: (place & (1 << 29 - 1)) >> 6)
    return word < starts[slot + 1] ? word : nil
  }
}
