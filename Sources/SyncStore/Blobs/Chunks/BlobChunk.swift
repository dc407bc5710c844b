/// A piece of an object as cut by `ContentChunker`, named by its content.
///
/// A hint only: correctness is established by hashing the whole object.
package struct BlobChunk: Hashable, Sendable {
  /// Bytes of a name.
  package static let nameBytes = 16

  /// Number of its bytes.
  package let count: Int
  /// XXH3-128 of its bytes, the low half first.
  package let name: [UInt8]

  /// Both fields.
  package init(count: Int, name: [UInt8]) { (self.count, self.name) = (count, name) }

  /// The chunk of these bytes.
  package init(of bytes: [UInt8]) { self.init(of: bytes.span) }

  /// The chunk of these bytes.
  init(of bytes: Span<UInt8>) {
    let hash = XXH3.hash128(bytes)
    var writer = ByteWriter(capacity: Self.nameBytes)
    writer.write(hash.low)
    writer.write(hash.high)
    (count, name) = (bytes.count, writer.bytes)
  }
}

/// The chunks of an object, from an offset on.
package struct BlobRecipe: Hashable, Sendable {
  /// Offset of the first chunk.
  package var offset: UInt64
  /// Contiguous chunks.
  package var chunks: [BlobChunk]

  /// Both fields.
  package init(offset: UInt64, chunks: [BlobChunk]) { (self.offset, self.chunks) = (offset, chunks) }

  /// Offset after the last chunk.
  package var end: UInt64 { chunks.reduce(offset) { $0 + UInt64($1.count) } }
}

/// A byte range of an object.
package struct BlobPart: Hashable, Sendable {
  /// Offset of the first byte.
  package var offset: UInt64
  /// Number of bytes.
  package var count: UInt64

  /// Both fields.
  package init(offset: UInt64, count: UInt64) { (self.offset, self.count) = (offset, count) }

  /// Offset after the last byte.
  package var end: UInt64 { offset + count }
}

/// Where the chunks of a recipe are found in other objects here.
package struct BlobMatch: Sendable {
  struct Copy: Sendable {
    var chunk: BlobChunk
    /// Its offset in the new object.
    var offset: UInt64
    /// Stored name of the object that has it, and its offset there.
    var source: BlobHash
    var place: UInt64
  }

  /// Sorted by offset.
  var copies: [Copy] = []
  /// Ranges that are missing here, in order; adjacent ones are merged.
  package internal(set) var missing: [BlobPart] = []
  /// Offset after the last chunk.
  package internal(set) var end: UInt64 = 0
}
