/// A compacted segment on its way into an engine's view, a part at a time, so that nobody waits for long. Until all of it
/// was taken in, the segments it stands for are read on.
struct SegmentInstall {
  let segment: Segment
  /// The numbers of the segments that it replaces.
  private let replaced: Set<UInt32>
  /// What whoever has written the copy knows of it; nil for one that was found: then it is read.
  let known: Known?
  /// How many of the known records were taken in.
  var next = 0
  /// Up to where it was taken in, if it is read.
  var offset = SegmentHeader.length
  var losers: [Location] = []

  /// A record that the index names.
  struct Move: Sendable {
    /// Of its key.
    var hash: UInt64
    /// What the index called it.
    var from: UInt64
    /// Its offset in the copy.
    var to: UInt32
    /// Bytes that it takes up there.
    var extent: UInt32
  }

  /// Which records a copy has.
  struct Known {
    /// The index that the moves are of.
    var keys: HashIndex
    var moves: [Move]
    /// The offsets of all others.
    var others: [Int]
  }

  init(_ segment: Segment, replacing replaced: some Sequence<UInt32>, known: Known? = nil) {
    (self.segment, self.replaced, self.known) = (segment, Set(replaced), known)
  }

  /// Is the place in one of the segments that go?
  func replaces(_ location: Location) -> Bool { replaced.contains(location.segment) }

  /// How much of it was taken in, from 0 to 1.
  var progress: Double {
    guard let known else { return Double(offset) / Double(segment.mapping.count) }
    return Double(next) / Double(max(known.others.count + known.moves.count, 1))
  }
}
