// What eviction asks of the store; and what a member that is asked answers.
extension Store {
  /// Begins a turn in which objects may leave until `limits` hold; nil while another has it. End it.
  ///
  /// - Throws: `.damaged` if records were lost: who knows which values they name.
  package func beginEviction(_ limits: BlobLimits) throws(StoreError) -> EvictionPass? {
    try checkWritable()
    return try EvictionPass(self, limits)
  }

  /// Do the limits that are kept call for a turn?
  package func exceedsBlobLimits() throws(StoreError) -> Bool {
    let limits = try blobLimits
    guard isWritable, limits.hasLimits else { return false }
    // An age is exceeded by whatever lies here long enough: a look at all is how that is found.
    if limits.ageMilliseconds != .max { return true }
    let blobs = try blobs
    if limits.freeDiskBytes > 0, try blobs.freeBytes() < limits.freeDiskBytes { return true }
    guard limits.count != .max || limits.bytes != .max else { return false }
    let (count, bytes) = try blobs.totals()
    return count > limits.count || bytes > limits.bytes
  }

  /// By their names on the disk: what only current values of keys name, with the writes that do.
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
    // All records that count, those that were beaten, have expired or wait for their time among them. They are durable when this
    // returns, so that none of them is cut off with the object gone (`LostBlobs`).
    try eachReferenceToBlob { hash, _ in named[hash]?.references += 1 }
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

  /// For the holder of the writers' mutex, who is about to name the blob in a new record: it has been put before, and may have been made
  /// to leave since, because the same content was here under another key that others hold. From here on it stays: who makes it leave
  /// looks whether it was counted on.
  func retainBlob(of content: Record.Content) throws(StoreError) {
    guard case .blob(let blob) = content, try !blobs.retain(blob.hash) else { return }
    throw StoreError(
      .blobUnavailable,
      "the content of blob \(blob.hash) has left to keep the limits before its key was written: put it again",
      path: path)
  }

  /// Notes durably that these are about to leave.
  func recordAbsent(_ absent: [AbsentBlob]) throws(StoreError) {
    if let tail = try putLocalRecords(absent.map { ($0.key, $0.value) }) { try sync(upTo: tail) }
  }

  /// What this copy says to one that wants objects to leave: what it covers, and which of them it holds, durably and in good
  /// order, read just now. Nil while it makes objects leave itself, may not write, or holds only some keys, and so covers writes that
  /// name an object without keeping it for them: then it says nothing. Nor does it where it cannot make them durable for want of room
  /// (`.diskFull`), or because another process holds the catalogue (`.busy`).
  ///
  /// - Parameter isCancelled: asked between pieces of what is read.
  /// - Throws: `.cancelled` where that was so.
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
      // Durable on return, and behind what was counted on: a sweep that begins from now on sees the records it covers.
      return (try replicaSummary().vector, held)
    }
  }
}

/// A value that may leave, and the writes that name it: at least one.
struct MovableBlob: Sendable {
  let blob: BlobReference
  let dot: Dot
  /// As a rule none.
  var others: [Dot] = []
  /// Records that name it, of whatever kind.
  var references = 0

  var dots: [Dot] { [dot] + others }
}
