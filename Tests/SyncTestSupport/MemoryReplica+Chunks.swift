package import SyncStore

/// Chunk sharing between blobs in memory.
extension MemoryReplica {
  /// The next few chunks of a blob from `offset` on; nil if the blob is absent.
  package func recipe(of hash: BlobHash, size: UInt64, from offset: UInt64) -> [BlobChunk]? {
    guard let blob = blobs[hash], blob.count == size, offset < size else { return nil }
    return Array(Self.chunks(Array(blob[Int(offset)...])).prefix(5)).map { BlobChunk(of: $0) }
  }

  private static func chunks(_ bytes: [UInt8]) -> [[UInt8]] {
    var chunker = ContentChunker(average: 256)
    var start = 0
    var chunks: [[UInt8]] = []
    for end in chunker.feed(bytes.span) + (chunker.finish().map { [$0] } ?? []) {
      chunks.append(Array(bytes[start..<end]))
      start = end
    }
    return chunks
  }

  /// The parts of a recipe that no local blob has.
  package func match(_ recipe: BlobRecipe, of hash: BlobHash) -> [BlobPart] {
    let known = Dictionary(
      blobs.values.flatMap { Self.chunks($0) }.map { (BlobChunk(of: $0), $0) }, uniquingKeysWith: { $1 })
    var missing: [BlobPart] = []
    var offset = recipe.offset
    found[hash] = [:]
    for chunk in recipe.chunks {
      if let bytes = known[chunk] {
        found[hash]?[offset] = bytes
      } else if missing.last?.end == offset {
        missing[missing.count - 1].count += UInt64(chunk.count)
      } else {
        missing.append(BlobPart(offset: offset, count: UInt64(chunk.count)))
      }
      offset += UInt64(chunk.count)
    }
    return missing
  }

  /// Extends a partial blob with chunks of local ones while those exist; nil if the result does not match its
  /// hash.
  package func assemble(
    _ hash: BlobHash, size: UInt64, upTo end: UInt64
  ) -> (held: UInt64, isComplete: Bool)? {
    if blobs[hash] != nil { return (size, true) }
    var held = (held: UInt64(partials[hash]?.count ?? 0), isComplete: false)
    while held.held < end, let bytes = found[hash]?[held.held] {
      guard let stored = store(bytes, of: hash, size: size) else { return nil }
      held = stored
    }
    return held
  }
}
