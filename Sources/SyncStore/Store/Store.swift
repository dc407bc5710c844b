internal import Synchronization

/// An offline-first key-value store: one directory whose append log is also its replication journal.
///
/// Thread-safe. All calls block for as long as the work takes; reads never wait for a sync. The life of a write:
/// `transaction` → `TransactionBuilder` (rules) → `Journal` (append) → `Engine.absorb` (index) → `sync` (durability).
public final class Store: Sendable {
  /// The directory.
  public let path: String
  /// The data set that all copies of this store share.
  public let id: StoreID
  /// The name that `create` was given.
  public let name: String
  /// How it was opened.
  public let configuration: Configuration

  /// Storage, clock and randomness.
  package let environment: Environment
  let control: ControlPage
  let engine: LockedField<Engine>
  /// What threads read from without the engine's lock.
  let readers: EpochProtected
  /// The keys of this opening.
  let journalKeys: JournalKeys
  let journalDirectory: String
  let controlFile: any StorageFile
  /// The syncs made by this instance.
  let syncs = GroupCommit()
  let lifecycle = LockedField(Lifecycle())
  let closed = Atomic(false)
  /// Was anything appended by this instance?
  private let hasWritten = Atomic(false)
  /// The segment whose successor is being made ready, or was.
  let prepared = Atomic<UInt32>(0)
  /// That one, once it is ready.
  let preparedSegment = LockedField<Journal.PreparedSegment?>(nil)
  /// Compactions made by this instance; held while one runs.
  let compacting = LockedField(0)
  /// Held while a file of secrets is changed.
  let changingKeyFiles = LockedField(())
  /// Blobs that are missing, as the whole journal was last looked through for who refers to them.
  let missingBlobsCache = LockedField<MissingBlobs?>(nil)
  /// The session that brings keys which this copy lacks.
  let scopeExpansionClaim = LockedField(ScopeExpansionClaim())
  /// Holds writers back while there are too many dead bytes.
  let writeThrottle = WriteThrottle()
  /// Orders of all keys made by this instance; held while one is.
  let ordering = LockedField(0)
  let forkGeneration: UInt32
  private let lazyBlobs = LockedField<BlobStore?>(nil)
  /// Has this instance made durable what earlier ones have left in the blob tier?
  let hasSyncedBlobs = Atomic(false)
  /// Tells those who follow the journal that it has grown.
  let changeSignal: ChangeSignal
  /// The thread whose transaction is under way here; 0 if there is none.
  let transactionThread = Atomic<UInt>(0)
  /// What sessions that stay open have in common.
  let liveSessions = LiveSessions()
  /// Fetches blobs that are read and are not here.
  let blobFetching = LockedField<BlobFetching?>(nil)
  /// Writes of those who do not wait themselves.
  let asyncWriter = AsyncWriter()

  struct Lifecycle {
    var syncScheduled = false
    var compactionScheduled = false
    /// The last position when it was last looked for what can be purged.
    var purgedAt: UInt64 = 0
    /// Up to here the journal has no delete that was not acknowledged.
    var deletesScannedTo: UInt64 = 0
    /// Keys from which on building the index anew takes longer than the syncs that spare it. Tests lower it.
    var keysWorthClosing = 1 << 16
  }

  init(
    path: String, identity: StoreIdentity, configuration: Configuration, environment: Environment,
    control: ControlPage, controlFile: any StorageFile, engine: consuming sending Engine
  ) {
    self.path = path
    id = identity.id
    name = identity.name
    self.configuration = configuration
    self.environment = environment
    self.control = control
    self.controlFile = controlFile
    changeSignal = ChangeSignal(control, isShared: configuration.mode != .exclusive)
    journalDirectory = path + "/" + StoreLayout.journal
    readers = engine.readers
    journalKeys = engine.journal.keys
    var engine = engine
    engine.isPublished = true
    engine.publish()
    self.engine = LockedField(engine)
    forkGeneration = SystemCall.forkGeneration
  }

  /// May it be written to?
  package var isWritable: Bool { configuration.mode != .readOnly }

  /// The present incarnation of this copy.
  ///
  /// - Throws: `.damaged` if the journal does not say; `.closed`, `.forked`.
  public var actor: ActorID {
    get throws(StoreError) {
      try reading { engine throws(StoreError) in
        guard let actor = engine.state.actor else { throw missingActorError }
        return actor
      }
    }
  }

  /// Why nothing can be asked of a copy whose journal has lost the record of its actor.
  var missingActorError: StoreError {
    StoreError(
      .damaged,
      "the journal does not say under which name this copy writes: close it everywhere, then open it for writing",
      path: path)
  }

  /// The blob tier, opened at first use.
  package var blobs: BlobStore {
    get throws(StoreError) {
      try checkUsable()
      return try lazyBlobs.withLock { blobs throws(StoreError) in
        if let blobs { return blobs }
        // Closing takes the tier away under this lock: none may be opened behind that.
        try checkUsable()
        // Opening makes missing directories: not among the files of another store. From then on the tier checks by itself.
        if isWritable { try checkDirectoryHoldsStore() }
        let opened = try BlobStore.open(
          directory: path + "/" + StoreLayout.blobs, storage: environment.storage, readOnly: !isWritable,
          isShared: configuration.mode != .exclusive, boot: environment.bootWord,
          keys: BlobKeySource(journalKeys),
          clock: environment.now, random: environment.randomWord
        ) { [weak self] error in _ = self?.poisoned(by: error) }
        blobs = opened
        return opened
      }
    }
  }

  /// The blob tier if this instance has opened it.
  var openedBlobs: BlobStore? { lazyBlobs.withLock { $0 } }

  // MARK: Access to the engine

  /// Works on this process's view, brought up to date first. `body` may be run more than once: what it did with an index
  /// that turned out to be damaged does not count.
  @inline(__always)
  func reading<Result>(
    _ body: (inout Engine) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    try checkUsable()
    return try engine.withLock { engine throws(StoreError) in
      while true {
        try catchUp(&engine)
        do throws(StoreError) {
          let result = try body(&engine)
          if !engine.indexIsInvalid { return result }
        } catch {
          if !engine.indexIsInvalid { throw error }
        }
        engine.rebuildIndex()
      }
    }
  }

  /// Works on the view while nobody can change the index, where that can be had; `body` is told so.
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

  /// Reads what other processes have committed since.
  @inline(__always)
  func catchUp(_ engine: inout Engine) throws(StoreError) {
    if engine.isBehind { try engine.catchUp() }
  }

  func checkUsable() throws(StoreError) {
    guard SystemCall.forkGeneration == forkGeneration else {
      throw StoreError(
        .forked, "the store was opened before this process was forked: open it again here", path: path)
    }
    try checkOpen()
  }

  @inline(__always)
  func checkOpen() throws(StoreError) {
    guard !closed.load(ordering: .acquiring) else {
      throw StoreError(.closed, "the store was closed: open it again", path: path)
    }
  }

  func checkWritable() throws(StoreError) {
    try checkUsable()
    guard isWritable else {
      throw StoreError(
        .readOnly, "the store was opened for reading only: open it in another mode", path: path)
    }
  }

  /// - Throws: `.poisoned` once a sync has failed, in this process or in another one that has the store open: nothing more is
  ///   acknowledged until all of them have closed it.
  package func checkSyncs() throws(StoreError) {
    if control.poisoned { throw poisonedError }
  }

  var poisonedError: StoreError {
    StoreError(
      .poisoned,
      "a sync failed, nothing more is acknowledged: check the disk, then close and open the store again",
      path: path)
  }

  /// Syncs of the journal made by this instance: fewer than durable writes when writers share them.
  package var syncCount: Int { syncs.count }

  func recordWrite() {
    if !hasWritten.load(ordering: .relaxed) { hasWritten.store(true, ordering: .relaxed) }
  }

  // MARK: Closing

  /// Makes everything durable and lets the directory go. Calls after it fail with `.closed`; a second one does nothing.
  ///
  /// - Throws: as `sync`; `.busy` within a transaction of this thread: nothing was closed then. Otherwise it
  ///   is closed in any case.
  public func close() throws(StoreError) {
    guard !closed.load(ordering: .acquiring) else { return }
    let isParent = SystemCall.forkGeneration == forkGeneration
    if isWritable, isParent { try checkNotWriting("close the store") }
    defer {
      isWritable && isParent ? endWriting() : closed.store(true, ordering: .releasing)
      // What another thread is making durable it counts in the control file, which may be another process's soon.
      if isWritable, isParent {
        try? syncs.wait {
          false
        } work: {
        }
      }
      engine.withLock { engine in
        engine.isPublished = false
        readers.publish(nil)
      }
      preparedSegment.withLock { $0 = nil }
      journalKeys.decryptedRecords?.removeAll()
      // Who follows the journal is told that it is closed.
      changeSignal.wakeLocal()
      // It works on files that may be another process's soon.
      if isParent { compacting.withLock { _ in } }
      StoreRegistry.shared.forget(self)
      // A forked process leaves to its parent what it shares with it.
      if isParent {
        lazyBlobs.withLock { blobs in
          blobs?.close()
          blobs = nil
        }
        // Given back now, not when the last reference goes.
        _ = try? controlFile.lock(byte: StoreLayout.presenceByte, .none, wait: false)
      }
    }
    guard isParent, isWritable, !control.poisoned else { return }
    // Also what others left, who were killed.
    try sync()
    if hasWritten.load(ordering: .relaxed) {
      // Carries the watermark over all that was just synced; itself it may be lost, so a full disk is no matter.
      do throws(StoreError) {
        try append { (composer: inout TransactionBuilder) throws(StoreError) in try composer.checkpoint() }
      } catch {
        guard error.code == .diskFull else { throw error }
      }
      try closeIndex()
    }
  }

  /// Notes that the index has all of the journal, if nobody else has the store open: then it is believed in another boot,
  /// too. It is a part of closing that may be left out: where somebody writes just now, it is. Where it is done, the store is
  /// closed from then on.
  private func closeIndex() throws(StoreError) {
    guard let keys = try? engine.withLock({ engine throws(StoreError) in try engine.index.hashIndex.count }),
      keys >= lifecycle.withLock({ $0.keysWorthClosing }),
      try controlFile.lock(byte: StoreLayout.entranceByte, .exclusive, wait: false)
    else { return }
    defer { _ = try? controlFile.lock(byte: StoreLayout.entranceByte, .none, wait: false) }
    guard try controlFile.lock(byte: StoreLayout.presenceByte, .exclusive, wait: false) else { return }
    // Others come in as soon as they can: closing goes on for a while.
    defer {
      if configuration.mode != .exclusive {
        _ = try? controlFile.lock(byte: StoreLayout.presenceByte, .shared, wait: false)
      }
    }
    try sync()
    // Nobody is about to write, and nobody begins to: what the index does not have, or what is not durable, must not come
    // behind the note.
    let acquisition = control.lock(waits: false)
    if case .heldByOther = acquisition { return }
    defer { control.unlock() }
    if case .ownerDied = acquisition { try recoverDeadWriterOrPoison() }
    closed.store(true, ordering: .releasing)
    guard !control.poisoned else { return }
    try? engine.withLock { engine throws(StoreError) in
      let tail = control.tail
      guard engine.applied.packed == tail, control.durable >= tail, engine.gaps.isEmpty else { return }
      try engine.index.close()
    }
  }

  /// Refuses what is not to be done by a thread within a transaction: it would wait for others, who wait for the transaction.
  func checkNotWriting(_ what: String) throws(StoreError) {
    let acquisition = control.lock(waits: false)
    switch acquisition {
    case .heldByOther: return
    case .clean, .ownerDied:
      defer { control.unlock() }
      if case .ownerDied = acquisition { try recoverDeadWriterOrPoison() }
    case .alreadyHeld:
      throw StoreError(.busy, "a transaction of this thread is under way: \(what) behind it", path: path)
    }
  }

  /// Closes while nobody writes: who waited for the mutex meanwhile is refused, lest it write when another process has
  /// the directory.
  private func endWriting() {
    let acquisition = control.lock()
    if case .ownerDied = acquisition { try? recoverDeadWriterOrPoison() }
    closed.store(true, ordering: .releasing)
    control.unlock()
  }
}

/// Names within a store's directory.
enum StoreLayout {
  static let journal = "journal"
  static let blobs = "blobs"
  static let control = "control"
  /// Locked, shared or exclusively, by every process that has the store open.
  static let presenceByte = 0
  /// Locked while a process enters.
  static let entranceByte = 1
  /// Locked by the process that compacts.
  static let compactionByte = 2
  /// Locked by the process that changes a file of secrets.
  static let keyFilesByte = 3
  /// Locked, by an open file of its own, by the node whose address is the one that was noted.
  static let listenerByte = 4
}
