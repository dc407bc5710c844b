/// Recovery by the first process that opens a store for writing, and after damage was found in use.
///
/// Takes the writers' mutex, then the engine's lock for each step.
struct StoreRecovery: WritingPart {
  let core: OpenStore
  let writes: WritePath
  let journalSync: JournalSync

  /// Carries out what recovery decided, and becomes a new actor where rule R9 requires it. Does nothing if
  /// another process has done so since this control page was begun.
  ///
  /// - Parameters:
  ///   - isCopied: the store is not where it was written.
  ///   - finding: the replay result of the process that made the control page.
  func recover(
    _ identity: StoreIdentity, lastLife: ControlPage.PriorState?, isCopied: Bool,
    finding: StoreOpener.ReplayResult?
  ) throws(StoreError) {
    let acquisition = control.lock()
    defer { control.unlock() }
    guard !control.recovered else {
      if case .ownerDied = acquisition { try writes.recoverDeadWriterOrPoison() }
      return
    }
    if isCopied { try core.engine.withLock { engine throws(StoreError) in try engine.journal.checkCopy() } }
    // Idempotent: after a death in the middle, the next recovery redoes everything from the start.
    var renewal: TransactionBuilder.ActorChangeReason? = isCopied ? .copied : nil
    var cutDamage: JournalDamage?
    // The copy may never have been synced; its content counts as durable from here on.
    if isCopied { try environment.storage.syncFileSystem(path) }
    if isCopied || lastLife == nil {
      try core.engine.withLock { engine throws(StoreError) in try engine.journal.removeUsed() }
    }
    if let finding, finding.needsNoTruncation, !isCopied, !control.poisoned {
      // As below, without reading the journal once more.
      if finding.endsEmpty || lastLife.map({ finding.tail.packed < $0.durable }) ?? false {
        renewal = .truncated
      }
      cutDamage = try closeTruncatedSegment()
    } else {
      try truncateJournal(lastLife: lastLife, foreign: isCopied, &renewal)
    }
    try core.engine.withLock { engine throws(StoreError) in
      if !engine.index.isShared {
        try engine.journal.removeReplaced()
        try installIndex(&engine)
      }
    }
    let damage = core.engine.withLock { $0.newDamage }
    if !damage.isEmpty {
      renewal = .damaged(damage)
    } else if renewal == nil, core.engine.withLock({ $0.state.actor }) == nil {
      renewal = .actorRecordMissing
    }
    if let renewal {
      try core.engine.withLock { engine throws(StoreError) in try changeActor(renewal, &engine) }
    } else if let cutDamage {
      renewal = .damaged([cutDamage])
    }
    try makeNameDurable()
    // Last: if this process dies before, the next one repeats all of it.
    control.clearPoison()
    control.setRecovered(boot: environment.bootWord)
    if !isCopied { control.home = identity.homeWord }
    core.engine.withLock { $0.status.needsRecovery = false }
    if finding?.isUnfinished ?? false {
      writes.compaction.schedule(isUrgent: environment.compactionMode == .byNextWriter)
    }
    guard let renewal else { return }
    logActorChange(renewal)
    do throws(StoreError) { try journalSync.sync(upTo: control.tail) } catch {
      // The new actor becomes durable with the next write that does. A copied store becomes a new actor again
      // at its next opening.
      guard error.code == .diskFull, !control.poisoned else { throw error }
      return
    }
    guard isCopied else { return }
    try StoreIdentity.write(
      id: core.identity.id, name: core.identity.name, to: path, environment: environment)
    if let identity = try StoreIdentity.read(path, storage: environment.storage) {
      control.home = identity.homeWord
    }
  }

  /// Makes the directory entries of the store durable, unless they are known to be.
  ///
  /// The process that created or moved the store may have died before it did so, or may be a program that
  /// never does, and writes from now on are acknowledged.
  private func makeNameDurable() throws(StoreError) {
    let storage = environment.storage
    let name = try storage.nameFingerprint(of: path)
    guard control.name != name else { return }
    try storage.syncDirectory(path)
    try storage.syncParentDirectory(of: path)
    control.name = name
  }

  private func logActorChange(_ renewal: TransactionBuilder.ActorChangeReason) {
    switch renewal {
    case .copied:
      StoreLog.log(
        .warning, path: path,
        "the directory was copied or restored: this copy goes on under a new name of its own, and converges")
    case .truncated:
      StoreLog.log(
        .warning, path: path,
        "the journal lost its end: this copy goes on under a new name of its own, and converges")
    case .actorRecordMissing:
      StoreLog.log(
        .error, path: path,
        "the journal does not say this copy's name: it goes on under a new one, and converges")
    case .rolledBack, .forked:
      StoreLog.log(
        .warning, path: path, "the store was put back to an earlier state: it is made good with peers")
    case .localWritesDropped: break  // `dropOwnWrites` logs it; recovery never has this reason.
    case .damaged(let places):
      StoreLog.log(
        .error, path: path,
        "\(CountText.of(places.count, noun: "place")) newly damaged: all is asked of the peers again")
    }
  }

  /// Gives the index that was built its file name. On failure removes the index files, so that no stale one
  /// is trusted.
  func installIndex(_ engine: inout Engine) throws(StoreError) {
    do throws(StoreError) {
      if !engine.index.isInFiles {
        // Built in memory while others were reading.
        let files = try JournalIndex.create(
          engine.context.files, secret: environment.random(16), expected: engine.index.hashIndex.count)
        engine.rebuild(with: files, upTo: engine.applied)
      }
      if engine.index.isInFiles {
        // Built from the current segments: it names no location in a replaced one.
        engine.compaction.installed = engine.journal.segments.map(\.header.compaction).max() ?? 0
        try engine.rewriteSpecialRecords()
        return try engine.index.install(engine.context.files)
      }
    } catch {
      // Without a file the index stays in memory.
      if engine.index.isInFiles {
        engine.index.failure = error
        engine.rebuildIndex()
      }
    }
    try JournalIndex.removeFiles(engine.context.files)
  }

  /// Replays the journal and truncates what recovery decided not to keep.
  private func truncateJournal(
    lastLife: ControlPage.PriorState?, foreign: Bool, _ renewal: inout TransactionBuilder.ActorChangeReason?
  ) throws(StoreError) {
    try core.engine.withLock { engine throws(StoreError) in
      var journal = Journal(
        directory: journalDirectory, environment: environment, store: core.identity.id, writable: true,
        largestSegment: configuration.segmentBytes, keys: journalKeys)
      let blank = try journal.load()
      guard var plan = try journal.plan(journal.scan(), atWatermark: foreign) else { return }
      if lastLife == nil, !foreign {
        try journal.truncateAtLostBlob(&plan) { () throws(StoreError) in
          try BlobTier.blobsForRecovery(at: path, environment: environment, journalKeys: journal.keys)
        }
      }
      var rescued: [[JournalEntry]] = []
      if control.poisoned, !foreign {
        // Pages whose sync failed may be marked clean although they never reached the disk: their content is
        // written once more, elsewhere (rule R4, F31).
        let durable = Location(packed: control.durable)
        // Not from the existing view: a reader may have come first and replayed what an interrupted rescue
        // had left.
        let index = JournalIndex.inMemory(engine.context.files, secret: environment.random(16))
        var all = Engine(engine.context, journal: journal, index: index, compactions: engine.compaction.count)
        all.replay(
          upTo: Location(segment: journal.segments[plan.tailIndex].number, offset: plan.tailOffset),
          indexing: true)
        rescued = try Self.transactions(after: durable, in: all)
        journal.forgetSlots()
        if let index = journal.segments.firstIndex(where: { $0.number == durable.segment }) {
          plan.truncate(at: index, durable.offset)
        }
        renewal = .truncated
      }
      let cut = Location(segment: journal.segments[plan.tailIndex].number, offset: plan.tailOffset)
      // After a power loss the truncated tail may have been sent already, if the disk had lied about a sync;
      // a killed process sends nothing that was not durable. An empty last segment may come from a recovery
      // that was interrupted after truncating.
      let isEmpty = plan.tailIndex > 0 && plan.tailOffset == SegmentHeader.length
      if lastLife.map({ cut.packed < $0.durable }) ?? plan.truncates || isEmpty {
        renewal = foreign ? .copied : .truncated
      }
      guard plan.truncates || blank != nil else { return }
      let last = journal.segments[plan.tailIndex]
      if last.defects.truncatedEnd != nil { try last.file.sync() }
      let durable = Location(
        segment: journal.segments[plan.durableIndex].number, offset: plan.durableOffset)
      // The index built before contains the truncated records.
      let index = JournalIndex.inMemory(engine.context.files, secret: environment.random(16))
      var fresh = Engine(engine.context, journal: journal, index: index, compactions: engine.compaction.count)
      fresh.replay(upTo: cut, indexing: true)
      // If one truncated segment held all rescued transactions, no segment was set aside that would restore
      // the rest after a death between two appends: they are appended together.
      let inSteps = journal.segments.last?.number != cut.segment
      let together =
        inSteps ? Self.count(of: rescued, within: environment.salvageBatchBytes) : rescued.count
      guard
        let end = try fresh.journal.carryOut(
          plan, position: fresh.position, blank: blank, transactions: Array(rescued[..<together]),
          isRescue: !rescued.isEmpty)
      else { return }
      let tail = Location(segment: cut.segment + 1, offset: end)
      fresh.replay(upTo: tail, indexing: true)
      control.tail = tail.packed
      // A file that was cut is not synced again: its mapping is a copy.
      control.resetDurable(to: last.defects.truncatedEnd == nil ? durable.packed : tail.packed)
      if last.defects.truncatedEnd != nil { fresh.journal.lengthen(last) }
      engine.replace(by: fresh)
      for entries in rescued[together...] {
        try writes.commit(entries, extent: AppendExtent(entries), wall: environment.now(), &engine)
      }
      try engine.journal.finishRescue()
    }
  }

  /// Closes a last segment whose file was cut, at the end known to the index.
  ///
  /// The index keeps the locations of lost records, so that only their keys are `.damaged`. The new segment
  /// begins with the records that make this copy a new actor: the end of the closed segment and the actor
  /// change become durable together.
  ///
  /// - Returns: the damage; nil if no record was lost.
  private func closeTruncatedSegment() throws(StoreError) -> JournalDamage? {
    let wall = environment.now()
    return try core.engine.withLock { engine throws(StoreError) in
      guard let last = engine.journal.segments.last, last.defects.truncatedEnd != nil else { return nil }
      // Records that a killed writer had not published do not count.
      let end = engine.applied.offset
      let whole = min(SegmentScan(last, limit: end, isLast: true).end, end)
      let damage = whole < end ? JournalDamage(segment: last.number, bytes: whole..<end) : nil
      var builder = engine.transactionBuilder(wall: wall, limit: .max)
      if let damage {
        let lost = try engine.preDamageIndex?.keys(lostIn: [damage], of: engine) ?? [:]
        try builder.changeActor(.damaged([damage]), as: environment.newActor(), lost: lost)
      }
      try engine.index.beginWriting()
      try last.file.sync()
      let tail = try engine.journal.begin(
        after: end, durable: end, position: engine.position, transactions: [builder.entries],
        claim: .compaction)
      let segment = engine.journal.segments[engine.journal.segments.count - 1]
      control.resetDurable(to: Location(segment: segment.number, offset: SegmentHeader.length).packed)
      control.raiseLastDurableSegment(to: segment.number)
      writes.publish(tail, in: segment, wall: wall, &engine)
      engine.journal.lengthen(last)
      return damage
    }
  }

  /// Number of leading transactions that fit in `limit` bytes.
  private static func count(of transactions: [[JournalEntry]], within limit: Int) -> Int {
    var bytes = 0
    for (count, entries) in transactions.enumerated() {
      bytes += RecordEncoder.bound(entries)
      if bytes > limit { return count }
    }
    return transactions.count
  }

  /// Transactions after a location, as entries that can be appended again.
  private static func transactions(
    after place: Location, in engine: Engine
  ) throws(StoreError) -> [[JournalEntry]] {
    var transactions: [[JournalEntry]] = []
    var open: [JournalEntry] = []
    try engine.visit(from: place) { view throws(StoreError) in
      if let entry = view.entry { open.append(entry) }
      if !view.flags.contains(.continues), !open.isEmpty {
        transactions.append(open)
        open = []
      }
      return true
    }
    return transactions
  }

  /// Replays the whole journal after damage was found in use, and becomes a new actor where rule R9 requires
  /// it.
  func recoverFromDamage() throws(StoreError) {
    try writes.lockWriters()
    let tail: UInt64
    do {
      defer { control.unlock() }
      try core.engine.withLock { engine throws(StoreError) in
        let index = JournalIndex.inMemory(engine.context.files, secret: environment.random(16))
        engine.rebuild(with: index, upTo: engine.applied)
        try installIndex(&engine)
        let damage = engine.newDamage
        if !damage.isEmpty { try changeActor(.damaged(damage), &engine) }
      }
      tail = control.tail
    }
    try journalSync.sync(upTo: tail)
  }

  /// Becomes a new actor. The caller holds the writers' mutex.
  func changeActor(_ renewal: TransactionBuilder.ActorChangeReason, _ engine: inout Engine) throws(StoreError)
  {
    // No limit: there may be hundreds of thousands of damaged places.
    var builder = engine.transactionBuilder(wall: environment.now(), limit: .max)
    let former = builder.state.actor
    let actor = environment.newActor()
    try builder.changeActor(renewal, as: actor, lost: engine.damage.lostKeys)
    if case .truncated = renewal, let former {
      // Backups were durable, and no later end is known here: the backup files are still this copy's own.
      let own = engine.localMetadata.all(beginning: StateKey.backupPrefix).filter {
        $0.value.starts(with: former.bytes)
      }
      for (token, value) in own.sorted(by: { $0.key.lexicographicallyPrecedes($1.key) }) {
        try builder.setLocal(token, actor.bytes + value.dropFirst(former.bytes.count))
      }
    }
    // With the claim of a compaction: without this record the store could not be opened, and no compaction
    // could make room.
    try writes.commit(builder, claim: .compaction, &engine)
  }
}

extension RecordView {
  /// The record as an entry that can be appended again; nil for records that every append makes by itself.
  fileprivate var entry: JournalEntry? {
    switch kind {
    case .value, .blob, .tombstone:
      guard let record = decoded() else { return nil }
      if flags.contains(.loser) { return .loser(record) }
      return flags.contains(.parked)
        ? .parked(record, position: position) : .write(record, position: position)
    case .local: return shape.map { .local(key: key($0), value: value($0)) }
    case .localRemoval: return shape.map { .local(key: key($0), value: nil) }
    case .purge: return purge.map { .purge($0) }
    case .actor, .checkpoint, .epoch, nil: return nil
    }
  }
}

extension Engine {
  /// Damage that this copy has not handled yet. Damage that has grown since it was handled is new.
  fileprivate var newDamage: [JournalDamage] {
    damage.gaps.filter { !state.isHandled($0) }
  }
}

extension JournalDamage {
  /// Where it begins.
  var location: Location { Location(segment: segment, offset: bytes.lowerBound) }
}
