// Publishing new objects under their names, and retaining existing ones.
extension BlobStore {
  /// Retains an existing object: true if it is complete, and durable if asked for. Anything else in its place
  /// is quarantined.
  func retainExisting(_ form: StoredBlobDescriptor, durable: Bool) throws(StoreError) -> Bool {
    let name = form.name
    guard try files.isOccupied(name) else { return false }
    guard try files.size(of: name) == form.size else {
      try files.quarantine(BlobFiles.object(name))
      return false
    }
    if memory.withLock({ $0.syncFailed.contains(name) }) { return false }
    let row = try retainRow(name)
    // Check for the file only after retaining the row: a concurrent removal either saw the row retained or is
    // complete.
    guard let file = try files.open(name) else { return false }
    if row?.durable == true { return true }
    if !memory.withLock({ $0.verified.contains(name) }) {
      guard try isContent(file, form) else {
        _ = quarantine(form.reference.hash, name: name, file: file)
        return false
      }
      rememberVerified(name)
    }
    if durable { try makeDurable(name, file) }
    if durable || row == nil {
      ignoringCatalogueErrors { (catalogue) throws(StoreError) in
        try catalogue.record(name, size: form.size, .present, durable: durable)
      }
    }
    return try files.size(of: name) != nil
  }

  /// Writes a new object with `write`, which returns its reference, and publishes it. A failure leaves no
  /// file.
  func store(durable: Bool, _ write: (BlobSink) throws(StoreError) -> BlobReference) throws(StoreError)
    -> BlobReference
  {
    while true {
      let sink = try BlobSink(self)
      let name = sink.name
      do throws(StoreError) {
        let reference = try write(sink)
        try sink.finish(reference)
        if durable { try sink.file.sync() }
        let form = descriptor(reference)
        if try publish(name, as: form, durable: durable) { return reference }
        // Another writer published the same content first.
        try files.remove(name)
        if try retainExisting(form, durable: durable) { return reference }
      } catch {
        _ = try? files.remove(name)
        throw error
      }
    }
  }

  /// Renames the file `name`, complete and synced if `durable`, to its object. False if that exists.
  func publish(_ name: String, as form: StoredBlobDescriptor, durable: Bool) throws(StoreError) -> Bool {
    let hash = form.name
    // The row may belong to an earlier object of that name: its removal must not take the new one, and its
    // `durable` does not hold for it.
    let claimed = try retainRow(hash)
    if claimed?.durable == true {
      ignoringCatalogueErrors { (catalogue) throws(StoreError) in
        try catalogue.record(hash, size: form.size, .wanted, durable: false)
      }
    }
    try makeShard(hash, durable: durable)
    let replacing = memory.withLock { $0.syncFailed.contains(hash) }
    guard try files.publish(name, as: hash, replacing: replacing) else { return false }
    if durable { try files.storage.syncDirectory(files.path(BlobFiles.shard(hash))) }
    memory.withLock { _ = $0.syncFailed.remove(hash) }
    rememberVerified(hash)
    ignoringCatalogueErrors { (catalogue) throws(StoreError) in
      try catalogue.record(hash, size: form.size, .present, durable: durable)
    }
    return true
  }

  /// Makes objects durable that were put without it, sharing directory syncs. Packed objects are included if
  /// `withPacks`.
  ///
  /// - Throws: `.blobUnavailable` if one is missing.
  package func makeDurable(_ references: [BlobReference], withPacks: Bool = true) throws(StoreError) {
    var unsettled: [StoredBlobDescriptor] = []
    var arePacked = false
    for reference in Set(references).sorted(by: { $0.hash < $1.hash }) {
      let form = descriptor(reference)
      if try packs.retain(form.name) {
        arePacked = withPacks
        continue
      }
      let row = try retainRow(form.name)
      // Check only after retaining, and the file itself: the catalogue may be wrong.
      guard try files.size(of: form.name) == form.size else { throw Self.unavailable(reference.hash) }
      if row?.durable != true { unsettled.append(form) }
    }
    if arePacked { try packs.sync() }
    var shards: StringSet = []
    for form in unsettled {
      guard let file = try files.open(form.name) else { throw Self.unavailable(form.reference.hash) }
      try syncObjectFile(form.name, file)
      shards.insert(BlobFiles.shard(form.name))
    }
    for shard in shards.sorted() { try files.storage.syncDirectory(files.path(shard)) }
    for form in unsettled {
      ignoringCatalogueErrors { (catalogue) throws(StoreError) in
        try catalogue.record(form.name, size: form.size, .present, durable: true)
      }
    }
  }

  /// Makes an object in a file durable, including its name.
  func makeDurable(_ hash: BlobHash, _ file: any StorageFile) throws(StoreError) {
    try syncObjectFile(hash, file)
    try files.storage.syncDirectory(files.path(BlobFiles.shard(hash)))
  }

  /// Makes the content of an object file durable, and its shard directory, but not its name.
  private func syncObjectFile(_ name: BlobHash, _ file: any StorageFile) throws(StoreError) {
    guard !memory.withLock({ $0.syncFailed.contains(name) }) else { throw Self.unavailable(name) }
    do throws(StoreError) { try file.sync() } catch {
      handleFailedSync(name, file)
      throw error
    }
    try makeShard(name, durable: true)
  }

  /// Quarantines an object whose sync failed, so that it is put or fetched anew.
  ///
  /// Its content may be in memory alone, and another sync, also by another process, would report success
  /// (rule R4).
  private func handleFailedSync(_ name: BlobHash, _ file: any StorageFile) {
    memory.withLock { memory in
      memory.syncFailed.insert(name)
      memory.verified.remove(name)
    }
    let path = BlobFiles.object(name)
    // Another thread may have replaced it with a sound one.
    guard let present = try? files.storage.status(files.path(path)), let own = try? file.status(),
      present.inode == own.inode
    else { return }
    _ = try? files.quarantine(path)
    ignoringCatalogueErrors { (catalogue) throws(StoreError) in
      try catalogue.record(name, size: UInt64(own.size), .wanted, durable: false)
    }
  }

  private func makeShard(_ hash: BlobHash, durable: Bool) throws(StoreError) {
    let shard = hash.bytes[0]
    _ = try files.makeShard(hash)
    guard durable, !memory.withLock({ $0.durableShards.contains(shard) }) else { return }
    // Another process may have created a shard without syncing it: only those that existed before our sync
    // are durable.
    let there = try files.storage.list(files.path("objects")).compactMap { Hex.bytes(of: $0)?.first }
    try files.storage.syncDirectory(files.path("objects"))
    if memory.withLock({ $0.durableShards.isEmpty }) { try files.syncDirectories() }
    memory.withLock { $0.durableShards.formUnion(there) }
  }

  func rememberVerified(_ hash: BlobHash) {
    memory.withLock { memory in
      if memory.verified.count >= Self.maxRemembered { memory.verified = [] }
      memory.verified.insert(hash)
    }
  }
}
