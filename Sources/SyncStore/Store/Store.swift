internal import Synchronization

/// An offline-first key-value store: one directory whose append log is also its replication journal.
///
/// Thread-safe. All calls block for as long as the work takes; asynchronous code makes them inside `run`
/// (`BlockingCalls`) or uses `AsyncStore`. Reads never wait for a sync.
///
/// A thin front: the work is done by the parts below, each with the inputs that its initialiser names. The
/// path of a write: `TransactionBuilder` (rules) → `WritePath` (append, publish) → `Engine.replay` (index) →
/// `JournalSync` (durability).
public final class Store: WritingPart {
  let core: OpenStore
  let blobTier: BlobTier
  let journalSync: JournalSync
  let writes: WritePath
  let compactor: Compactor
  let applier: BatchApplier
  let deltas: DeltaSource
  let rekeyer: Rekeyer
  /// That of `core`: reached through it, it would be retained and released by every get.
  let readers: EpochProtected
  /// Performs writes for callers that do not block.
  let asyncWriter = AsyncWriter()
  /// Number of sorted key indexes built by this instance; locked while one is being built.
  let ordering = LockedField(0, rank: .keyOrder)

  init(_ core: OpenStore) {
    (self.core, readers) = (core, core.readers)
    blobTier = BlobTier(core)
    journalSync = JournalSync(core, blobs: blobTier)
    writes = WritePath(core, segments: SegmentPreparer(core), compaction: CompactionSchedule(core))
    compactor = Compactor(core, writes: writes, journalSync: journalSync)
    applier = BatchApplier(core, writes: writes, journalSync: journalSync)
    deltas = DeltaSource(core, applier: applier)
    rekeyer = Rekeyer(core, compactor: compactor, blobs: blobTier)
    core.owner.set(self)
  }

  /// The store's directory.
  public var path: String { core.path }
  /// The data set that all copies of this store share.
  public var id: StoreID { core.identity.id }
  /// The name that `create` was given.
  public var name: String { core.identity.name }
  /// The configuration that the store was opened with.
  public var configuration: Configuration { core.configuration }

  /// Storage, clock and randomness.
  package var environment: Environment { core.environment }

  /// Whether the store can be written to.
  package var isWritable: Bool { core.isWritable }

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
  package var blobs: BlobStore { get throws(StoreError) { try blobTier.store } }

  /// Fails once a sync has failed.
  ///
  /// - Throws: `.poisoned`, as a write would.
  package func checkSyncs() throws(StoreError) { try core.checkSyncs() }

  /// Syncs of the journal made by this instance: fewer than durable writes if writers share them.
  package var syncCount: Int { journalSync.count }

  // MARK: Closing

  /// Makes everything durable and releases the directory. Later calls fail with `.closed`; a second `close`
  /// does nothing.
  ///
  /// - Throws: as `sync`, and the store is closed all the same; `.busy` within a transaction of this thread:
  ///   then it was not closed.
  public func close() throws(StoreError) {
    guard !core.closed.load(ordering: .acquiring) else { return }
    let isParent = SystemCall.forkGeneration == core.forkGeneration
    if isWritable, isParent { try writes.checkNotWriting("close the store") }
    defer {
      isWritable && isParent ? writes.endWriting() : core.closed.store(true, ordering: .releasing)
      // Wait for a sync by another thread: it updates the control file, which may soon be another process's.
      if isWritable, isParent { journalSync.waitForOthers() }
      core.engine.withLock { engine in
        engine.status.isPublished = false
        readers.publish(nil)
      }
      writes.segments.ready.withLock { $0 = nil }
      journalKeys.decryptedRecords?.removeAll()
      // Wake the followers of the journal: they find that it is closed.
      changeSignal.wakeLocal()
      // Wait for a compaction: it works on files that may soon be another process's.
      if isParent { compactor.compacting.withLock { _ in } }
      StoreRegistry.shared.ended(ObjectIdentifier(core))
      // A forked process leaves shared state to its parent.
      if isParent {
        blobTier.close()
        // Released now, not with the last reference.
        _ = try? controlFile.lock(byte: StoreLayout.presenceByte, .none, wait: false)
      }
    }
    guard isParent, isWritable, !control.poisoned else { return }
    // Includes what killed processes left.
    try sync()
    if writes.hasWritten {
      // Carries the watermark over everything just synced. The record itself may be lost, so a full disk is
      // no error.
      do throws(StoreError) {
        try writes.append { (builder: inout TransactionBuilder) throws(StoreError) in try builder.checkpoint()
        }
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
    guard
      let keys = try? core.engine.withLock({ engine throws(StoreError) in try engine.index.hashIndex.count }),
      keys >= core.keysWorthClosing.load(ordering: .relaxed),
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
    if case .ownerDied = acquisition { try writes.recoverDeadWriterOrPoison() }
    core.closed.store(true, ordering: .releasing)
    guard !control.poisoned else { return }
    try? core.engine.withLock { engine throws(StoreError) in
      let tail = control.tail
      guard engine.applied.packed == tail, control.durable >= tail, engine.damage.gaps.isEmpty else { return }
      try engine.index.close()
    }
  }
}
