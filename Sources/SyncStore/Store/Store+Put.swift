/// The ordinary put: one write whose value lies in the journal. Its short way makes the same record from the same rules
/// as the general one (`Composer`, `commit`), without copies in between; what is not ordinary goes the general way.
extension Store {
  /// Appends the write. Returns the packed location behind it; nil if it was not to be made because something is known of
  /// the key.
  func putInline(
    _ key: [UInt8], _ value: Span<UInt8>, _ type: ValueType, _ deadline: UInt64?, unlessKnown: Bool = false
  ) throws(StoreError) -> UInt64? {
    waitForCompaction()
    try acquireWriters()
    defer { control.unlock() }
    return try engine.withLock { engine throws(StoreError) in
      try prepareToWrite(&engine)
      let wall = environment.now()
      let search = engine.search(key.span)
      if unlessKnown, search.found != nil || !engine.gaps.isEmpty { return nil }
      let held = engine.replaced(key.span, search)
      var author = engine.state.author
      let past = Resolution.past(replacing: held, by: author.actor) { engine.covers($0) }
      if let place = ordinaryPlace(for: past, key, value, engine) {
        let heading = WriteHeading(
          version: try author.sign(wall: wall), base: past.base, open: past.open, deadline: deadline,
          type: type)
        let end = try store(heading, key, value, at: place, engine)
        let write = Engine.Write(
          version: heading.version, position: engine.position + 1, hasDeadline: deadline != nil,
          isReserved: ReservedKey.isReserved(key))
        engine.absorb(own: write, in: place.segment, place.offset..<end, search, wall: wall)
        notePublished(end, in: place.segment, &engine)
      } else {
        var composer = engine.composer(wall: wall, limit: Limits.transactionBytes)
        try composer.issue(
          key: key, content: .inline(Array(copying: value)), type: type, deadline: deadline, held: held)
        try commit(composer, &engine)
      }
      return control.tail
    }
  }

  /// Where the record is to lie; nil if a segment is to be begun or an actor to be given a number first.
  private func ordinaryPlace(
    for past: (base: Dot?, open: [Dot]), _ key: [UInt8], _ value: Span<UInt8>, _ engine: borrowing Engine
  ) -> (segment: Segment, offset: Int)? {
    let tail = Location(packed: control.tail)
    guard engine.takesShortWay, past.base == nil, past.open.isEmpty,
      let actor = engine.state.author.actor,
      let segment = engine.journal.segment(tail.segment),
      segment.number(of: actor) != nil, segment.isReadyToSeal,
      tail.offset + AppendExtent.bytes(key: key.count, value: value.count) <= segment.commonLimit
    else { return nil }
    return (segment, tail.offset)
  }

  /// Stores the record and moves the tail behind it. Returns where it ends.
  private func store(
    _ heading: WriteHeading, _ key: [UInt8], _ value: Span<UInt8>, at place: (segment: Segment, offset: Int),
    _ engine: borrowing Engine
  ) throws(StoreError) -> Int {
    let durable = Location(packed: control.durable)
    var encoder = RecordEncoder(
      segment: place.segment, start: place.offset,
      durable: durable.segment == place.segment.number ? durable.offset : 0, position: engine.position)
    let bound = AppendExtent.bytes(key: key.count, value: value.count)
    control.announce(
      writing: Location(segment: place.segment.number, offset: place.offset + bound).packed)
    encoder.encode(heading, key: key.span, value: value)
    try checkStored(in: place.segment)
    control.tail = Location(segment: place.segment.number, offset: encoder.end).packed
    return encoder.end
  }
}
