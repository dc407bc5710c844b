/// A compacted segment on its way into an engine's view, a part at a time, so that nobody waits for long. Until all of it
/// was taken in, the segments it stands for are read on.
struct Adoption {
  let segment: Segment
  /// The numbers of the segments that it replaces.
  private let replaced: Set<UInt32>
  /// Up to where it was taken in.
  var offset = SegmentHeader.length
  var losers: [Location] = []

  init(_ segment: Segment, replacing replaced: some Sequence<UInt32>) {
    (self.segment, self.replaced) = (segment, Set(replaced))
  }

  /// Is the place in one of the segments that go?
  func replaces(_ location: Location) -> Bool { replaced.contains(location.segment) }
}
