/// Giving things back: values, space on the disk, memory.
extension Store {
  /// Deletes all keys in a range, and tells how many had a value.
  ///
  /// A few hundred at a time, each time atomically: who is killed in between has deleted the first ones. What is written
  /// meanwhile behind the place it has reached is deleted, too. In a store that is replicated the deletes travel as any
  /// others do; the space comes back with compaction.
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
        // The last one makes those before it durable, too.
        deleted += try delete(contentsOf: keys, durability: .relaxed)
      }
      if last == nil { break }
    }
    if deleted > 0 { try awaitDurability(control.tail, durability: durability) }
    return deleted
  }

  private static let deleteBatchSize = 500

  /// Deletes keys, all or none, and tells how many had a value.
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

  /// Gives back what can be had without: compacts the journal, removes blobs that no record refers to any more and what
  /// killed processes left half written, drops memory that is only there for speed. Returns the bytes gained on the disk.
  ///
  /// Others go on reading and writing meanwhile. A blob stays for an hour after anybody counted on it last: a snapshot, a
  /// sync or a restored older value may.
  ///
  /// - Throws: `.diskFull` if there is no room to compact; `.damaged` if records were lost: who knows which blobs they
  ///   refer to. Nothing is lost in either case.
  @discardableResult
  public func trim() throws(StoreError) -> UInt64 { try trim(graceSeconds: 3600) }

  /// `trim` with another span of grace for blobs.
  package func trim(graceSeconds: UInt64) throws(StoreError) -> UInt64 {
    let journal = try compact()
    // Where nothing was ever put into the blob tier, it would be made for this, which needs space rather than giving any back.
    guard try hasBlobTier else {
      purgeMemory()
      return journal
    }
    let before = try blobs.totalBytes()
    // The grace begins before the moment at which the references are looked at.
    let now = environment.now()
    let named = Set(try pruneAbsenceRecords().all.keys)
    let referenced = try named.union(pinnedBlobs()).union(awaitedBlobs())
    _ = try blobs.sweepOrphans(referenced: referenced, graceSeconds: graceSeconds, now: now)
    // What an earlier version left as it is, of a store that is encrypted.
    if journalKeys.isEncrypted { _ = try renewBlobs() }
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

  /// Blobs that records of this copy refer to, beaten ones included, and how many do.
  func referencesToBlobs() throws(StoreError) -> BlobReferences {
    var references = BlobReferences()
    try eachReferenceToBlob { hash, isBeaten in
      references.all[hash, default: 0] += 1
      if isBeaten { references.beaten[hash, default: 0] += 1 }
    }
    return references
  }

  /// Visits each record of this copy that refers to a blob. All of them are durable before the first visit.
  func eachReferenceToBlob(_ visit: (_ hash: BlobHash, _ isBeaten: Bool) -> Void) throws(StoreError) {
    try checkWritable()
    try lockWriters()
    let moment: BackupSnapshot
    do {
      defer { control.unlock() }
      moment = try engine.withLock { engine throws(StoreError) in try BackupSnapshot(after: 0, in: engine) }
    }
    // What was overwritten counts again after a loss of power, unless what replaced it is durable (rule R7).
    try sync(upTo: moment.tail)
    var walk = BackupCursor(moment, after: 0)
    while let steps = try walk.next(in: self) {
      for case .keep(let view) in steps where view.kind == .blob {
        guard let shape = view.shape, let blob = view.blob(shape) else {
          throw BackupSnapshot.damaged(view.segment, view.offset)
        }
        visit(blob.hash, view.flags.contains(.loser))
      }
    }
  }

  /// Drops memory that is only there for speed: the order of keys that scans go by, what is remembered of blobs. The next
  /// scan sorts anew.
  public func purgeMemory() {
    engine.withLock { $0.sortedIndex = nil }
    journalKeys.decryptedRecords?.removeAll()
    // An unopened tier holds no memory, and opening it here would create its files.
    openedBlobs?.forget()
  }
}

/// How many records refer to a blob.
struct BlobReferences {
  /// All of them.
  var all: [BlobHash: Int] = [:]
  /// Those of beaten values.
  var beaten: [BlobHash: Int] = [:]
}

extension BlobStore {
  /// Drops what is remembered for speed.
  func forget() {
    checkpoint()
    memory.withLock { $0.verified = [] }
  }
}
