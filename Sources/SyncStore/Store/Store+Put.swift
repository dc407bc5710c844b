/// The ordinary put: one write whose value lies in the journal. Its short way makes the same record from the same rules
/// as the general one (`TransactionBuilder`, `commit`), without copies in between; what is not ordinary goes the general way.
extension Store {
  /// Sets a key with the store's default of expiry. False if that is not done in short, and nothing was: the value is large, or, with
  /// `unlessKnown`, something is known of the key, or the store holds the local key `note`.
  func putInline(
    _ key: Key, _ value: Span<UInt8>, type: ValueType, unlessKnown: Bool, unlessNoted note: [UInt8],
    durability: Durability?
  ) throws(StoreError) -> Bool {
    try checkWritable()
    guard value.count <= configuration.blobThreshold,
      let tail = try putInline(
        key.bytes, value: value, type: type, deadline: deadline(nil), unlessKnown: unlessKnown,
        unlessNoted: note)
    else { return false }
    try awaitDurability(tail, durability: durability)
    return true
  }

  /// Appends the write. Returns the packed location behind it; nil if it was not to be made because something is known of
  /// the key, or the store holds the local key `note`.
  func putInline(
    _ key: [UInt8], value: Span<UInt8>, type: ValueType, deadline: UInt64?, unlessKnown: Bool = false,
    unlessNoted note: [UInt8]? = nil
  ) throws(StoreError) -> UInt64? {
    // The lines of the index are on their way while the mutex is taken and the clock is read.
    let ahead = readers.read { $0.prefetch(key.span) }
    throttleWriter()
    try acquireWriters()
    defer { control.unlock() }
    return try engine.withLock { engine throws(StoreError) in
      try prepareToWrite(&engine)
      if let note, engine.indexNotes[note] != nil { return nil }
      let wall = environment.now()
      if deadline == nil {
        let outcome = try putFastPath(
          key.span, value: value, type: type, unlessKnown: unlessKnown, ahead: ahead, wall: wall, &engine)
        switch outcome {
        case .appended: return control.tail
        case .exists: return nil
        case .needsSlowPath: break
        }
      }
      let search = engine.search(key.span)
      if unlessKnown, search.found != nil || !engine.gaps.isEmpty || engine.overdueParkedUpTo != nil {
        return nil
      }
      let held = engine.replaced(key.span, search: search)
      var composer = engine.transactionBuilder(wall: wall, limit: Limits.transactionBytes)
      try composer.issue(
        key: key, content: .inline(Array(copying: value)), type: type, deadline: deadline, held: held)
      try commit(composer, &engine)
      return control.tail
    }
  }

  private enum Outcome {
    case appended
    /// Something is known of the key, and the write was not to be made then.
    case exists
    /// It has to go the general way; nothing was done.
    case needsSlowPath
  }

  /// Appends the write if it is ordinary.
  @inline(__always)
  private func putFastPath(
    _ key: Span<UInt8>, value: Span<UInt8>, type: ValueType, unlessKnown: Bool,
    ahead: (hash: UInt64, keys: ObjectIdentifier)?, wall: UInt64, _ engine: inout Engine
  ) throws(StoreError) -> Outcome {
    guard let writer = engine.fastPathWriter() else { return .needsSlowPath }
    let hash: UInt64
    if let ahead, ahead.keys == ObjectIdentifier(writer.keys) {
      hash = ahead.hash
    } else {
      hash = writer.keys.hash(key)
      writer.keys.prefetch(hash)
    }
    let start = engine.applied.offset
    let end = start + writer.extent(key: key.count, value: value.count)
    guard end <= writer.segment.commonLimit, key[0] != ReservedKey.first else { return .needsSlowPath }
    let held: FastPathWriter.Held
    do throws(StoreError) { held = try writer.held(key, hash: hash) } catch { return .needsSlowPath }
    switch held {
    case .nothing: break
    case .own: if unlessKnown { return .exists }
    case .other: return .needsSlowPath
    }
    var author = engine.state.author
    let version = try author.nextVersion(wall: wall)
    let heading = FastPathWriter.RecordHeader(
      type: type, sequence: version.dot.sequence, stamp: version.stamp, position: engine.position + 1,
      durable: engine.durableOffset(in: writer.segment))
    try append(upTo: end, in: writer.segment) { () throws(StoreError) in
      _ = writer.store(heading, key: key, value: value, at: start)
    }
    (engine.state.author, engine.position) = (author, heading.position)
    engine.indexFastPath(hash, bytes: start..<end, replacing: held, writer)
    recordPublished(start..<end, in: writer.segment, &engine)
    return .appended
  }

  /// Stores what goes up to `end` and moves the tail behind it.
  @inline(__always)
  private func append(
    upTo end: Int, in segment: Segment, _ store: () throws(StoreError) -> Void
  ) throws(StoreError) {
    let tail = Location(segment: segment.number, offset: end).packed
    control.announceWrite(upTo: tail)
    // A page that is lost already is to hold nothing that could be found again.
    try checkStored(in: segment)
    try store()
    try checkStored(in: segment)
    control.tail = tail
  }

  // MARK: Many at once

  /// How many look-ups are under way at once: their cache misses overlap.
  private static let lookahead = 8

  /// Appends ordinary writes as one transaction. False if one of them is not ordinary, or there is no room for them in the
  /// segment: then nothing was done.
  func commitFastPath(
    _ writes: WriteBatch, wall: UInt64, _ engine: inout Engine
  ) throws(StoreError) -> Bool {
    guard let writer = engine.fastPathWriter(), let held = held(of: writes, writer) else { return false }
    let start = engine.applied.offset
    let end = writes.list.reduce(start) { $0 + writer.extent(key: $1.key.count, value: $1.value.count) }
    guard end <= writer.segment.commonLimit else { return false }
    var author = engine.state.author
    var ends: [Int] = []
    ends.reserveCapacity(writes.count)
    let (durable, position) = (engine.durableOffset(in: writer.segment), engine.position)
    try append(upTo: end, in: writer.segment) { () throws(StoreError) in
      for index in 0..<writes.count {
        let write = writes.list[index]
        let version = try author.nextVersion(wall: wall)
        let heading = FastPathWriter.RecordHeader(
          kind: write.isTombstone ? .tombstone : .value, flags: index < writes.count - 1 ? .continues : [],
          type: write.type, sequence: version.dot.sequence, stamp: version.stamp,
          position: position + UInt64(index) + 1, durable: durable)
        ends.append(
          writer.store(
            heading, key: writes.memory.span.extracting(write.key),
            value: writes.memory.span.extracting(write.value), at: ends.last ?? start))
      }
    }
    (engine.state.author, engine.position) = (author, position + UInt64(writes.count))
    engine.indexFastPath(writes, from: start, ends, replacing: held, writer)
    recordPublished(start..<end, in: writer.segment, &engine)
    return true
  }

  /// What is held of the keys of writes; nil if one of them is not ordinary.
  private func held(of writes: WriteBatch, _ writer: FastPathWriter) -> [FastPathWriter.Held]? {
    var held: [FastPathWriter.Held] = []
    held.reserveCapacity(writes.count)
    for write in writes.list.prefix(Self.lookahead) { writer.keys.prefetch(write.hash) }
    for index in 0..<writes.count {
      let write = writes.list[index]
      if index + Self.lookahead < writes.count {
        writer.keys.prefetch(writes.list[index + Self.lookahead].hash)
      }
      // What an earlier one of them leaves is known when that was stored.
      guard write.previous == nil else {
        held.append(.nothing)
        continue
      }
      guard let found = try? writer.held(writes.memory.span.extracting(write.key), hash: write.hash) else {
        return nil
      }
      if case .other = found { return nil }
      held.append(found)
    }
    return held
  }
}
