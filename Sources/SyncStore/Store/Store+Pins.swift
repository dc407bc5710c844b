// Blobs kept although no record refers to them.
extension Store {
  private static let pinPrefix = Array("pin/".utf8)

  private static func pinKey(_ hash: BlobHash, _ holder: String) -> [UInt8] {
    pinPrefix + hash.bytes + Array(holder.utf8)
  }

  /// Pins a blob for `holder` until `unpin` with the same holder. Durable, so the pin survives this process.
  /// Several holders may pin the same blob.
  ///
  /// - Throws: `.blobUnavailable` if the blob is not present.
  package func pin(_ hash: BlobHash, for holder: String) throws(StoreError) {
    try setLocal(Self.pinKey(hash, holder), [1])
    // Checked only now: a blob that a sweep removed before the pin was durable is not pinned.
    guard try blobs.has(hash) else {
      try unpin(hash, for: holder)
      throw BlobStore.unavailable(hash)
    }
  }

  /// Removes the holder's pin. No effect if there is none.
  package func unpin(_ hash: BlobHash, for holder: String) throws(StoreError) {
    try setLocal(Self.pinKey(hash, holder), nil)
  }

  /// Blobs that are pinned.
  package func pinnedBlobs() throws(StoreError) -> Set<BlobHash> {
    Set(
      try locals(prefix: Self.pinPrefix).compactMap { pair in
        BlobHash(bytes: pair.key.dropFirst(Self.pinPrefix.count).prefix(32))
      })
  }

  /// Blobs being transferred to this copy: a sweep must not remove their partial files.
  func awaitedBlobs() throws(StoreError) -> Set<BlobHash> {
    Set(
      try localMetadata.all(beginning: AbsentBlob.prefix).compactMap {
        BlobHash(bytes: $0.key.dropFirst(AbsentBlob.prefix.count))
      })
  }
}
