/// A part of the journal as it was mapped at a moment, to be read without the engine's lock: what stands there is never changed. Whatever
/// compaction replaces stays readable here as long as this lives.
struct JournalStretch: Sendable {
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

    /// The open dots that a write in it names.
    func open(of view: RecordView, _ shape: RecordView.Shape) -> [Dot] {
      shape.openCount > 0 ? view.open(shape) { Int($0) < actors.count ? actors[Int($0)] : nil } : []
    }
  }

  let sources: [Source]
  /// The last position in it.
  let position: UInt64

  /// The same in at most so many parts of about as many bytes, if it has enough for several: each of whole segments, in their order.
  func parts(_ count: Int) -> [JournalStretch] {
    let bytes = sources.reduce(0) { $0 + $1.bytes.count }
    guard count > 1, bytes >= Self.bytesWorthSharing else { return [self] }
    var parts: [[Source]] = [[]]
    var filled = 0
    for source in sources {
      // Where it ends nearer to its share without this one than with it, the next part begins.
      let share = bytes * parts.count / count
      if parts.count < count, filled > 0, share - filled < filled + source.bytes.count - share {
        parts.append([])
      }
      parts[parts.count - 1].append(source)
      filled += source.bytes.count
    }
    return parts.map { JournalStretch(sources: $0, position: position) }
  }

  /// Fewer are gone through by one thread.
  private static let bytesWorthSharing = 8 << 20

  /// Visits its records in their order. False if bytes of it are damaged: then it was not gone through to its end.
  func visit(
    _ body: (Source, RecordView) throws(StoreError) -> Void
  ) throws(StoreError) -> Bool {
    for source in sources {
      var reader = RecordReader(source.segment, from: source.bytes.lowerBound, limit: source.bytes.upperBound)
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
  func stretch(behind position: UInt64) -> JournalStretch? {
    let start = start(of: position + 1)
    guard let first = journal.place(of: start.segment), let last = journal.place(of: applied.segment),
      first <= last
    else { return nil }
    var sources: [JournalStretch.Source] = []
    for place in first...last {
      let segment = journal.segments[place]
      let from = place == first ? start.offset : SegmentHeader.length
      let end = place == last ? applied.offset : journal.sealedLength(at: place) ?? SegmentHeader.length
      sources.append(
        JournalStretch.Source(
          segment: segment, slot: segment.slot, actors: segment.actors, bytes: from..<max(from, end)))
    }
    return JournalStretch(sources: sources, position: self.position)
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
