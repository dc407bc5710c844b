/// What the first process that opens a store for writing puts right.
extension Store {
  /// Carries out what recovery decided, and becomes a new actor where rule R9 asks for it. Does nothing if another
  /// process has done it since this control page was begun. A store that `isCopied` does not lie where it was written; `finding` is what
  /// was found by the one who made the page.
  func recover(
    _ identity: StoreIdentity, lastLife: ControlPage.PriorState?, isCopied: Bool,
    finding: StoreOpener.ReplayResult?
  ) throws(StoreError) {
    let acquisition = control.lock()
    defer { control.unlock() }
    guard !control.recovered else {
      if case .ownerDied = acquisition { try recoverDeadWriterOrPoison() }
      return
    }
    if isCopied { try engine.withLock { engine throws(StoreError) in try engine.journal.checkCopy() } }
    // Who died in the middle of this left nothing that is not done again from the start.
    var renewal: TransactionBuilder.ActorChangeReason? = isCopied ? .copied : nil
    var cutDamage: JournalDamage?
    // Who copied it need not have made that last; what is in it counts as durable from here on.
    if isCopied { try environment.storage.syncFileSystem(path) }
    if isCopied || lastLife == nil {
      try engine.withLock { engine throws(StoreError) in try engine.journal.removeUsed() }
    }
    if let finding, finding.needsNoTruncation, !isCopied, !control.poisoned {
      // As below, without reading everything once more.
      if finding.endsEmpty || lastLife.map({ finding.tail.packed < $0.durable }) ?? false {
        renewal = .truncated
      }
      cutDamage = try closeTruncatedSegment()
    } else {
      try truncateJournal(lastLife: lastLife, foreign: isCopied, &renewal)
    }
    try engine.withLock { engine throws(StoreError) in
      if !engine.index.isShared {
        try engine.journal.removeReplaced()
        try installIndex(&engine)
      }
    }
    let damage = engine.withLock { $0.newDamage }
    if !damage.isEmpty {
      renewal = .damaged(damage)
    } else if renewal == nil, engine.withLock({ $0.state.actor }) == nil {
      renewal = .actorRecordMissing
    }
    if let renewal {
      try engine.withLock { engine throws(StoreError) in try changeActor(renewal, &engine) }
    } else if let cutDamage {
      renewal = .damaged([cutDamage])
    }
    try makeNameDurable()
    // Last: who dies before this is followed by one who does it all again.
    control.clearPoison()
    control.setRecovered(boot: environment.bootWord)
    if !isCopied { control.home = identity.homeWord }
    engine.withLock { $0.needsRecovery = false }
    if finding?.isUnfinished ?? false {
      scheduleCompaction(isUrgent: environment.compactionMode == .byNextWriter)
    }
    guard let renewal else { return }
    logActorChange(renewal)
    do throws(StoreError) { try sync(upTo: control.tail) } catch {
      // The name lasts with the first write that does. One that came to this place is given it again by the next who opens it.
      guard error.code == .diskFull, !control.poisoned else { throw error }
      return
    }
    guard isCopied else { return }
    try StoreIdentity.write(id: id, name: name, to: path, environment: environment)
    if let identity = try StoreIdentity.read(path, storage: environment.storage) {
      control.home = identity.homeWord
    }
  }

  /// Makes the names durable by which the store is found, unless that is known. Who made it, or gave it this place, may have died before
  /// it did so, or be a program that does not, and what is written into it from now on is acknowledged.
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

  /// Gives the index that was built its name; where that cannot be, it is made sure that no other one is believed.
  func installIndex(_ engine: inout Engine) throws(StoreError) {
    do throws(StoreError) {
      if !engine.index.isInFiles {
        // Built beside those who read.
        let files = try JournalIndex.create(
          engine.files, secret: environment.random(16), expected: engine.index.hashIndex.count)
        engine.rebuild(with: files, upTo: engine.applied)
      }
      if engine.index.isInFiles {
        // What was read to build it is what counts: it names nothing that was replaced.
        engine.installedCompaction = engine.journal.segments.map(\.header.compaction).max() ?? 0
        try engine.rewriteSpecialRecords()
        return try engine.index.install(engine.files)
      }
    } catch {
      // Without a file for it, it stays in memory.
      if engine.index.isInFiles {
        engine.index.failure = error
        engine.rebuildIndex()
      }
    }
    try JournalIndex.removeFiles(engine.files)
  }

  /// Reads the journal and cuts off what recovery decided not to keep.
  private func truncateJournal(
    lastLife: ControlPage.PriorState?, foreign: Bool, _ renewal: inout TransactionBuilder.ActorChangeReason?
  ) throws(StoreError) {
    try engine.withLock { engine throws(StoreError) in
      var journal = Journal(
        directory: journalDirectory, environment: environment, store: id, writable: true,
        largestSegment: configuration.segmentBytes, seal: journalKeys)
      let blank = try journal.load()
      guard var plan = try journal.plan(journal.scan(), atWatermark: foreign) else { return }
      if lastLife == nil, !foreign {
        try journal.truncateAtLostBlob(&plan) { () throws(StoreError) in
          try Store.blobsForRecovery(at: path, environment: environment, seal: journal.keys)
        }
      }
      var rescued: [[JournalEntry]] = []
      if control.poisoned, !foreign {
        // Pages whose sync failed may be called clean though they never reached the disk: what they hold is written
        // once more, elsewhere (rule R4, F31).
        let durable = Location(packed: control.durable)
        // Not from the view that there is: a reader may have come first, and read what an interrupted rescue had left.
        let index = JournalIndex.inMemory(engine.files, secret: environment.random(16))
        var all = Engine(engine.context, journal: journal, index: index, compactions: engine.compactions)
        all.replay(
          upTo: Location(segment: journal.segments[plan.tailIndex].number, offset: plan.tailOffset),
          indexing: true)
        rescued = try Self.transactions(behind: durable, in: all)
        journal.forgetSlots()
        if let index = journal.segments.firstIndex(where: { $0.number == durable.segment }) {
          plan.truncate(at: index, durable.offset)
        }
        renewal = .truncated
      }
      let cut = Location(segment: journal.segments[plan.tailIndex].number, offset: plan.tailOffset)
      // After a loss of power a lost tail may have been seen, if the disk had lied; a killed process ships nothing that
      // was not durable. A segment with nothing in it may be where a recovery was interrupted that had cut.
      let isEmpty = plan.tailIndex > 0 && plan.tailOffset == SegmentHeader.length
      if lastLife.map({ cut.packed < $0.durable }) ?? plan.truncates || isEmpty {
        renewal = foreign ? .copied : .truncated
      }
      guard plan.truncates || blank != nil else { return }
      let last = journal.segments[plan.tailIndex]
      if last.truncatedEnd != nil { try last.file.sync() }
      let durable = Location(
        segment: journal.segments[plan.durableIndex].number, offset: plan.durableOffset)
      // What is cut off was entered into the index that was built before.
      let index = JournalIndex.inMemory(engine.files, secret: environment.random(16))
      var fresh = Engine(engine.context, journal: journal, index: index, compactions: engine.compactions)
      fresh.replay(upTo: cut, indexing: true)
      // Where the one segment that is cut holds them all, there is none to set aside that would bring the rest back after a death
      // between two steps.
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
      control.resetDurable(to: last.truncatedEnd == nil ? durable.packed : tail.packed)
      if last.truncatedEnd != nil { fresh.journal.lengthen(last) }
      engine.replace(by: fresh)
      for entries in rescued[together...] {
        try commit(entries, extent: AppendExtent(entries), wall: environment.now(), &engine)
      }
      try engine.journal.finishRescue()
    }
  }

  /// Seals a last segment whose file was cut, at the end that the index knows: the index keeps the places of lost
  /// records, so that only their keys are `.damaged`. The new segment begins with the records that make this copy a
  /// new actor: the seal and the renewal become durable together. Returns the damage; nil if no record was lost.
  private func closeTruncatedSegment() throws(StoreError) -> JournalDamage? {
    let wall = environment.now()
    return try engine.withLock { engine throws(StoreError) in
      guard let last = engine.journal.segments.last, last.truncatedEnd != nil else { return nil }
      // Of what a killed writer had not published nothing counts.
      let end = engine.applied.offset
      let whole = min(SegmentScan(last, limit: end, isLast: true).end, end)
      let damage = whole < end ? JournalDamage(segment: last.number, bytes: whole..<end) : nil
      var composer = engine.transactionBuilder(wall: wall, limit: .max)
      if let damage {
        let lost = try engine.preDamageIndex?.keys(lostIn: [damage], of: engine) ?? [:]
        try composer.changeActor(.damaged([damage]), as: environment.newActor(), lost: lost)
      }
      try engine.index.beginWriting()
      try last.file.sync()
      let tail = try engine.journal.begin(
        after: end, durable: end, position: engine.position, transactions: [composer.entries],
        claim: .compaction)
      let segment = engine.journal.segments[engine.journal.segments.count - 1]
      control.resetDurable(to: Location(segment: segment.number, offset: SegmentHeader.length).packed)
      control.raiseLastDurableSegment(to: segment.number)
      publish(tail, in: segment, wall: wall, &engine)
      engine.journal.lengthen(last)
      return damage
    }
  }

  /// How many of the transactions, from the first, fit in so many bytes.
  private static func count(of transactions: [[JournalEntry]], within limit: Int) -> Int {
    var bytes = 0
    for (count, entries) in transactions.enumerated() {
      bytes += RecordEncoder.bound(entries)
      if bytes > limit { return count }
    }
    return transactions.count
  }

  /// Transactions behind a place, as entries that can be appended once more.
  private static func transactions(
    behind place: Location, in engine: Engine
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

  /// Reads all of the journal again, which was damaged while in use, and does what rule R9 asks for.
  func recoverFromDamage() throws(StoreError) {
    try lockWriters()
    let tail: UInt64
    do {
      defer { control.unlock() }
      try engine.withLock { engine throws(StoreError) in
        let index = JournalIndex.inMemory(engine.files, secret: environment.random(16))
        engine.rebuild(with: index, upTo: engine.applied)
        try installIndex(&engine)
        let damage = engine.newDamage
        if !damage.isEmpty { try changeActor(.damaged(damage), &engine) }
      }
      tail = control.tail
    }
    try sync(upTo: tail)
  }

  /// Becomes a new actor. The caller holds the writers' mutex.
  func changeActor(_ renewal: TransactionBuilder.ActorChangeReason, _ engine: inout Engine) throws(StoreError)
  {
    // There may be hundreds of thousands of damaged places.
    var composer = engine.transactionBuilder(wall: environment.now(), limit: .max)
    let former = composer.state.actor
    let actor = environment.newActor()
    try composer.changeActor(renewal, as: actor, lost: engine.lostKeysByDamage)
    if case .truncated = renewal, let former {
      // What was backed up was durable before, and a later end is not known here: the files are still this copy's own.
      let own = engine.localMetadata.all(beginning: StateKey.backupPrefix).filter {
        $0.value.starts(with: former.bytes)
      }
      for (token, value) in own.sorted(by: { $0.key.lexicographicallyPrecedes($1.key) }) {
        try composer.setLocal(token, actor.bytes + value.dropFirst(former.bytes.count))
      }
    }
    // Without it the store could not be opened, and no compaction could make room.
    try commit(composer, claim: .compaction, &engine)
  }

  /// Repairs; if that fails, nobody writes any more. The caller holds the writers' mutex.
  func recoverDeadWriterOrPoison() throws(StoreError) {
    do throws(StoreError) {
      try engine.withLock { engine throws(StoreError) in try recoverDeadWriter(&engine) }
    } catch {
      control.setPoisoned()
      throw error
    }
  }

  /// After the death of a writer: takes in what it had stored whole, blanks the rest (F2, F13). The caller holds the
  /// writers' mutex.
  func recoverDeadWriter(_ engine: inout Engine) throws(StoreError) {
    try engine.changeSharedIndex { engine throws(StoreError) in
      try engine.index.beginWriting()
      _ = try engine.index.hashIndex.recoverIntent()
    }
    try catchUp(&engine)
    var tail = Location(packed: control.tail)
    if engine.journal.isNamed(tail.segment + 1) {
      // It may have died before it made the name durable.
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

extension RecordView {
  /// The record as an entry that can be appended once more; nil for what an append makes by itself.
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
  /// Damage that this copy has not acted upon: what goes further than it did then is new.
  fileprivate var newDamage: [JournalDamage] {
    gaps.filter { gap in state.handledDamage[gap.location].map { gap.bytes.upperBound > Int($0) } ?? true }
  }
}

extension JournalDamage {
  /// Where it begins.
  var location: Location { Location(segment: segment, offset: bytes.lowerBound) }
}
