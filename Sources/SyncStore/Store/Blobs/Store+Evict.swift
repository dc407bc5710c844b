// The store's part in eviction, and answering members that want to evict.
extension Store {
  /// Begins a pass that evicts objects until `limits` hold; nil while another pass runs. The caller must end
  /// it.
  ///
  /// - Throws: `.damaged` if records were lost: the values that they refer to are then unknown.
  package func beginEviction(_ limits: BlobLimits) throws(StoreError) -> EvictionPass? {
    try checkWritable()
    return try EvictionPass(self, limits)
  }

  /// Whether the stored limits call for an eviction pass.
  package func exceedsBlobLimits() throws(StoreError) -> Bool {
    let limits = try blobLimits
    guard isWritable, limits.hasLimits else { return false }
    // An age limit can be exceeded at any time: only a pass over all objects tells.
    if limits.ageMilliseconds != .max { return true }
    let blobs = try blobs
    if limits.freeDiskBytes > 0, try blobs.freeBytes() < limits.freeDiskBytes { return true }
    guard limits.count != .max || limits.bytes != .max else { return false }
    let (count, bytes) = try blobs.totals()
    return count > limits.count || bytes > limits.bytes
  }

  /// Blobs that only current values of keys refer to, with those writes; by stored name.
  func movableBlobs() throws(StoreError) -> [BlobHash: MovableBlob] {
    let blobs = try blobs
    var named: [BlobHash: MovableBlob] = [:]
    named.reserveCapacity(Int(clamping: try blobs.totals().count))
    let snapshot = try snapshot()
    defer { snapshot.close() }
    try StoreError.only {
      _ = try snapshot.scanEntries { entry in
        guard let blob = entry.blob else { return }
        if named[blob.hash]?.others.append(entry.dot) == nil {
          named[blob.hash] = MovableBlob(blob: blob, dot: entry.dot)
        }
      }
    }
    // Includes beaten, expired and parked records. They are durable when this returns, so that none of them
    // is truncated after its object was evicted (`LostBlobs`).
    try eachReferenceToBlob { blob, _ in named[blob.hash]?.references += 1 }
    let staying = named.filter { _, known in known.references != known.others.count + 1 }.map(\.key)
    for hash in staying { named[hash] = nil }
    for hash in try pinnedBlobs() { named[hash] = nil }
    for blob in try absentBlobs(.awaited) { named[blob.hash] = nil }
    guard blobs.hasKeyedNames else { return named }
    var movable: [BlobHash: MovableBlob] = [:]
    for (hash, known) in named {
      for (name, _) in blobs.names(of: hash) { movable[name] = known }
    }
    return movable
  }

  /// Retains the blob of a record about to be written. The caller must hold the writers' mutex.
  ///
  /// The blob was put before, but may have been evicted since, because the same content was here under
  /// another key and others hold it. From here on it stays: eviction checks whether it was used.
  func retainBlob(of content: Record.Content) throws(StoreError) {
    guard case .blob(let blob) = content, try !blobs.retain(blob.hash) else { return }
    throw StoreError(
      .blobUnavailable,
      "the content of blob \(blob.hash) has left to keep the limits before its key was written: put it again",
      path: path)
  }

  /// Writes absence records durably, before these blobs are evicted.
  func recordAbsent(_ absent: [AbsentBlob]) throws(StoreError) {
    if let tail = try putLocalRecords(absent.map { ($0.key, $0.value) }) { try sync(upTo: tail) }
  }

  /// Answers a member that wants to evict objects: the vector this copy covers, and which of the objects it
  /// holds durably and intact, verified just now.
  ///
  /// Nil if this copy is evicting itself, is read-only, or holds only some keys: it would then cover writes
  /// that refer to an object without keeping the object for them. Also nil if the objects cannot be made
  /// durable for want of room (`.diskFull`), or because another process holds the catalogue (`.busy`).
  ///
  /// - Parameter isCancelled: Called between pieces of the objects read.
  /// - Throws: `.cancelled` if it returned true.
  package func holdings(
    of blobs: [BlobReference], isCancelled: () -> Bool = { false }
  ) throws(StoreError) -> (covered: VersionVector, held: [Bool])? {
    guard isWritable, try scope == nil else { return nil }
    do throws(StoreError) { return try retained(blobs, isCancelled) } catch {
      guard error.code == .diskFull || error.code == .busy else { throw error }
      return nil
    }
  }

  private func retained(
    _ blobs: [BlobReference], _ isCancelled: () -> Bool
  ) throws(StoreError) -> (covered: VersionVector, held: [Bool])? {
    let tier = try self.blobs
    return try tier.withEvictionExcluded { () throws(StoreError) in
      var held: [Bool] = []
      for blob in blobs {
        let possession = try tier.retainAndCheck(blob, isCancelled: isCancelled)
        if possession == .corrupt { try want(blob) }
        held.append(possession == .intact)
      }
      try tier.makeDurable(zip(blobs, held).filter(\.1).map(\.0))
      // Take the vector after the objects are retained and durable: a sweep that begins later sees the
      // records it covers.
      return (try replicaSummary().vector, held)
    }
  }
}

/// A value that may be evicted, and the writes that refer to it: at least one.
struct MovableBlob: Sendable {
  let blob: BlobReference
  let dot: Dot
  /// Usually empty.
  var others: [Dot] = []
  /// Number of records of any kind that refer to it.
  var references = 0

  var dots: [Dot] { [dot] + others }
}
