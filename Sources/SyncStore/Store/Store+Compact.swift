internal import Synchronization

/// How a compaction works: a run of sealed segments is copied without what does not count any more, the copy is made
/// durable and takes its name, every view moves over to it, and the old files go (rule R5).
///
/// At every moment either the old segments count or the copy does: the names alone tell which (F7).
extension Store {
  /// Records that are looked at, or moved, while others wait.
  private static let recordsPerInstallStep = 64

  /// Gives back all space that superseded records take up, and deletes that every member has seen, but for the segment at the
  /// tail. Others go on reading and writing meanwhile. Returns the bytes gained.
  ///
  /// - Throws: `.diskFull` if there is room for no copy: nothing is lost then. Where some do not fit, the others have given space back.
  ///   `.busy` within a transaction of this thread.
  @discardableResult
  public func compact() throws(StoreError) -> UInt64 {
    try checkWritable()
    // One that is under way waits for the writers' mutex, here or in another process.
    try checkNotWriting("compact the store")
    return try compacting.withLock { compactions throws(StoreError) in
      var gained: UInt64 = 0
      while true {
        let before = gained
        var isDone = try purgeIfSpaceAllows()
        do throws(StoreError) {
          while let gain = try compactOnce(isThorough: true) {
            (gained, compactions) = (gained + gain, compactions + 1)
          }
        } catch {
          guard error.code == .diskFull, gained > 0 else { throw error }
          isDone = false
        }
        // What was gained is room for more purges, and for larger copies.
        if isDone || gained == before { return gained }
      }
    }
  }

  /// Purges before a compaction. False if the disk has no room for all of it: each purge is a record, and compaction makes room for
  /// more of them.
  private func purgeIfSpaceAllows() throws(StoreError) -> Bool {
    do throws(StoreError) {
      try purgeBeforeCompaction(always: true)
      return true
    } catch {
      guard error.code == .diskFull else { throw error }
      return false
    }
  }

  /// On a full disk: purges and compacts what there is. True if that has given space back.
  func makeRoom() throws(StoreError) -> Bool {
    guard environment.compactionMode != .onRequest else { return false }
    return try compacting.withLock { compactions throws(StoreError) in
      _ = try purgeIfSpaceAllows()
      while let gain = try compactOnce(isThorough: true) {
        compactions += 1
        if gain > 0 { return true }
      }
      return false
    }
  }

  /// Has a compaction done in the background if it is time.
  func considerCompaction(_ engine: inout Engine) {
    let (dead, live) = engine.reviewDeadBytes()
    guard CompactionPlan.isDue(dead: dead, live: live) else { return }
    scheduleCompaction(
      isUrgent: environment.compactionMode == .byNextWriter
        || CompactionPlan.isUrgent(dead: dead, live: live, largestSegment: configuration.segmentBytes))
  }

  /// Has a compaction done in the background. Writers wait for it if it `isUrgent`.
  func scheduleCompaction(isUrgent: Bool) {
    guard environment.compactionMode != .onRequest else { return }
    writeThrottle.set(isUrgent)
    let begins = lifecycle.withLock { lifecycle in
      defer { lifecycle.compactionScheduled = true }
      return !lifecycle.compactionScheduled
    }
    guard begins, environment.compactionMode == .background else { return }
    Background.runMaintenance { [weak self] in self?.compactWhileDue() }
  }

  /// Writers come here before they take their mutex, so that the disk does not fill faster than it is tidied.
  func throttleWriter() {
    guard writeThrottle.isUrgent else { return }
    if environment.compactionMode == .background {
      writeThrottle.wait { closed.load(ordering: .relaxed) }
    } else {
      compactWhileDue()
    }
  }

  private func compactWhileDue() {
    compacting.withLock { compactions in
      // What fails here is tried again with the next segment; a full disk stops the writer itself.
      _ = try? purgeBeforeCompaction(always: false)
      while (try? compactOnce(isThorough: false)) != nil { compactions += 1 }
      lifecycle.withLock { $0.compactionScheduled = false }
      writeThrottle.set(false)
    }
  }

  /// Compacts one run of segments. Returns the bytes gained; nil if nothing is worth it, or another process is at it.
  private func compactOnce(isThorough: Bool) throws(StoreError) -> UInt64? {
    guard try controlFile.lock(byte: StoreLayout.compactionByte, .exclusive, wait: false) else { return nil }
    defer { _ = try? controlFile.lock(byte: StoreLayout.compactionByte, .none, wait: false) }
    try finishInstalls()
    let gain = try compactWithinFreeSpace(isThorough: isThorough)
    if gain != nil { restoreReserveAfterCompaction() }
    return gain
  }

  /// On a full disk what the reserve has room for makes room for the rest; what is dead as a whole takes two pages.
  private func compactWithinFreeSpace(isThorough: Bool) throws(StoreError) -> UInt64? {
    do throws(StoreError) {
      return try compactOnce(isThorough: isThorough, largestCopy: .max)
    } catch {
      guard error.code == .diskFull else { throw error }
      let room = try reserve.present(.copy) - SegmentHeader.length - Self.slackOfCopy
      for largestCopy in [room, Self.smallestCopy] where largestCopy >= Self.smallestCopy {
        do throws(StoreError) {
          if let gain = try compactOnce(isThorough: true, largestCopy: largestCopy) { return gain }
        } catch { guard error.code == .diskFull else { throw error } }
      }
      throw error
    }
  }

  /// By how much a copy may be larger than the records it takes: actors are defined once more. In bytes.
  private static let slackOfCopy = 16 << 10
  /// Records of at most so many bytes are copied where there is no reserve at all.
  private static let smallestCopy = 4096

  /// Allocates what the compaction took of the reserve, before anybody else takes what it has given back.
  func restoreReserveAfterCompaction() {
    do throws(StoreError) { try reserve.restore() } catch {
      guard error.code == .diskFull else { return }
      // The blocks of files that were removed are free once the last mapping of them is gone: threads may be in the middle of a
      // read of one.
      var attempts = 100
      while !readers.reclaim(), attempts > 0 {
        SystemCall.sleep(microseconds: 1000)
        attempts -= 1
      }
      Background.waitForReleases()
      // btrfs gives back the space of removed files with its next transaction, up to 30 s later.
      if environment.usesPwrite { try? environment.storage.syncFileSystem(path) }
      try? reserve.restore()
    }
  }

  /// Compacts one run that has at most so many bytes that count.
  private func compactOnce(isThorough: Bool, largestCopy: Int) throws(StoreError) -> UInt64? {
    // Whatever one who died had still to take in is in the index before it is asked what counts, and every segment has its
    // number there.
    try lockWriters()
    control.unlock()
    let run = try reading { engine throws(StoreError) -> CompactionRun? in
      var candidates = engine.candidates
      for index in candidates.indices where candidates[index].liveBytes > largestCopy {
        candidates[index].isEligible = false
      }
      guard
        let plan = CompactionPlan(
          candidates, largestSegment: min(engine.journal.largestForDisk, largestCopy),
          position: engine.position, isThorough: isThorough)
      else { return nil }
      return try CompactionRun(plan.run, in: &engine)
    }
    guard let run else { return nil }
    return try compact(run) ?? 0
  }

  /// Puts a copy in the place of these segments. Returns the bytes gained; nil if they are damaged. The caller holds the
  /// compaction lock.
  func compact(_ run: CompactionRun) throws(StoreError) -> UInt64? {
    defer { reserve.copyHold.set(false) }
    var progress = CompactionProgress(writeThrottle, gaining: run.deadBytes)
    guard let (segment, known) = try copy(run, &progress) else {
      engine.withLock { _ in run.markNotWorthCompacting() }
      return nil
    }
    try installSegment(SegmentInstall(segment, replacing: run.numbers, known: known), &progress)
    try remove(run.names)
    return UInt64(max(0, run.fileBytes - segment.mapping.count))
  }

  /// Moves the index over to a copy, a part at a time, so that no writer waits for long.
  private func installSegment(_ adoption: SegmentInstall, _ progress: inout CompactionProgress)
    throws(StoreError)
  {
    var adoption = adoption
    var isAtEnd = false
    var isFirst = true
    while !isAtEnd {
      if !isFirst {
        engine.yieldToWaiters()
        environment.onInstallYield?()
      }
      try lockWriters()
      defer { control.unlock() }
      isAtEnd = engine.withLock { engine in
        if isFirst {
          let segment = adoption.segment
          if engine.journal.segment(segment.number) == nil { engine.journal.addUninstalled(segment) }
          engine.assignSlots(mayAdd: true)
          // From now on others find the copy, of which the index is about to speak, and the number that it has there.
          control.compactions += 1
          engine.compactions = control.compactions
          isFirst = false
        }
        return engine.installSegment(&adoption, count: Self.recordsPerInstallStep, indexing: true)
      }
      let share = isAtEnd ? 1 : adoption.progress
      progress.reach(CompactionProgress.durable + (1 - CompactionProgress.durable) * share)
    }
  }

  /// Removes what was replaced: nothing names it any more. What cannot be removed is left to the next compaction, or opening.
  private func remove(_ names: [SegmentName]) throws(StoreError) {
    control.installedCompactions = control.compactions
    var failure: StoreError?
    for name in names {
      do throws(StoreError) {
        _ = try environment.storage.remove(journalDirectory + "/" + name.text)
      } catch {
        failure = failure ?? error
      }
    }
    engine.withLock { engine in
      engine.hasUnremovedSegments = failure != nil
      engine.releaseReplaced()
    }
    if let failure { throw failure }
  }

  /// Does what one who was killed, or met an error, between the naming of the copy and the end of its moving over has left to
  /// do. The copy counts from the moment at which it has its name: another one made of what it stands for and of later
  /// segments would tear the chain of names. The caller holds the compaction lock.
  func finishInstalls() throws(StoreError) {
    let names = try SegmentName.all(in: journalDirectory, environment.storage)
    let counted = SegmentName.chain(of: names, from: 1).names
    let (adopted, leavesReplaced) = engine.withLock { ($0.installedCompaction, $0.hasUnremovedSegments) }
    let unfinished = counted.filter { $0.compaction > adopted }
      .map { (copy: $0, replaced: SegmentName.replaced(by: $0, among: names)) }
      .filter { !$0.replaced.isEmpty }
    guard !unfinished.isEmpty || leavesReplaced || control.installedCompactions < control.compactions else {
      return
    }
    // Nobody may have seen to it that the names last.
    try syncNames()
    for (copy, replaced) in unfinished {
      let segment = try reading { engine throws(StoreError) -> Segment? in
        if let segment = engine.journal.segment(copy.number) { return segment }
        return try engine.journal.map(copy)
      }
      var progress = CompactionProgress(writeThrottle, gaining: 0)
      if let segment {
        try installSegment(SegmentInstall(segment, replacing: replaced.map(\.number)), &progress)
      }
    }
    let tail = Location(packed: control.tail).segment
    let left = names.filter { !counted.contains($0) && $0.covered.upperBound < tail }
    // What cannot be removed stands in nobody's way.
    try? remove(left)
  }

  /// Has the journal itself say that all of it is durable. A copy of the directory is cut at the place up to which it does
  /// (rule R9): there must be nothing behind that of which a compaction has dropped what came before.
  private func appendDurableCheckpoint() throws(StoreError) {
    let (_, tail) = try append(pacing: false, claim: .compaction) { composer throws(StoreError) in
      try composer.checkpoint()
    }
    try sync(upTo: tail)
  }

  /// Writes the copy and gives it its name; nil if the run cannot be copied, because it is damaged.
  private func copy(
    _ run: CompactionRun, _ progress: inout CompactionProgress
  ) throws(StoreError) -> (Segment, SegmentInstall.Known)? {
    let storage = environment.storage
    let names = try SegmentName.all(in: journalDirectory, storage)
    var header = SegmentHeader(
      compaction: (names.map(\.compaction).max() ?? 0) + 1, of: run.first, to: run.last,
      salt: environment.randomWord(), created: environment.now())
    header.generation = try journalKeys.generationToBegin()
    header.compactedAt = run.position
    var copier = try CompactedSegmentBuilder(
      header, capacity: run.fileBytes, cipher: try journalKeys.cipher(for: header, path: run.temporaryPath))
    var walk = CompactionCursor(run)
    var isAtEnd = false
    while !isAtEnd {
      guard try walk.copyNext(to: &copier, isAtEnd: &isAtEnd) else { return nil }
      progress.reach(CompactionProgress.copied * walk.progress)
      try checkUsable()
    }
    // Zeros in place of a page that could not be had must not get a checksum that holds.
    guard !run.isFaulty else { return nil }
    // What comes now cannot be told in parts.
    progress.reach(CompactionProgress.durable)
    header.closedLength = UInt32(copier.end)
    header.size = UInt32((copier.end + 4095) & ~4095)
    let segment = try writeCompactedSegment(copier, header: header, at: run.temporaryPath)
    let known = SegmentInstall.Known(keys: run.hashIndex, moves: copier.moves, others: copier.others)
    return segment.map { ($0, known) }
  }

  /// Writes a copy to a file, makes it durable and gives it its name.
  private func writeCompactedSegment(
    _ copier: CompactedSegmentBuilder, header: SegmentHeader, at temporary: String
  ) throws(StoreError) -> Segment? {
    try checkDirectoryHoldsStore()
    let storage = environment.storage
    _ = try storage.remove(temporary)
    // First: what is appended below may take the last space there is, and is worth it only if the copy has its own.
    let (file, part) = try file(for: Int(header.size), at: temporary)
    do throws(StoreError) {
      try persistOwnVector()
      // What replaces the records that were left out is durable before they go (rule R7).
      try sync(upTo: control.tail)
      try appendDurableCheckpoint()
    } catch {
      if let part { reserve.putBack(part, from: temporary) }
      _ = try? storage.remove(temporary)
      throw error
    }
    do throws(StoreError) {
      if part != nil { try file.resize(to: Int(header.size)) }
      try file.write(header.encoded(), at: 0)
      try copier.write(to: file)
      try file.sync()
      try storage.rename(temporary, to: journalDirectory + "/" + header.name.text)
      try syncNames()
      return try engine.withLock { engine throws(StoreError) in try engine.journal.map(header.name) }
    } catch {
      _ = try? storage.remove(temporary)
      throw error
    }
  }

  /// Makes the names of the segments durable. What a copy has replaced must not go before; where this fails nothing goes on
  /// (rule R4), but where it could not be begun for want of a descriptor.
  func syncNames() throws(StoreError) {
    do throws(StoreError) { try environment.storage.syncDirectory(journalDirectory) } catch {
      if !error.isOutOfDescriptors { control.setPoisoned() }
      throw error
    }
  }

  /// A file of `size` bytes or more: that of the reserve, if it is large enough. With one of its own the disk would hold, for a moment,
  /// a segment more than the bound allows (rule R5).
  private func file(
    for size: Int, at path: String
  ) throws(StoreError) -> (any StorageFile, SpaceReserve.Purpose?) {
    // First: no writer restores it from now on.
    let reserve = reserve
    reserve.copyHold.set(true)
    if let file = try reserve.acquire(.copy, as: path, atLeast: size) { return (file, .copy) }
    reserve.copyHold.set(false)
    do throws(StoreError) {
      let file = try environment.storage.open(path, .create)
      try file.allocate(to: size)
      return (file, nil)
    } catch {
      _ = try? environment.storage.remove(path)
      throw error
    }
  }

  /// Notes the last own sequence: the record that bears it may be one that a peer's has beaten, and go.
  private func persistOwnVector() throws(StoreError) {
    try append(pacing: false, claim: .compaction) { composer throws(StoreError) in
      let vector = ReplicaState.encode(composer.state.vector)
      if engine.withLock({ $0.localMetadata[StateKey.vector] }) != vector {
        try composer.setLocal(StateKey.vector, vector)
      }
    }
  }
}
