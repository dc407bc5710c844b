/// The segments that compaction has replaced and that may still be read. Protected by the engine's lock.
///
/// Invariant: those that are kept are the last ones of all that were ever replaced, in the order of their
/// replacement. Readers remember `totalCount` to name the first one that they need.
struct ReplacedSegments {
  private(set) var kept: [Segment] = []
  /// Number of segments replaced so far, including those that are not kept any more.
  private(set) var totalCount = 0

  var isEmpty: Bool { kept.isEmpty }

  /// Total size of the files kept, in bytes.
  var bytes: Int { kept.reduce(0) { $0 + $1.mapping.count } }

  mutating func append(_ segments: some Collection<Segment>) {
    kept += segments
    totalCount += segments.count
  }

  /// Removes those that are among the first `count` ever replaced, and returns them.
  mutating func removeAll(before count: Int) -> [Segment] {
    let gone = min(kept.count, max(0, count - (totalCount - kept.count)))
    let removed = Array(kept[..<gone])
    kept.removeFirst(gone)
    return removed
  }
}
