/// How a view follows the journal: the same way for own writes, for those of others and at opening.
extension Engine {
  /// Reads the journal on, up to `end`, which lies in a mapped segment. The checksums in the segments `seen` to be whole a
  /// moment ago are not computed again.
  mutating func absorb(upTo end: Location, seen: Set<UInt32> = []) {
    if applied.segment == 0, let first = journal.segments.first {
      applied = Location(segment: first.number, offset: SegmentHeader.length)
    }
    guard var place = journal.place(of: applied.segment), let last = journal.place(of: end.segment) else {
      return
    }
    let limit = Stamp(milliseconds: environment.now() + Limits.clockDriftMilliseconds)
    while place <= last {
      let segment = journal.segments[place]
      // A position is never given again, though compaction may have dropped the record that had it.
      position = max(position, segment.header.basePosition)
      let stop = place == last ? end.offset : journal.sealedLength(at: place) ?? 0
      if seen.contains(segment.number) {
        absorb(whole: segment, applied.offset..<stop, limit: limit)
      } else {
        var walker = SegmentWalker(segment, from: applied.offset, limit: stop)
        while let step = walker.next() {
          switch step {
          case .record(let view): absorb(view, limit: limit)
          case .gap(let range): noteGap(range, in: segment)
          }
        }
      }
      place += 1
      applied =
        place > last
        ? end : Location(segment: journal.segments[place].number, offset: SegmentHeader.length)
    }
  }

  /// Takes in what this process has just appended, up to `end`: as any other records, but that its checksums, computed a
  /// moment ago from the same bytes, are not computed again.
  mutating func absorb(own end: Location, wall: UInt64) {
    let limit = Stamp(milliseconds: wall + Limits.clockDriftMilliseconds)
    if applied.segment != end.segment {
      absorb(upTo: Location(segment: end.segment, offset: SegmentHeader.length))
    }
    guard let segment = journal.segment(end.segment) else { return }
    absorb(whole: segment, applied.offset..<end.offset, limit: limit)
    applied = end
  }

  /// Takes in records that are known to be whole.
  private mutating func absorb(whole segment: Segment, _ bytes: Range<Int>, limit: Stamp) {
    var offset = bytes.lowerBound
    while offset + RecordLayout.fixedLength <= bytes.upperBound {
      let view = RecordView(segment: segment, offset: offset)
      // Bytes that change between two looks must not end the process.
      guard view.length >= RecordLayout.fixedLength, view.end <= bytes.upperBound else {
        return noteGap(offset..<bytes.upperBound, in: segment)
      }
      offset = view.end
      if view.isReadable { absorb(view, limit: limit) } else { noteGap(view.offset..<view.end, in: segment) }
    }
  }

  /// The same for one write, with what is known of it without reading it again. `search` was made of its key, and nothing
  /// was changed since.
  @inline(__always)
  mutating func absorb(
    own write: Write, in segment: Segment, _ bytes: Range<Int>, _ search: Search, wall: UInt64
  ) {
    let limit = Stamp(milliseconds: wall + Limits.clockDriftMilliseconds)
    position = max(position, write.position)
    take(write, at: RecordView(segment: segment, offset: bytes.lowerBound), search, limit: limit)
    applied = Location(segment: segment.number, offset: bytes.upperBound)
  }

  private mutating func noteGap(_ range: Range<Int>, in segment: Segment) {
    note(JournalDamage(segment: segment.number, bytes: range), of: DamagedRecord.key(in: range, of: segment))
  }

  private mutating func note(_ damage: JournalDamage, of key: [UInt8]?) {
    guard !gaps.contains(damage) else { return }
    gaps.append(damage)
    let location = damage.place
    if let key {
      // The journal is read in its order: this is the latest place.
      damagedKeys[key] = location
    } else {
      unattributed.append(location)
    }
  }

  /// Fails if a damaged record may have been a newer one of this key: better no answer than a wrong one (F37).
  mutating func checkCertain(_ key: Span<UInt8>, _ found: Location?) throws(StoreError) {
    let suspects = unattributed + [damagedKeys[Array(copying: key)]].compactMap { $0 }
    guard
      let gap = suspects.first(where: { gap in
        found.map { journal.precedes($0, gap) } ?? true && !state.resolved.contains(gap)
      })
    else { return }
    throw StoreError(
      .damaged,
      "a damaged record at offset \(gap.offset) may hold this key's latest value: run `verify --repair`",
      path: journal.path(of: gap.segment))
  }

  private mutating func absorb(_ view: RecordView, limit: Stamp) {
    position = max(position, view.position)
    switch view.kind {
    case .actor:
      guard let shape = view.shape, let actor = ActorID(bytes: view.key(shape)) else { return }
      view.segment.define(actor, as: view.actorNumber)
    case .local:
      guard let shape = view.shape else { return }
      let (key, value) = (view.key(shape), view.value(shape))
      state.absorb(local: key, value)
      locals[key] = value
      view.segment.liveBytes += view.end - view.offset
      supersede(localPlaces.updateValue(view.location, forKey: key))
    case .localRemoval:
      guard let shape = view.shape else { return }
      let key = view.key(shape)
      state.absorb(local: key, nil)
      locals[key] = nil
      supersede(localPlaces.removeValue(forKey: key))
    case .value, .blob, .tombstone:
      if view.flags.contains(.loser) {
        view.segment.liveBytes += view.end - view.offset
        losers.append(view.location)
        if let dot = view.dot { keptLosers.insert(dot) }
      } else {
        absorb(write: view, limit: limit)
      }
    case .checkpoint, .epoch, nil: break
    }
  }

  private mutating func absorb(write view: RecordView, limit: Stamp) {
    guard let shape = view.shape else { return }
    guard let version = view.version else {
      // Both definitions of its author's number are lost, and with them whether it beats what is held.
      return note(
        JournalDamage(segment: view.segment.number, bytes: view.offset..<view.end), of: view.key(shape))
    }
    let search = view.bytes.withSpan(shape.key) { self.search($0) }
    let write = Write(
      version: version, position: view.position, hasDeadline: shape.deadline != nil,
      isReserved: view.isReserved(shape))
    take(write, at: view, search, limit: limit)
  }

  /// What is taken in of a write.
  struct Write {
    var version: Version
    var position: UInt64
    var hasDeadline: Bool
    var isReserved: Bool
  }

  /// Takes in a write which stands at `view`; `search` is what the index knows of its key.
  @inline(__always)
  private mutating func take(_ write: Write, at view: RecordView, _ search: Search, limit: Stamp) {
    view.segment.liveBytes += view.end - view.offset
    if write.position >= nextSample {
      samples.append((write.position, view.location))
      nextSample = write.position + Self.samplingInterval
    }
    // Own writes are never parked: their author sees them at once, even after its clock was put back.
    let applies = write.version.stamp <= limit || state.isMine(write.version.dot)
    state.absorb(write.version, applied: applies)
    if applies, digest == nil, !write.hasDeadline, expiring.isEmpty {
      hold(write.version, isReserved: write.isReserved, at: view, search)
    } else {
      takeNotingChange(write, at: view, search, applies: applies)
    }
  }

  @inline(never)
  private mutating func takeNotingChange(
    _ write: Write, at view: RecordView, _ search: Search, applies: Bool
  ) {
    guard let shape = view.shape else { return }
    let key = view.key(shape)
    let before = digest == nil ? nil : greatest(key)
    if applies {
      hold(write.version, isReserved: write.isReserved, at: view, search)
    } else {
      parked[key, default: []].append(view.location)
    }
    noteChange(of: key, from: before, deadline: write.hasDeadline)
  }

  mutating func hold(
    _ version: Version, isReserved: Bool, at view: RecordView, _ search: Search
  ) {
    if let found = search.found {
      if let segment = journal.segment(found.location.segment),
        let old = RecordView(segment: segment, offset: found.location.offset).version, old >= version,
        (try? journal.record(at: found.location)) != nil
      {
        return supersede(view.location)
      }
      index.move(found.slot, to: view.location)
      supersede(found.location)
    } else {
      index.insert(search.hash, view.location)
      if isReserved, let shape = view.shape { reserved.insert(view.key(shape)) }
    }
  }

  /// The record there does not count any more.
  private mutating func supersede(_ location: Location?) {
    guard let location, let segment = journal.segment(location.segment) else { return }
    let bytes = segment.extent(at: location.offset).end - location.offset
    segment.liveBytes -= bytes
    if segment.number != journal.segments.last?.number { deadBytes += bytes }
  }
}
