/// Opens a store's directory for one process.
///
/// A process that is alone makes the control page anew and replays the journal as a crash may have left it;
/// any other trusts the page. The first process to open for writing carries out what recovery found.
struct StoreOpener {
  let path: String
  let identity: StoreIdentity
  let configuration: Configuration
  let environment: Environment
  let journalKeys: JournalKeys
  /// Whether the store is where it was written, as of the identity read under the locks.
  private(set) var isAtOriginalPlace = false
  var writable: Bool { configuration.mode != .readOnly }
  var storage: any Storage { environment.storage }

  init(
    path: String, identity: StoreIdentity, configuration: Configuration, environment: Environment,
    journalKeys: JournalKeys
  ) {
    (self.path, self.identity, self.journalKeys) = (path, identity, journalKeys)
    (self.configuration, self.environment) = (configuration, environment)
  }

  func run() throws(StoreError) -> Store {
    let store = try enterDirectory()
    if writable { try? store.reserve.restore() }
    return store
  }

  private func enterDirectory() throws(StoreError) -> Store {
    let file: any StorageFile
    let page: Mapping
    do {
      file = try storage.open(path + "/" + StoreLayout.control, .openOrCreate)
      if try file.sizeAtOpening < ControlPage.length { try file.allocate(to: ControlPage.length) }
      page = try mapControlPage(file)
    } catch {
      // A medium without writes: no other process can write either, so nothing need be shared (F34). On a
      // full medium there is no page yet, so no other process has the store open.
      guard !writable, error.code == .readOnly || error.code == .diskFull else { throw error }
      return try openWithoutLocks()
    }
    guard try file.lock(byte: StoreLayout.entranceByte, .exclusive, wait: true) else { throw busyError }
    defer { _ = try? file.lock(byte: StoreLayout.entranceByte, .none, wait: false) }
    file.dropInForkedChildren()
    let control = ControlPage(mapping: page, lockFile: file)
    if try file.lock(byte: StoreLayout.presenceByte, .exclusive, wait: false) {
      let store = try withCurrentIdentity(file, page: control).openExclusive(file, control: control)
      if configuration.mode != .exclusive {
        guard try file.lock(byte: StoreLayout.presenceByte, .shared, wait: false) else { throw busyError }
      }
      return store
    }
    guard configuration.mode != .exclusive,
      try file.lock(byte: StoreLayout.presenceByte, .shared, wait: false)
    else { throw busyError }
    return try withCurrentIdentity(file, page: control).openShared(file, control: control)
  }

  /// Maps the control page through a second open file. A forked child inherits mappings; with the first file
  /// it would keep the locks of a process that dies.
  private func mapControlPage(_ control: any StorageFile) throws(StoreError) -> Mapping {
    let file = try storage.open(control.path, .readWrite)
    guard try file.statusAtOpening.inode == control.statusAtOpening.inode else { throw movedError }
    return try file.map(ControlPage.length, writable: true)
  }

  private var movedError: StoreError {
    StoreError(.busy, "the store was moved, removed or replaced meanwhile: open it again", path: path)
  }

  /// An opener with the identity as of now, with the locks held. Before, the directory may have been moved,
  /// removed or replaced by a restored one, or a copied directory may have become a store of its own that has
  /// been written to since.
  private func withCurrentIdentity(_ control: any StorageFile, page: ControlPage) throws(StoreError)
    -> StoreOpener
  {
    guard try storage.status(control.path)?.inode == control.statusAtOpening.inode,
      try storage.resolvesToAnchor(path),
      let (present, isAtHome) = try StoreIdentity.reread(
        at: path, environment, known: identity, home: control.isMarked ? page.home(inBoot: boot) : nil),
      present.id == identity.id
    else { throw movedError }
    var opening = StoreOpener(
      path: path, identity: present, configuration: configuration, environment: environment,
      journalKeys: journalKeys)
    opening.isAtOriginalPlace = isAtHome
    return opening
  }

  private var busyError: StoreError {
    if ExclusiveDirectoryLock.isHeldByThisProcess(path) {
      return StoreError(
        .busy,
        "this process has the store closed for a restore, a removal or a move (`StoreHandle.close(_:)`): open it afterwards",
        path: path)
    }
    let by = storage.presentProcesses(path + "/" + StoreLayout.control, otherwise: "another process")
    return StoreError(.busy, "the store is open in \(by): stop it, or open both in shared mode", path: path)
  }

  func journal() -> Journal {
    Journal(
      directory: path + "/" + StoreLayout.journal, environment: environment, store: identity.id,
      writable: writable,
      largestSegment: configuration.segmentBytes, keys: journalKeys)
  }

  /// The boot as recorded in files; 0 if the machine does not tell.
  private var boot: UInt64 { environment.bootWord }

  var files: JournalIndex.Files {
    JournalIndex.Files(
      storage: storage, directory: path, store: identity.id, boot: boot, journalKeys: journalKeys)
  }

  func engineContext(_ control: ControlPage) -> Engine.Context {
    Engine.Context(
      environment: environment, control: control, files: files,
      isSoleProcess: configuration.mode == .exclusive,
      readers: EpochProtected())
  }

  private func inMemoryIndex() -> JournalIndex {
    JournalIndex.inMemory(files, secret: environment.random(16))
  }

  func makeStore(_ file: any StorageFile, control: ControlPage, engine: consuming sending Engine)
    -> Store
  {
    engine.status.needsRecovery = !control.recovered
    return Store(
      OpenStore(
        path: path, identity: identity, configuration: configuration, environment: environment,
        control: control, controlFile: file, engine: engine))
  }

  private func openShared(_ file: any StorageFile, control: ControlPage) throws(StoreError) -> Store {
    try control.join(writes: writable, path)
    // A recovering process may yet replace the index files.
    var engine = try control.recovered ? engineSharingIndex(control) : nil
    if engine == nil {
      if writable, !control.recovered, try journal().hasUnsynced {
        // Readers have taken the present content for the journal, and its end for the tail.
        throw StoreError(
          .busy,
          "a recovery from a failed sync was interrupted, and another process reads the store meanwhile: end that one, then open the store for writing",
          path: path)
      }
      engine = try engineReadingJournal(control)
      // Processes that share an index would not find this one's writes in it.
      if writable, control.recovered { try JournalIndex.removeFiles(files) }
    }
    guard let engine else { throw busyError }
    let store = makeStore(file, control: control, engine: engine)
    // Otherwise recovery sets the actor.
    if writable, control.recovered { _ = try store.actor }
    if writable, !control.recovered {
      try store.recovery.recover(identity, lastLife: nil, isCopied: !isAtOriginalPlace, finding: nil)
    }
    return store
  }

  /// A view that shares the index of other processes; nil if there is none, or no consistent state could be
  /// read.
  private func engineSharingIndex(_ control: ControlPage) throws(StoreError) -> Engine? {
    for _ in 0..<Self.maxAttempts {
      // Read first: compactions from now on are noticed at the next catch-up.
      let (compactions, adopted) = (control.compactions, control.installedCompactions)
      guard let index = try JournalIndex.open(files, writable: writable),
        let done = try self.installedCompaction(index)
      else { return nil }
      var isUnfinished = false
      let journal = try loadShared(control, adopted: done, isUnfinished: &isUnfinished)
      var engine = Engine(engineContext(control), journal: journal, index: index, compactions: compactions)
      guard try restore(&engine), control.compactions == compactions, control.installedCompactions == adopted
      else {
        continue
      }
      engine.replay(upTo: Location(packed: control.tail), indexing: false)
      // The compacted copies are installed at the next catch-up, unless the compacting process has not
      // announced them yet: until then the index names the segments that they replace.
      if isUnfinished, adopted < compactions { engine.compaction.count &-= 1 }
      try engine.loadReplaced()
      return engine
    }
    return nil
  }

  private func engineReadingJournal(_ control: ControlPage) throws(StoreError) -> Engine {
    let compactions = control.compactions
    // A full replay includes every compaction.
    var isUnfinished = false
    let journal = try loadShared(control, adopted: .max, isUnfinished: &isUnfinished)
    var engine = Engine(
      engineContext(control), journal: journal, index: inMemoryIndex(), compactions: compactions)
    engine.replay(upTo: Location(packed: control.tail), indexing: true)
    attributeDamage(&engine)
    return engine
  }

  /// Finds the keys lost in newly found damage, in the index of the last process or of others.
  private func attributeDamage(_ engine: inout Engine) {
    guard isAtOriginalPlace, !engine.damage.unattributed.isEmpty,
      let index = try? JournalIndex.open(files, writable: false), let former = PreDamageIndex(index)
    else { return }
    engine.attributeDamage(by: former)
  }

  /// Restores the state from the index checkpoint. False if it cannot be trusted: then the journal is
  /// replayed.
  func restore(_ engine: inout Engine) throws(StoreError) -> Bool {
    do throws(StoreError) {
      return try engine.restoreFromCheckpoint() && engine.state.actor != nil && !engine.indexIsInvalid
    } catch {
      guard error.code == .damaged || error.code == .closed else { throw error }
      return false
    }
  }

  private static let maxAttempts = 20

  /// Maps the segments up to the tail. Retries if compaction removed one between listing and opening.
  private func loadShared(
    _ control: ControlPage, adopted: UInt32, isUnfinished: inout Bool
  ) throws(StoreError) -> Journal {
    var failure: StoreError?
    for _ in 0..<Self.maxAttempts {
      var journal = journal()
      do throws(StoreError) {
        _ = try journal.loadUnfinished(
          storage.list(journal.directory), adopted: adopted, &isUnfinished)
        // Others may have begun segments since the listing; segments after the tail may yet be truncated by a
        // recovering process.
        let tail = Location(packed: control.tail)
        if let place = journal.index(of: tail.segment) { journal.drop(after: place) }
        try journal.extend(to: tail.segment)
        try journal.checkEnd()
        return journal
      } catch {
        guard error.code == .inputOutput || error.code == .damaged else { throw error }
        failure = error
      }
    }
    throw failure ?? busyError
  }

  private func openExclusive(_ file: any StorageFile, control: ControlPage) throws(StoreError) -> Store {
    let last = control.begin(boot: boot, isKept: file.isMarked)
    // Only now: the page content that the disk may hold has been invalidated.
    file.mark()
    try control.join(writes: writable, path)
    // No other process is here to change them.
    let names =
      try writable ? journal().restoreUnsyncedNames() : storage.list(path + "/" + StoreLayout.journal)
    var found = try openFromCheckpoint(file, control: control, last: last, names: names)
    if found == nil { found = try read(file, control: control, last: last) }
    guard let (store, finding) = found else { throw busyError }
    if writable {
      try store.recovery.recover(identity, lastLife: last, isCopied: !isAtOriginalPlace, finding: finding)
    }
    // A failure, as on a failing disk, does not prevent opening: the next process tries again.
    if writable { try? Leftovers.remove(path, storage: storage, isEncrypted: journalKeys.isEncrypted) }
    return store
  }

  private func openWithoutLocks() throws(StoreError) -> Store {
    let control = ControlPage(mapping: .anonymous(ControlPage.length))
    _ = control.begin(boot: 0, isKept: false)
    try control.join(writes: false, path)
    let identityFile = try storage.open(path + "/" + StoreIdentity.fileName, .readOnly)
    return try read(identityFile, control: control, last: nil).0
  }

  /// Replays the journal up to the end of its valid part. Writes nothing but the control page.
  private func read(
    _ file: any StorageFile, control: ControlPage, last: ControlPage.PriorState?
  ) throws(StoreError) -> (Store, ReplayResult) {
    var journal = journal()
    let blank = try journal.load()
    let scans = journal.scan()
    guard var plan = try journal.plan(scans, atWatermark: false) else {
      throw StoreError(.damaged, "the journal has no segment: restore the store from a backup", path: path)
    }
    if last == nil {
      try journal.truncateAtLostBlob(&plan) { () throws(StoreError) in
        try BlobTier.blobsForRecovery(at: path, environment: environment, journalKeys: journal.keys)
      }
    }
    let tail = Location(segment: journal.segments[plan.tailIndex].number, offset: plan.tailOffset)
    let durable = Location(segment: journal.segments[plan.durableIndex].number, offset: plan.durableOffset)
    let whole = zip(journal.segments, scans).filter { $0.1.gaps.isEmpty }.map(\.0)
    journal.drop(after: plan.tailIndex)
    let records = scans.reduce(0) { $0 + $1.records }
    var engine = Engine(
      engineContext(control), journal: journal, index: newIndex(expecting: records),
      compactions: control.compactions)
    engine.replay(upTo: tail, seen: Set(whole.map(\.number)), indexing: true)
    // Pages may have faulted since the segments were found intact.
    try engine.journal.checkFaults(whole)
    if !control.poisoned { attributeDamage(&engine) }
    control.tail = tail.packed
    control.position = engine.position
    control.resetDurable(to: max(durable.packed, min(last?.durable ?? 0, tail.packed)))
    let finding = ReplayResult(
      tail: tail, endsEmpty: plan.tailIndex > 0 && plan.tailOffset == SegmentHeader.length,
      needsNoTruncation: !plan.truncates && blank == nil, isUnfinished: false)
    return (makeStore(file, control: control, engine: engine), finding)
  }

  /// An empty index to be filled; in memory for read-only processes, or if no file can be created.
  private func newIndex(expecting records: Int) -> JournalIndex {
    guard writable else { return inMemoryIndex() }
    let secret = environment.random(16)
    // A full disk must not prevent reading.
    return (try? JournalIndex.create(files, secret: secret, expected: records)) ?? inMemoryIndex()
  }

  /// The result of a replay at opening.
  struct ReplayResult {
    /// The end of the valid part.
    var tail: Location
    /// Whether the last segment is empty.
    var endsEmpty: Bool
    /// Whether nothing has to be truncated.
    var needsNoTruncation: Bool
    /// Whether the index must be moved over to the segments of a compaction.
    var isUnfinished: Bool
  }
}
