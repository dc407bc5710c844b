/// Selects segments worth compacting: a value, computed from sizes alone.
///
/// Disk use must stay below twice the live data plus three segments (rule R5): the tail, the prepared next
/// one, and the segment that compaction is writing or about to replace. So closed segments are compacted as
/// soon as their dead bytes exceed half their live bytes, which leaves time until the bound is reached; there
/// writers are throttled.
struct CompactionPlan: Equatable {
  /// A closed segment.
  struct Candidate: Equatable {
    /// Bytes of its file.
    var fileBytes: Int
    /// Bytes of its live records.
    var liveBytes: Int
    /// The last position before it.
    var basePosition: UInt64
    /// False if damage prevents compaction, or an earlier compaction gained nothing.
    var isEligible = true

    var deadBytes: Int { max(0, fileBytes - liveBytes - SegmentHeader.length) }
  }

  /// The segments to replace by one.
  var run: Range<Int>

  /// A smaller dead share is not worth a new file.
  static let minDeadShare = 0.125
  /// Fewer dead bytes are not worth a new file, which has whole pages.
  static let minGainBytes = 4096
  /// Limit on the segments of one run: bounds the cost of one step.
  static let maxRunLength = 64

  /// Nil if no compaction is worth it. `position` is the last one assigned; with `isThorough` every dead byte
  /// counts.
  init?(_ candidates: [Candidate], largestSegment: Int, position: UInt64, isThorough: Bool = false) {
    let live = candidates.reduce(0) { $0 + $1.liveBytes }
    let dead = candidates.reduce(0) { $0 + ($1.isEligible ? $1.deadBytes : 0) }
    guard isThorough || Self.isDue(dead: dead, live: live) else { return nil }
    // Every candidate must gain a page, not only the worst: a small segment may have a larger dead share and
    // still gain too little.
    let gaining = candidates.indices.filter {
      candidates[$0].isEligible && candidates[$0].deadBytes >= Self.minGainBytes
    }
    let worst = gaining.max { left, right in
      // Of segments with equal dead shares take the earlier one: the later is smaller or younger.
      (Self.share(candidates[left]), right) < (Self.share(candidates[right]), left)
    }
    guard let worst, isThorough || Self.share(candidates[worst]) >= Self.minDeadShare else { return nil }
    var run = worst..<(worst + 1)
    var bytes = candidates[worst].liveBytes
    // Neighbours join the run where that gains bytes or saves files.
    func takes(_ index: Int) -> Bool {
      guard candidates.indices.contains(index), candidates[index].isEligible, run.count < Self.maxRunLength
      else {
        return false
      }
      let first = min(index, run.lowerBound)
      let end = max(index, run.upperBound - 1) + 1
      let lastPosition = end < candidates.count ? candidates[end].basePosition : position
      return (Self.share(candidates[index]) >= 0.25 || candidates[index].fileBytes <= largestSegment / 4)
        && bytes + candidates[index].liveBytes + SegmentHeader.length <= largestSegment
        && lastPosition - candidates[first].basePosition < UInt64(UInt32.max)
    }
    while true {
      if takes(run.upperBound) {
        bytes += candidates[run.upperBound].liveBytes
        run = run.lowerBound..<(run.upperBound + 1)
      } else if takes(run.lowerBound - 1) {
        bytes += candidates[run.lowerBound - 1].liveBytes
        run = (run.lowerBound - 1)..<run.upperBound
      } else {
        break
      }
    }
    self.run = run
  }

  /// True if compaction is due, with these bytes in closed segments.
  static func isDue(dead: Int, live: Int) -> Bool { dead > live / 2 }

  /// True if writers must be throttled to keep the bound. The remaining space is for their appends during one
  /// run.
  static func isUrgent(dead: Int, live: Int, largestSegment: Int) -> Bool {
    dead > max(live, largestSegment) / 4 * 3
  }

  private static func share(_ candidate: Candidate) -> Double {
    Double(candidate.deadBytes) / Double(max(candidate.fileBytes, 1))
  }
}
