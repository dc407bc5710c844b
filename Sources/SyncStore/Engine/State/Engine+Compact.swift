/// Compaction: choosing segments, and switching to the compacted copy.
extension Engine {
  /// Whether the record at `location` is a copy of this one: a position is assigned only once.
  func isCopy(of view: RecordView, at location: Location) -> Bool {
    guard let segment = journal.segment(location.segment) else { return false }
    return segment.extent(at: location.offset).position == view.position
  }

  /// Installs up to `count` records of a compacted segment in place of the records they copy. True at the end
  /// of the segment.
  mutating func installSegment(_ adoption: inout SegmentInstall, count: Int, indexing: Bool) -> Bool {
    let segment = adoption.segment
    // A process that died may have counted some of the live bytes already.
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

  /// Installs a copy whose records are listed (`known`), without decoding it. Definitions come first: a
  /// record must not be indexed before its actor is defined.
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
        segment.actors.define(actor, as: view.actorNumber, at: view.offset)
      }
      // Before the index refers to a record that needs this definition.
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
      if !parked.isEmpty, let places = parked[key],
        let former = places.first(where: { isCopy(of: view, at: $0) })
      {
        parked.move(former, of: key, to: view.location)
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
    losers.locations =
      losers.locations.filter { !adoption.replaces($0) && $0.segment != adoption.segment.number }
      + adoption.losers
    sortedKeys.index = nil
    let segment = adoption.segment
    damage.forget { adoption.replaces($0) }
    journal.replace(by: segment)
    if indexing {
      segment.compaction.fixedBytes = max(0, segment.mapping.count - SegmentHeader.length - segment.liveBytes)
      compaction.installed = max(compaction.installed, segment.header.compaction)
      do throws(StoreError) { try rewriteSpecialRecords() } catch { index.failure = error }
      if index.hasFaulted { abandonFaultedIndex() }
      if index.failure != nil { rebuildIndex() }
    }
    _ = reviewDeadBytes()
    releaseReplaced()
  }

  /// Recounts dead and live bytes of closed segments, and sets the threshold for the next count.
  mutating func reviewDeadBytes() -> (dead: Int, live: Int) {
    let counted = deadAndLive
    compaction.deadBytes = counted.dead
    compaction.deadBytesReviewThreshold = counted.dead + journal.largestSegment / 16
    return counted
  }

  /// Bytes of closed segments that compaction would reclaim, and live bytes.
  var deadAndLive: (dead: Int, live: Int) {
    candidates.reduce((0, 0)) { ($0.0 + ($1.isEligible ? $1.deadBytes : 0), $0.1 + $1.liveBytes) }
  }

  /// The closed segments as input of the compaction planner.
  var candidates: [CompactionPlan.Candidate] {
    // Damage that no peer has repaired keeps its segment: the bytes may yet be read by other means.
    let damaged = Set(unresolvedDamage.map(\.segment))
    return journal.segments.dropLast().map { segment in
      CompactionPlan.Candidate(
        fileBytes: segment.mapping.count,
        liveBytes: min(
          max(0, segment.liveBytes) + segment.compaction.fixedBytes,
          segment.mapping.count - SegmentHeader.length),
        basePosition: segment.header.basePosition,
        isEligible: segment.compaction.isWorthRepeating && !damaged.contains(segment.number))
    }
  }

  /// The losers that are kept at present.
  func keptConflicts() -> [Location] {
    guard !losers.locations.isEmpty else { return [] }
    let beaten = losers.locations.map { place -> (position: UInt64, bytes: Int) in
      guard let segment = journal.segment(place.segment) else { return (.max, 0) }
      let view = RecordView(segment: segment, offset: place.offset)
      // Unreadable losers are left to verification.
      return view.isReadable ? (view.position, view.end - view.offset) : (.max, 0)
    }
    let kept = state.conflicts.kept(of: beaten, at: context.environment.now(), bytes: Limits.conflictBytes)
    return losers.locations.indices.filter { kept.contains($0) }.map { losers.locations[$0] }
  }

  struct HeldPin {
    weak var pin: SnapshotPin?
    /// Number of segments replaced when it began: it needs those replaced later.
    var start: Int
  }

  /// Keeps segments that compaction replaces readable as long as `pin` lives and there is space.
  mutating func retainSegments(for pin: SnapshotPin) {
    pinned.all.append(HeldPin(pin: pin, start: journal.replaced.totalCount))
  }

  /// Bytes of replaced segments kept for readers of this process.
  var heldBytes: Int { journal.replaced.bytes }

  /// True if a copy in this view has its name, but no slot in the shared index yet: its installation is still
  /// to come.
  private var hasUninstalledCopy: Bool {
    journal.segments.contains { $0.header.compaction > 0 && $0.slot == nil }
  }

  /// Unmaps replaced segments that are not needed any more, and ends the oldest readers while too much is
  /// kept.
  mutating func releaseReplaced() {
    pinned.all.removeAll { $0.pin == nil }
    // A shared index refers to the replaced segments until the compacting process has installed its copy; an
    // index of this process alone, until this view has replayed the records that finished the compaction.
    guard !journal.replaced.isEmpty,
      index.isShared
        ? context.control.installedCompactions >= compaction.count && !hasUninstalledCopy
        : applied >= compaction.appliedAt
    else { return }
    // The cached writer keeps replaced segments mapped. The next write builds another one in any case.
    fastPath.writer = nil
    defer { publish() }
    while true {
      journal.unmapReplaced(before: pinned.all.map(\.start).min() ?? .max)
      guard heldBytes > max(pinned.limit, 4 * journal.largestSegment, journal.fileBytes),
        let oldest = pinned.all.indices.min(by: { pinned.all[$0].start < pinned.all[$1].start })
      else { return }
      pinned.all.remove(at: oldest).pin?.end()
    }
  }
}
