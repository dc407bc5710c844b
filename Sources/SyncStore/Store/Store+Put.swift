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
      if deadline == nil {
        switch try putOrdinary(key.span, value, type, unlessKnown: unlessKnown, wall: wall, &engine) {
        case .appended: return control.tail
        case .known: return nil
        case .notOrdinary: break
        }
      }
      let search = engine.search(key.span)
      if unlessKnown, search.found != nil || !engine.gaps.isEmpty { return nil }
      let held = engine.replaced(key.span, search)
      var composer = engine.composer(wall: wall, limit: Limits.transactionBytes)
      try composer.issue(
        key: key, content: .inline(Array(copying: value)), type: type, deadline: deadline, held: held)
      try commit(composer, &engine)
      return control.tail
    }
  }

  private enum Outcome {
    case appended
    /// Something is known of the key, and the write was not to be made then.
    case known
    /// It has to go the general way; nothing was done.
    case notOrdinary
  }

  /// Appends the write if it is ordinary.
  @inline(__always)
  private func putOrdinary(
    _ key: Span<UInt8>, _ value: Span<UInt8>, _ type: ValueType, unlessKnown: Bool, wall: UInt64,
    _ engine: inout Engine
  ) throws(StoreError) -> Outcome {
    guard let writer = engine.ordinaryWriter() else { return .notOrdinary }
    let hash = writer.keys.hash(key)
    writer.keys.prefetch(hash)
    let start = engine.applied.offset
    let end = start + OrdinaryWriter.extent(key: key.count, value: value.count)
    guard end <= writer.segment.commonLimit, key[0] != ReservedKey.first else { return .notOrdinary }
    let held: OrdinaryWriter.Held
    do throws(StoreError) { held = try writer.held(key, hash) } catch { return .notOrdinary }
    switch held {
    case .nothing: break
    case .own: if unlessKnown { return .known }
    case .other: return .notOrdinary
    }
    var author = engine.state.author
    let version = try author.sign(wall: wall)
    let heading = OrdinaryWriter.Heading(
      type: type, sequence: version.dot.sequence, stamp: version.stamp, position: engine.position + 1,
      durable: engine.durableOffset(in: writer.segment))
    control.announce(writing: Location(segment: writer.segment.number, offset: end).packed)
    _ = writer.store(heading, key: key, value: value, at: start)
    try checkStored(in: writer.segment)
    control.tail = Location(segment: writer.segment.number, offset: end).packed
    (engine.state.author, engine.position) = (author, heading.position)
    engine.enter(hash, start..<end, replacing: held, writer)
    notePublished(end, in: writer.segment, &engine)
    return .appended
  }
}
