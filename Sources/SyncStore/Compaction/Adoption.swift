/// A compacted segment on its way into an engine's view, a part at a time, so that nobody waits for long. Until all of it
/// was taken in, the segments it stands for are read on.
struct Adoption {
  let segment: Segment
  /// The numbers of the segments that it replaces.
  private let replaced: Set<UInt32>
  /// Up to where it was taken in.
  var offset = SegmentHeader.length
  var losers: [Location] = []
  private(set) var samples: [(position: UInt64, location: Location)] = []

  init(_ segment: Segment, replacing replaced: some Sequence<UInt32>) {
    (self.segment, self.replaced) = (segment, Set(replaced))
  }

  /// Is the place in one of the segments that go?
  func replaces(_ location: Location) -> Bool { replaced.contains(location.segment) }

  /// Notes where positions are, now and then.
  mutating func sample(_ view: RecordView) {
    if let last = samples.last, view.position < last.position + Engine.samplingInterval { return }
    samples.append((view.position, view.location))
  }
}
