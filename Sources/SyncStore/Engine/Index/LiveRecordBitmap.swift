/// Live records at one moment: one bit per possible record offset, set if the index refers to the record. A
/// pass in journal order then needs no index lookup per record.
struct LiveRecordBitmap: Sendable {
  /// The first word of each segment, by its slot, and the end of the last one's.
  private var starts: [Int] = [0]
  private var words: [UInt64]
  /// Number of bits set.
  private(set) var count = 0
  /// False if a ref was added that is in none of the segments.
  private(set) var isComplete = true

  /// An empty bitmap for the segments that have a slot.
  init(_ table: SegmentTable) {
    let perWord = UInt64.bitWidth * RecordLayout.alignment
    var end = 0
    for bytes in table.bySlot(0, { $0.mapping.count }) {
      end += (bytes + perWord - 1) / perWord
      starts.append(end)
    }
    words = Array(repeating: 0, count: end)
  }

  /// Sets the bit of a ref that is not in it yet.
  @inline(__always)
  mutating func insert(_ place: UInt64) {
    guard let word = word(of: place) else { return isComplete = false }
    words[word] |= 1 << (place & 63)
    count &+= 1
  }

  /// Adds the bits of a bitmap of the same segments, none of which is set yet.
  mutating func add(_ other: LiveRecordBitmap) {
    isComplete = isComplete && other.isComplete
    for index in words.indices { words[index] |= other.words[index] }
    count += other.count
  }

  @inline(__always)
  func contains(_ place: UInt64) -> Bool {
    word(of: place).map { words[$0] & 1 << (place & 63) != 0 } ?? false
  }

  /// The first live ref at or after `place` in the same segment.
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

  /// Splits the words, in order, into `count` ranges with about the same number of refs each.
  func shares(_ count: Int) -> [Range<Int>] {
    var ends: [Int] = []
    var seen = 0
    for (index, word) in words.enumerated() where ends.count < count - 1 {
      seen += word.nonzeroBitCount
      if seen >= self.count * (ends.count + 1) / count { ends.append(index + 1) }
    }
    ends += Array(repeating: words.count, count: count - ends.count)
    return zip([0] + ends.dropLast(), ends).map { $0..<$1 }
  }

  /// Visits the refs in these words, in order.
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
