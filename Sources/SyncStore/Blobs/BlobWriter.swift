/// Takes in one object piece by piece, holding no more than `PackSettings.objectBytes` of it in memory. What is not
/// finished leaves nothing behind. Not thread-safe: one owner at a time.
package final class BlobWriter {
  private let store: BlobStore
  private let hasher = SHA256Hasher()
  /// What has come, as long as it may go into a pack.
  private var buffer: [UInt8] = []
  private var file: (file: any StorageFile, name: String)?
  private var isFinished = false
  /// Bytes that have come.
  package private(set) var count: UInt64 = 0

  init(_ store: BlobStore) { self.store = store }

  deinit { discard() }

  /// Adds the next bytes.
  ///
  /// - Throws: `.diskFull`; `.outOfBounds` above `Limits.blobBytes`. Nothing of the object stays then.
  package func append(_ bytes: [UInt8]) throws(StoreError) {
    precondition(!isFinished, "an object that is finished takes no more bytes")
    do throws(StoreError) {
      guard UInt64(bytes.count) <= Limits.blobBytes - count else {
        throw StoreError(
          .outOfBounds, "is larger than a blob can be (\(Limits.blobBytes) bytes)",
          path: store.files.directory)
      }
      hasher.update(bytes)
      if file == nil, store.packs.settings.takes(buffer.count + bytes.count) || bytes.isEmpty {
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

  private func spill(_ bytes: [UInt8]) throws(StoreError) {
    if file == nil {
      file = try store.files.begin()
      if !buffer.isEmpty { try file?.file.write(buffer, at: 0) }
      buffer = []
    }
    // The reserve is looked after now and then, not for each piece.
    if count >> 24 != (count + UInt64(bytes.count)) >> 24 || count == 0 {
      try store.requireSpace(UInt64(bytes.count))
    }
    try file?.file.write(bytes, at: Int(count))
  }

  /// Makes an object of all that has come. Once only. A large one is durable in any case, a small one if asked for.
  package func finish(metadata: [UInt8] = [], durable: Bool) throws(StoreError) -> BlobReference {
    precondition(!isFinished, "an object is finished once")
    isFinished = true
    let reference = BlobReference(
      hash: BlobStore.hash(hasher.finish()), size: count, metadata: metadata)
    guard let (file, name) = file else {
      defer { buffer = [] }
      return try store.put(buffer, reference, durable: durable)
    }
    do throws(StoreError) {
      try store.finish(file, name, as: reference)
    } catch {
      _ = try? store.files.remove(name)
      throw error
    }
    self.file = nil
    return reference
  }

  /// Throws away what has come.
  package func discard() {
    guard let (_, name) = file else { return }
    file = nil
    _ = try? store.files.remove(name)
  }
}

extension BlobStore {
  /// A writer of a new object.
  package func writer() throws(StoreError) -> BlobWriter {
    try requireWritable()
    return BlobWriter(self)
  }

  /// Gives the complete file `name` the name of its object, or removes it if that is here already.
  func finish(_ file: any StorageFile, _ name: String, as reference: BlobReference) throws(StoreError) {
    var isSynced = false
    while true {
      if try adopt(reference, durable: true) {
        try files.remove(name)
        return
      }
      if !isSynced { try file.sync() }
      isSynced = true
      if try place(name, as: reference, durable: true) { return }
    }
  }
}
