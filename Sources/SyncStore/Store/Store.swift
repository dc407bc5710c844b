internal import Synchronization

/// An offline-first key-value store: one directory whose append log is also its replication journal.
///
/// Thread-safe. All calls block for as long as the work takes; asynchronous code makes them inside `run`
/// (`BlockingCalls`) or uses `AsyncStore`. Reads never wait for a sync. The path of a write: `transaction` →
/// `TransactionBuilder` (rules) → `Journal` (append) → `Engine.replay` (index) → `sync` (durability).
public final class Store: Sendable {
  /// The store's directory.
  public let path: String
  /// The data set that all copies of this store share.
  public let id: StoreID
  /// The name that `create` was given.
  public let name: String
  /// The configuration that the store was opened with.
  public let configuration: Configuration

  /// Storage, clock and randomness.
  package let environment: Environment
  let control: ControlPage
  let engine: LockedField<Engine>
  /// State that threads read without the engine's lock.
  let readers: EpochProtected
  /// The encryption keys in use.
  let journalKeys: JournalKeys
  let journalDirectory: String
  let controlFile: any StorageFile
  /// Group commit of the syncs made by this instance.
  let syncs = GroupCommit()
  let lifecycle = LockedField(Lifecycle())
  let closed = Atomic(false)
  /// Whether this instance has appended anything.
  private let hasWritten = Atomic(false)
  /// The number of the segment whose successor is being prepared or was prepared.
  let prepared = Atomic<UInt32>(0)
  /// The prepared segment, once it is ready.
  let preparedSegment = LockedField<Journal.PreparedSegment?>(nil)
  /// Number of compactions made by this instance; locked while one runs.
  let compacting = LockedField(0)
  /// Locked while a secret file is changed.
  let changingKeyFiles = LockedField(())
  /// Missing blobs, as found by the last scan of the whole journal for references.
  let missingBlobsCache = LockedField<MissingBlobs?>(nil)
  /// The session that holds the scope expansion.
  let scopeExpansionClaim = LockedField(ScopeExpansionClaim())
  /// Slows writers down while there are too many dead bytes.
  let writeThrottle = WriteThrottle()
  /// Number of sorted key indexes built by this instance; locked while one is being built.
  let ordering = LockedField(0)
  let forkGeneration: UInt32
  private let lazyBlobs = LockedField<BlobStore?>(nil)
  /// Whether this instance has made durable what earlier ones left in the blob tier.
  let hasSyncedBlobs = Atomic(false)
  /// Notifies followers of the journal that it has grown.
  let changeSignal: ChangeSignal
  /// The thread whose transaction is under way in this instance; 0 if there is none.
  let transactionThread = Atomic<UInt>(0)
  /// State shared by sessions that stay open.
  let liveSessions = LiveSessions()
  /// Fetches absent blobs when they are read.
  let blobFetching = LockedField<BlobFetching?>(nil)
  /// Performs writes for callers that do not block.
  let asyncWriter = AsyncWriter()

  struct Lifecycle {
    var syncScheduled = false
    var compactionScheduled = false
    /// Position at the last purge scan.
    var purgedAt: UInt64 = 0
    /// Up to this position the journal has no delete that is not acknowledged.
    var deletesScannedTo: UInt64 = 0
    /// Number of keys from which rebuilding the index takes longer than the syncs that avoid it. Tests lower
    /// it.
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
    readers = engine.context.readers
    journalKeys = engine.journal.keys
    var engine = engine
    engine.status.isPublished = true
    engine.publish()
    self.engine = LockedField(engine)
    forkGeneration = SystemCall.forkGeneration
  }

  /// Whether the store can be written to.
  package var isWritable: Bool { configuration.mode != .readOnly }

  /// The current incarnation of this copy.
  ///
  /// - Throws: `.damaged` if the journal does not contain it; `.closed`, `.forked`.
  public var actor: ActorID {
    get throws(StoreError) {
      try reading { engine throws(StoreError) in
        guard let actor = engine.state.actor else { throw missingActorError }
        return actor
      }
    }
  }

  /// The error for a copy whose journal has lost the record of its actor.
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
        // `close` removes the tier under this lock: it must not be opened after that.
        try checkUsable()
        // Opening creates missing directories: not in another store's directory. From then on the tier checks
        // by itself.
        if isWritable { try checkDirectoryHoldsStore() }
        let opened = try BlobStore.open(
          directory: path + "/" + StoreLayout.blobs, storage: environment.storage,
          access: configuration.mode.blobAccess, keys: BlobKeySource(journalKeys),
          environment: BlobEnvironment(environment)
        ) { [weak self] error in _ = self?.poisoned(by: error) }
        blobs = opened
        return opened
      }
    }
  }

  /// The blob tier, if this instance has opened it.
  var openedBlobs: BlobStore? { lazyBlobs.withLock { $0 } }

  // MARK: Engine access

  /// Calls `body` with this process's view, after catching up. `body` may run more than once: results from an
  /// index that proved damaged are discarded.
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

  /// `reading` while the index cannot change, if possible: under the writers' mutex in shared mode. `isAlone`
  /// tells `body` whether that holds.
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

  /// Replays what other processes have committed.
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

  /// Fails once a sync has failed.
  ///
  /// - Throws: `.poisoned` once a sync has failed, in this process or in another one that has the store open:
  ///   nothing more is acknowledged until all of them have closed it.
  package func checkSyncs() throws(StoreError) {
    if control.poisoned { throw poisonedError }
  }

  var poisonedError: StoreError {
    StoreError(
      .poisoned,
      "a sync failed, nothing more is acknowledged: check the disk, then close and open the store again",
      path: path)
  }

  /// Syncs of the journal made by this instance: fewer than durable writes if writers share them.
  package var syncCount: Int { syncs.count }

  func recordWrite() {
    if !hasWritten.load(ordering: .relaxed) { hasWritten.store(true, ordering: .relaxed) }
  }

  // MARK: Closing

  /// Makes everything durable and releases the directory. Later calls fail with `.closed`; a second `close`
  /// does nothing.
  ///
  /// - Throws: as `sync`, and the store is closed all the same; `.busy` within a transaction of this thread:
  ///   then it was not closed.
  public func close() throws(StoreError) {
    guard !closed.load(ordering: .acquiring) else { return }
    let isParent = SystemCall.forkGeneration == forkGeneration
    if isWritable, isParent { try checkNotWriting("close the store") }
    defer {
      isWritable && isParent ? endWriting() : closed.store(true, ordering: .releasing)
      // Wait for a sync by another thread: it updates the control file, which may soon be another process's.
      if isWritable, isParent {
        try? syncs.wait {
          false
        } work: {
        }
      }
      engine.withLock { engine in
        engine.status.isPublished = false
        readers.publish(nil)
      }
      preparedSegment.withLock { $0 = nil }
      journalKeys.decryptedRecords?.removeAll()
      // Wake the followers of the journal: they find that it is closed.
      changeSignal.wakeLocal()
      // Wait for a compaction: it works on files that may soon be another process's.
      if isParent { compacting.withLock { _ in } }
      StoreRegistry.shared.forget(self)
      // A forked process leaves shared state to its parent.
      if isParent {
        lazyBlobs.withLock { blobs in
          blobs?.close()
          blobs = nil
        }
        // Released now, not with the last reference.
        _ = try? controlFile.lock(byte: StoreLayout.presenceByte, .none, wait: false)
      }
    }
    guard isParent, isWritable, !control.poisoned else { return }
    // Includes what killed processes left.
    try sync()
    if hasWritten.load(ordering: .relaxed) {
      // Carries the watermark over everything just synced. The record itself may be lost, so a full disk is
      // no error.
      do throws(StoreError) {
        try append { (builder: inout TransactionBuilder) throws(StoreError) in try builder.checkpoint() }
      } catch {
        guard error.code == .diskFull else { throw error }
      }
      try closeIndex()
    }
  }

  /// Marks the index as complete, if no other process has the store open, so that it is trusted after a
  /// reboot, too.
  ///
  /// An optional part of closing: skipped if another thread or process is writing. Once done, the store is
  /// closed.
  private func closeIndex() throws(StoreError) {
    guard let keys = try? engine.withLock({ engine throws(StoreError) in try engine.index.hashIndex.count }),
      keys >= lifecycle.withLock({ $0.keysWorthClosing }),
      try controlFile.lock(byte: StoreLayout.entranceByte, .exclusive, wait: false)
    else { return }
    defer { _ = try? controlFile.lock(byte: StoreLayout.entranceByte, .none, wait: false) }
    guard try controlFile.lock(byte: StoreLayout.presenceByte, .exclusive, wait: false) else { return }
    // Let others in as soon as possible: closing takes a while longer.
    defer {
      if configuration.mode != .exclusive {
        _ = try? controlFile.lock(byte: StoreLayout.presenceByte, .shared, wait: false)
      }
    }
    try sync()
    // With the mutex no write is under way and none can begin: records that the index lacks, or that are not
    // durable, must not be appended after the index is marked.
    let acquisition = control.lock(waits: false)
    if case .heldByOther = acquisition { return }
    defer { control.unlock() }
    if case .ownerDied = acquisition { try recoverDeadWriterOrPoison() }
    closed.store(true, ordering: .releasing)
    guard !control.poisoned else { return }
    try? engine.withLock { engine throws(StoreError) in
      let tail = control.tail
      guard engine.applied.packed == tail, control.durable >= tail, engine.damage.gaps.isEmpty else { return }
      try engine.index.close()
    }
  }

  /// Throws `.busy` within a transaction of this thread: the operation would wait for others, which wait for
  /// the transaction.
  func checkNotWriting(_ what: String) throws(StoreError) {
    let acquisition = control.lock(waits: false)
    switch acquisition {
    case .heldByOther: return
    case .clean, .ownerDied:
      defer { control.unlock() }
      if case .ownerDied = acquisition { try recoverDeadWriterOrPoison() }
    case .alreadyHeld:
      throw StoreError(.busy, "a transaction of this thread is under way: \(what) after it", path: path)
    }
  }

  /// Closes the store under the writers' mutex. Writers that waited for it are refused: otherwise they could
  /// write when another process has the directory.
  private func endWriting() {
    let acquisition = control.lock()
    if case .ownerDied = acquisition { try? recoverDeadWriterOrPoison() }
    closed.store(true, ordering: .releasing)
    control.unlock()
  }
}

/// File names in a store's directory, and lock bytes of its control file.
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
  /// Locked by the process that changes a secret file.
  static let keyFilesByte = 3
  /// Locked, through an open file of its own, by the node whose address is recorded.
  static let listenerByte = 4
}

extension Configuration.Mode {
  /// The same mode for the blob tier.
  fileprivate var blobAccess: BlobAccess {
    switch self {
    case .exclusive: .exclusive
    case .shared: .shared
    case .readOnly: .readOnly
    }
  }
}
