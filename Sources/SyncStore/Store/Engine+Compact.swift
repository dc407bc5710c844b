/// What a compaction asks of a view: what is worth it, and moving over to the copy.
extension Engine {
  /// Is the same write at `location`? A position is given once.
  func isCopy(of view: RecordView, at location: Location) -> Bool {
    guard let segment = journal.segment(location.segment) else { return false }
    return segment.extent(at: location.offset).position == view.position
  }

  /// Takes in at most `count` records of a compacted segment, in place of those they are copies of. True at the end.
  mutating func installSegment(_ adoption: inout SegmentInstall, count: Int, indexing: Bool) -> Bool {
    let segment = adoption.segment
    // One who died may have counted some of them.
    if indexing, adoption.next == 0, adoption.offset == SegmentHeader.length { segment.liveBytes = 0 }
    if let known = adoption.known, indexing, known.keys === index.hashIndex {
      return installKnown(known, adoption: &adoption, count: count)
    }
    var walker = ResyncingRecordIterator(
      segment, from: adoption.offset, limit: Int(segment.header.closedLength))
    for _ in 0..<count {
      guard let step = walker.next() else {
        finishInstall(adoption, indexing: indexing)
        return true
      }
      guard case .record(let view) = step else { continue }
      let counts = installRecord(view, &adoption, indexing: indexing)
      if counts, indexing { segment.liveBytes += view.end - view.offset }
    }
    adoption.offset = walker.offset
    return false
  }

  /// The same for a copy of which it is known what it has. Definitions come first: no record is named before its author is.
  private mutating func installKnown(
    _ known: SegmentInstall.Known, adoption: inout SegmentInstall, count: Int
  ) -> Bool {
    let segment = adoption.segment
    let end = min(adoption.next + count, known.others.count + known.moves.count)
    while adoption.next < min(end, known.others.count) {
      let view = RecordView(segment: segment, offset: known.others[adoption.next])
      if installRecord(view, &adoption, indexing: true) { segment.liveBytes += view.end - view.offset }
      adoption.next += 1
    }
    let first = adoption.next - known.others.count
    if first >= 0, first < end - known.others.count {
      let moves = first..<(end - known.others.count)
      for index in moves { known.keys.prefetch(known.moves[index].hash) }
      var live = 0
      do throws(StoreError) {
        for index in moves {
          let move = known.moves[index]
          let isMoved = try known.keys.replace(move.hash, move.from, with: segment.ref(at: Int(move.to)))
          live += isMoved ? Int(move.extent) : 0
        }
      } catch {
        index.failure = error
      }
      segment.liveBytes += live
      adoption.next = end
    }
    guard adoption.next == known.others.count + known.moves.count else { return false }
    finishInstall(adoption, indexing: true)
    return true
  }

  private mutating func installRecord(_ view: RecordView, _ adoption: inout SegmentInstall, indexing: Bool)
    -> Bool
  {
    guard let shape = view.shape else { return false }
    let (segment, key) = (view.segment, view.key(shape))
    switch view.kind {
    case .actor:
      if let actor = ActorID(bytes: key) {
        segment.define(actor, as: view.actorNumber, at: view.offset)
      }
      // Before the index names a record that needs it.
      if indexing { do throws(StoreError) { try addSpecialRecord(view) } catch { index.failure = error } }
      return false
    case .local:
      let place = localMetadata.location(of: key)
      guard let place, adoption.replaces(place) else { return place == view.location }
      localMetadata.move(key, to: view.location)
      return true
    case .value, .blob, .tombstone:
      if view.flags.contains(.loser) {
        adoption.losers.append(view.location)
        return true
      }
      if let places = parked[key], let index = places.firstIndex(where: { isCopy(of: view, at: $0) }) {
        parked[key]?[index] = view.location
        return true
      }
      guard indexing else { return false }
      let search = search(key.span)
      guard let found = search.found, isCopy(of: view, at: found.location) else { return false }
      guard adoption.replaces(found.location) else { return found.location == view.location }
      let place = segment.ref(at: view.offset)
      do throws(StoreError) { return try index.hashIndex.replace(search.hash, found.ref, with: place) } catch
      {
        index.failure = error
        return false
      }
    case .localRemoval, .purge, .checkpoint, .epoch, nil: return false
    }
  }

  private mutating func finishInstall(_ adoption: SegmentInstall, indexing: Bool) {
    losers =
      losers.filter { !adoption.replaces($0) && $0.segment != adoption.segment.number } + adoption.losers
    sortedIndex = nil
    let segment = adoption.segment
    forgetDamage { adoption.replaces($0) }
    journal.replace(by: segment)
    if indexing {
      segment.fixedBytes = max(0, segment.mapping.count - SegmentHeader.length - segment.liveBytes)
      installedCompaction = max(installedCompaction, segment.header.compaction)
      do throws(StoreError) { try rewriteSpecialRecords() } catch { index.failure = error }
      if index.hasFaulted { abandonFaultedIndex() }
      if index.failure != nil { rebuildIndex() }
    }
    _ = reviewDeadBytes()
    releaseReplaced()
  }

  /// Counts what is dead and live in sealed segments.
  mutating func reviewDeadBytes() -> (dead: Int, live: Int) {
    let counted = deadAndLive
    deadBytes = counted.dead
    deadBytesReviewThreshold = counted.dead + journal.largestSegment / 16
    return counted
  }

  /// Bytes of sealed segments that compaction would gain, and those that count.
  var deadAndLive: (dead: Int, live: Int) {
    candidates.reduce((0, 0)) { ($0.0 + ($1.isEligible ? $1.deadBytes : 0), $0.1 + $1.liveBytes) }
  }

  /// The sealed segments, as compaction is planned for them.
  var candidates: [CompactionPlan.Candidate] {
    // What a peer has not made good stays as it is: it may yet be read by other means.
    let damaged = Set(unresolvedDamage.map(\.segment))
    return journal.segments.dropLast().map { segment in
      CompactionPlan.Candidate(
        fileBytes: segment.mapping.count,
        liveBytes: min(
          max(0, segment.liveBytes) + segment.fixedBytes, segment.mapping.count - SegmentHeader.length),
        basePosition: segment.header.basePosition,
        isEligible: segment.isWorthCompacting && !damaged.contains(segment.number))
    }
  }

}
