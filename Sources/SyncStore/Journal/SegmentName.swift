/// What a segment's file is called: `NNNNNNNNNNNNNNNN.segment`, or `FIRST-LAST-COUNT.segment` for one that compaction
/// put in the place of others. The name tells which segments count, without a look into any.
struct SegmentName: Hashable {
  /// The numbers that the segment stands for.
  let covered: ClosedRange<UInt32>
  /// How many compactions there had been; 0 for a segment that is appended to.
  let compaction: UInt32

  private static let suffix = ".segment"
  private static let digits = 16

  /// The name of a segment that is appended to.
  init(_ number: UInt32) { (covered, compaction) = (number...number, 0) }

  init(covered: ClosedRange<UInt32>, compaction: UInt32) {
    (self.covered, self.compaction) = (covered, compaction)
  }

  /// Nil unless `text` is the name of a segment, to the letter.
  init?(_ text: String) {
    guard text.hasSuffix(Self.suffix) else { return nil }
    // Bytes: characters would take longer to tell apart than a segment to be mapped.
    let parts = text.utf8.dropLast(Self.suffix.utf8.count)
      .split(separator: UInt8(ascii: "-"), omittingEmptySubsequences: false)
    let numbers = parts.compactMap(Self.number)
    guard numbers.count == parts.count, numbers[0] > 0, parts[0].count == Self.digits else { return nil }
    switch numbers.count {
    case 1: self.init(numbers[0])
    case 3:
      guard parts[1].count == Self.digits, numbers[0] <= numbers[1], numbers[2] > 0,
        parts[2].first != UInt8(ascii: "0")
      else { return nil }
      self.init(covered: numbers[0]...numbers[1], compaction: numbers[2])
    default: return nil
    }
  }

  /// The number that digits, and nothing else, say; nil if no segment has it.
  private static func number(_ text: Substring.UTF8View) -> UInt32? {
    guard !text.isEmpty, text.count <= digits else { return nil }
    var number: UInt64 = 0
    for byte in text {
      let digit = byte &- UInt8(ascii: "0")
      guard digit < 10 else { return nil }
      number = 10 * number + UInt64(digit)
    }
    return UInt32(exactly: number).flatMap { $0 < SegmentHeader.compacted ? $0 : nil }
  }

  var text: String {
    let first = Self.padded(covered.lowerBound)
    guard compaction > 0 else { return first + Self.suffix }
    return "\(first)-\(Self.padded(covered.upperBound))-\(compaction)\(Self.suffix)"
  }

  /// The number in its header.
  var number: UInt32 { compaction > 0 ? SegmentHeader.compacted | compaction : covered.lowerBound }

  private static func padded(_ number: UInt32) -> String {
    var (text, rest) = ([UInt8](repeating: UInt8(ascii: "0"), count: digits), number)
    for place in text.indices.reversed() where rest > 0 {
      text[place] += UInt8(rest % 10)
      rest /= 10
    }
    return String(decoding: text, as: UTF8.self)
  }

  /// Those in a directory, in no particular order.
  static func all(in directory: String, _ storage: any Storage) throws(StoreError) -> [SegmentName] {
    try all(of: storage.list(directory), in: directory)
  }

  /// Those among the names of the files in a directory.
  static func all(of files: [String], in directory: String) throws(StoreError) -> [SegmentName] {
    var names: [SegmentName] = []
    for text in files where text.hasSuffix(suffix) {
      guard let name = SegmentName(text) else {
        throw StoreError(
          .foreignFile, "has a name that no segment has: move it away", path: directory + "/" + text)
      }
      names.append(name)
    }
    return names
  }

  /// Those that count, in order from the one that begins at `first`; what they replaced is passed over. `missing` is the
  /// first number for which none stands though later ones are there.
  static func chain(of names: [SegmentName], from first: UInt32) -> (names: [SegmentName], missing: UInt32?) {
    let ordered = names.sorted {
      ($0.covered.lowerBound, $0.compaction) < ($1.covered.lowerBound, $1.compaction)
    }
    var chain: [SegmentName] = []
    var next = first
    for (index, name) in ordered.enumerated() where name.covered.lowerBound >= next {
      guard name.covered.lowerBound == next else { break }
      // A later compaction takes whole segments, so of those that begin alike it is the last one.
      if index + 1 < ordered.count, ordered[index + 1].covered.lowerBound == next { continue }
      chain.append(name)
      next = name.covered.upperBound + 1
    }
    let greatest = names.map(\.covered.upperBound).max() ?? 0
    return (chain, next <= greatest ? next : nil)
  }
}

extension SegmentName {
  /// The chain of `names` in which what a compaction has replaced stands where all of it is still there and the compaction
  /// is later than the last one that was `adopted`: the index names it yet. Nil if there is nothing of the kind, and
  /// nothing else left over.
  static func unfinishedChain(of names: [SegmentName], adopted: UInt32) -> [SegmentName]? {
    let counted = chain(of: names, from: 1).names
    guard counted.count < names.count else { return nil }
    return counted.flatMap { copy in
      let before = copy.compaction > adopted ? replaced(by: copy, among: names) : []
      return before.isEmpty ? [copy] : before
    }
  }

  /// What stands for the same segments as `copy` and was there before it; empty unless all of it is there.
  static func replaced(by copy: SegmentName, among names: [SegmentName]) -> [SegmentName] {
    let others = names.filter { name in
      name.compaction < copy.compaction && copy.covered.contains(name.covered.lowerBound)
        && copy.covered.contains(name.covered.upperBound)
    }
    let (chain, _) = chain(of: others, from: copy.covered.lowerBound)
    return chain.last?.covered.upperBound == copy.covered.upperBound ? chain : []
  }
}

/// Finds mapped segments by their numbers, and by those that the index has given them.
struct SegmentTable {
  private var appended = NumberedRun()
  private var compacted = NumberedRun()
  /// By their numbers in the index.
  private(set) var slots: [Segment?] = [] {
    didSet { version &+= 1 }
  }
  /// How often it was changed as far as the index is concerned.
  private(set) var version = 0
  /// May there be segments that the index has given no number?
  var lacksSlots = false

  /// The segment of a place in the index; nil if it is not mapped, or ends before it.
  @inline(__always)
  func segment(ofRef place: UInt64) -> Segment? {
    let slot = Self.slot(ofRef: place)
    guard slot < slots.count, let segment = slots[slot],
      Self.offset(ofRef: place) + RecordLayout.fixedLength <= segment.mapping.count
    else { return nil }
    return segment
  }

  /// The number that the index has given to the segment of a place.
  @inline(__always)
  static func slot(ofRef place: UInt64) -> Int { Int(truncatingIfNeeded: place >> 29) }

  /// What the index calls the record at `offset` of the segment that has the number `slot` there.
  @inline(__always)
  static func ref(slot: Int, offset: Int) -> UInt64 {
    UInt64(truncatingIfNeeded: slot) << 29 | UInt64(truncatingIfNeeded: offset) >> 3
  }

  /// Where that is in the segment.
  @inline(__always)
  static func offset(ofRef place: UInt64) -> Int { Int(place & (1 << 29 - 1)) << 3 }

  /// Lets the index find a segment that it has given a number.
  mutating func registerSlot(of segment: Segment) {
    guard let slot = segment.slot else { return }
    if slots.count <= slot { slots += repeatElement(nil, count: slot + 1 - slots.count) }
    slots[slot] = segment
  }

  @inline(__always)
  subscript(number: UInt32) -> Segment? {
    number < SegmentHeader.compacted ? appended[number] : compacted[number]
  }

  /// Visits the segments that have a number in the index. The index numbers all that there ever were: of most of them there is nothing,
  /// and nothing is counted.
  @inline(__always)
  func forEachSlot(_ body: (_ slot: Int, Segment) -> Void) {
    for slot in slots.indices where slots[slot] != nil {
      if let segment = slots[slot] { body(slot, segment) }
    }
  }

  /// By their numbers in the index: what `value` says of each segment, and `none` for those that have gone.
  func bySlot<Value>(_ none: Value, _ value: (Segment) -> Value) -> [Value] {
    var values = [Value](repeating: none, count: slots.count)
    forEachSlot { slot, segment in values[slot] = value(segment) }
    return values
  }

  /// Forgets the numbers of the index.
  mutating func forgetSlots() { (slots, lacksSlots) = ([], true) }

  mutating func insert(_ segment: Segment) {
    if segment.slot == nil { lacksSlots = true }
    if segment.number < SegmentHeader.compacted {
      appended.insert(segment)
    } else {
      compacted.insert(segment)
    }
  }

  mutating func remove(_ number: UInt32) {
    if let slot = self[number]?.slot, slot < slots.count { slots[slot] = nil }
    if number < SegmentHeader.compacted { appended.remove(number) } else { compacted.remove(number) }
  }

  /// The appended ones from the first number on, then the compacted ones from the second on; nil where one is missing.
  var runs: (appended: UInt32, compacted: UInt32, appendedCount: Int, segments: [Segment?]) {
    (appended.base, compacted.base, appended.segments.count, appended.segments + compacted.segments)
  }

  /// Numbers of one kind: few are missing between the lowest and the highest that are in use.
  private struct NumberedRun {
    private(set) var base: UInt32 = 0
    private(set) var segments: [Segment?] = []

    @inline(__always)
    subscript(number: UInt32) -> Segment? {
      let index = Int(number) - Int(base)
      return index >= 0 && index < segments.count ? segments[index] : nil
    }

    mutating func insert(_ segment: Segment) {
      if segments.isEmpty { base = segment.number }
      if segment.number < base {
        segments.insert(contentsOf: repeatElement(nil, count: Int(base - segment.number)), at: 0)
        base = segment.number
      }
      let index = Int(segment.number - base)
      while segments.count <= index { segments.append(nil) }
      segments[index] = segment
    }

    mutating func remove(_ number: UInt32) {
      guard self[number] != nil else { return }
      segments[Int(number - base)] = nil
      let empty = segments.prefix { $0 == nil }.count
      segments.removeFirst(empty)
      base += UInt32(empty)
    }
  }
}
