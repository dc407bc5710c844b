/// Result of re-encrypting the blob tier.
struct BlobRekeyReport {
  var reencrypted = 0
  /// Stored names of objects that could not be read and were quarantined.
  var damaged: Set<BlobHash> = []
  /// Whether any object had been stored unencrypted and is encrypted now.
  var encryptedPlaintext = false
}

// Re-encryption of all objects: under another master key, for the first time, or decrypting them.
extension BlobStore {
  /// Bytes of objects rewritten before one common sync.
  static let reencryptBatchBytes = 64 << 20

  /// Rewrites objects that are not stored under the current keys. Each object is present at every moment, in
  /// its old or its new form (F12).
  func reencryptAll() throws(StoreError) -> BlobRekeyReport {
    try requireWritable()
    // From here on no writer uses keys other than the current ones.
    guard keyRotationGate.shut() else {
      throw StoreError(
        .busy, "this thread is putting a large value: renew the keys afterwards", path: files.directory)
    }
    keyRotationGate.open()
    var renewal = BlobRekeyReport()
    try reencryptPacked(&renewal)
    try reencryptFiles(&renewal)
    try discardUnreadablePartials()
    try removeTemporaries()
    // A power failure must not bring back an object in its old form: its key is removed next. An earlier
    // rotation may have been killed after removing some, so this is done even if none was rewritten now.
    try files.syncObjectDirectories()
    // Also if no object was unencrypted any more: an earlier one may be in quarantine, or its hash in the
    // catalogue.
    if renewal.encryptedPlaintext || writingKeys?.acceptsPlain == true { try forgetOldNames() }
    return renewal
  }

  /// Whether it is stored as it would be written now.
  private func isCurrent(_ header: EncryptedBlobHeader?) -> Bool {
    (header?.generation ?? 0) == writingKeys?.current ?? 0
  }

  private func reencryptPacked(_ renewal: inout BlobRekeyReport) throws(StoreError) {
    var stale: [BlobHash] = []
    try packs.eachObject { (pack, slot, _) throws(StoreError) in
      guard let entry = pack.entry(slot) else { return }
      let header = try entry.isEncrypted ? pack.withBytes(entry) { EncryptedBlobHeader($0) } : nil
      if !isCurrent(header) || entry.isEncrypted && header == nil { stale.append(entry.name) }
    }
    // Rewritten objects must not share a file with the ones they replace: that file is removed as a whole.
    if !stale.isEmpty { try packs.retireWriter() }
    var left = stale[...]
    while !left.isEmpty {
      try packs.moving.withLock { _ throws(StoreError) in try reencryptBatch(of: &left, &renewal) }
    }
    if writingKeys != nil {
      renewal.encryptedPlaintext = try packs.evacuatePlain() || renewal.encryptedPlaintext
    }
    if renewal.reencrypted > 0 { try packs.reclaim() }
  }

  /// Rewrites the first objects of `stale`: one batch with a common sync.
  private func reencryptBatch(of stale: inout ArraySlice<BlobHash>, _ renewal: inout BlobRekeyReport)
    throws(StoreError)
  {
    var (batch, bytes): ([PackSet.MovedObject], Int) = ([], 0)
    while bytes < Self.reencryptBatchBytes, let name = stale.popFirst() {
      // Removed since, or moved by another process.
      guard let (pack, slot) = try packs.lookUp(name, refreshing: false), let entry = pack.entry(slot) else {
        continue
      }
      let stamp = pack.word(slot).stamp
      let content: (BlobReference, [UInt8])?
      do throws(StoreError) {
        let reader = try reader(of: name, .packed(pack, entry), isEncrypted: entry.isEncrypted, name)
        content = (BlobReference(hash: reader.hash, size: reader.size), try reader.contents())
      } catch {
        guard error.code == .damaged else { throw error }
        content = nil
      }
      guard let (reference, plain) = content else {
        renewal.damaged.insert(name)
        continue
      }
      let form = descriptor(reference)
      if form.isEncrypted, !entry.isEncrypted { renewal.encryptedPlaintext = true }
      let moved = PackSet.MovedObject(pack: pack, slot: slot, name: form.name)
      try packs.add(
        form.name, form.stored(plain, salt: newSalt()), isEncrypted: form.isEncrypted, stamp: stamp,
        .moving(moved))
      batch.append(moved)
      renewal.reencrypted += 1
      bytes += plain.count
    }
    try packs.commitMoves(batch)
  }

  private func reencryptFiles(_ renewal: inout BlobRekeyReport) throws(StoreError) {
    var names: [BlobHash] = []
    try files.eachObject { name, _ in names.append(name) }
    for name in names {
      do throws(StoreError) {
        guard let file = try files.open(name), let reader = try reader(inFile: name, file) else { continue }
        let header =
          reader.isEncrypted
          ? EncryptedBlobHeader(try file.read(EncryptedBlobLayout.headerBytes, at: 0)) : nil
        guard !isCurrent(header) else { continue }
        try reencrypt(name, reader)
        if !reader.isEncrypted { renewal.encryptedPlaintext = true }
        renewal.reencrypted += 1
      } catch {
        guard error.code == .damaged else { throw error }
        renewal.damaged.insert(name)
      }
    }
  }

  private func reencrypt(_ name: BlobHash, _ source: BlobReader) throws(StoreError) {
    let reference = BlobReference(hash: source.hash, size: source.size)
    try requireSpace(reference.size)
    let sink = try BlobSink(self)
    let temporary = sink.name
    do throws(StoreError) {
      try source.verify { (piece, _) throws(StoreError) in try sink.append(piece) }
      try sink.finish(reference)
      try sink.file.sync()
      let form = descriptor(reference)
      if form.name == name {
        // Another key, but the same name: replace the old file.
        _ = try files.publish(temporary, as: name, replacing: true)
        try files.storage.syncDirectory(files.path(BlobFiles.shard(name)))
        return
      }
      if try !publish(temporary, as: form, durable: true) { try files.remove(temporary) }
    } catch {
      _ = try? files.remove(temporary)
      throw error
    }
    _ = try remove(named: name)
  }

  /// Discards transfers begun under other keys: they cannot be continued.
  private func discardUnreadablePartials() throws(StoreError) {
    for name in try files.partials() {
      guard let file = try files.open(BlobFiles.partial(name), .readOnly) else { continue }
      let header = EncryptedBlobHeader(try file.read(EncryptedBlobLayout.headerBytes, at: 0))
      if !isCurrent(header) { try discard(partial: name) }
    }
  }

  /// Removes files under `partial/` that killed processes left and, if the store is now encrypted, those of
  /// this process that hold unencrypted content.
  ///
  /// Their writers still have them open, and copy the content to an encrypted file before they write more
  /// (`encryptedSink(_:)`).
  private func removeTemporaries() throws(StoreError) {
    _ = try files.removeTemporaries()
    guard writingKeys != nil else { return }
    for name in memory.withLock({ $0.plainTemporaries }) { try files.remove(name) }
  }

  /// Removes traces of former names and contents from a store that is now encrypted.
  private func forgetOldNames() throws(StoreError) {
    catalogue.close()
    for name in BlobCatalogue.fileNames { _ = try files.storage.remove(files.path(name)) }
    for name in try files.storage.list(files.path("quarantine")) {
      _ = try files.storage.remove(files.path("quarantine/" + name))
    }
    try files.storage.syncDirectory(files.directory)
  }
}

extension PackSet {
  /// Closes the pack being written, durably.
  func retireWriter() throws(StoreError) {
    writing.withLock { writer in
      guard let ordinal = writer.ordinal else { return }
      state.withLock { $0.packs[ordinal].isRetired = true }
      writer = Writer()
    }
    // Counts as an addition, otherwise there would be nothing to sync.
    syncs.recordAdded()
    try sync()
  }

  /// Removes packs that hold unencrypted objects, live or not, after copying the live ones. True if there was
  /// one.
  func evacuatePlain() throws(StoreError) -> Bool {
    try load()
    return try moving.withLock { _ throws(StoreError) in try evacuatePlainNow() }
  }

  private func evacuatePlainNow() throws(StoreError) -> Bool {
    var found = false
    try eachPack { pack, ordinal throws(StoreError) in
      guard (0..<pack.count).contains(where: { !pack.isEncryptedObject($0) }) else { return }
      // A pack that another process adds to is left: that process does it once it is alone.
      guard state.withLock({ $0.packs[ordinal].isClosed }), try evacuateUnused(pack, ordinal) else { return }
      found = true
    }
    return found
  }
}
