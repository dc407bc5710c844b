internal import Synchronization

/// Appends to the journal: prepare → encode → append → publish → index.
///
/// Everything here runs under the writers' mutex of `control`, taken by `lockWriters` or `acquireWriters`,
/// and then under the engine's lock.
final class WritePath: StorePart {
  let core: OpenStore
  // Those of `core`: reached through it, each would be retained and released by every put.
  let control: ControlPage
  let environment: Environment
  let readers: EpochProtected
  let changeSignal: ChangeSignal
  let segments: SegmentPreparer
  let compaction: CompactionSchedule
  private let throttle: WriteThrottle
  /// The thread whose transaction is under way in this instance; 0 if there is none.
  let transactionThread = Atomic<UInt>(0)
  /// Whether this instance has appended anything.
  private let written = Atomic(false)
  /// Values and deletes of users that this copy has issued through this instance. Written under the engine's
  /// lock.
  let puts = EventCounter()
  let deletes = EventCounter()

  init(_ core: OpenStore, segments: SegmentPreparer, compaction: CompactionSchedule) {
    (self.core, self.segments, self.compaction) = (core, segments, compaction)
    (control, environment) = (core.control, core.environment)
    (readers, changeSignal, throttle) = (core.readers, core.changeSignal, compaction.throttle)
  }

  var hasWritten: Bool { written.load(ordering: .relaxed) }

  /// Whether this thread is within a transaction of this store.
  var isInTransaction: Bool { transactionThread.load(ordering: .relaxed) == SystemCall.thread }

  // MARK: Append

  /// Builds and commits one atomic append, after a compaction that is overdue unless `pacing` is false. By
  /// default the entries determine what it may `claim` on a full disk. Returns the packed location after it.
  @discardableResult
  func append<Result>(
    limit: Int = Limits.transactionBytes, pacing: Bool = true, claim: SpaceClaim? = nil,
    _ compose: (inout TransactionBuilder) throws(StoreError) -> Result
  ) throws(StoreError) -> (Result, UInt64) {
    try checkWritable()
    if pacing { compaction.throttleWriter() }
    try lockWriters()
    defer { control.unlock() }
    var builder = newTransactionBuilder(limit: limit)
    let result = try compose(&builder)
    try core.engine.withLock { engine throws(StoreError) in try commit(builder, claim: claim, &engine) }
    return (result, control.tail)
  }

  /// Acquires the writers' mutex and replays what other processes have written. False if it is held and
  /// `waits` is false.
  @discardableResult
  func lockWriters(waits: Bool = true) throws(StoreError) -> Bool {
    guard try acquireWriters(waits: waits) else { return false }
    do throws(StoreError) {
      try core.engine.withLock { engine throws(StoreError) in try prepareToWrite(&engine) }
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
    return core.engine.withLock { $0.transactionBuilder(wall: wall, limit: limit) }
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
    try builder.issuePending { key in core.engine.withLock { $0.replaced(key.span) } }
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
    let isBulk = intake != nil && room >= SegmentPreparer.minBatchBytes
    var tail = Location(packed: control.tail)
    let before = tail.segment
    let durable = Location(packed: control.durable)
    guard var segment = engine.journal.segment(tail.segment) else {
      if control.isLost { throw poisonedError }
      throw StoreError(
        .damaged, "the segment at the tail is not mapped: open the store again", path: journalDirectory)
    }
    let actors = segment.actors.nextNumber + extent.actors.count
    let isFull = tail.offset + room > segment.limit(claim) || actors > Int(UInt16.max)
    if isFull || !segment.numbers(after: engine.position) {
      segment = try segments.begin(
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
    count(entries, of: engine)
  }

  /// Counts the writes of users among appended entries.
  private func count(_ entries: [JournalEntry], of engine: borrowing Engine) {
    for entry in entries {
      guard case .write(let record, position: _) = entry, !record.isReserved,
        engine.state.isMine(record.version.dot)
      else { continue }
      record.isTombstone ? deletes.add() : puts.add()
    }
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
    if !hasWritten { written.store(true, ordering: .relaxed) }
    throttle.spend(bytes.count)
    if control.hasWaiters { changeSignal.wake() }
    if engine.compaction.deadBytes >= engine.compaction.deadBytesReviewThreshold {
      compaction.consider(&engine)
    }
    if !isBulk { segments.prepareAhead(of: bytes.upperBound, in: segment, &engine) }
  }

  /// The record that a write of this append replaces, including earlier writes of it. A damaged record can be
  /// overwritten.
  func heldForWriting(_ key: [UInt8], in builder: borrowing TransactionBuilder) throws(StoreError)
    -> ReplacedRecord?
  {
    if let record = builder.record(of: key) { return record.replaced }
    return core.engine.withLock { engine in engine.replaced(key.span) }
  }

  /// `reading` while the index cannot change, if possible: under the writers' mutex in shared mode. `isAlone`
  /// tells `body` whether that holds.
  func readingExclusively<Result>(
    _ body: (inout Engine, _ isAlone: Bool) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    guard isWritable, configuration.mode == .shared, !control.poisoned else {
      return try reading { engine throws(StoreError) in
        try body(&engine, isWritable || !engine.index.isShared)
      }
    }
    try lockWriters()
    defer { control.unlock() }
    return try reading { engine throws(StoreError) in try body(&engine, true) }
  }

  /// Runs `first`, then writes the records encoded in `range`. On failure the range is zeroed: otherwise its
  /// records would be taken for valid ones once new records end where they begin. If zeroing fails, too, or
  /// the error is not a full disk, the store is poisoned (rule R4).
  func flush(
    _ range: Range<Int>, of segment: Segment, _ first: (Segment) throws(StoreError) -> Void
  ) throws(StoreError) {
    do throws(StoreError) {
      try first(segment)
      try segment.flush(range)
    } catch {
      segment.undoEncryption(from: range.lowerBound)
      do throws(StoreError) { try segment.blank(range) } catch {
        control.setPoisoned()
        throw poisonedError(by: error, segment.file.path)
      }
      guard error.code == .diskFull else {
        control.setPoisoned()
        throw poisonedError(by: error, segment.file.path)
      }
      throw error
    }
  }

  /// Checks that stored bytes are in the segment's file. Otherwise it poisons the store and fails (rule R4).
  @inline(__always)
  func checkStored(in segment: Segment) throws(StoreError) {
    if segment.mapping.fault != nil || control.isLost { throw poisonBecause(of: segment) }
  }

  @inline(never)
  private func poisonBecause(of segment: Segment) -> StoreError {
    control.setPoisoned()
    guard let error = segment.faultError else { return poisonedError }
    return poisonedError(by: error)
  }

  // MARK: The writers' mutex

  /// Throws `.busy` within a transaction of this thread: the operation would wait for others, which wait for
  /// the transaction.
  func checkNotWriting(_ what: String) throws(StoreError) {
    let acquisition = control.lock(waits: false)
    switch acquisition {
    case .heldByOther: return
    case .clean, .ownerDied:
      defer { control.unlock() }
      if case .ownerDied = acquisition { try recoverDeadWriterOrPoison() }
    case .alreadyHeld:
      throw StoreError(.busy, "a transaction of this thread is under way: \(what) after it", path: path)
    }
  }

  /// Closes the store under the writers' mutex. Writers that waited for it are refused: otherwise they could
  /// write when another process has the directory.
  func endWriting() {
    let acquisition = control.lock()
    if case .ownerDied = acquisition { try? recoverDeadWriterOrPoison() }
    core.closed.store(true, ordering: .releasing)
    control.unlock()
  }

  /// `recoverDeadWriter`, which poisons the store if it fails. The caller holds the writers' mutex.
  func recoverDeadWriterOrPoison() throws(StoreError) {
    do throws(StoreError) {
      try core.engine.withLock { engine throws(StoreError) in try recoverDeadWriter(&engine) }
    } catch {
      control.setPoisoned()
      throw error
    }
  }

  /// Recovers from the death of a writer: replays the records that it stored whole, blanks the rest (F2,
  /// F13). The caller holds the writers' mutex.
  func recoverDeadWriter(_ engine: inout Engine) throws(StoreError) {
    try engine.changeSharedIndex { engine throws(StoreError) in
      try engine.index.beginWriting()
      _ = try engine.index.hashIndex.recoverIntent()
    }
    try catchUp(&engine)
    var tail = Location(packed: control.tail)
    if engine.journal.isNamed(tail.segment + 1) {
      // The writer may have died before it made the name durable.
      try environment.storage.syncDirectory(journalDirectory)
      try engine.journal.extend(to: tail.segment + 1)
      tail = Location(segment: tail.segment + 1, offset: SegmentHeader.length)
    }
    guard let segment = engine.journal.segment(tail.segment) else { return }
    let writing = Location(packed: control.writing)
    let limit = writing.segment == tail.segment ? max(writing.offset, tail.offset) : segment.mapping.count
    let end = engine.journal.endOfUnpublished(from: tail.offset, to: limit, in: segment)
    if let last = segment.mapping.lastNonZero(end..<max(end, limit)) {
      try segment.blank(end..<(last + 1))
    }
    control.tail = Location(segment: tail.segment, offset: end).packed
    try catchUp(&engine)
    try engine.changeSharedIndex { engine throws(StoreError) in try engine.catchUpIndex() }
  }
}
