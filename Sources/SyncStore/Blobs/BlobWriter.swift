/// Writes one object piece by piece, holding no more than `PackSettings.objectBytes` of it in memory.
///
/// An unfinished object leaves no file. Not thread-safe: one owner at a time.
package final class BlobWriter {
  private let store: BlobStore
  private let hasher = SHA256Hasher()
  /// Bytes received, as long as they may go into a pack.
  private var buffer: [UInt8] = []
  private var sink: BlobSink?
  private var isFinished = false
  /// Bytes received.
  package private(set) var count: UInt64 = 0

  init(_ store: BlobStore) { self.store = store }

  deinit { discard() }

  /// Appends the next bytes.
  ///
  /// - Throws: `.diskFull`; `.outOfBounds` above `Limits.blobBytes`. The object is then discarded.
  package func append(_ bytes: [UInt8]) throws(StoreError) {
    precondition(!isFinished, "an object that is finished takes no more bytes")
    do throws(StoreError) {
      guard UInt64(bytes.count) <= Limits.blobBytes - count else {
        throw StoreError(
          .outOfBounds, "is larger than a blob can be (\(Limits.blobBytes) bytes): split it",
          path: store.files.directory)
      }
      hasher.update(bytes)
      if sink == nil, store.packs.settings.takes(buffer.count + bytes.count) || bytes.isEmpty {
        buffer.append(contentsOf: bytes)
      } else {
        try spill(bytes)
      }
    } catch {
      discard()
      throw error
    }
    count += UInt64(bytes.count)
  }

  /// Appends to the file of the object, which is created here and gets the buffered bytes first.
  private func spill(_ bytes: [UInt8]) throws(StoreError) {
    // With the keys held they cannot change between choosing the file and writing to it.
    try store.withKeysHeld { () throws(StoreError) in try spillWithKeysHeld(bytes) }
  }

  private func spillWithKeysHeld(_ bytes: [UInt8]) throws(StoreError) {
    if let begun = sink {
      sink = try store.encryptedSink(begun)
    } else {
      let begun = try BlobSink(store)
      sink = begun
      if !buffer.isEmpty { try begun.append(buffer) }
      buffer = []
    }
    // Check the reserve every 16 MiB, not for each piece.
    if count >> 24 != (count + UInt64(bytes.count)) >> 24 || count == 0 {
      try store.requireSpace(UInt64(bytes.count))
    }
    try sink?.append(bytes)
  }

  /// Publishes the object; may be called once. A large object is always durable, a small one if asked for.
  package func finish(metadata: [UInt8] = [], durable: Bool) throws(StoreError) -> BlobReference {
    precondition(!isFinished, "an object is finished once")
    isFinished = true
    let reference = BlobReference(
      hash: BlobHash(sha256: hasher.finish()), size: count, metadata: metadata)
    guard let sink else {
      defer { buffer = [] }
      return try store.put(buffer, reference, durable: durable)
    }
    do throws(StoreError) {
      try store.finish(sink, as: reference)
    } catch {
      _ = try? store.files.remove(sink.name)
      throw error
    }
    self.sink = nil
    return reference
  }

  /// Discards the bytes received.
  package func discard() {
    guard let sink else { return }
    self.sink = nil
    _ = try? store.files.remove(sink.name)
  }
}

extension BlobStore {
  /// A writer of a new object.
  package func writer() throws(StoreError) -> BlobWriter {
    try requireWritable()
    return BlobWriter(self)
  }

  /// Publishes the complete file of `sink`, or removes it if the object exists.
  func finish(_ sink: BlobSink, as reference: BlobReference) throws(StoreError) {
    try sink.finish(reference)
    try withKeysHeld { () throws(StoreError) in
      // The keys were rotated since it began: its key may be dropped soon.
      let sink = try reencrypted(sink, reference)
      let form = descriptor(reference)
      var isSynced = false
      while true {
        if try retainExisting(form, durable: true) {
          try files.remove(sink.name)
          return
        }
        if !isSynced { try sink.file.sync() }
        isSynced = true
        if try publish(sink.name, as: form, durable: true) { return }
      }
    }
  }

  private func reencrypted(_ sink: BlobSink, _ reference: BlobReference) throws(StoreError) -> BlobSink {
    guard sink.generation != writingKeys?.current ?? 0 else { return sink }
    let source: BlobReader
    if sink.generation == 0 {
      source = BlobReader(
        store: self, hash: reference.hash, name: reference.hash, source: .file(sink.file),
        size: reference.size)
    } else {
      source = try reader(of: reference.hash, .file(sink.file), isEncrypted: true, reference.hash)
    }
    return try replacing(sink) { (copy) throws(StoreError) in
      try source.verify { (piece, _) throws(StoreError) in try copy.append(piece) }
      try copy.finish(reference)
    }
  }

  /// The sink to continue with: if the store became encrypted after `sink` was begun, an encrypted copy.
  ///
  /// Nothing more may be written unencrypted. The rotation may have removed the name of `sink`.
  func encryptedSink(_ sink: BlobSink) throws(StoreError) -> BlobSink {
    guard sink.generation == 0, writingKeys != nil else { return sink }
    return try replacing(sink) { (copy) throws(StoreError) in
      while copy.count < sink.count {
        let left = Int(clamping: sink.count - copy.count)
        let piece = try sink.file.read(min(left, Self.pieceBytes), at: Int(copy.count))
        guard !piece.isEmpty else {
          throw StoreError(
            .inputOutput, "a value that is being stored was cut short: store it again",
            path: files.directory)
        }
        try copy.append(piece)
      }
    }
  }

  /// Replaces `sink` with a new file written by `fill`, and removes the old one.
  private func replacing(
    _ sink: BlobSink, _ fill: (BlobSink) throws(StoreError) -> Void
  ) throws(StoreError) -> BlobSink {
    let copy = try BlobSink(self)
    do throws(StoreError) { try fill(copy) } catch {
      _ = try? files.remove(copy.name)
      throw error
    }
    try files.remove(sink.name)
    return copy
  }
}
