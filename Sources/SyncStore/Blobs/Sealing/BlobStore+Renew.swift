private import Synchronization

/// What a renewal of keys did to the blob tier.
struct BlobRekeyReport {
  var reencrypted = 0
  /// What could not be read, by the names on the disk: it was set aside.
  var damaged: Set<BlobHash> = []
  /// Did anything lie as it is that does not any more?
  var encryptedPlaintext = false
}

// Objects are sealed anew: under another master key, for the first time, or no more.
extension BlobStore {
  /// Bytes that are written anew before they are synced together.
  static let reencryptBatchBytes = 64 << 20

  /// Writes anew what is not as it is to be now. Each object is there at every moment, in the one form or the other (F12).
  func reencryptAll() throws(StoreError) -> BlobRekeyReport {
    try requireWritable()
    // From here on nobody seals under keys that are not the present ones.
    guard keyRotationGate.shut() else {
      throw StoreError(
        .busy, "this thread puts a large value: renew the keys behind that", path: files.directory)
    }
    keyRotationGate.open()
    var renewal = BlobRekeyReport()
    try reencryptPacked(&renewal)
    try reencryptFiles(&renewal)
    try discardUnreadablePartials()
    try removeTemporaries()
    // A loss of power must not bring back an object in its old form: the key that opens it is removed next. An earlier renewal may have
    // been killed after it had removed some, so this is done even where none was renewed now.
    try files.syncObjectDirectories()
    // Also where no object was plain any more: one that was may be in quarantine, or its hash in the catalogue.
    if renewal.encryptedPlaintext || writingKeys?.acceptsPlain == true { try forgetOldNames() }
    return renewal
  }

  /// Is it as it would be written now?
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
    // What is written anew must not share a file with what it replaces: that goes as a whole.
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

  /// Writes anew the first of `stale`: as many as are synced together.
  private func reencryptBatch(of stale: inout ArraySlice<BlobHash>, _ renewal: inout BlobRekeyReport)
    throws(StoreError)
  {
    var (batch, bytes): ([PackSet.MovedObject], Int) = ([], 0)
    while bytes < Self.reencryptBatchBytes, let name = stale.popFirst() {
      // Removed since, or moved by another.
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
        // Under another key, and the same name: in the place of the old one.
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

  /// Transfers that were begun under other keys cannot go on.
  private func discardUnreadablePartials() throws(StoreError) {
    for name in try files.partials() {
      guard let file = try files.open(BlobFiles.partial(name), .readOnly) else { continue }
      let header = EncryptedBlobHeader(try file.read(EncryptedBlobLayout.headerBytes, at: 0))
      if !isCurrent(header) { try discard(partial: name) }
    }
  }

  /// Removes files under `partial/` that killed processes have left, and, where the store is encrypted now, those of this process
  /// that hold plain content: their writers, who still have them open, encrypt that before they write more (`sealed(_:)`).
  private func removeTemporaries() throws(StoreError) {
    _ = try files.removeTemporaries()
    guard writingKeys != nil else { return }
    for name in memory.withLock({ $0.plainTemporaries }) { try files.remove(name) }
  }

  /// A store that is encrypted now keeps nothing that tells what its objects were called before, or what they were.
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
  /// Nothing is added to the present pack any more; it is durable, and sealed.
  func retireWriter() throws(StoreError) {
    writing.withLock { writer in
      guard let ordinal = writer.ordinal else { return }
      state.withLock { $0.packs[ordinal].isRetired = true }
      writer = Writer()
    }
    // Counts as an addition, or there would be nothing to sync.
    added.add(1, ordering: .sequentiallyConsistent)
    try sync()
  }

  /// Removes the packs that hold anything plain, be it dead: what lives in them is copied. True if there was one.
  func evacuatePlain() throws(StoreError) -> Bool {
    try load()
    return try moving.withLock { _ throws(StoreError) in try evacuatePlainNow() }
  }

  private func evacuatePlainNow() throws(StoreError) -> Bool {
    var found = false
    try eachPack { pack, ordinal throws(StoreError) in
      guard (0..<pack.count).contains(where: { !pack.isEncryptedObject($0) }) else { return }
      // Another process adds to it: who is alone does it.
      guard state.withLock({ $0.packs[ordinal].isClosed }), try evacuateUnused(pack, ordinal) else { return }
      found = true
    }
    return found
  }
}
