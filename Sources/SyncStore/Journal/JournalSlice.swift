/// A part of the journal as it was mapped at a moment, to be read without the engine's lock: what stands there is never changed. Whatever
/// compaction replaces stays readable here as long as this lives.
struct JournalSlice: Sendable {
  /// A segment, with what is needed of it that others may add to.
  struct Source: Sendable {
    let segment: Segment
    /// Its number in the index, if it has one.
    let slot: Int?
    /// The actors that it has defined so far.
    let actors: [ActorID?]
    /// Where the part lies in it.
    let bytes: Range<Int>

    /// The name of a write in it; nil if its author is not known, or it is of no author.
    @inline(__always)
    func dot(of view: RecordView) -> Dot? {
      let number = Int(view.actorNumber)
      guard number < actors.count, let actor = actors[number] else { return nil }
      return Dot(actor: actor, sequence: view.sequence)
    }

    /// The same of other bytes.
    func part(_ bytes: Range<Int>) -> Source {
      Source(segment: segment, slot: slot, actors: actors, bytes: bytes)
    }

    /// Where a transaction begins at or behind `offset`, but before the end; nil if that is not found by one of the `current` places.
    func transaction(behind offset: Int, _ current: LiveRecordBitmap) -> Int? {
      guard let slot, let place = current.first(from: SegmentTable.ref(slot: slot, offset: offset))
      else { return nil }
      var reader = RecordIterator(
        segment, from: SegmentTable.offset(ofRef: place), limit: bytes.upperBound, verifies: false)
      while let record = reader.next() {
        let flags = RecordLayout.Flags(rawValue: record.load(RecordLayout.flags))
        if !flags.contains(.continues) { break }
      }
      return reader.offset < bytes.upperBound ? reader.offset : nil
    }

    /// The open dots that a write in it names.
    func open(of view: RecordView, _ shape: RecordView.Shape) -> [Dot] {
      shape.openCount > 0 ? view.open(shape) { Int($0) < actors.count ? actors[Int($0)] : nil } : []
    }
  }

  let sources: [Source]
  /// The last position in it.
  let position: UInt64

  /// The same in at most so many parts of about as many bytes, if it has enough for several, in their order: each of whole segments, or,
  /// where it is known which places are `current`, of whole transactions.
  func parts(_ count: Int, _ current: LiveRecordBitmap? = nil) -> [JournalSlice] {
    let bytes = sources.reduce(0) { $0 + $1.bytes.count }
    guard count > 1, bytes >= Self.parallelThreshold else { return [self] }
    let share = (bytes + count - 1) / count
    var parts: [[Source]] = [[]]
    var left = share
    for source in sources {
      var source = source
      while parts.count < count, source.bytes.count > left,
        let middle = current.flatMap({ source.transaction(behind: source.bytes.lowerBound + left, $0) })
      {
        parts[parts.count - 1].append(source.part(source.bytes.lowerBound..<middle))
        source = source.part(middle..<source.bytes.upperBound)
        parts.append([])
        left = share
      }
      // Where it ends nearer to its share without this one than with it, the next part begins.
      if parts.count < count, left < share, left < source.bytes.count - left {
        parts.append([])
        left = share
      }
      parts[parts.count - 1].append(source)
      left -= source.bytes.count
    }
    return parts.map { JournalSlice(sources: $0, position: position) }
  }

  /// Fewer are gone through by one thread.
  private static let parallelThreshold = 8 << 20

  /// Visits its records in their order. False if bytes of it are damaged: then it was not gone through to its end.
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
  /// What this view has read of the journal, from a place at or before what lies behind a position; nil if it has read nothing.
  func slice(behind position: UInt64) -> JournalSlice? { slice(from: start(of: position + 1)) }

  /// The same from a place where a record ends; nil as well if that is not a part of the journal any more.
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
          segment: segment, slot: segment.slot, actors: segment.actors, bytes: from..<max(from, end)))
    }
    return JournalSlice(sources: sources, position: self.position)
  }
}

extension RecordView {
  /// A write of a key, not a beaten one: its author may not be known.
  var isOfKey: Bool {
    switch kind {
    case .value, .blob, .tombstone: !flags.contains(.loser)
    default: false
    }
  }
}
