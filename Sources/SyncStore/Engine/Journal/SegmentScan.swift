/// Iterates over the records of a segment and resynchronizes after damage: one bad byte costs at most its own
/// record (rule R2).
struct ResyncingRecordIterator {
  /// An item found at an offset.
  enum Step {
    /// A whole record.
    case record(RecordView)
    /// Bytes that are no record.
    case gap(Range<Int>)
  }

  let segment: Segment
  /// End of the segment, or of its committed part.
  let limit: Int
  private(set) var offset: Int
  private let leavesEncrypted: Bool

  /// With `leavesEncrypted` records are not decrypted: only their cleartext fields may be read.
  init(
    _ segment: Segment, from offset: Int = SegmentHeader.length, limit: Int, leavesEncrypted: Bool = false
  ) {
    (self.segment, self.offset, self.limit) = (segment, offset, limit)
    self.leavesEncrypted = leavesEncrypted
  }

  /// The next record or gap; nil at the limit. Zeros up to the limit are a gap, too: the caller knows whether
  /// records were expected there.
  mutating func next() -> Step? {
    guard offset < limit else { return nil }
    if let view = segment.record(at: offset, limit: limit, leavesEncrypted: leavesEncrypted) {
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
      if segment.isRecordAfterDamage(at: offset, limit: limit, leavesEncrypted: leavesEncrypted) {
        return .gap(start..<offset)
      }
      offset += RecordLayout.alignment
    }
    offset = limit
    return .gap(start..<limit)
  }
}

/// Result of scanning a segment, before recovery interprets it.
struct SegmentScan {
  /// Bytes that are no records, each with the beginning of the transaction that they interrupt.
  struct Gap: Equatable {
    var range: Range<Int>
    var transactionStart: Int
  }

  var gaps: [Gap] = []
  /// The greatest durable offset that a valid record claims.
  var durable = SegmentHeader.length
  /// End of the last valid record.
  var end = SegmentHeader.length
  /// For the last segment: the beginning of a transaction left open at its end; nil if all are complete.
  var openTransaction: Int?
  /// Number of records, without definitions of actors and epochs.
  var records = 0
  /// For the last segment: true if there are bytes after the last valid record.
  var isTorn = false

  /// Scans every record of `segment` up to `limit`: the end that the next segment states, or, for the last
  /// segment, the end of the file.
  init(_ segment: Segment, limit: Int, isLast: Bool) {
    var offset = SegmentHeader.length
    while offset < limit {
      var reader = RecordIterator(segment, from: offset, limit: limit)
      while let record = reader.next() {
        add(record, at: offset)
        offset = reader.offset
      }
      end = max(end, offset)
      // Bytes that are no record: find the next record after them once.
      var walker = ResyncingRecordIterator(segment, from: offset, limit: limit, leavesEncrypted: true)
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

  /// Accounts for a whole record.
  @inline(__always)
  private mutating func add(_ record: MappedBytes, at offset: Int) {
    durable = max(durable, record.recordDurable())
    let kinds = record.recordKinds()
    if kinds.isOf(.actor) || kinds.isOf(.epoch) { return }
    records += 1
    openTransaction = kinds.flags.contains(.continues) ? openTransaction ?? offset : nil
  }
}

/// Bytes at or below a watermark that are no record: corruption, reported and never truncated (rule R3, F17).
public struct JournalDamage: Hashable, Sendable {
  /// The number of the segment.
  public let segment: UInt32
  /// Bytes of its file that cannot be read as records.
  public let bytes: Range<Int>
}

/// The decision of recovery about a journal: a value, computed from scans alone.
struct RecoveryPlan: Equatable {
  /// End of the valid part: index of the segment, offset in it.
  var tailIndex: Int
  var tailOffset: Int
  /// True if the rest must be set aside and the segment closed at this end.
  var truncates: Bool
  var damage: [JournalDamage]
  /// The watermark of the segment that holds the tail.
  var watermark: Int
  /// End of what is known durable: index of the segment, offset in it. Segments without any durability
  /// information may lie between it and the tail: a process can be killed before it syncs any of them.
  var durableIndex = 0
  var durableOffset = SegmentHeader.length

  /// Decides from the scans of all segments in order, up to where each `ends`. The last segment has no end,
  /// unless its file was truncated: then it is closed there, and its missing bytes are damage.
  ///
  /// With `atWatermark` everything above the watermark is cut, whole or not: the directory is a copy of one
  /// that was in use, and the original may yet give the same dots to other writes (rule R9, F55).
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
    // Locations are compared by segment number while the journal is in use, which is valid only for segments
    // that are appended to.
    while headers[durableIndex].compaction > 0, durableIndex < tailIndex {
      (durableIndex, durableOffset) = (durableIndex + 1, SegmentHeader.length)
    }
  }

  /// Cuts at an offset that is known durable, whatever is valid after it.
  mutating func truncate(at index: Int, _ offset: Int) {
    (tailIndex, tailOffset, truncates, watermark) = (index, offset, true, offset)
    (durableIndex, durableOffset) = (index, offset)
  }

  /// The offset up to which a segment was known durable: the greatest claim in it, or its whole length once
  /// anything after it was known durable, since segments are synced in order. Bytes missing from a truncated
  /// file count as known durable.
  private static func watermark(
    of index: Int, headers: [SegmentHeader], ends: [Int?], scans: [SegmentScan]
  ) -> Int {
    guard let end = ends[index] else { return scans[index].durable }
    guard index + 1 < headers.count else { return end }
    // Compaction copies only durable records and syncs its copy before installing it.
    let isKnown = headers[index...].contains { $0.compaction > 0 }
    let isFollowed = scans[(index + 1)...].contains { $0.durable > SegmentHeader.length }
    let recorded = Int(headers[index + 1].predecessor.durable)
    return isKnown || isFollowed ? end : max(scans[index].durable, recorded)
  }
}
