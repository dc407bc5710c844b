private import Synchronization

/// The blob tier of an open store: opened at first use, and made durable before the journal.
///
/// Its locks are leaves but for the blob store's own: the journal and the engine are not used under them.
final class BlobTier: StorePart {
  let core: OpenStore
  private let lazy = LockedField<BlobStore?>(nil, rank: .blobTier)
  /// Whether this instance has made durable what earlier ones left in the blob tier.
  private let hasSynced = Atomic(false)
  /// Missing blobs, as found by the last scan of the whole journal for references.
  let missingBlobsCache = LockedField<Store.MissingBlobs?>(nil)
  /// Fetches absent blobs when they are read.
  let fetching = LockedField<Store.BlobFetching?>(nil)

  init(_ core: OpenStore) { self.core = core }

  /// The blob tier, opened at first use.
  var store: BlobStore {
    get throws(StoreError) {
      try checkUsable()
      return try lazy.withLock { blobs throws(StoreError) in
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
        ) { [owner = core.owner] error in _ = owner.store?.poisoned(by: error) }
        blobs = opened
        return opened
      }
    }
  }

  /// The blob tier, if this instance has opened it.
  var opened: BlobStore? { lazy.withLock { $0 } }

  /// Closes the tier. Once the store counts as closed, it is not opened again.
  func close() {
    lazy.withLock { blobs in
      blobs?.close()
      blobs = nil
    }
  }

  /// Makes blobs durable before the records that refer to them can become durable (rule R7): those of this
  /// process, of others, and those that an earlier process has left.
  ///
  /// - Throws: `.diskFull` if blobs of an earlier process must first be copied and there is no room; `.busy`
  ///   if another process must copy them or is doing so; `.inputOutput` without a free descriptor. In these
  ///   cases nothing of this process was lost, and the next sync retries. `.poisoned` on any other failure:
  ///   nothing more is written.
  func syncBlobs() throws(StoreError) {
    let put = control.blobsPut
    let isFirst = !hasSynced.load(ordering: .acquiring)
    guard isFirst || put != control.blobsDurable else { return }
    var mayWait = true
    do throws(StoreError) {
      let packs = path + "/" + StoreLayout.blobs + "/packs"
      if try put == control.blobsDurable ? environment.storage.status(packs) != nil : true {
        let blobs = try store
        try blobs.salvageFailedPacks()
        mayWait = false
        try blobs.sync()
      }
    } catch {
      // Closed before the sync began: nothing has failed, and nothing is reported as durable.
      if error.code == .closed || error.code == .forked { throw error }
      // None of this process's own writes has failed.
      guard error.code == .busy || error.isOutOfDescriptors || mayWait && error.code == .diskFull else {
        throw poisoned(by: error)
      }
      throw StoreError(
        error.code, "large values that could not be made durable are to be copied first: \(error.message)",
        path: error.path, errno: error.errno)
    }
    control.raiseBlobsDurable(to: put)
    hasSynced.store(true, ordering: .releasing)
  }

  /// The blob tier opened read-only for recovery.
  static func blobsForRecovery(
    at path: String, environment: Environment, journalKeys: JournalKeys
  ) throws(StoreError) -> BlobStore {
    try BlobStore.open(
      directory: path + "/" + StoreLayout.blobs, storage: environment.storage, access: .readOnly,
      keys: BlobKeySource(journalKeys), environment: BlobEnvironment(environment))
  }
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
