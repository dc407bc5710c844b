internal import Synchronization

/// The open directory of a store: its files, keys and engine, which all parts of the `Store` share.
///
/// Lock order: the writers' mutex of `control`, then `engine`. Nothing that waits for the mutex is called
/// under the engine's lock.
final class OpenStore: StorePart {
  /// The store's directory.
  let path: String
  let journalDirectory: String
  let identity: StoreIdentity
  let configuration: Configuration
  /// Storage, clock and randomness.
  let environment: Environment
  let control: ControlPage
  let controlFile: any StorageFile
  let engine: LockedField<Engine>
  /// State that threads read without the engine's lock.
  let readers: EpochProtected
  /// The encryption keys in use.
  let journalKeys: JournalKeys
  /// Notifies followers of the journal that it has grown.
  let changeSignal: ChangeSignal
  let closed = Atomic(false)
  let forkGeneration: UInt32
  let owner = StoreOwner()
  /// Number of keys from which rebuilding the index takes longer than the syncs that avoid it. Tests lower
  /// it.
  let keysWorthClosing = Atomic(1 << 16)

  init(
    path: String, identity: StoreIdentity, configuration: Configuration, environment: Environment,
    control: ControlPage, controlFile: any StorageFile, engine: consuming sending Engine
  ) {
    (self.path, self.identity, self.configuration) = (path, identity, configuration)
    (self.environment, self.control, self.controlFile) = (environment, control, controlFile)
    journalDirectory = path + "/" + StoreLayout.journal
    changeSignal = ChangeSignal(control, isShared: configuration.mode != .exclusive)
    readers = engine.context.readers
    journalKeys = engine.journal.keys
    var engine = engine
    engine.status.isPublished = true
    engine.publish()
    self.engine = LockedField(engine, rank: .engine)
    forkGeneration = SystemCall.forkGeneration
  }

  deinit {
    // In this order: a thread that no longer finds the store must be able to open its directory.
    if !closed.load(ordering: .acquiring), SystemCall.forkGeneration == forkGeneration {
      _ = try? controlFile.lock(byte: StoreLayout.presenceByte, .none, wait: false)
    }
    StoreRegistry.shared.ended(ObjectIdentifier(self))
  }

  var core: OpenStore { self }

}

/// How background work reaches a store without keeping it open.
///
/// **Background work must not refer to a part of a store, not even weakly**: a part that outlives the store
/// for a moment keeps the directory locked, and an opening in that moment would fail.
final class StoreOwner: Sendable {
  private struct Reference {
    weak var store: Store?
  }

  private let reference = LockedField(Reference())

  /// The store; nil once its last user has released it.
  var store: Store? { reference.withLock { $0.store } }

  /// Called once, by the initialiser of the store.
  func set(_ store: Store) { reference.withLock { $0.store = store } }
}

/// A part of an open store. What follows is available to every part.
protocol StorePart: Sendable {
  var core: OpenStore { get }
}

/// A part that appends to the journal, or excludes writers.
protocol WritingPart: StorePart {
  var writes: WritePath { get }
  var journalSync: JournalSync { get }
}

extension WritingPart {
  var recovery: StoreRecovery { StoreRecovery(core: core, writes: writes, journalSync: journalSync) }
  var localKeys: LocalKeys { LocalKeys(core: core, writes: writes, journalSync: journalSync) }
}

extension StorePart {
  var path: String { core.path }
  var journalDirectory: String { core.journalDirectory }
  @inline(__always) var configuration: Configuration { core.configuration }
  @inline(__always) var environment: Environment { core.environment }
  @inline(__always) var control: ControlPage { core.control }
  var controlFile: any StorageFile { core.controlFile }
  @inline(__always) var readers: EpochProtected { core.readers }
  var journalKeys: JournalKeys { core.journalKeys }
  var changeSignal: ChangeSignal { core.changeSignal }

  /// Whether the store can be written to.
  var isWritable: Bool { configuration.mode != .readOnly }

  /// Calls `body` with this process's view, after catching up. `body` may run more than once: results from an
  /// index that proved damaged, or that refers to a copy not installed here, are discarded.
  @inline(__always)
  func reading<Result>(
    _ body: (inout Engine) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    try checkUsable()
    return try core.engine.withLock { engine throws(StoreError) in
      while true {
        try catchUp(&engine)
        do throws(StoreError) {
          let result = try body(&engine)
          if !engine.indexIsInvalid, !engine.missesInstall { return result }
        } catch {
          if !engine.indexIsInvalid, !engine.missesInstall { throw error }
        }
        if engine.indexIsInvalid { engine.rebuildIndex() }
      }
    }
  }

  /// Replays what other processes have committed.
  @inline(__always)
  func catchUp(_ engine: inout Engine) throws(StoreError) {
    if engine.isBehind { try engine.catchUp() }
  }

  func checkUsable() throws(StoreError) {
    guard SystemCall.forkGeneration == core.forkGeneration else {
      throw StoreError(
        .forked, "the store was opened before this process was forked: open it again here", path: path)
    }
    try checkOpen()
  }

  @inline(__always)
  func checkOpen() throws(StoreError) {
    guard !core.closed.load(ordering: .acquiring) else {
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
  func checkSyncs() throws(StoreError) {
    if control.poisoned { throw poisonedError }
  }

  var poisonedError: StoreError {
    StoreError(
      .poisoned,
      "a sync failed, nothing more is acknowledged: check the disk, then close and open the store again",
      path: path)
  }

  /// Poisons the store, so that nothing more is written (rule R4), and returns the error that says so.
  func poisoned(by error: StoreError, _ path: String? = nil) -> StoreError {
    let isFirst = !control.poisoned
    control.setPoisoned()
    if isFirst { StoreLog.log(.error, path: self.path, "\(error.description); \(poisonedError.message)") }
    return poisonedError(by: error, path)
  }

  /// The error of a store that was poisoned by `error`.
  func poisonedError(by error: StoreError, _ path: String? = nil) -> StoreError {
    StoreError(
      .poisoned, "\(error.message); \(poisonedError.message)", path: path ?? error.path, errno: error.errno)
  }

  /// Makes the names of the segments durable; replaced segments must not be removed before. A failure poisons
  /// the store (rule R4), except for want of a descriptor.
  func syncNames() throws(StoreError) {
    do throws(StoreError) { try environment.storage.syncDirectory(journalDirectory) } catch {
      if !error.isOutOfDescriptors { control.setPoisoned() }
      throw error
    }
  }

  var reserve: SpaceReserve { core.engine.withLock { $0.journal.reserve } }

  /// Restores the parts taken from the reserve, if there is space again.
  func restoreReserve(_ engine: borrowing Engine) {
    let reserve = engine.journal.reserve
    switch environment.compactionMode {
    case .background: Background.run { try? reserve.restore() }
    case .byNextWriter, .onRequest: try? reserve.restore()
    }
  }
}
