private import Synchronization

/// Beginning a segment at the tail, and preparing the next one concurrently with the writer (rule R1).
///
/// Called under the writers' mutex, except for the background work: that touches only mapped memory beyond
/// the tail, and the prepared segment under its own lock.
final class SegmentPreparer: StorePart {
  let core: OpenStore
  let control: ControlPage
  /// The number of the segment whose successor is being prepared or was prepared.
  private let prepared = Atomic<UInt32>(0)
  /// The prepared segment, once it is ready.
  let ready = LockedField<Journal.PreparedSegment?>(nil)

  init(_ core: OpenStore) { (self.core, control) = (core, core.control) }

  /// Batches of at least this many bytes are assembled in memory and written to the file in one go. That
  /// creates the pages; stores would fault on each missing page, and prefilled zeros would be written in vain
  /// (decision 43).
  static let minBatchBytes = 64 << 10

  /// Begins a segment, which closes the one at the tail. The caller holds the writers' mutex.
  func begin(
    after tail: Location, room: Int, claim: SpaceClaim = .ordinary, isBulk: Bool = false,
    _ engine: inout Engine
  ) throws(StoreError) -> Segment {
    try syncHeader(of: tail.segment, engine)
    if let last = engine.journal.segments.last { try checkHasName(last) }
    let durable = Location(packed: control.durable)
    let prepared = ready.withLock { exchange(&$0, with: nil) }
    engine.journal.prepared = prepared
    do throws(StoreError) {
      try engine.journal.begin(
        after: tail.offset, durable: durable.segment == tail.segment ? durable.offset : SegmentHeader.length,
        position: engine.position, room: room, claim: claim, isPostponed: true)
    } catch {
      // The new segment exists and states where this one ends: records appended here now would be lost (rule
      // R4).
      if engine.journal.isNamed(tail.segment + 1) { control.setPoisoned() }
      if error.code == .diskFull {
        throw StoreError(
          .diskFull, "\(error.message) (the store is unharmed, reading goes on)", path: error.path,
          errno: error.errno)
      }
      throw error
    }
    let segment = engine.journal.segments[engine.journal.segments.count - 1]
    guard environment.preallocatesSegments else { return segment }
    let isReady = segment.mapping === prepared?.mapping
    engine.batchBuffer =
      isBulk ? Engine.BatchBuffer(buffer: engine.batchBuffer?.buffer, tailIsBlank: !isReady) : nil
    if !isReady, !isBulk, configuration.durability == .relaxed {
      if Self.hasLargeRecords(after: tail, in: engine) {
        segment.mapping.adviseNormal()
      } else {
        populate(segment)
      }
    }
    Background.run { [owner = core.owner] in
      // A failure poisons the store: the next writer gets the error.
      try? owner.store?.writes.segments.syncHeader(of: segment)
    }
    return segment
  }

  /// Whether the records of the tail segment averaged more than a page each.
  ///
  /// Then a writer that has outrun segment preparation faults for each record. Normal read-ahead, whose
  /// faults map neighbouring pages, takes a third of the time; the writer waits for them once in hundreds of
  /// records.
  private static func hasLargeRecords(after tail: Location, in engine: borrowing Engine) -> Bool {
    guard let segment = engine.journal.segment(tail.segment) else { return false }
    return UInt64(tail.offset) / max(engine.position - segment.header.basePosition, 1) > 4096
  }

  /// Makes the header and the name of a segment durable. The caller holds the writers' mutex.
  func syncHeader(of number: UInt32, _ engine: borrowing Engine) throws(StoreError) {
    guard control.lastDurableSegment < UInt64(number), let segment = engine.journal.segment(number) else {
      return
    }
    try syncHeader(of: segment)
  }

  private func syncHeader(of segment: Segment) throws(StoreError) {
    do throws(StoreError) { try segment.file.sync(0..<SegmentHeader.length, of: segment.mapping) } catch {
      control.setPoisoned()
      throw error
    }
    // If no descriptor is left, this is retried by the next sync, and before the segment after this one.
    try syncNames()
    control.raiseLastDurableSegment(to: segment.number)
  }

  /// The next segment is prepared when an eighth of the current one is full, or this many bytes. Preparing 64
  /// MiB takes a third of the time in which one writer fills them, and all of it when a compaction and the
  /// disk need the processors, too.
  private static let minBytesBeforePreparing = 1 << 20

  /// Prepares what the writer needs next, once it has reached `end`.
  @inline(__always)
  func prepareAhead(of end: Int, in segment: Segment, _ engine: inout Engine) {
    if engine.batchBuffer != nil { endBatchRun(in: segment, &engine) }
    if end > min(segment.mapping.count / 8, Self.minBytesBeforePreparing),
      prepared.load(ordering: .relaxed) != segment.number
    {
      prepareSegment(
        after: segment.number, size: engine.journal.sizeOfNext(room: 0), engine.journal.reserve)
    }
  }

  @inline(never)
  private func endBatchRun(in segment: Segment, _ engine: inout Engine) {
    if engine.batchBuffer?.tailIsBlank == true { prefill(segment) }
    engine.batchBuffer = nil
  }

  /// Prepares the segment after `number` in the background, once; again after a failure.
  func prepareSegment(after number: UInt32, size: Int, _ reserve: SpaceReserve) {
    guard prepared.exchange(number, ordering: .relaxed) != number, environment.preallocatesSegments else {
      return
    }
    let isDurable = configuration.durability != .relaxed
    Background.prepare { [owner = core.owner, journalDirectory, storage = environment.storage] in
      do throws(StoreError) {
        // Otherwise the files could be created in another store's directory. The writer meets the same
        // condition and reports it.
        guard try owner.store?.holdsStore ?? false else { return }
        // First: the writer begins no segment for which the reserve is too small.
        try reserve.restore(next: size)
        let ready = try Journal.prepare(
          directory: journalDirectory, size: size, storage: storage, isDurable: isDurable)
        guard let ready else { return }
        owner.store?.writes.segments.ready.withLock { $0 = ready }
        guard !isDurable, let store = owner.store else { return }
        // Its first pages are ready long before the tail reaches it, and the others before the tail reaches
        // those.
        Journal.populate(ready.mapping) { _ in !store.core.closed.load(ordering: .relaxed) }
      } catch {
        // Without it the writer makes the segment itself, and reports the error if it persists.
        owner.store?.writes.segments.prepared.store(0, ordering: .relaxed)
      }
    }
  }

  /// Populates the rest of a segment that batches have filled so far, for single records, and writes its
  /// zeros to the disk: otherwise a sync would have to allocate the file's blocks for each record's page.
  private func prefill(_ segment: Segment) {
    guard configuration.durability != .relaxed else { return populate(segment) }
    Background.populate { [owner = core.owner] in
      Journal.populate(segment.mapping, Journal.writtenBackAtOnce) { start in
        owner.store?.writes.segments.isAhead(start, in: segment) ?? false
      } then: {
        // Errors are ignored: a later sync does the work, or fails.
        try? segment.file.writeBack($0)
      }
    }
  }

  /// Populates a segment that was not prepared, concurrently with the writer that fills it.
  private func populate(_ segment: Segment) {
    Background.populate { [owner = core.owner] in
      Journal.populate(segment.mapping) { start in
        owner.store?.writes.segments.isAhead(start, in: segment) ?? false
      }
    }
  }

  /// Whether the offset is still ahead of the writer.
  private func isAhead(_ start: Int, in segment: Segment) -> Bool {
    guard !core.closed.load(ordering: .relaxed) else { return false }
    let tail = Location(packed: control.tail)
    return tail.segment == segment.number && tail.offset < start
  }
}

extension Engine {
  /// State kept between large batches.
  struct BatchBuffer {
    /// The memory in which batches are assembled.
    var buffer: Mapping?
    /// Whether the rest of the tail segment was not prepared for single records.
    var tailIsBlank = false
  }

  /// Memory for assembling a batch of `bytes` bytes, kept for the next one; nil if none is available.
  mutating func batchBuffer(_ bytes: Int) -> Mapping? {
    if let room = batchBuffer?.buffer, room.count >= bytes { return room }
    let room = try? Mapping.blank(max(bytes, 2 << 20))
    batchBuffer = BatchBuffer(buffer: room, tailIsBlank: batchBuffer?.tailIsBlank ?? false)
    return room
  }
}
