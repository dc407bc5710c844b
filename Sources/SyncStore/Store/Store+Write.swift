private import Synchronization

/// The write path of a put: writers' mutex, rules (`TransactionBuilder`), one append, then durability as
/// configured.
extension Store {
  /// Sets a key. Values above the configured threshold go to the blob tier.
  ///
  /// - Parameters:
  ///   - type: stored with the value.
  ///   - expiration: when it expires; nil is the default of the configuration.
  ///   - durability: for this write; by default the store's.
  /// - Throws: `.diskFull`: nothing was changed; `.readOnly`; `.poisoned` once a sync has failed;
  ///   `.outOfBounds` above `Limits.blobBytes`, and for a key that is not in the scope of this copy; `.busy`
  ///   within a transaction of this thread: write through that; `.clock` where no stamp can follow;
  ///   `.closed`, `.forked`.
  public func put(
    _ key: Key, _ value: [UInt8], type: ValueType = .bytes, expiration: Expiration? = nil,
    durability: Durability? = nil
  ) throws(StoreError) {
    try put(key, value.span, type: type, expiration: expiration, durability: durability)
  }

  /// Sets a key to bytes without copying them first.
  ///
  /// - Parameters:
  ///   - type: stored with the value.
  ///   - expiration: when it expires; nil is the default of the configuration.
  ///   - durability: for this write; by default the store's.
  /// - Throws: as the put of an array.
  public func put(
    _ key: Key, _ value: Span<UInt8>, type: ValueType = .bytes, expiration: Expiration? = nil,
    durability: Durability? = nil
  ) throws(StoreError) {
    try checkWritable()
    guard value.count <= configuration.blobThreshold else {
      return try write(
        key, content: try content(of: Array(copying: value)), type: type,
        deadline: self.deadline(for: expiration),
        durability: durability)
    }
    if let tail = try putInline(key.bytes, value: value, type: type, deadline: self.deadline(for: expiration))
    {
      try awaitDurability(tail, durability: durability)
    }
  }

  /// Sets a key to the content of a file, which is streamed if it is larger than the threshold. Follows a
  /// symbolic link.
  ///
  /// - Throws: as the put of bytes; `.foreignFile` if it is no file; `.inputOutput` if it cannot be read.
  public func put(
    _ key: Key, fileAt file: String, type: ValueType = .bytes, expiration: Expiration? = nil,
    durability: Durability? = nil
  ) throws(StoreError) {
    try checkWritable()
    try write(
      key, content: try content(ofFile: file), type: type, deadline: self.deadline(for: expiration),
      durability: durability)
  }

  /// Performs several writes atomically: after a crash all of them are found, or none. An error thrown by
  /// `body` rolls them back. No other thread or process can write until it returns, so what `body` reads
  /// stays current until it returns. **Only the transaction may be used to write within `body`.**
  ///
  /// - Throws: what `body` throws; as `put`; `.outOfBounds` above `Limits.transactionBytes`. Nothing was
  ///   written then, unless it is `.poisoned`.
  public func transaction<Result>(
    durability: Durability? = nil, _ body: (inout Transaction) throws -> Result
  ) throws -> Result {
    try checkWritable()
    throttleWriter()
    try lockWriters()
    var result: Result
    do {
      transactionThread.store(SystemCall.thread, ordering: .relaxed)
      defer {
        transactionThread.store(0, ordering: .relaxed)
        control.unlock()
      }
      var transaction = Transaction(
        store: self, builder: newTransactionBuilder(limit: Limits.transactionBytes))
      result = try body(&transaction)
      try commit(&transaction)
    }
    try awaitDurability(control.tail, durability: durability)
    return result
  }

  func write(
    _ key: Key, content: Record.Content, type: ValueType, deadline: UInt64?, durability: Durability?
  ) throws(StoreError) {
    let (_, tail) = try append { builder throws(StoreError) in
      try self.retainBlob(of: content)
      let held = try self.heldForWriting(key.bytes, in: builder)
      try builder.issue(key: key.bytes, content: content, type: type, deadline: deadline, held: held)
    }
    try awaitDurability(tail, durability: durability)
  }

  /// The record that a write of this append replaces, including earlier writes of it. A damaged record can be
  /// overwritten.
  func heldForWriting(_ key: [UInt8], in builder: borrowing TransactionBuilder) throws(StoreError)
    -> ReplacedRecord?
  {
    if let record = builder.record(of: key) { return record.replaced }
    return engine.withLock { engine in engine.replaced(key.span) }
  }

  /// Stores a value inline or as a blob. A packed blob becomes durable with others just before the journal
  /// does (`syncBlobs`); a large one before its record is appended, in every mode. A transaction puts
  /// `deferring` blobs and makes them durable together.
  func content(of value: [UInt8], deferring: Bool = false) throws(StoreError) -> Record.Content {
    if value.count <= configuration.blobThreshold { return .inline(value) }
    try checkMayWrite()
    let isPacked = try blobs.packs.settings.takes(value.count)
    let reference = try blobs.put(bytes: value, durable: !deferring && !isPacked)
    if isPacked { control.recordBlobPut() }
    return .blob(reference)
  }

  func content(ofFile file: String, deferring: Bool = false) throws(StoreError) -> Record.Content {
    try checkMayWrite()
    let storage = environment.storage.unanchored
    let (file, status) = try storage.fileToRead(file, "a file that can be read")
    if status.size <= configuration.blobThreshold {
      // Read one byte more than its size, to notice a file that grows concurrently.
      let bytes = try storage.open(file, .readOnly).read(status.size + 1, at: 0)
      if bytes.count <= configuration.blobThreshold { return .inline(bytes) }
    }
    // The size of the file may have changed since it was opened.
    let blobs = try blobs
    let isPacked = blobs.packs.settings.takes(status.size)
    let reference = try blobs.put(fileAt: file, durable: !deferring && !isPacked)
    if isPacked, !blobs.packs.settings.takes(Int(reference.size)) { try blobs.makeDurable([reference]) }
    control.recordBlobPut()
    return .blob(reference)
  }

  // MARK: Append

  /// Builds and commits one atomic append, after a compaction that is overdue unless `pacing` is false. By
  /// default the entries determine what it may `claim` on a full disk. Returns the packed location after it.
  @discardableResult
  func append<Result>(
    limit: Int = Limits.transactionBytes, pacing: Bool = true, claim: SpaceClaim? = nil,
    _ compose: (inout TransactionBuilder) throws(StoreError) -> Result
  ) throws(StoreError) -> (Result, UInt64) {
    try checkWritable()
    if pacing { throttleWriter() }
    try lockWriters()
    defer { control.unlock() }
    var builder = newTransactionBuilder(limit: limit)
    let result = try compose(&builder)
    try engine.withLock { engine throws(StoreError) in try commit(builder, claim: claim, &engine) }
    return (result, control.tail)
  }

  /// Acquires the writers' mutex and replays what other processes have written. False if it is held and
  /// `waits` is false.
  @discardableResult
  func lockWriters(waits: Bool = true) throws(StoreError) -> Bool {
    guard try acquireWriters(waits: waits) else { return false }
    do throws(StoreError) {
      try engine.withLock { engine throws(StoreError) in try prepareToWrite(&engine) }
    } catch {
      control.unlock()
      throw error
    }
    return true
  }

  /// Replays other processes' writes and applies parked records that have come due, if there is room for what
  /// follows from it. The caller holds the mutex.
  func prepareToWrite(_ engine: inout Engine) throws(StoreError) {
    try catchUp(&engine)
    try engine.changeSharedIndex { engine throws(StoreError) in
      try engine.index.beginWriting()
      if try engine.isIndexBehind { try engine.catchUpIndex() }
      // Another process may have assigned a segment its slot after this one looked.
      if engine.journal.lacksSlots { engine.assignSlots(mayAdd: true) }
    }
    if !engine.parked.isEmpty { try applyDueParked(&engine) }
  }

  /// Acquires the writers' mutex unless the store cannot be written. False if it is held and `waits` is
  /// false.
  @inline(__always)
  @discardableResult
  func acquireWriters(waits: Bool = true) throws(StoreError) -> Bool {
    let acquisition = control.lock(waits: waits)
    if case .heldByOther = acquisition { return false }
    if case .alreadyHeld = acquisition {
      throw StoreError(
        .busy, "a transaction of this thread is under way: write through the transaction instead", path: path)
    }
    do throws(StoreError) {
      if case .ownerDied = acquisition { try recoverDeadWriterOrPoison() }
      // The store may have been closed while this thread waited.
      try checkOpen()
      guard !control.poisoned else { throw poisonedError }
    } catch {
      control.unlock()
      throw error
    }
    return true
  }

  func newTransactionBuilder(limit: Int) -> TransactionBuilder {
    let wall = environment.now()
    return engine.withLock { $0.transactionBuilder(wall: wall, limit: limit) }
  }

  /// Appends the builder's records as one transaction and publishes them. The caller holds the writers'
  /// mutex.
  func commit(
    _ builder: borrowing TransactionBuilder, claim: SpaceClaim? = nil, _ engine: inout Engine
  ) throws(StoreError) {
    guard builder.pending.count > 0 else {
      return try commit(builder.entries, extent: builder.extent, claim: claim, wall: builder.wall, &engine)
    }
    if builder.entries.isEmpty, try commitFastPath(builder.pending, wall: builder.wall, &engine) {
      return
    }
    var settled = copy builder
    try settled.issuePending { engine.replaced($0.span) }
    try commit(settled.entries, extent: settled.extent, claim: claim, wall: settled.wall, &engine)
  }

  /// Looks up what the pending writes of an append replace, so that they can be read.
  func issuePending(_ builder: inout TransactionBuilder) throws(StoreError) {
    guard builder.pending.count > 0 else { return }
    try builder.issuePending { key in engine.withLock { $0.replaced(key.span) } }
  }

  /// Appends the records of a bulk insert, if given, and then `entries`, as one transaction, and publishes
  /// them. The caller holds the writers' mutex.
  func commit(
    _ entries: [JournalEntry], extent: AppendExtent, after intake: PreparedBulkInsert? = nil,
    claim: SpaceClaim? = nil, wall: UInt64, _ engine: inout Engine
  ) throws(StoreError) {
    guard !entries.isEmpty || intake != nil else { return }
    let reclaims = intake == nil && entries.allSatisfy(\.mayUseReserve)
    let claim = claim ?? (reclaims ? .reclaiming : .ordinary)
    let room = extent.bytes + (journalKeys.isEncrypted ? extent.encryptionBytes : 0)
    let isBulk = intake != nil && room >= Self.minBatchBytes
    var tail = Location(packed: control.tail)
    let before = tail.segment
    let durable = Location(packed: control.durable)
    guard var segment = engine.journal.segment(tail.segment) else {
      if control.isLost { throw poisonedError }
      throw StoreError(
        .damaged, "the segment at the tail is not mapped: open the store again", path: journalDirectory)
    }
    let actors = segment.nextNumber + extent.actors.count
    let isFull = tail.offset + room > segment.limit(claim) || actors > Int(UInt16.max)
    if isFull || !segment.numbers(after: engine.position) {
      segment = try beginSegment(
        after: tail, room: room, claim: claim, isBulk: isBulk, &engine)
      // One more segment is closed.
      engine.compaction.deadBytesReviewThreshold = 0
      if !segment.header.isReserve { restoreReserve(engine) }
      tail = Location(segment: segment.number, offset: SegmentHeader.length)
    }
    var encoder = RecordEncoder(
      segment: segment, start: tail.offset, durable: durable.segment == tail.segment ? durable.offset : 0,
      position: engine.position)
    control.announceWrite(upTo: Location(segment: tail.segment, offset: tail.offset + room).packed)
    var intake = intake
    let bulk = isBulk && !segment.usesPwrite ? engine.batchBuffer(room) : nil
    if let batch = intake?.batch {
      let (start, ends) = encoder.encode(batch, continues: !entries.isEmpty, into: bulk)
      intake?.stored(from: start, to: ends)
    }
    encoder.encode(entries, actors: extent.actors)
    do throws(StoreError) {
      if segment.usesPwrite || bulk != nil {
        try flush(tail.offset..<encoder.end, of: segment) { segment throws(StoreError) in
          guard let bulk, let intake else { return }
          try segment.file.write(0..<intake.bytes, of: bulk, at: intake.start)
          // Start writeback now: the sender of a batch waits for its durability.
          segment.file.startWriteback()
        }
      }
      try checkStored(in: segment)
    } catch {
      // A segment that was begun records where the one before it ends, so publish it even if nothing fits
      // into it.
      if tail.segment != before, !control.poisoned { publish(tail.offset, in: segment, wall: wall, &engine) }
      throw error
    }
    publish(encoder.end, in: segment, bringing: intake, isBulk: isBulk, wall: wall, &engine)
  }

  /// Moves the tail past the bytes stored up to `end`, a bulk insert among them if given, and replays them
  /// into the index.
  func publish(
    _ end: Int, in segment: Segment, bringing intake: PreparedBulkInsert? = nil, isBulk: Bool = false,
    wall: UInt64,
    _ engine: inout Engine
  ) {
    let tail = Location(segment: segment.number, offset: end)
    let start = engine.applied.segment == tail.segment ? engine.applied.offset : SegmentHeader.length
    control.tail = tail.packed
    engine.applyOwnAppend(own: tail, bringing: intake, wall: wall)
    recordPublished(start..<end, in: segment, isBulk: isBulk, &engine)
  }

  /// Bookkeeping after an append was replayed: throttle, change notification, compaction review, next
  /// segment.
  @inline(__always)
  func recordPublished(
    _ bytes: Range<Int>, in segment: Segment, isBulk: Bool = false, _ engine: inout Engine
  ) {
    control.position = engine.position
    recordWrite()
    writeThrottle.spend(bytes.count)
    signalChange()
    if engine.compaction.deadBytes >= engine.compaction.deadBytesReviewThreshold { considerCompaction(&engine) }
    if !isBulk { prepareAhead(of: bytes.upperBound, in: segment, &engine) }
  }
}

extension Record {
  /// Whether it has a value at this time, in milliseconds since 1970.
  func isLive(at time: UInt64) -> Bool { !isTombstone && (deadline.map { $0 > time } ?? true) }
}
