/// A problem found by `BlobStore.verify`.
package struct BlobProblem: Sendable, Equatable {
  /// The object; nil if the problem is not about one.
  package let hash: BlobHash?
  /// Its path, relative to the directory of the blob tier.
  package let name: String
  /// Description of the problem.
  package let problem: String
}

/// Result of `BlobStore.sweepOrphans`.
package struct BlobSweep: Sendable, Equatable {
  /// Removed objects.
  package var objects = 0
  /// Removed unfinished transfers.
  package var partials = 0
  /// Removed files that a killed process was writing.
  package var temporaries = 0
}

// Removal and verification of objects.
extension BlobStore {
  /// Objects removed in one transaction, during which other writers wait.
  static let removalBatchSize = 64

  /// Removes an object immediately, even if it is referred to. False if it was missing.
  @discardableResult
  package func remove(_ hash: BlobHash) throws(StoreError) -> Bool {
    try requireWritable()
    var removed = false
    for (name, _) in names(of: hash) { removed = try remove(named: name) || removed }
    return removed
  }

  /// Removes the object of that stored name.
  func remove(named name: BlobHash) throws(StoreError) -> Bool {
    ignoringCatalogueErrors { (catalogue) throws(StoreError) in
      if let row = try catalogue.row(name) {
        try catalogue.record(name, size: row.size, .deleting, durable: false)
      }
    }
    memory.withLock { _ = $0.verified.remove(name) }
    var removed = try packs.remove(name) != nil
    removed = try files.remove(BlobFiles.object(name)) || removed
    ignoringCatalogueErrors { (catalogue) throws(StoreError) in try catalogue.forget(name) }
    return removed
  }

  /// Removes objects and transfers that are not in `referenced` and were not used in the `graceSeconds`
  /// before `now` (milliseconds since 1970).
  ///
  /// Also removes files that killed processes left unfinished (F10, F11). `referenced` must hold everything
  /// that the journal refers to, as of some moment after the start of the grace period; otherwise referenced
  /// objects would be lost.
  package func sweepOrphans(referenced: Set<BlobHash>, graceSeconds: UInt64, now: UInt64) throws(StoreError)
    -> BlobSweep
  {
    try requireWritable()
    let (grace, overflow) = graceSeconds.multipliedReportingOverflow(by: 1000)
    let cutoff = overflow || grace > now ? 0 : now - grace
    let referenced =
      keys.present() == nil ? referenced : Set(referenced.flatMap { names(of: $0).map(\.name) })
    var sweep = BlobSweep()
    sweep.temporaries = try files.removeTemporaries()
    var orphans: [(hash: BlobHash, size: UInt64)] = []
    try files.eachObject { hash, size in
      if !referenced.contains(hash) { orphans.append((hash, size)) }
    }
    // Unlike elsewhere, a failing catalogue stops the sweep: only the catalogue knows which objects are
    // retained.
    try catalogue.markDeleting(orphans, before: cutoff)
    while true {
      let count = try catalogue.removeDeleting(limit: Self.removalBatchSize) { (hash) throws(StoreError) in
        // Objects marked by an earlier sweep may have been referenced since.
        guard !referenced.contains(hash) else { return }
        memory.withLock { _ = $0.verified.remove(hash) }
        if try files.remove(BlobFiles.object(hash)) { sweep.objects += 1 }
      }
      if count < Self.removalBatchSize { break }
    }
    sweep.objects += try sweepPacks(referenced: referenced, before: cutoff)
    sweep.partials = try sweepPartials(referenced: referenced, before: cutoff)
    return sweep
  }

  /// Discards the catalogue and rebuilds it from the files. Happens automatically when it is missing or
  /// damaged (F43).
  package func rebuildCatalogue() throws(StoreError) {
    try requireWritable()
    try catalogue.rebuild()
  }

  /// Reads every object and compares it with its name.
  ///
  /// A corrupt object is quarantined, to be fetched again; a read-only store only reports it. `progress` gets
  /// the bytes read and the total.
  package func verify(progress: (_ done: UInt64, _ total: UInt64) -> Void = { _, _ in }) throws(StoreError)
    -> [BlobProblem]
  {
    var problems: [BlobProblem] = []
    let objects = try all()
    let total = objects.reduce(0) { $0 + $1.size }
    var done: UInt64 = 0
    for object in objects {
      var hash = object.hash
      do throws(StoreError) {
        // Nil if it was removed after the listing.
        if let reader = try reader(named: object.hash) {
          hash = reader.hash
          try reader.verify { _, _ in }
        }
      } catch {
        problems.append(
          BlobProblem(hash: hash, name: BlobFiles.object(object.hash), problem: error.message))
      }
      done += object.size
      progress(done, total)
    }
    problems += try verifyTables()
    if try files.storage.status(files.directory) != nil {
      for name in try files.unknownFiles() {
        problems.append(BlobProblem(hash: nil, name: name, problem: "is no object: move it away"))
      }
    }
    if !readOnly { problems += verifyCatalogue() }
    return problems
  }

  /// A reader of the object of that stored name, whatever it is; nil if there is none. If it is not
  /// encrypted, or cannot be decrypted, the stored bytes are read.
  func reader(named name: BlobHash) throws(StoreError) -> BlobReader? {
    if let (pack, slot) = try packs.lookUp(name, refreshing: false), let entry = pack.entry(slot) {
      return try reader(of: name, .packed(pack, entry), isEncrypted: entry.isEncrypted, name)
    }
    guard let file = try files.open(name) else { return nil }
    return try reader(inFile: name, file)
  }

  func reader(inFile name: BlobHash, _ file: any StorageFile) throws(StoreError) -> BlobReader? {
    // Unencrypted content may begin like an encrypted object: only a holder of the keys can have derived the
    // stored name from its hash.
    if let keys = keys.present(),
      let header = EncryptedBlobHeader(try file.read(EncryptedBlobLayout.headerBytes, at: 0)),
      let object = try encryptedBlob(header: header.encoded, path: file.path),
      keys.name(of: object.hash) == name
    {
      return try reader(of: name, .file(file), isEncrypted: true, name)
    }
    return try reader(of: name, .file(file), isEncrypted: false, name)
  }

  private func verifyCatalogue() -> [BlobProblem] {
    let found = ignoringCatalogueErrors { (catalogue) throws(StoreError) -> [String] in
      let found = try catalogue.check()
      if !found.isEmpty { try catalogue.rebuild() }
      return found
    }
    return (found ?? []).map {
      BlobProblem(hash: nil, name: "catalogue.sqlite", problem: "\($0): it was made anew from the files")
    }
  }

  private func sweepPartials(referenced: Set<BlobHash>, before cutoff: UInt64) throws(StoreError) -> Int {
    var count = 0
    for hash in try files.partials() where !referenced.contains(hash) {
      guard let row = try catalogue.row(hash) else {
        try catalogue.record(hash, size: 0, .partial, durable: false)
        continue
      }
      guard row.accessed < cutoff else { continue }
      try discard(partial: hash)
      if try files.size(of: hash) == nil { try catalogue.forget(hash) }
      count += 1
    }
    return count
  }
}
