// How an object gets its name, or an object that is there already is counted on.
extension BlobStore {
  /// Counts on an object that is here already: true if it is whole, and durable if asked for. What lies in its place
  /// and is something else is set aside.
  func adopt(_ reference: BlobReference, durable: Bool) throws(StoreError) -> Bool {
    let hash = reference.hash
    guard try files.isOccupied(hash) else { return false }
    guard try files.size(of: hash) == reference.size else {
      try files.setAside(BlobFiles.object(hash))
      return false
    }
    if memory.withLock({ $0.suspect.contains(hash) }) { return false }
    let row = noting { (catalogue) throws(StoreError) in try catalogue.claim(hash) } ?? nil
    // Only a look after the claim counts: whoever was removing it either saw the claim, or is done.
    guard let file = try files.open(hash) else { return false }
    if row?.durable == true { return true }
    if !memory.withLock({ $0.whole.contains(hash) }) {
      let (found, _) = try Self.hash(of: file)
      guard found == hash else {
        _ = quarantine(hash, file)
        return false
      }
      remember(hash)
    }
    if durable { try makeDurable(hash, file) }
    if durable || row == nil {
      noting { (catalogue) throws(StoreError) in
        try catalogue.record(hash, size: reference.size, .present, durable: durable)
      }
    }
    return try files.size(of: hash) != nil
  }

  /// Writes a new object with `write`, which says what it wrote, and gives it its name. If that fails, nothing stays.
  func store(durable: Bool, _ write: (any StorageFile) throws(StoreError) -> BlobReference) throws(StoreError)
    -> BlobReference
  {
    while true {
      let (file, name) = try files.begin()
      do throws(StoreError) {
        let reference = try write(file)
        if durable { try file.sync() }
        if try place(name, as: reference, durable: durable) { return reference }
        // Another was faster with the same content.
        try files.remove(name)
        if try adopt(reference, durable: durable) { return reference }
      } catch {
        _ = try? files.remove(name)
        throw error
      }
    }
  }

  /// Gives the complete and, if asked for, synced file `name` the name of its object. False if that is taken.
  func place(_ name: String, as reference: BlobReference, durable: Bool) throws(StoreError) -> Bool {
    let hash = reference.hash
    // A row from an earlier life of the object: whoever is removing that must not take this one for it, and what was
    // durable then is not now.
    let claimed = noting { (catalogue) throws(StoreError) in try catalogue.claim(hash) } ?? nil
    if claimed?.durable == true {
      noting { (catalogue) throws(StoreError) in
        try catalogue.record(hash, size: reference.size, .wanted, durable: false)
      }
    }
    try makeShard(hash, durable: durable)
    let replacing = memory.withLock { $0.suspect.contains(hash) }
    guard try files.place(name, as: hash, replacing: replacing) else { return false }
    if durable { try files.storage.syncDirectory(files.path(BlobFiles.shard(hash))) }
    memory.withLock { _ = $0.suspect.remove(hash) }
    remember(hash)
    noting { (catalogue) throws(StoreError) in
      try catalogue.record(hash, size: reference.size, .present, durable: durable)
    }
    return true
  }

  /// Makes objects durable that were put without it, sharing the syncs of directories. Those in packs only `withPacks`.
  /// `.blobUnavailable` if one has gone.
  package func settle(_ references: [BlobReference], withPacks: Bool = true) throws(StoreError) {
    var unsettled: [BlobReference] = []
    var arePacked = false
    for reference in Set(references).sorted(by: { $0.hash < $1.hash }) {
      if try packs.claim(reference.hash) {
        arePacked = withPacks
        continue
      }
      let row = noting { (catalogue) throws(StoreError) in try catalogue.claim(reference.hash) } ?? nil
      if row?.durable != true { unsettled.append(reference) }
    }
    if arePacked { try packs.sync() }
    var shards: Set<String> = []
    for reference in unsettled {
      guard let file = try files.open(reference.hash) else { throw Self.unavailable(reference.hash) }
      do throws(StoreError) { try file.sync() } catch {
        memory.withLock { _ = $0.suspect.insert(reference.hash) }
        throw error
      }
      try makeShard(reference.hash, durable: true)
      shards.insert(BlobFiles.shard(reference.hash))
    }
    for shard in shards.sorted() { try files.storage.syncDirectory(files.path(shard)) }
    for reference in unsettled {
      noting { (catalogue) throws(StoreError) in
        try catalogue.record(reference.hash, size: reference.size, .present, durable: true)
      }
    }
  }

  private func makeDurable(_ hash: BlobHash, _ file: any StorageFile) throws(StoreError) {
    do throws(StoreError) {
      try file.sync()
      try makeShard(hash, durable: true)
      try files.storage.syncDirectory(files.path(BlobFiles.shard(hash)))
    } catch {
      memory.withLock { _ = $0.suspect.insert(hash) }
      throw error
    }
  }

  private func makeShard(_ hash: BlobHash, durable: Bool) throws(StoreError) {
    let shard = hash.bytes[0]
    _ = try files.makeShard(hash)
    guard durable, !memory.withLock({ $0.durableShards.contains(shard) }) else { return }
    // Another process may have made it and not synced it: only what was there before a sync of ours is durable.
    let there = try files.storage.list(files.path("objects")).compactMap { Hex.bytes(of: $0)?.first }
    try files.storage.syncDirectory(files.path("objects"))
    memory.withLock { $0.durableShards.formUnion(there) }
  }

  func remember(_ hash: BlobHash) {
    memory.withLock { memory in
      if memory.whole.count >= Self.remembered { memory.whole = [] }
      memory.whole.insert(hash)
    }
  }
}
