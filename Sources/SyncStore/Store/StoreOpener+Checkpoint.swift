/// Opening a store whose index and control page are trusted.
extension StoreOpener {
  /// Opens with the index and the control page of the last process, without replaying the journal, in time
  /// independent of the number of keys.
  ///
  /// Returns nil if either is invalid or stale: the journal is replayed then. `names` are the files in the
  /// journal's directory.
  func openFromCheckpoint(
    _ file: any StorageFile, control: ControlPage, last: ControlPage.PriorState?, names: [String]
  ) throws(StoreError) -> (Store, ReplayResult)? {
    guard !control.poisoned, isAtOriginalPlace,
      let index = try JournalIndex.open(files, writable: writable)
    else { return nil }
    var journal = journal()
    journal.knownEnd = try knownEnd(index, last: last)
    var isUnfinished = false
    guard let adopted = try installedCompaction(index),
      try journal.loadUnfinished(names, adopted: adopted, &isUnfinished) == nil
    else { return nil }
    var engine = Engine(
      engineContext(control), journal: journal, index: index, compactions: control.compactions)
    guard try completeIndexChange(index), try restore(&engine),
      let end = endOfJournal(after: engine.applied, in: journal, last, isClean: !index.hashIndex.wasInUse),
      writable || end == engine.applied, last.map({ end.packed >= $0.durable }) ?? true
    else { return nil }
    let wasApplied = engine.applied
    // After a clean close everything is durable; in the same boot the durable offset is known.
    let durable = index.hashIndex.wasInUse ? min(last?.durable ?? 0, end.packed) : end.packed
    if engine.applied != end {
      try index.beginWriting()
      // The index digest may contain an unknown part of a killed writer's update.
      index.checkpoint.setDigest(nil, at: 0)
      engine.replay(upTo: end, indexing: true)
      guard engine.index.isShared else { return nil }
    }
    if writable, wasApplied == end, index.checkpoint.seqlock & 1 != 0 { index.checkpoint.endWrite() }
    if writable { engine.journal.blank(after: end, upTo: last.map { Location(packed: $0.writing) }) }
    control.tail = end.packed
    control.position = engine.position
    control.resetDurable(to: durable)
    if isUnfinished { control.compactions += 1 }
    engine.compaction.count = control.compactions
    let finding = ReplayResult(
      tail: end, endsEmpty: false, needsNoTruncation: true,
      isUnfinished: isUnfinished)
    return (makeStore(file, control: control, engine: engine), finding)
  }

  /// The end of the journal according to an index that was closed cleanly, or else to the control page of the
  /// same boot; nil if neither is available.
  private func knownEnd(_ index: JournalIndex, last: ControlPage.PriorState?) throws(StoreError) -> Location?
  {
    do throws(StoreError) {
      if !index.hashIndex.wasInUse { return Location(packed: try index.hashIndex.applied) }
      return last.map { Location(packed: $0.writing) }
    } catch {
      guard error.code == .damaged else { throw error }
      return nil
    }
  }

  /// The last compaction installed in an index; nil if the index checkpoint is damaged.
  func installedCompaction(_ index: JournalIndex) throws(StoreError) -> UInt32? {
    do throws(StoreError) { return try index.checkpoint.specialRecords().installedCompaction } catch {
      guard error.code == .damaged else { throw error }
      return nil
    }
  }

  /// Completes the index change that a killed writer left unfinished. False if there is one that cannot be
  /// completed: the store is open for reading only, or the index is damaged.
  private func completeIndexChange(_ index: JournalIndex) throws(StoreError) -> Bool {
    do throws(StoreError) {
      guard try index.hashIndex.isInterrupted else { return true }
      guard writable else { return false }
      try index.beginWriting()
      return try index.hashIndex.recoverIntent()
    } catch {
      guard error.code == .damaged else { throw error }
      return false
    }
  }

  /// The end of the valid records of a journal whose index covers everything up to `applied`; nil if replay
  /// is needed to find it.
  private func endOfJournal(
    after applied: Location, in journal: Journal, _ last: ControlPage.PriorState?, isClean: Bool
  ) -> Location? {
    guard let place = journal.index(of: applied.segment), let newest = journal.segments.last else {
      return nil
    }
    var start = applied
    if newest.number != applied.segment {
      // Begun by a process that died before any record in it was applied.
      guard place == journal.segments.count - 2, journal.closedLength(at: place) == applied.offset else {
        return nil
      }
      start = Location(segment: newest.number, offset: SegmentHeader.length)
    }
    if isClean {
      // A program that does not maintain the index may have appended since.
      let isSilent =
        newest.record(at: start.offset, limit: newest.mapping.count, leavesEncrypted: true) == nil
      return start == applied && isSilent ? start : nil
    }
    guard let last else { return nil }
    let writing = Location(packed: last.writing)
    let limit =
      writing.segment == start.segment
      ? max(writing.offset, start.offset)
      : newest.number == applied.segment ? start.offset : newest.mapping.count
    let end = journal.endOfUnpublished(from: start.offset, to: limit, in: newest)
    return Location(segment: newest.number, offset: end)
  }
}
