/// A part of the journal as mapped when the slice was made, readable without the engine's lock: its bytes
/// never change. Segments that compaction replaces stay readable as long as this lives.
struct JournalSlice: Sendable {
  /// A segment, with a copy of the state that may still grow.
  struct Source: Sendable {
    let segment: Segment
    /// Its slot in the index, if it has one.
    let slot: Int?
    /// The actors that it has defined so far.
    let actors: [ActorID?]
    /// Range of the slice in the segment.
    let bytes: Range<Int>

    /// The dot of a write in it; nil if its author is unknown or the record has none.
    @inline(__always)
    func dot(of view: RecordView) -> Dot? {
      let number = Int(view.actorNumber)
      guard number < actors.count, let actor = actors[number] else { return nil }
      return Dot(actor: actor, sequence: view.sequence)
    }

    /// The part of this source with these bytes.
    func part(_ bytes: Range<Int>) -> Source {
      Source(segment: segment, slot: slot, actors: actors, bytes: bytes)
    }

    /// The offset of the first transaction at or after `offset`, but before the end; nil if none of the
    /// `current` records leads to one.
    func transaction(after offset: Int, _ current: LiveRecordBitmap) -> Int? {
      guard let slot, let place = current.first(from: SegmentTable.ref(slot: slot, offset: offset))
      else { return nil }
      var reader = RecordIterator(
        segment, from: SegmentTable.offset(ofRef: place), limit: bytes.upperBound, verifies: false)
      while let record = reader.next() {
        if !record.recordKinds().flags.contains(.continues) { break }
      }
      return reader.offset < bytes.upperBound ? reader.offset : nil
    }

    /// The open dots of a write in it.
    func open(of view: RecordView, _ shape: RecordShape) -> [Dot] {
      shape.openCount > 0 ? view.open(shape) { Int($0) < actors.count ? actors[Int($0)] : nil } : []
    }
  }

  let sources: [Source]
  /// The last position in the slice.
  let position: UInt64

  /// Splits the slice, in order, into at most `count` parts of about equal size, if it is large enough: each
  /// of whole segments, or, given `current`, of whole transactions.
  func parts(_ count: Int, _ current: LiveRecordBitmap? = nil) -> [JournalSlice] {
    let bytes = sources.reduce(0) { $0 + $1.bytes.count }
    guard count > 1, bytes >= Self.parallelThreshold else { return [self] }
    let share = (bytes + count - 1) / count
    var parts: [[Source]] = [[]]
    var left = share
    for source in sources {
      var source = source
      while parts.count < count, source.bytes.count > left,
        let middle = current.flatMap({ source.transaction(after: source.bytes.lowerBound + left, $0) })
      {
        parts[parts.count - 1].append(source.part(source.bytes.lowerBound..<middle))
        source = source.part(middle..<source.bytes.upperBound)
        parts.append([])
        left = share
      }
      // Begin the next part here if this one is nearer to its share without the source than with it.
      if parts.count < count, left < share, left < source.bytes.count - left {
        parts.append([])
        left = share
      }
      parts[parts.count - 1].append(source)
      left -= source.bytes.count
    }
    return parts.map { JournalSlice(sources: $0, position: position) }
  }

  /// Slices of fewer bytes are read by one thread.
  private static let parallelThreshold = 8 << 20

  /// Visits the records in order. Returns false if bytes are damaged: then the visit stopped early.
  func visit(
    _ body: (Source, RecordView) throws(StoreError) -> Void
  ) throws(StoreError) -> Bool {
    for source in sources {
      var reader = RecordIterator(
        source.segment, from: source.bytes.lowerBound, limit: source.bytes.upperBound)
      while true {
        let offset = reader.offset
        guard reader.next() != nil else { break }
        let view = RecordView(segment: source.segment, offset: offset)
        guard view.isReadable else { return false }
        try body(source, view)
      }
      guard reader.offset >= source.bytes.upperBound, source.segment.mapping.fault == nil else {
        return false
      }
    }
    return true
  }
}

extension Engine {
  /// The journal as far as this view has read it, from an offset at or before the first record after
  /// `position`; nil if it has read nothing.
  func slice(after position: UInt64) -> JournalSlice? { slice(from: start(of: position + 1)) }

  /// The journal from `start`, the end of a record; nil also if that segment is not part of the journal any
  /// more.
  func slice(from start: Location) -> JournalSlice? {
    guard let first = journal.index(of: start.segment), let last = journal.index(of: applied.segment),
      first <= last
    else { return nil }
    var sources: [JournalSlice.Source] = []
    for place in first...last {
      let segment = journal.segments[place]
      let from = place == first ? start.offset : SegmentHeader.length
      let end = place == last ? applied.offset : journal.closedLength(at: place) ?? SegmentHeader.length
      sources.append(
        JournalSlice.Source(
          segment: segment, slot: segment.slot, actors: segment.actors.all, bytes: from..<max(from, end)))
    }
    return JournalSlice(sources: sources, position: self.position)
  }
}

extension RecordView {
  /// True for a write of a key that is no conflict loser; its author may be unknown.
  var isOfKey: Bool {
    switch kind {
    case .value, .blob, .tombstone: !flags.contains(.loser)
    default: false
    }
  }
}
