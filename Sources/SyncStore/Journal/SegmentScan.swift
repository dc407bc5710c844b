/// Goes through a segment record by record and finds its way again behind damage: one bad byte costs at most the record
/// it is in (rule R2).
struct ResyncingRecordIterator {
  /// What stands at a place.
  enum Step {
    /// A whole record.
    case record(RecordView)
    /// Bytes that are no record.
    case gap(Range<Int>)
  }

  let segment: Segment
  /// Where the segment ends, or the committed part of it.
  let limit: Int
  private(set) var offset: Int
  private let leavesEncrypted: Bool

  /// With `isSealed` records are not opened: whoever walks looks only at what stands in the clear.
  init(_ segment: Segment, from offset: Int = SegmentHeader.length, limit: Int, isSealed: Bool = false) {
    (self.segment, self.offset, self.limit, self.leavesEncrypted) = (segment, offset, limit, isSealed)
  }

  /// The next record or gap; nil at the limit. Zeros up to the limit are a gap too: who calls knows what was to be there.
  mutating func next() -> Step? {
    guard offset < limit else { return nil }
    if let view = segment.record(at: offset, limit: limit, isSealed: leavesEncrypted) {
      offset = min(view.end, limit)
      return .record(view)
    }
    let start = offset
    offset += RecordLayout.alignment
    guard let last = segment.mapping.lastNonZero(start..<limit) else {
      offset = limit
      return .gap(start..<limit)
    }
    while offset <= last {
      if segment.isRecordBehindDamage(at: offset, limit: limit, isSealed: leavesEncrypted) {
        return .gap(start..<offset)
      }
      offset += RecordLayout.alignment
    }
    offset = limit
    return .gap(start..<limit)
  }
}

/// What a pass over a segment found, before it is decided what it means.
struct SegmentScan {
  /// Bytes that are no records, each with where the transaction that they interrupt begins.
  struct Gap: Equatable {
    var range: Range<Int>
    var transactionStart: Int
  }

  var gaps: [Gap] = []
  /// The greatest durable offset that a valid record claims.
  var durable = SegmentHeader.length
  /// Behind the last valid record.
  var end = SegmentHeader.length
  /// For the last segment: where the transaction begins that its end leaves open; nil if all are complete.
  var openTransaction: Int?
  /// How many records there are of keys.
  var records = 0
  /// For the last segment: are there bytes behind the last valid record?
  var isTorn = false

  /// Reads every record of `segment` up to `limit`: where the next segment says that this one ends, or, for the last
  /// one, the end of the file.
  init(_ segment: Segment, limit: Int, isLast: Bool) {
    var offset = SegmentHeader.length
    while offset < limit {
      var reader = RecordIterator(segment, from: offset, limit: limit)
      while let record = reader.next() {
        add(record, at: offset)
        offset = reader.offset
      }
      end = max(end, offset)
      // Bytes that are no record: the way behind them is found once.
      var walker = ResyncingRecordIterator(segment, from: offset, limit: limit, isSealed: true)
      guard case .gap(let range)? = walker.next() else { continue }
      gaps.append(Gap(range: range, transactionStart: openTransaction ?? range.lowerBound))
      openTransaction = nil
      offset = range.upperBound
    }
    guard isLast, let tail = gaps.last, tail.range.upperBound == limit else { return }
    gaps.removeLast()
    openTransaction = tail.transactionStart < tail.range.lowerBound ? tail.transactionStart : nil
    isTorn = segment.mapping.lastNonZero(tail.range) != nil
  }

  /// Takes notice of a whole record.
  @inline(__always)
  private mutating func add(_ record: MappedBytes, at offset: Int) {
    durable = max(durable, Int(record.load(RecordLayout.durable, as: UInt32.self)))
    let kind: UInt8 = record.load(RecordLayout.kind)
    if kind == RecordLayout.Kind.actor.rawValue || kind == RecordLayout.Kind.epoch.rawValue { return }
    records += 1
    let flags = RecordLayout.Flags(rawValue: record.load(RecordLayout.flags))
    openTransaction = flags.contains(.continues) ? openTransaction ?? offset : nil
  }
}

/// Bytes at or below a watermark that are no record: corruption, reported and never truncated (rule R3, F17).
public struct JournalDamage: Hashable, Sendable {
  /// The number of the segment.
  public let segment: UInt32
  /// Bytes of its file that cannot be read as records.
  public let bytes: Range<Int>
}

/// What recovery decides about a journal: a value, made from scans alone.
struct RecoveryPlan: Equatable {
  /// Where the valid part ends: index of the segment, offset in it.
  var tailIndex: Int
  var tailOffset: Int
  /// Must what lies behind be set aside, and the segment sealed there?
  var truncates: Bool
  var damage: [JournalDamage]
  /// The watermark of the segment that holds the tail.
  var watermark: Int
  /// Up to where all is known durable: index of the segment, offset in it. Segments that nothing vouches for may lie
  /// between it and the tail: a process can be killed before it syncs any of them.
  var durableIndex = 0
  var durableOffset = SegmentHeader.length

  /// Decides. `scans` are of all segments in order, up to where each `ends`; the last one has no end, unless its file was cut: it is
  /// sealed there then, and what it lacks is damage.
  /// With `atWatermark` everything above the watermark goes, whole or not: the directory is a copy of one that was in
  /// use, and the original may yet give the same dots to other writes (rule R9, F55).
  init(headers: [SegmentHeader], ends: [Int?], scans: [SegmentScan], atWatermark: Bool) {
    tailIndex = scans.count - 1
    tailOffset = scans[tailIndex].end
    truncates = false
    damage = []
    watermark = SegmentHeader.length
    segments: for index in scans.indices {
      let scan = scans[index]
      watermark = Self.watermark(of: index, headers: headers, ends: ends, scans: scans)
      let isLast = index == scans.count - 1
      var cut: Int?
      for gap in scan.gaps {
        guard gap.range.lowerBound < watermark else {
          cut = gap.transactionStart
          break
        }
        damage.append(JournalDamage(segment: headers[index].number, bytes: gap.range))
      }
      if isLast { cut = cut ?? ends[index] ?? scan.openTransaction ?? (scan.isTorn ? scan.end : nil) }
      if atWatermark, watermark < ends[index] ?? scan.end {
        cut = min(cut ?? Int.max, watermark)
      }
      if let cut {
        (tailIndex, tailOffset, truncates) = (index, cut, true)
        break segments
      }
    }
    for index in 0...tailIndex {
      let known = Self.watermark(of: index, headers: headers, ends: ends, scans: scans)
      guard known > SegmentHeader.length else { continue }
      (durableIndex, durableOffset) = (index, index == tailIndex ? min(known, tailOffset) : known)
    }
    // Places are compared by number while the journal is in use, which holds for segments that are appended to.
    while headers[durableIndex].compaction > 0, durableIndex < tailIndex {
      (durableIndex, durableOffset) = (durableIndex + 1, SegmentHeader.length)
    }
  }

  /// Cuts at a place that is known durable, whatever is valid behind it.
  mutating func truncate(at index: Int, _ offset: Int) {
    (tailIndex, tailOffset, truncates, watermark) = (index, offset, true, offset)
    (durableIndex, durableOffset) = (index, offset)
  }

  /// Up to where a segment was known durable: the greatest claim in it, or its whole length once anything behind it was
  /// known durable, since segments are synced in order. What a file lacks that was cut counts as known.
  private static func watermark(
    of index: Int, headers: [SegmentHeader], ends: [Int?], scans: [SegmentScan]
  ) -> Int {
    guard let end = ends[index] else { return scans[index].durable }
    guard index + 1 < headers.count else { return end }
    // Compaction writes what is durable, and makes it durable before it takes its place.
    let isKnown = headers[index...].contains { $0.compaction > 0 }
    let isFollowed = scans[(index + 1)...].contains { $0.durable > SegmentHeader.length }
    return isKnown || isFollowed ? end : max(scans[index].durable, Int(headers[index + 1].previousDurable))
  }
}
