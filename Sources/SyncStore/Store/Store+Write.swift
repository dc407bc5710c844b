private import Synchronization

/// How a put works: the writers' mutex, the rules (`Composer`), one append, then durability as the mode has it.
extension Store {
  /// Sets a key. Values above the configured threshold go to the blob tier.
  ///
  /// - Parameters:
  ///   - type: stored with the value.
  ///   - deadline: when it expires, in milliseconds since 1970.
  ///   - durability: for this write; by default the store's.
  /// - Throws: `.diskFull`: nothing was changed; `.readOnly`; `.poisoned` once a sync has failed;
  ///   `.outOfBounds` above `Limits.blobBytes`, and for a key that is not in the scope of this copy; `.busy`
  ///   within a transaction of this thread: write through that; `.clock` where no stamp can follow;
  ///   `.closed`, `.forked`.
  public func put(
    _ key: Key, _ value: [UInt8], type: ValueType = .bytes, expires deadline: UInt64? = nil,
    durability: Durability? = nil
  ) throws(StoreError) {
    try put(key, value.span, type: type, expires: deadline, durability: durability)
  }

  /// Sets a key to bytes that the caller keeps.
  ///
  /// - Parameters:
  ///   - type: stored with the value.
  ///   - deadline: when it expires, in milliseconds since 1970.
  ///   - durability: for this write; by default the store's.
  /// - Throws: as the put of an array.
  public func put(
    _ key: Key, _ value: Span<UInt8>, type: ValueType = .bytes, expires deadline: UInt64? = nil,
    durability: Durability? = nil
  ) throws(StoreError) {
    try checkWritable()
    guard value.count <= configuration.blobThreshold else {
      return try write(
        key, try content(of: Array(copying: value)), type, self.deadline(deadline), durability)
    }
    if let tail = try putInline(key.bytes, value, type, self.deadline(deadline)) {
      try settle(tail, durability)
    }
  }

  /// Sets a key to the content of a file, which is streamed if it is above the threshold. A symbolic link is followed.
  ///
  /// - Throws: as the put of bytes; `.foreignFile` if it is no file; `.inputOutput` if it cannot be read.
  public func put(
    _ key: Key, fileAt file: String, type: ValueType = .bytes, expires deadline: UInt64? = nil,
    durability: Durability? = nil
  ) throws(StoreError) {
    try checkWritable()
    try write(key, try content(ofFile: file), type, self.deadline(deadline), durability)
  }

  /// Does several writes at once: all of them are found again, or none. What `body` throws undoes it. Nobody else writes
  /// meanwhile, so what `body` reads stays true until it returns; only the transaction may be used in it to write.
  ///
  /// - Throws: what `body` throws; as `put`; `.outOfBounds` above `Limits.transactionBytes`. Nothing was
  ///   written then, unless it is `.poisoned`.
  public func transaction<Result>(
    durability: Durability? = nil, _ body: (inout Transaction) throws -> Result
  ) throws -> Result {
    try checkWritable()
    waitForCompaction()
    try lockWriters()
    var result: Result
    do {
      transactionThread.store(SystemCall.thread, ordering: .relaxed)
      defer {
        transactionThread.store(0, ordering: .relaxed)
        control.unlock()
      }
      var transaction = Transaction(
        store: self, composer: freshComposer(limit: Limits.transactionBytes))
      result = try body(&transaction)
      try commit(&transaction)
    }
    try settle(control.tail, durability)
    return result
  }

  func write(
    _ key: Key, _ content: Record.Content, _ type: ValueType, _ deadline: UInt64?, _ durability: Durability?
  ) throws(StoreError) {
    let (_, tail) = try append { composer throws(StoreError) in
      try self.countOnBlob(of: content)
      let held = try self.heldForWriting(key.bytes, composer)
      try composer.issue(key: key.bytes, content: content, type: type, deadline: deadline, held: held)
    }
    try settle(tail, durability)
  }

  /// What is held of a key, as far as this append has not replaced it. A damaged record can be overwritten.
  func heldForWriting(_ key: [UInt8], _ composer: borrowing Composer) throws(StoreError) -> Replaced? {
    if let record = composer.record(of: key) { return record.replaced }
    return engine.withLock { engine in engine.replaced(key.span) }
  }

  /// Where a value is to lie. A small blob becomes durable before the journal does, with the others (`syncBlobs`); a large
  /// one is durable before its record is appended, whatever the mode. A transaction puts `deferring` blobs and makes them
  /// durable together.
  func content(of value: [UInt8], deferring: Bool = false) throws(StoreError) -> Record.Content {
    if value.count <= configuration.blobThreshold { return .inline(value) }
    let isPacked = try blobs.packs.settings.takes(value.count)
    let reference = try blobs.put(bytes: value, durable: !deferring && !isPacked)
    if isPacked { control.noteBlob() }
    return .blob(reference)
  }

  func content(ofFile file: String, deferring: Bool = false) throws(StoreError) -> Record.Content {
    let (file, status) = try environment.storage.fileToRead(file, "a file that can be read")
    if status.size <= configuration.blobThreshold {
      // One byte more than it had: a file that grows meanwhile is noticed.
      let bytes = try environment.storage.open(file, .readOnly).read(status.size + 1, at: 0)
      if bytes.count <= configuration.blobThreshold { return .inline(bytes) }
    }
    // It may be another size by now.
    let blobs = try blobs
    let isPacked = blobs.packs.settings.takes(status.size)
    let reference = try blobs.put(fileAt: file, durable: !deferring && !isPacked)
    if isPacked, !blobs.packs.settings.takes(Int(reference.size)) { try blobs.settle([reference]) }
    control.noteBlob()
    return .blob(reference)
  }

  // MARK: One append

  /// Composes and commits one atomic append, after a compaction that is overdue unless `pacing` is false. Returns the packed location behind it.
  @discardableResult
  func append<Result>(
    limit: Int = Limits.transactionBytes, pacing: Bool = true,
    _ compose: (inout Composer) throws(StoreError) -> Result
  ) throws(StoreError) -> (Result, UInt64) {
    try checkWritable()
    if pacing { waitForCompaction() }
    try lockWriters()
    defer { control.unlock() }
    var composer = freshComposer(limit: limit)
    let result = try compose(&composer)
    try engine.withLock { engine throws(StoreError) in try commit(composer, &engine) }
    return (result, control.tail)
  }

  /// Takes the writers' mutex and sees to it that this process knows all that was written.
  /// False if somebody else has it and this is not to wait.
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

  /// Brings the view up to date and applies what has come due, if there is room for what follows from it, before something is
  /// composed. The caller holds the mutex.
  func prepareToWrite(_ engine: inout Engine) throws(StoreError) {
    try catchUp(&engine)
    try engine.changeSharedIndex { engine throws(StoreError) in
      try engine.index.beginWriting()
      if try engine.isIndexBehind { try engine.completeIndex() }
      // Another process may have given a segment its number in the index a moment after this one looked.
      if engine.journal.lacksSlots { engine.enrol(mayAdd: true) }
    }
    if !engine.parked.isEmpty { try releaseParked(&engine) }
  }

  /// Takes the writers' mutex, if anything may be written. False if somebody else has it and this is not to wait.
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
      if case .afterDeath = acquisition { try repairOrPoison() }
      // It may have been closed while this waited.
      try checkOpen()
      guard !control.poisoned else { throw poisonedError }
    } catch {
      control.unlock()
      throw error
    }
    return true
  }

  func freshComposer(limit: Int) -> Composer {
    let wall = environment.now()
    return engine.withLock { $0.composer(wall: wall, limit: limit) }
  }

  /// Appends what was composed as one transaction and publishes it. The caller holds the writers' mutex.
  func commit(_ composer: borrowing Composer, _ engine: inout Engine) throws(StoreError) {
    guard composer.postponed.count > 0 else {
      return try commit(composer.entries, composer.extent, wall: composer.wall, &engine)
    }
    if composer.entries.isEmpty, try commitOrdinary(composer.postponed, wall: composer.wall, &engine) {
      return
    }
    var settled = copy composer
    try settled.settle { engine.replaced($0.span) }
    try commit(settled.entries, settled.extent, wall: settled.wall, &engine)
  }

  /// Looks up what the postponed writes of an append replace: they can be asked for then.
  func settle(_ composer: inout Composer) throws(StoreError) {
    guard composer.postponed.count > 0 else { return }
    try composer.settle { key in engine.withLock { $0.replaced(key.span) } }
  }

  /// Appends the records of a batch, if one is given, and entries behind them as one transaction, and publishes them. The caller
  /// holds the writers' mutex.
  func commit(
    _ entries: [JournalEntry], _ extent: AppendExtent, behind batch: PlainBatch? = nil, wall: UInt64,
    _ engine: inout Engine
  ) throws(StoreError) {
    guard !entries.isEmpty || batch != nil else { return }
    let mayUseReserve = batch == nil && entries.allSatisfy(\.mayUseReserve)
    let room = extent.bytes + (seal.isEncrypted ? extent.sealing : 0)
    var tail = Location(packed: control.tail)
    let before = tail.segment
    let durable = Location(packed: control.durable)
    guard var segment = engine.journal.segment(tail.segment) else {
      if control.isLost { throw poisonedError }
      throw StoreError(.damaged, "the segment at the tail is not mapped", path: journalDirectory)
    }
    let actors = segment.nextNumber + extent.actors.count
    let mayFillUp = segment.header.isReserve && mayUseReserve
    let limit = mayFillUp ? segment.mapping.count : segment.commonLimit
    let isFull = tail.offset + room > limit || actors > Int(UInt16.max)
    if isFull || !segment.numbers(behind: engine.position) {
      segment = try begin(after: tail, room: room, mayUseReserve: mayUseReserve, &engine)
      // One more segment is sealed.
      engine.reviewAt = 0
      if !segment.header.isReserve { restoreReserve() }
      tail = Location(segment: segment.number, offset: SegmentHeader.length)
    }
    var encoder = RecordEncoder(
      segment: segment, start: tail.offset, durable: durable.segment == tail.segment ? durable.offset : 0,
      position: engine.position)
    control.announce(writing: Location(segment: tail.segment, offset: tail.offset + room).packed)
    if let batch { encoder.encode(batch, continues: !entries.isEmpty) }
    encoder.encode(entries, actors: extent.actors)
    do throws(StoreError) {
      if segment.isWritten { try flush(tail.offset..<encoder.end, of: segment) }
      try checkStored(in: segment)
    } catch {
      // One that was begun says where the one before it ends, whether or not there is room for anything in it.
      if tail.segment != before, !control.poisoned { publish(tail.offset, in: segment, wall: wall, &engine) }
      throw error
    }
    publish(encoder.end, in: segment, wall: wall, &engine)
  }

  /// Begins a segment, which ends the one at the tail. The caller holds the writers' mutex.
  func begin(
    after tail: Location, room: Int, mayUseReserve: Bool = false, _ engine: inout Engine
  ) throws(StoreError) -> Segment {
    try settleBeginning(of: tail.segment, engine)
    let durable = Location(packed: control.durable)
    let ready = preparedSegment.withLock { exchange(&$0, with: nil) }
    engine.journal.prepared = ready
    do throws(StoreError) {
      try engine.journal.begin(
        after: tail.offset, durable: durable.segment == tail.segment ? durable.offset : SegmentHeader.length,
        position: engine.position, room: room, mayUseReserve: mayUseReserve, isPostponed: true)
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
    guard environment.preparesAhead else { return segment }
    if segment.mapping !== ready?.mapping, configuration.durability == .relaxed {
      if Self.areLarge(behind: tail, in: engine) {
        segment.mapping.expectAnyAccess()
      } else {
        populate(segment)
      }
    }
    Background.run { [weak self] in
      // A failure poisons the store: whoever writes next is told.
      try? self?.settleBeginning(of: segment)
    }
    return segment
  }

  /// Had the records of the segment at the tail more than a page each? Then a writer that has left behind whoever makes segments ready finds
  /// pages for each record, and pages that bring others take a third of the time; it waits for those others once in hundreds of records.
  private static func areLarge(behind tail: Location, in engine: borrowing Engine) -> Bool {
    guard let segment = engine.journal.segment(tail.segment) else { return false }
    return UInt64(tail.offset) / max(engine.position - segment.header.basePosition, 1) > 4096
  }

  /// Sees to it that the beginning and the name of a segment are durable. The caller holds the writers' mutex.
  func settleBeginning(of number: UInt32, _ engine: borrowing Engine) throws(StoreError) {
    guard control.begun < UInt64(number), let segment = engine.journal.segment(number) else { return }
    try settleBeginning(of: segment)
  }

  private func settleBeginning(of segment: Segment) throws(StoreError) {
    do throws(StoreError) { try segment.file.sync(0..<SegmentHeader.length, of: segment.mapping) } catch {
      control.setPoisoned()
      throw error
    }
    // Where no descriptor is left it is tried again: by the next sync, and before the segment after this one.
    try syncNames()
    control.raiseBegun(to: segment.number)
  }

  /// Moves the tail behind what was stored up to `end`, and takes it in.
  func publish(_ end: Int, in segment: Segment, wall: UInt64, _ engine: inout Engine) {
    let tail = Location(segment: segment.number, offset: end)
    let start = engine.applied.segment == tail.segment ? engine.applied.offset : SegmentHeader.length
    control.tail = tail.packed
    engine.absorb(own: tail, wall: wall)
    notePublished(start..<end, in: segment, &engine)
  }

  /// The next segment is made ready when an eighth of one is full, or so many bytes: to make 64 MiB ready takes a third of the time in which
  /// one writer fills them, and all of it where a compaction and the disk need the processors too.
  private static let leastBeforePreparing = 1 << 20

  /// What follows from an append, once it was taken in.
  @inline(__always)
  func notePublished(_ bytes: Range<Int>, in segment: Segment, _ engine: inout Engine) {
    control.position = engine.position
    noteWrite()
    pace.spend(bytes.count)
    noteChange()
    if engine.deadBytes >= engine.reviewAt { considerCompaction(&engine) }
    if bytes.upperBound > min(segment.mapping.count / 8, Self.leastBeforePreparing),
      prepared.load(ordering: .relaxed) != segment.number
    {
      prepareSegment(after: segment.number, size: engine.journal.sizeOfNext(room: 0))
    }
  }

  /// Has the segment after `number` made ready in the background, once; if that fails, again.
  func prepareSegment(after number: UInt32, size: Int) {
    guard prepared.exchange(number, ordering: .relaxed) != number, environment.preparesAhead else { return }
    let isDurable = configuration.durability != .relaxed
    Background.prepare { [weak self, journalDirectory, storage = environment.storage] in
      do throws(StoreError) {
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

  /// Finds memory for a segment that nobody had made ready, beside the writer that fills it.
  private func populate(_ segment: Segment) {
    Background.populate { [weak self] in
      Journal.populate(segment.mapping) { start in
        guard let self, !self.closed.load(ordering: .relaxed) else { return false }
        let tail = Location(packed: self.control.tail)
        return tail.segment == segment.number && tail.offset < start
      }
    }
  }
}

extension Record {
  /// Has it a value at this time, in milliseconds since 1970?
  func isLive(at time: UInt64) -> Bool { !isTombstone && (deadline.map { $0 > time } ?? true) }
}
