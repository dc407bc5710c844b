/// What a compaction asks of a view: what is worth it, and moving over to the copy.
extension Engine {
  /// Is the same write at `location`? A position is given once.
  func isCopy(of view: RecordView, at location: Location) -> Bool {
    guard let segment = journal.segment(location.segment) else { return false }
    return segment.extent(at: location.offset).position == view.position
  }

  /// Takes in at most `count` records of a compacted segment, in place of those they are copies of. True at the end.
  mutating func adopt(_ adoption: inout Adoption, count: Int) -> Bool {
    let segment = adoption.segment
    var walker = SegmentWalker(segment, from: adoption.offset, limit: Int(segment.header.sealedLength))
    for _ in 0..<count {
      guard let step = walker.next() else {
        finish(adoption)
        return true
      }
      guard case .record(let view) = step else { continue }
      if adopt(view, &adoption) { segment.liveBytes += view.end - view.offset }
    }
    adoption.offset = walker.offset
    return false
  }

  private mutating func adopt(_ view: RecordView, _ adoption: inout Adoption) -> Bool {
    guard let shape = view.shape else { return false }
    let key = view.key(shape)
    switch view.kind {
    case .actor:
      if let actor = ActorID(bytes: key) { view.segment.define(actor, as: view.actorNumber) }
      return false
    case .local:
      guard let place = localPlaces[key], adoption.replaces(place) else { return false }
      localPlaces[key] = view.location
      return true
    case .value, .blob, .tombstone:
      adoption.sample(view)
      if view.flags.contains(.loser) {
        adoption.losers.append(view.location)
        return true
      }
      if let places = parked[key], let index = places.firstIndex(where: { isCopy(of: view, at: $0) }) {
        parked[key]?[index] = view.location
        return true
      }
      guard let found = search(key.span).found, adoption.replaces(found.location),
        isCopy(of: view, at: found.location)
      else { return false }
      index.move(found.slot, to: view.location)
      return true
    case .localRemoval, .checkpoint, .epoch, nil: return false
    }
  }

  private mutating func finish(_ adoption: Adoption) {
    losers = losers.filter { !adoption.replaces($0) } + adoption.losers
    samples = (samples.filter { !adoption.replaces($0.location) } + adoption.samples).sorted {
      $0.position < $1.position
    }
    ordered = nil
    let segment = adoption.segment
    segment.fixedBytes = max(0, segment.mapping.count - SegmentHeader.length - segment.liveBytes)
    journal.replace(by: segment)
    _ = reviewDeadBytes()
    pins.removeAll { $0.pin == nil }
    if pins.isEmpty { journal.forget() }
  }

  /// Counts what is dead and live in sealed segments.
  mutating func reviewDeadBytes() -> (dead: Int, live: Int) {
    let counted = deadAndLive
    deadBytes = counted.dead
    reviewAt = counted.dead + journal.largestSegment / 16
    return counted
  }

  /// Bytes of sealed segments that compaction would gain, and those that count.
  var deadAndLive: (dead: Int, live: Int) {
    candidates.reduce((0, 0)) { ($0.0 + ($1.isEligible ? $1.deadBytes : 0), $0.1 + $1.liveBytes) }
  }

  /// The sealed segments, as compaction is planned for them.
  var candidates: [CompactionPlan.Candidate] {
    let damaged = Set(gaps.map(\.segment))
    return journal.segments.dropLast().map { segment in
      CompactionPlan.Candidate(
        fileBytes: segment.mapping.count,
        liveBytes: min(
          max(0, segment.liveBytes) + segment.fixedBytes, segment.mapping.count - SegmentHeader.length),
        basePosition: segment.header.basePosition,
        isEligible: segment.isWorthCompacting && !damaged.contains(segment.number))
    }
  }

  /// Begins again with the same journal, mapped anew. What is pinned stays readable.
  mutating func startAfresh(with journal: Journal, compactions: UInt64) {
    var fresh = Engine(environment: environment, journal: journal, compactions: compactions)
    fresh.pins = pins.filter { $0.pin != nil }
    if !fresh.pins.isEmpty { fresh.journal.keep(self.journal) }
    self = fresh
  }

  /// Keeps what compaction replaces readable as long as `pin` lives.
  mutating func hold(_ pin: SnapshotPin) { pins.append(HeldPin(pin: pin)) }
}
