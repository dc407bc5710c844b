/// Installation of a compacted segment into an engine's view, in small steps, so that no other operation
/// waits for long. Until it is complete, the replaced segments are still read.
struct SegmentInstall {
  let segment: Segment
  /// The numbers of the segments that it replaces.
  private let replaced: Set<UInt32>
  /// The records of the copy, from the compaction that wrote it; nil for a copy found at opening: then its
  /// records are read.
  let known: Known?
  /// Number of the known records that are installed.
  var next = 0
  /// The offset up to which it is installed, if its records are read.
  var offset = SegmentHeader.length
  var losers: [Location] = []

  /// A moved record that the index refers to.
  struct Move: Sendable {
    /// Hash of its key.
    var hash: UInt64
    /// Its former record ref.
    var from: UInt64
    /// Its offset in the copy.
    var to: UInt32
    /// Its bytes in the copy, with padding.
    var extent: UInt32
  }

  /// The records of a copy.
  struct Known {
    /// The index that the moves refer to.
    var keys: HashIndex
    var moves: [Move]
    /// The offsets of all other records.
    var others: [Int]
  }

  init(_ segment: Segment, replacing replaced: some Sequence<UInt32>, known: Known? = nil) {
    (self.segment, self.replaced, self.known) = (segment, Set(replaced), known)
  }

  /// True if the location is in one of the replaced segments.
  func replaces(_ location: Location) -> Bool { replaced.contains(location.segment) }

  /// Installed share, from 0 to 1.
  var progress: Double {
    guard let known else { return Double(offset) / Double(segment.mapping.count) }
    return Double(next) / Double(max(known.others.count + known.moves.count, 1))
  }
}
