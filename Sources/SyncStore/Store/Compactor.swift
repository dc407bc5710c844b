internal import Synchronization

/// Compaction: a run of closed segments is copied without its dead records; the copy is made durable and
/// renamed into place, every view switches to it, and the old files are removed (rule R5).
///
/// At every moment either the old segments count or the copy does: the file names alone decide (F7).
///
/// Locks: `compacting` first, then the compaction byte of the control file; the writers' mutex and the
/// engine's lock are taken for single steps only.
final class Compactor: WritingPart {
  let core: OpenStore
  let writes: WritePath
  let journalSync: JournalSync
  private var schedule: CompactionSchedule { writes.compaction }
  /// Locked while a compaction of this instance runs.
  let compacting = LockedField((), rank: .compaction)
  /// Compactions made by this instance.
  let finished = EventCounter()
  /// Position at the last purge scan.
  let purgedAt = Atomic<UInt64>(0)
  /// Up to this position the journal has no delete that is not acknowledged.
  let deletesScannedTo = Atomic<UInt64>(0)

  init(_ core: OpenStore, writes: WritePath, journalSync: JournalSync) {
    (self.core, self.writes, self.journalSync) = (core, writes, journalSync)
  }

  /// Records installed per step, while writers wait.
  private static let recordsPerInstallStep = 64

  /// `Store.compact`.
  func compact() throws(StoreError) -> UInt64 {
    try checkWritable()
    // A compaction under way, here or in another process, waits for the writers' mutex: waiting for it inside
    // a transaction would deadlock.
    try writes.checkNotWriting("compact the store")
    return try compacting.withLock { _ throws(StoreError) in
      var gained: UInt64 = 0
      while true {
        let before = gained
        var isDone = try purgeIfSpaceAllows()
        do throws(StoreError) {
          while let gain = try compactOnce(isThorough: true) {
            gained += gain
          }
        } catch {
          guard error.code == .diskFull, gained > 0 else { throw error }
          isDone = false
        }
        // The space gained allows more purges and larger copies.
        if isDone || gained == before { return gained }
      }
    }
  }

  /// Purges before a compaction. False if the disk lacks room for all purges: each is a record, and
  /// compaction makes room for more.
  private func purgeIfSpaceAllows() throws(StoreError) -> Bool {
    do throws(StoreError) {
      try purgeBeforeCompaction(always: true)
      return true
    } catch {
      guard error.code == .diskFull else { throw error }
      return false
    }
  }

  /// On a full disk: purges and compacts what it can. True if that has reclaimed space.
  func makeRoom() throws(StoreError) -> Bool {
    guard environment.compactionMode != .onRequest else { return false }
    return try compacting.withLock { _ throws(StoreError) in
      _ = try purgeIfSpaceAllows()
      while let gain = try compactOnce(isThorough: true) {
        if gain > 0 { return true }
      }
      return false
    }
  }

  /// Compacts runs of segments until none is due.
  func compactWhileDue() {
    compacting.withLock { _ in
      // Failures are retried with the next segment; a full disk stops the writer itself.
      _ = try? purgeBeforeCompaction(always: false)
      while (try? compactOnce(isThorough: false)) != nil {}
      schedule.end()
    }
  }

  /// Compacts one run of segments. Returns the bytes gained; nil if no run is worth it, or another process is
  /// compacting.
  private func compactOnce(isThorough: Bool) throws(StoreError) -> UInt64? {
    guard try controlFile.lock(byte: StoreLayout.compactionByte, .exclusive, wait: false) else { return nil }
    defer { _ = try? controlFile.lock(byte: StoreLayout.compactionByte, .none, wait: false) }
    try finishInstalls()
    let gain = try compactWithinFreeSpace(isThorough: isThorough)
    if gain != nil { restoreReserveAfterCompaction() }
    return gain
  }

  /// On a full disk first compacts runs whose copy fits into the space reserve, which makes room for the
  /// rest. The copy of a run without live records takes two pages.
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

  /// Bytes by which a copy may exceed the records in it: actors are defined again.
  private static let slackOfCopy = 16 << 10
  /// Live bytes up to which a run is copied where there is no reserve at all.
  private static let smallestCopy = 4096

  /// Reallocates the part of the reserve that the compaction used, before others take the space it has freed.
  func restoreReserveAfterCompaction() {
    do throws(StoreError) { try reserve.restore() } catch {
      guard error.code == .diskFull else { return }
      // The blocks of removed files are freed with their last mapping, which a reading thread may still use.
      var attempts = 100
      while !readers.reclaim(), attempts > 0 {
        SystemCall.sleep(microseconds: 1000)
        attempts -= 1
      }
      Background.waitForReleases()
      // btrfs frees the space of removed files with its next transaction, up to 30 s later.
      if environment.usesPwrite { try? environment.storage.syncFileSystem(path) }
      try? reserve.restore()
    }
  }

  /// Compacts one run with at most `largestCopy` live bytes.
  private func compactOnce(isThorough: Bool, largestCopy: Int) throws(StoreError) -> UInt64? {
    // Taking the mutex completes what a crashed writer left: only then does the index tell what is live, and
    // every segment has a slot.
    try writes.lockWriters()
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

  /// Replaces these segments by a copy. Returns the bytes gained; nil if they are damaged. The caller holds
  /// the compaction lock.
  func compact(_ run: CompactionRun) throws(StoreError) -> UInt64? {
    defer { reserve.copyHold.set(false) }
    var progress = CompactionProgress(schedule.throttle, gaining: run.deadBytes)
    guard let (segment, known) = try copy(run, &progress) else {
      core.engine.withLock { _ in run.markNotWorthCompacting() }
      return nil
    }
    try installSegment(SegmentInstall(segment, replacing: run.numbers, known: known), &progress)
    finished.add()
    try remove(run.names)
    return UInt64(max(0, run.fileBytes - segment.mapping.count))
  }

  /// Switches the index to the copy in steps, so that no writer waits for long.
  private func installSegment(_ adoption: SegmentInstall, _ progress: inout CompactionProgress)
    throws(StoreError)
  {
    var adoption = adoption
    var isAtEnd = false
    var isFirst = true
    while !isAtEnd {
      if !isFirst {
        core.engine.yieldToWaiters()
        environment.onInstallYield?()
      }
      try writes.lockWriters()
      defer { control.unlock() }
      isAtEnd = core.engine.withLock { engine in
        if isFirst {
          let segment = adoption.segment
          if engine.journal.segment(segment.number) == nil { engine.journal.addUninstalled(segment) }
          engine.assignSlots(mayAdd: true)
          // From now on other processes find the copy, which the index is about to name, and its slot.
          control.compactions += 1
          engine.compaction.count = control.compactions
          isFirst = false
        }
        return engine.installSegment(&adoption, count: Self.recordsPerInstallStep, indexing: true)
      }
      let share = isAtEnd ? 1 : adoption.progress
      progress.reach(CompactionProgress.durable + (1 - CompactionProgress.durable) * share)
    }
  }

  /// Removes replaced segments, which nothing names any more. Failures are left to the next compaction or
  /// opening.
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
    core.engine.withLock { engine in
      engine.compaction.hasUnremovedSegments = failure != nil
      engine.releaseReplaced()
    }
    if let failure { throw failure }
  }

  /// Completes compactions interrupted by a crash or an error after the copy was renamed into place. The copy
  /// counts from its renaming on: another copy made of the segments it replaced and of later ones would break
  /// the chain of names. The caller holds the compaction lock.
  func finishInstalls() throws(StoreError) {
    let names = try SegmentName.all(in: journalDirectory, environment.storage)
    let counted = SegmentName.chain(of: names, from: 1).names
    let (adopted, leavesReplaced) = core.engine.withLock {
      ($0.compaction.installed, $0.compaction.hasUnremovedSegments)
    }
    let unfinished = counted.filter { $0.compaction > adopted }
      .map { (copy: $0, replaced: SegmentName.replaced(by: $0, among: names)) }
      .filter { !$0.replaced.isEmpty }
    guard !unfinished.isEmpty || leavesReplaced || control.installedCompactions < control.compactions else {
      return
    }
    // The directory sync after the rename may be missing.
    try syncNames()
    for (copy, replaced) in unfinished {
      let segment = try reading { engine throws(StoreError) -> Segment? in
        if let segment = engine.journal.segment(copy.number) { return segment }
        return try engine.journal.map(copy)
      }
      var progress = CompactionProgress(schedule.throttle, gaining: 0)
      if let segment {
        try installSegment(SegmentInstall(segment, replacing: replaced.map(\.number)), &progress)
      }
    }
    let tail = Location(packed: control.tail).segment
    let left = names.filter { !counted.contains($0) && $0.covered.upperBound < tail }
    // Files that cannot be removed do no harm.
    try? remove(left)
  }

  /// Appends a checkpoint that declares the whole journal durable. A restored copy of the directory is
  /// truncated at the last such statement (rule R9): no record after it may depend on one that a compaction
  /// has dropped.
  private func appendDurableCheckpoint() throws(StoreError) {
    let (_, tail) = try writes.append(pacing: false, claim: .compaction) { builder throws(StoreError) in
      try builder.checkpoint()
    }
    try journalSync.sync(upTo: tail)
  }

  /// Writes the copy and renames it into place; nil if the run is damaged and cannot be copied.
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
    // A faulted page reads as zeros; those must not get a valid checksum.
    guard !run.isFaulty else { return nil }
    // No progress can be measured within the remaining steps.
    progress.reach(CompactionProgress.durable)
    header.closedLength = UInt32(copier.end)
    header.size = UInt32((copier.end + 4095) & ~4095)
    let segment = try writeCompactedSegment(copier, header: header, at: run.temporaryPath)
    let known = SegmentInstall.Known(keys: run.hashIndex, moves: copier.moves, others: copier.others)
    return segment.map { ($0, known) }
  }

  /// Writes a copy to a file, makes it durable and renames it into place.
  private func writeCompactedSegment(
    _ copier: CompactedSegmentBuilder, header: SegmentHeader, at temporary: String
  ) throws(StoreError) -> Segment? {
    try checkDirectoryHoldsStore()
    let storage = environment.storage
    _ = try storage.remove(temporary)
    // Allocate first: the appends below may take the last free space, and are useful only if the copy has its
    // own.
    let (file, part) = try file(for: Int(header.size), at: temporary)
    do throws(StoreError) {
      try persistOwnVector()
      // Records that supersede the dropped ones must be durable before these are gone (rule R7).
      try journalSync.sync(upTo: control.tail)
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
      return try core.engine.withLock { engine throws(StoreError) in try engine.journal.map(header.name) }
    } catch {
      _ = try? storage.remove(temporary)
      throw error
    }
  }

  /// A file of at least `size` bytes: that of the reserve, if it is large enough. A separate file would for a
  /// moment exceed the space bound by a segment (rule R5).
  private func file(
    for size: Int, at path: String
  ) throws(StoreError) -> (any StorageFile, SpaceReserve.Purpose?) {
    // Set the hold first, so that no writer restores the reserve from now on.
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

  /// Stores the vector with the last own sequence: the record that bears this sequence may have been beaten
  /// by a peer's, and compaction drops it.
  private func persistOwnVector() throws(StoreError) {
    try writes.append(pacing: false, claim: .compaction) { builder throws(StoreError) in
      let vector = ReplicaState.encode(builder.state.vector)
      if core.engine.withLock({ $0.localMetadata[StateKey.vector] }) != vector {
        try builder.setLocal(StateKey.vector, vector)
      }
    }
  }
}
