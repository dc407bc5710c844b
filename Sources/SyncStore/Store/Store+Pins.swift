// Blobs that must stay though no record refers to them.
extension Store {
  private static let pinPrefix = Array("pin/".utf8)

  private static func pinKey(_ hash: BlobHash, _ holder: String) -> [UInt8] {
    pinPrefix + hash.bytes + Array(holder.utf8)
  }

  /// Keeps a blob until `unpin` for the same holder, durably, also beyond the life of this process. Other holders may pin it,
  /// too.
  ///
  /// - Throws: `.blobUnavailable` if it is not here.
  package func pin(_ hash: BlobHash, for holder: String) throws(StoreError) {
    try setLocal(Self.pinKey(hash, holder), [1])
    // Only now: what a sweep took away before the pin was durable is not pinned.
    guard try blobs.has(hash) else {
      try unpin(hash, for: holder)
      throw BlobStore.unavailable(hash)
    }
  }

  /// Ends what `pin` began. Nothing happens if it was not pinned.
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

  /// Blobs that are on their way here: their transfers must not be swept.
  func awaitedBlobs() throws(StoreError) -> Set<BlobHash> {
    Set(
      try localMetadata.all(beginning: AbsentBlob.prefix).compactMap {
        BlobHash(bytes: $0.key.dropFirst(AbsentBlob.prefix.count))
      })
  }
}
