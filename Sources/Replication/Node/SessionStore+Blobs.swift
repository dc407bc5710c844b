internal import SyncStore

// Reading and storing large values.
extension SessionStore {
  func readBlob(_ blob: BlobReference, offset: UInt64, count: Int) throws -> SessionEvent {
    guard let actor = state.withLock({ $0.handshake.actor }), try store.blobs.has(blob) else {
      return .blobUnavailable(blob.hash)
    }
    let bytes = try store.blobs.read(blob.hash, offset: offset, count: count)
    guard bytes.count == count else { return .blobUnavailable(blob.hash) }
    let context = BatchContext.blobRange(store: store.id, sender: actor, offset: offset)
    let isTried = state.withLock { $0.compression.deflates(blob.hash, at: offset) }
    let encrypted = try BatchCodec.encrypt(
      bytes, as: context, keys: ring(), randomness: SecureRandom.bytes(BatchCodec.randomnessBytes),
      deflating: isTried)
    if isTried, !BatchCodec.isDeflated(encrypted) {
      state.withLock { $0.compression.didNotShrink(blob.hash, at: offset) }
    }
    return .blobRead(hash: blob.hash, offset: offset, encrypted: encrypted)
  }

  /// Stores consecutive ranges of one blob.
  func storeBlob(_ ranges: [BlobRange], blob: BlobReference, from sender: ActorID) throws
    -> SessionEvent
  {
    let blobs = try store.blobs
    var held: UInt64 = 0
    for range in ranges {
      let context = BatchContext.blobRange(store: store.id, sender: sender, offset: range.offset)
      let bytes = try BatchCodec.decrypt(range.encrypted, expecting: context, keys: ring())
      guard !bytes.isEmpty || blob.size == 0, range.offset + UInt64(bytes.count) <= blob.size else {
        throw DecodingFailure("a range of blob \(blob.hash) is empty, or goes beyond its end")
      }
      // Another session may have completed the blob first, in this process or another.
      if try blobs.has(blob) { return .blobStored(hash: blob.hash, held: blob.size, isComplete: true) }
      do throws(StoreError) {
        try blobs.append(bytes, to: blob.hash, at: range.offset)
      } catch {
        guard error.code == .outOfBounds else { throw error }
        return .blobStored(hash: blob.hash, held: try blobs.partialSize(blob.hash), isComplete: false)
      }
      held = range.offset + UInt64(bytes.count)
    }
    return try complete(blob, held: held)
  }

  /// Stores blobs that arrived in one range each, with one sync for all.
  func storeBlobs(_ ranges: [BlobRange], sizes: [UInt64], from sender: ActorID) throws -> SessionEvent {
    let blobs = try store.blobs
    let noted = try store.absenceVersions(of: ranges.map(\.hash))
    var arrived: [BlobReference] = []
    var outcomes: [Bool] = []
    for (range, size) in zip(ranges, sizes) {
      let context = BatchContext.blobRange(store: store.id, sender: sender, offset: 0)
      let bytes = try BatchCodec.decrypt(range.encrypted, expecting: context, keys: ring())
      let blob = BlobReference(hash: range.hash, size: size)
      outcomes.append(try blobs.put(bytes, arrivedAs: blob))
      if outcomes.last == true { arrived.append(blob) }
    }
    try blobs.makeDurable(arrived)
    // Recorded now, so that the next session does not look for them.
    try store.recordArrived(arrived.map(\.hash), unlessChangedSince: noted)
    return .blobsStored(outcomes)
  }

  func complete(_ blob: BlobReference, held: UInt64) throws -> SessionEvent {
    let blobs = try store.blobs
    guard held == blob.size else { return .blobStored(hash: blob.hash, held: held, isComplete: false) }
    let noted = try store.absenceVersions(of: [blob.hash])
    do throws(StoreError) {
      try blobs.complete(blob, durable: true)
    } catch {
      guard error.code == .damaged else { throw error }
      return .blobRejected(blob.hash)
    }
    try store.recordArrived([blob.hash], unlessChangedSince: noted)
    return .blobStored(hash: blob.hash, held: held, isComplete: true)
  }
}
