private import Synchronization

/// How the segment at the tail comes to be, and the next one is made ready beside the writer (rule R1).
extension Store {
  /// An append of a batch of so many bytes is put together in memory and written to the file at once: that makes its pages, where each store
  /// into one that is not there yet would be a fault, and zeros written there before would be written in vain (decision 43).
  static let minBatchBytes = 64 << 10

  /// Begins a segment, which ends the one at the tail. The caller holds the writers' mutex.
  func beginSegment(
    after tail: Location, room: Int, claim: SpaceClaim = .ordinary, isBulk: Bool = false,
    _ engine: inout Engine
  ) throws(StoreError) -> Segment {
    try syncSegmentHeader(of: tail.segment, engine)
    if let last = engine.journal.segments.last { try checkHasName(last) }
    let durable = Location(packed: control.durable)
    let ready = preparedSegment.withLock { exchange(&$0, with: nil) }
    engine.journal.prepared = ready
    do throws(StoreError) {
      try engine.journal.begin(
        after: tail.offset, durable: durable.segment == tail.segment ? durable.offset : SegmentHeader.length,
        position: engine.position, room: room, claim: claim, isPostponed: true)
    } catch {
      // The new segment is there and says where this one ends: what is appended here now would be lost (rule R4).
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
    let isReady = segment.mapping === ready?.mapping
    engine.batchBuffer =
      isBulk ? Engine.BatchBuffer(buffer: engine.batchBuffer?.buffer, tailIsBlank: !isReady) : nil
    if !isReady, !isBulk, configuration.durability == .relaxed {
      if Self.hasLargeRecords(behind: tail, in: engine) {
        segment.mapping.adviseNormal()
      } else {
        populate(segment)
      }
    }
    Background.run { [weak self] in
      // A failure poisons the store: whoever writes next is told.
      try? self?.syncSegmentHeader(of: segment)
    }
    return segment
  }

  /// Had the records of the segment at the tail more than a page each? Then a writer that has left behind whoever makes segments ready finds
  /// pages for each record, and pages that bring others take a third of the time; it waits for those others once in hundreds of records.
  private static func hasLargeRecords(behind tail: Location, in engine: borrowing Engine) -> Bool {
    guard let segment = engine.journal.segment(tail.segment) else { return false }
    return UInt64(tail.offset) / max(engine.position - segment.header.basePosition, 1) > 4096
  }

  /// Sees to it that the beginning and the name of a segment are durable. The caller holds the writers' mutex.
  func syncSegmentHeader(of number: UInt32, _ engine: borrowing Engine) throws(StoreError) {
    guard control.lastDurableSegment < UInt64(number), let segment = engine.journal.segment(number) else {
      return
    }
    try syncSegmentHeader(of: segment)
  }

  private func syncSegmentHeader(of segment: Segment) throws(StoreError) {
    do throws(StoreError) { try segment.file.sync(0..<SegmentHeader.length, of: segment.mapping) } catch {
      control.setPoisoned()
      throw error
    }
    // Where no descriptor is left it is tried again: by the next sync, and before the segment after this one.
    try syncNames()
    control.raiseLastDurableSegment(to: segment.number)
  }

  /// The next segment is made ready when an eighth of one is full, or so many bytes: to make 64 MiB ready takes a third of the time in which
  /// one writer fills them, and all of it where a compaction and the disk need the processors too.
  private static let minBytesBeforePreparing = 1 << 20

  /// Sees to what the writer needs next, once it has come to `end`.
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

  /// Has the segment after `number` made ready in the background, once; if that fails, again.
  func prepareSegment(after number: UInt32, size: Int, _ reserve: SpaceReserve) {
    guard prepared.exchange(number, ordering: .relaxed) != number, environment.preallocatesSegments else {
      return
    }
    let isDurable = configuration.durability != .relaxed
    Background.prepare { [weak self, journalDirectory, storage = environment.storage] in
      do throws(StoreError) {
        // Otherwise these files would lie among those of another store. The writer finds the same, and says so.
        guard try self?.holdsStore ?? false else { return }
        // First: the writer begins no segment for which the reserve is too small.
        try reserve.restore(next: size)
        let ready = try Journal.prepare(
          directory: journalDirectory, size: size, storage: storage, isDurable: isDurable)
        guard let ready else { return }
        self?.preparedSegment.withLock { $0 = ready }
        guard !isDurable, let self else { return }
        // Its first pages are ready long before the tail reaches it, and the others before the tail reaches those.
        Journal.populate(ready.mapping) { _ in !self.closed.load(ordering: .relaxed) }
      } catch {
        // Without it the writer makes the segment itself, and meets the same error there if it lasts.
        self?.prepared.store(0, ordering: .relaxed)
      }
    }
  }

  /// What is left of a segment that batches have filled so far is for single records now: finds memory for it, and puts its zeros on
  /// the disk, so that a sync need not make blocks of a record's page the file's first.
  private func prefill(_ segment: Segment) {
    guard configuration.durability != .relaxed else { return populate(segment) }
    Background.populate { [weak self] in
      Journal.populate(segment.mapping, Journal.writtenBackAtOnce) { start in
        self?.isAhead(start, in: segment) ?? false
      } then: {
        // A sync will do it, or fail.
        try? segment.file.writeBack($0)
      }
    }
  }

  /// Finds memory for a segment that nobody had made ready, beside the writer that fills it.
  private func populate(_ segment: Segment) {
    Background.populate { [weak self] in
      Journal.populate(segment.mapping) { start in self?.isAhead(start, in: segment) ?? false }
    }
  }

  /// Is that place one that the writer is still to come to?
  private func isAhead(_ start: Int, in segment: Segment) -> Bool {
    guard !closed.load(ordering: .relaxed) else { return false }
    let tail = Location(packed: control.tail)
    return tail.segment == segment.number && tail.offset < start
  }
}

extension Engine {
  /// What is kept between large batches.
  struct BatchBuffer {
    /// Where they are put together.
    var buffer: Mapping?
    /// Did nobody make the rest of the segment at the tail ready for single records?
    var tailIsBlank = false
  }

  /// Memory in which a batch of so many bytes can be put together, kept for the next one; nil if there is none to be had.
  mutating func batchBuffer(_ bytes: Int) -> Mapping? {
    if let room = batchBuffer?.buffer, room.count >= bytes { return room }
    let room = try? Mapping.blank(max(bytes, 2 << 20))
    batchBuffer = BatchBuffer(buffer: room, tailIsBlank: batchBuffer?.tailIsBlank ?? false)
    return room
  }
}
