/// Releasing values, disk space and memory.
extension Store {
  /// Deletes all keys in a range, and returns how many had a value.
  ///
  /// Works in atomic steps of a few hundred keys: a crash leaves the first ones deleted. Keys that are
  /// written concurrently after the current step are deleted, too. In a replicated store the deletes are sent
  /// like any others; compaction reclaims the space.
  ///
  /// - Throws: as `delete`.
  @discardableResult
  public func deleteAll(_ range: KeyRange = .all, durability: Durability? = nil) throws(StoreError) -> Int {
    var deleted = 0
    var last: Key?
    while true {
      var keys: [Key] = []
      let start = last
      try StoreError.only {
        last = try scanEntries(range, after: start, limit: Self.deleteBatchSize) { keys.append($0.key) }
      }
      if !keys.isEmpty {
        // The last step makes the earlier ones durable, too.
        deleted += try delete(contentsOf: keys, durability: .relaxed)
      }
      if last == nil { break }
    }
    if deleted > 0 { try awaitDurability(control.tail, durability: durability) }
    return deleted
  }

  private static let deleteBatchSize = 500

  /// Deletes keys, all or none, and returns how many had a value.
  ///
  /// - Throws: as `delete`; `.outOfBounds` if they are more than a transaction holds.
  @discardableResult
  public func delete(
    contentsOf keys: some Sequence<Key>, durability: Durability? = nil
  ) throws(StoreError) -> Int {
    let keys = Array(keys)
    return try retryingAfterCompaction { () throws(StoreError) in
      try StoreError.only {
        try transaction(durability: durability) { transaction in
          var count = 0
          for key in keys where try transaction.delete(key) { count += 1 }
          return count
        }
      }
    }
  }

  /// Reclaims the space of superseded records, and of deletes that every member has seen, except in the
  /// active segment. Reading and writing continue concurrently. Returns the bytes gained.
  ///
  /// - Throws: `.diskFull` if there is room for no copy: nothing is lost then. If only some copies do not
  ///   fit, the others have reclaimed their space. `.busy` within a transaction of this thread.
  @discardableResult
  public func compact() throws(StoreError) -> UInt64 { try compactor.compact() }

  /// Purges tombstones and expired records that every active member has seen, except those at the last
  /// `spared` positions. Returns the number of keys purged.
  ///
  /// - Throws: as `compact`.
  @discardableResult
  package func purge(sparing spared: UInt64 = 0) throws(StoreError) -> Int {
    try compactor.purge(sparing: spared)
  }

  /// Reclaims space: compacts the journal, removes blobs that no record refers to any more and incomplete
  /// files of killed processes, drops caches. Returns the bytes gained on the disk.
  ///
  /// Other reads and writes continue. A blob stays for an hour after its last use, since a snapshot, a sync
  /// or a restored older value may refer to it.
  ///
  /// - Throws: `.diskFull` if there is no room to compact; `.damaged` if records were lost, because their
  ///   blob references are unknown. Nothing is lost in either case.
  @discardableResult
  public func trim() throws(StoreError) -> UInt64 { try trim(graceSeconds: 3600) }

  /// `trim` with another grace period for blobs.
  package func trim(graceSeconds: UInt64) throws(StoreError) -> UInt64 {
    let journal = try compact()
    // An unused blob tier would be created here, which takes space rather than releasing any.
    guard try hasBlobTier else {
      purgeMemory()
      return journal
    }
    let before = try blobs.totalBytes()
    // The grace period begins before the references are collected.
    let now = environment.now()
    let named = Set(try pruneAbsenceRecords().all.keys)
    let referenced = try named.union(pinnedBlobs()).union(awaitedBlobs())
    _ = try blobs.sweepOrphans(referenced: referenced, graceSeconds: graceSeconds, now: now)
    // Blobs that an earlier version left unencrypted in an encrypted store.
    if journalKeys.isEncrypted { _ = try rekeyer.renewBlobs() }
    try blobs.checkpoint()
    purgeMemory()
    let after = try blobs.totalBytes()
    return journal + (before > after ? before - after : 0)
  }

  private var hasBlobTier: Bool {
    get throws(StoreError) {
      let (storage, directory) = (environment.storage, path + "/" + StoreLayout.blobs)
      guard try storage.status(directory) != nil else { return false }
      return try !storage.list(directory).isEmpty
    }
  }

  /// Number of references to each blob by records of this copy, losing values included.
  func referencesToBlobs() throws(StoreError) -> BlobReferences {
    var references = BlobReferences()
    try eachReferenceToBlob { blob, isBeaten in
      references.all[blob.hash, default: 0] += 1
      if isBeaten { references.beaten[blob.hash, default: 0] += 1 }
    }
    return references
  }

  /// The blobs that records of this copy refer to, losing values included, each once, by hash.
  package func referencedBlobs() throws(StoreError) -> [BlobReference] {
    var sizes: [BlobHash: UInt64] = [:]
    try eachReferenceToBlob { blob, _ in sizes[blob.hash] = blob.size }
    return sizes.map { BlobReference(hash: $0.key, size: $0.value) }.sorted { $0.hash < $1.hash }
  }

  /// Visits each record of this copy that refers to a blob. All of them are durable before the first visit.
  func eachReferenceToBlob(_ visit: (_ blob: BlobReference, _ isBeaten: Bool) -> Void) throws(StoreError) {
    try checkWritable()
    try writes.lockWriters()
    let snapshot: BackupSnapshot
    do {
      defer { control.unlock() }
      snapshot = try core.engine.withLock { engine throws(StoreError) in
        try BackupSnapshot(after: 0, in: engine)
      }
    }
    // After a power loss an overwritten record counts again, unless the record that replaced it is durable
    // (rule R7).
    try sync(upTo: snapshot.tail)
    var walk = BackupCursor(snapshot, after: 0)
    while let steps = try walk.next(in: self) {
      for case .keep(let view) in steps where view.kind == .blob {
        guard let shape = view.shape, let blob = view.blob(shape) else {
          throw BackupSnapshot.damaged(view.segment, view.offset)
        }
        visit(blob, view.flags.contains(.loser))
      }
    }
  }

  /// Drops caches: the sorted key index, cached records and blob state. The next scan sorts anew.
  public func purgeMemory() {
    core.engine.withLock { $0.sortedKeys.index = nil }
    journalKeys.decryptedRecords?.removeAll()
    // An unopened tier holds no memory, and opening it here would create its files.
    blobTier.opened?.forget()
  }
}

/// Reference counts of blobs.
struct BlobReferences {
  /// By all records.
  var all: [BlobHash: Int] = [:]
  /// By records of losing values.
  var beaten: [BlobHash: Int] = [:]
}

extension BlobStore {
  /// Drops cached state.
  func forget() {
    checkpoint()
    memory.withLock { $0.verified = [] }
  }
}
