/// The name of a segment's file: `NNNNNNNNNNNNNNNN.segment`, or `FIRST-LAST-COUNT.segment` for one that
/// compaction wrote to replace others. The names alone tell which segments count; no file need be read.
struct SegmentName: Hashable {
  /// The segment numbers covered.
  let covered: ClosedRange<UInt32>
  /// Number of compactions up to the one that wrote it; 0 for a segment that is appended to.
  let compaction: UInt32

  private static let suffix = ".segment"
  private static let digits = 16

  /// The name of a segment that is appended to.
  init(_ number: UInt32) { (covered, compaction) = (number...number, 0) }

  init(covered: ClosedRange<UInt32>, compaction: UInt32) {
    (self.covered, self.compaction) = (covered, compaction)
  }

  /// Nil unless `text` is exactly the name of a segment.
  init?(_ text: String) {
    guard text.hasSuffix(Self.suffix) else { return nil }
    // UTF-8 bytes: splitting into characters would take longer than mapping a segment.
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

  /// Parses digits only; nil if no segment has that number.
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

  /// The segment names in a directory, in no particular order.
  static func all(in directory: String, _ storage: any Storage) throws(StoreError) -> [SegmentName] {
    try all(of: storage.list(directory), in: directory)
  }

  /// The segment names among the names of the files in a directory.
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

  /// The segments that count, in order from the one that begins at `first`; replaced ones are skipped.
  /// `missing` is the first number that no segment covers although there are later ones.
  static func chain(of names: [SegmentName], from first: UInt32) -> (names: [SegmentName], missing: UInt32?) {
    let ordered = names.sorted {
      ($0.covered.lowerBound, $0.compaction) < ($1.covered.lowerBound, $1.compaction)
    }
    var chain: [SegmentName] = []
    var next = first
    for (index, name) in ordered.enumerated() where name.covered.lowerBound >= next {
      guard name.covered.lowerBound == next else { break }
      // A later compaction covers whole segments, so among segments with the same first number the last one
      // counts.
      if index + 1 < ordered.count, ordered[index + 1].covered.lowerBound == next { continue }
      chain.append(name)
      next = name.covered.upperBound + 1
    }
    let greatest = names.map(\.covered.upperBound).max() ?? 0
    return (chain, next <= greatest ? next : nil)
  }
}

extension SegmentName {
  /// The chain of `names` that uses replaced segments instead of their copy, where all of them still exist
  /// and the compaction is later than `adopted`: the index still refers to them. Nil if there are no such
  /// segments and no other leftovers.
  static func unfinishedChain(of names: [SegmentName], adopted: UInt32) -> [SegmentName]? {
    let counted = chain(of: names, from: 1).names
    guard counted.count < names.count else { return nil }
    return counted.flatMap { copy in
      let before = copy.compaction > adopted ? replaced(by: copy, among: names) : []
      return before.isEmpty ? [copy] : before
    }
  }

  /// The segments that `copy` replaced; empty unless all of them still exist.
  static func replaced(by copy: SegmentName, among names: [SegmentName]) -> [SegmentName] {
    let others = names.filter { name in
      name.compaction < copy.compaction && copy.covered.contains(name.covered.lowerBound)
        && copy.covered.contains(name.covered.upperBound)
    }
    let (chain, _) = chain(of: others, from: copy.covered.lowerBound)
    return chain.last?.covered.upperBound == copy.covered.upperBound ? chain : []
  }
}

/// Finds mapped segments by number and by index slot.
struct SegmentTable {
  private var appended = NumberedRun()
  private var compacted = NumberedRun()
  /// Segments by index slot.
  private(set) var slots: [Segment?] = [] {
    didSet { version &+= 1 }
  }
  /// Incremented with each change of `slots`.
  private(set) var version = 0
  /// True if some segments may have no slot in the index yet.
  var lacksSlots = false

  /// The segment of a record ref; nil if it is not mapped or ends before the record.
  @inline(__always)
  func segment(ofRef place: UInt64) -> Segment? {
    let slot = Self.slot(ofRef: place)
    guard slot < slots.count, let segment = slots[slot],
      Self.offset(ofRef: place) + RecordLayout.fixedLength <= segment.mapping.count
    else { return nil }
    return segment
  }

  /// The index slot in a record ref.
  @inline(__always)
  static func slot(ofRef place: UInt64) -> Int { Int(truncatingIfNeeded: place >> 29) }

  /// The record ref of the record at `offset` of the segment with this slot.
  @inline(__always)
  static func ref(slot: Int, offset: Int) -> UInt64 {
    UInt64(truncatingIfNeeded: slot) << 29 | UInt64(truncatingIfNeeded: offset) >> 3
  }

  /// The offset in a record ref.
  @inline(__always)
  static func offset(ofRef place: UInt64) -> Int { Int(place & (1 << 29 - 1)) << 3 }

  /// Makes a segment findable by its index slot.
  mutating func registerSlot(of segment: Segment) {
    guard let slot = segment.slot else { return }
    if slots.count <= slot { slots += repeatElement(nil, count: slot + 1 - slots.count) }
    slots[slot] = segment
  }

  @inline(__always)
  subscript(number: UInt32) -> Segment? {
    number < SegmentHeader.compacted ? appended[number] : compacted[number]
  }

  /// Visits the segments that have an index slot. The index numbers all segments since it was built: most
  /// slots are empty, and skipping them retains nothing.
  @inline(__always)
  func forEachSlot(_ body: (_ slot: Int, Segment) -> Void) {
    for slot in slots.indices where slots[slot] != nil {
      if let segment = slots[slot] { body(slot, segment) }
    }
  }

  /// An array by index slot: `value` of each segment, and `none` for segments that are gone.
  func bySlot<Value>(_ none: Value, _ value: (Segment) -> Value) -> [Value] {
    var values = [Value](repeating: none, count: slots.count)
    forEachSlot { slot, segment in values[slot] = value(segment) }
    return values
  }

  /// Drops all index slots.
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

  /// The appended segments from the first number on, then the compacted ones from the second on; nil where
  /// one is missing.
  var runs: (appended: UInt32, compacted: UInt32, appendedCount: Int, segments: [Segment?]) {
    (appended.base, compacted.base, appended.segments.count, appended.segments + compacted.segments)
  }

  /// Segments of one kind by number: few are missing between the lowest and the highest in use.
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
