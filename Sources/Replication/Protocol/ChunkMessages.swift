package import SyncStore

/// The recipe of a blob from an offset on, encrypted for the wire.
package struct EncryptedRecipe: Hashable, Sendable {
  /// The blob.
  package var hash: BlobHash
  /// Offset of the first chunk in the blob.
  package var offset: UInt64
  /// The encrypted chunks (`schemas/wire-batch.md`).
  package var encrypted: [UInt8]

  /// All fields.
  package init(hash: BlobHash, offset: UInt64, encrypted: [UInt8]) {
    (self.hash, self.offset, self.encrypted) = (hash, offset, encrypted)
  }
}

/// Requests parts of a blob.
package struct BlobPartsWanted: Hashable, Sendable {
  /// The blob.
  package var hash: BlobHash
  /// Its size in bytes.
  package var size: UInt64
  /// The parts, ascending, not empty and not overlapping; 1 to `WireLimits.blobParts`.
  package var parts: [BlobPart]

  /// All fields.
  package init(hash: BlobHash, size: UInt64, parts: [BlobPart]) {
    (self.hash, self.size, self.parts) = (hash, size, parts)
  }
}

extension BlobPartsWanted {
  func write(to writer: inout ByteWriter) {
    writer.write(raw: hash.bytes)
    writer.writeVariable(size)
    writer.writeVariable(UInt64(parts.count))
    var end: UInt64 = 0
    for part in parts {
      writer.writeVariable(part.offset - end)
      writer.writeVariable(part.count)
      end = part.end
    }
  }

  init(from reader: inout ByteReader) throws(DecodingFailure) {
    hash = try reader.readBlobHash()
    size = try reader.readVariable()
    guard size <= Limits.blobBytes else {
      throw DecodingFailure("parts of a blob of \(CountText.of(size, noun: "byte"))")
    }
    parts = []
    var end: UInt64 = 0
    for _ in 0..<(try reader.readCount(limit: WireLimits.blobParts)) {
      let (gap, count) = (try reader.readVariable(), try reader.readVariable())
      guard gap <= size - end, count > 0, count <= size - end - gap else {
        throw DecodingFailure("a part that is none of its blob")
      }
      parts.append(BlobPart(offset: end + gap, count: count))
      end += gap + count
    }
    guard !parts.isEmpty else { throw DecodingFailure("no parts of a blob wanted") }
  }
}

/// Encodes and decodes the chunks of a recipe (the payload before encryption).
package enum RecipeCodec {
  /// Encodes `chunks`.
  package static func encode(_ chunks: [BlobChunk]) -> [UInt8] {
    var writer = ByteWriter(capacity: chunks.count * (BlobChunk.nameBytes + 3))
    writer.writeVariable(UInt64(chunks.count))
    for chunk in chunks {
      writer.writeVariable(UInt64(chunk.count))
      writer.write(raw: chunk.name)
    }
    return writer.bytes
  }

  /// Decodes the chunks of a recipe that starts at `offset`.
  ///
  /// Each chunk has at least one byte, and all lie within a blob of `size` bytes.
  package static func decode(
    _ payload: [UInt8], offset: UInt64, size: UInt64
  ) throws(DecodingFailure) -> BlobRecipe {
    var reader = ByteReader(payload)
    var recipe = BlobRecipe(offset: offset, chunks: [])
    var end = offset
    for _ in 0..<(try reader.readCount(limit: WireLimits.recipeChunks)) {
      let count = try reader.readVariable()
      guard count > 0, end <= size, count <= min(size - end, UInt64(WireLimits.chunkBytes)) else {
        throw DecodingFailure(
          "a chunk of \(CountText.of(count, noun: "byte")) at \(end) of a blob of \(size)")
      }
      recipe.chunks.append(
        BlobChunk(count: Int(count), name: Array(try reader.read(raw: BlobChunk.nameBytes))))
      end += count
    }
    try reader.end()
    guard !recipe.chunks.isEmpty else { throw DecodingFailure("a recipe of no chunks") }
    return recipe
  }
}
