/// Which segments are worth writing anew without what does not count any more: a value, made from sizes alone.
///
/// Disk use is to stay below twice the live data plus three segments (rule R5): the tail, the prepared next one, and what
/// compaction is writing or about to take. So sealed segments are compacted as soon as they hold half as many dead bytes as
/// there are live ones, which leaves time until the bound is reached; there writers wait.
struct CompactionPlan: Equatable {
  /// One sealed segment.
  struct Candidate: Equatable {
    /// Bytes of its file.
    var fileBytes: Int
    /// Bytes of its records that still count.
    var liveBytes: Int
    /// The last position before it.
    var basePosition: UInt64
    /// False where damage keeps it as it is, or where a compaction has gained nothing before.
    var isEligible = true

    var deadBytes: Int { max(0, fileBytes - liveBytes - SegmentHeader.length) }
  }

  /// The segments to write as one.
  var run: Range<Int>

  /// Less than this share of a file is not worth another.
  static let minDeadShare = 0.125
  /// Fewer dead bytes are not worth another file: one has whole pages.
  static let minGainBytes = 4096
  /// Segments of one run: bounds what one step costs.
  static let maxRunLength = 64

  /// Nil if nothing is worth it. `position` is the last one given; with `isThorough` every dead byte counts.
  init?(_ sealed: [Candidate], largestSegment: Int, position: UInt64, isThorough: Bool = false) {
    let live = sealed.reduce(0) { $0 + $1.liveBytes }
    let dead = sealed.reduce(0) { $0 + ($1.isEligible ? $1.deadBytes : 0) }
    guard isThorough || Self.isDue(dead: dead, live: live) else { return nil }
    // Not only the worst one is asked whether it gains a page: of a small one too little may be dead, though
    // that is a larger share.
    let gaining = sealed.indices.filter { sealed[$0].isEligible && sealed[$0].deadBytes >= Self.minGainBytes }
    let worst = gaining.max { left, right in
      // Of equal shares of dead bytes the later one is smaller or younger: the earlier one first.
      (Self.share(sealed[left]), right) < (Self.share(sealed[right]), left)
    }
    guard let worst, isThorough || Self.share(sealed[worst]) >= Self.minDeadShare else { return nil }
    var run = worst..<(worst + 1)
    var bytes = sealed[worst].liveBytes
    // Neighbours go along where that gains bytes or spares files.
    func takes(_ index: Int) -> Bool {
      guard sealed.indices.contains(index), sealed[index].isEligible, run.count < Self.maxRunLength else {
        return false
      }
      let first = min(index, run.lowerBound)
      let end = max(index, run.upperBound - 1) + 1
      let lastPosition = end < sealed.count ? sealed[end].basePosition : position
      return (Self.share(sealed[index]) >= 0.25 || sealed[index].fileBytes <= largestSegment / 4)
        && bytes + sealed[index].liveBytes + SegmentHeader.length <= largestSegment
        && lastPosition - sealed[first].basePosition < UInt64(UInt32.max)
    }
    while true {
      if takes(run.upperBound) {
        bytes += sealed[run.upperBound].liveBytes
        run = run.lowerBound..<(run.upperBound + 1)
      } else if takes(run.lowerBound - 1) {
        bytes += sealed[run.lowerBound - 1].liveBytes
        run = (run.lowerBound - 1)..<run.upperBound
      } else {
        break
      }
    }
    self.run = run
  }

  /// Is it time, with so many bytes in sealed segments?
  static func isDue(dead: Int, live: Int) -> Bool { dead > live / 2 }

  /// Must writers be held back, lest the bound be passed? What they append while one run goes on is room that is left.
  static func isUrgent(dead: Int, live: Int, largestSegment: Int) -> Bool {
    dead > max(live, largestSegment) / 4 * 3
  }

  private static func share(_ candidate: Candidate) -> Double {
    Double(candidate.deadBytes) / Double(max(candidate.fileBytes, 1))
  }
}
