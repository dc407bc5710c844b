/// The put of an inline value. Its fast path makes the same record by the same rules as the general path
/// (`TransactionBuilder`, `commit`), without intermediate copies; all other cases take the general path.
extension WritePath {
  /// Appends the write and returns the packed location after it.
  ///
  /// Nil if nothing was written because something is known of the key (`unlessKnown`) or the store holds the
  /// local key `note`.
  func putInline(
    _ key: [UInt8], value: Span<UInt8>, type: ValueType, deadline: UInt64?, unlessKnown: Bool = false,
    unlessNoted note: [UInt8]? = nil
  ) throws(StoreError) -> UInt64? {
    // Prefetches the cache lines of the index, which arrive while the mutex is acquired and the clock is
    // read.
    let prefetched = readers.read(counts: false) { $0.prefetch(key.span) }
    compaction.throttleWriter()
    try acquireWriters()
    defer { control.unlock() }
    return try core.engine.withLock { engine throws(StoreError) in
      try prepareToWrite(&engine)
      if let note, engine.localMetadata.indexNotes[note] != nil { return nil }
      let wall = environment.now()
      if deadline == nil {
        let outcome = try putFastPath(
          key.span, value: value, type: type, unlessKnown: unlessKnown, prefetched: prefetched, wall: wall,
          &engine)
        switch outcome {
        case .appended: return control.tail
        case .exists: return nil
        case .needsSlowPath: break
        }
      }
      let search = engine.search(key.span)
      if unlessKnown, search.found != nil || !engine.damage.gaps.isEmpty || engine.parked.overdueUpTo != nil {
        return nil
      }
      let held = engine.replaced(key.span, search: search)
      var builder = engine.transactionBuilder(wall: wall, limit: Limits.transactionBytes)
      try builder.issue(
        key: key, content: .inline(Array(copying: value)), type: type, deadline: deadline, held: held)
      try commit(builder, &engine)
      return control.tail
    }
  }

  private enum Outcome {
    case appended
    /// Something is known of the key, and the write was conditional on the contrary.
    case exists
    /// The write must take the general path; nothing was done.
    case needsSlowPath
  }

  /// Appends the write if it qualifies for the fast path.
  @inline(__always)
  private func putFastPath(
    _ key: Span<UInt8>, value: Span<UInt8>, type: ValueType, unlessKnown: Bool,
    prefetched: (hash: UInt64, keys: ObjectIdentifier)?, wall: UInt64, _ engine: inout Engine
  ) throws(StoreError) -> Outcome {
    guard let writer = engine.fastPathWriter() else { return .needsSlowPath }
    let hash: UInt64
    if let prefetched, prefetched.keys == ObjectIdentifier(writer.keys) {
      hash = prefetched.hash
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
    puts.add()
    recordPublished(start..<end, in: writer.segment, &engine)
    return .appended
  }

  /// Stores the bytes up to `end` and advances the tail past them.
  @inline(__always)
  private func append(
    upTo end: Int, in segment: Segment, _ store: () throws(StoreError) -> Void
  ) throws(StoreError) {
    let tail = Location(segment: segment.number, offset: end).packed
    control.announceWrite(upTo: tail)
    // A page that is already lost must not be stored to: its records could not be found again.
    try checkStored(in: segment)
    try store()
    try checkStored(in: segment)
    control.tail = tail
  }

  // MARK: Batch put

  /// Number of concurrent look-ups, so that their cache misses overlap.
  private static let lookahead = 8

  /// Appends the batch as one transaction on the fast path. False, with nothing done, if one of the writes
  /// does not qualify or the segment has no room for them.
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
    let deleted = writes.list.count { $0.isTombstone }
    puts.add(UInt64(writes.count - deleted))
    deletes.add(UInt64(deleted))
    recordPublished(start..<end, in: writer.segment, &engine)
    return true
  }

  /// The current state of the keys of the batch; nil if one of them does not qualify for the fast path.
  private func held(of writes: WriteBatch, _ writer: FastPathWriter) -> [FastPathWriter.Held]? {
    var held: [FastPathWriter.Held] = []
    held.reserveCapacity(writes.count)
    for write in writes.list.prefix(Self.lookahead) { writer.keys.prefetch(write.hash) }
    for index in 0..<writes.count {
      let write = writes.list[index]
      if index + Self.lookahead < writes.count {
        writer.keys.prefetch(writes.list[index + Self.lookahead].hash)
      }
      // An earlier write of the batch to the same key: its record is known only once it was stored.
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
