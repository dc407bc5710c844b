/// A piece of an object as `ContentChunker` cuts it, named by what it holds. A hint: that the whole is right is known when the
/// whole was hashed.
package struct BlobChunk: Hashable, Sendable {
  /// Bytes of a name.
  package static let nameBytes = 16

  /// Bytes that it has.
  package let count: Int
  /// XXH3-128 of them, its low half first.
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

/// What an object is made of, from an offset on.
package struct BlobRecipe: Hashable, Sendable {
  /// Where its first chunk begins.
  package var offset: UInt64
  /// One behind the other.
  package var chunks: [BlobChunk]

  /// Both fields.
  package init(offset: UInt64, chunks: [BlobChunk]) { (self.offset, self.chunks) = (offset, chunks) }

  /// Behind its last chunk.
  package var end: UInt64 { chunks.reduce(offset) { $0 + UInt64($1.count) } }
}

/// Bytes of an object.
package struct BlobPart: Hashable, Sendable {
  /// Where they begin.
  package var offset: UInt64
  /// How many they are.
  package var count: UInt64

  /// Both fields.
  package init(offset: UInt64, count: UInt64) { (self.offset, self.count) = (offset, count) }

  /// Behind them.
  package var end: UInt64 { offset + count }
}

/// Where the chunks of a recipe lie in other objects that are here.
package struct BlobMatch: Sendable {
  struct Copy: Sendable {
    var chunk: BlobChunk
    /// Where it is to be in the new object.
    var offset: UInt64
    /// On the disk: which object has it, and where.
    var source: BlobHash
    var place: UInt64
  }

  /// In the order of their offsets.
  var copies: [Copy] = []
  /// What is not here, in order; parts that touch each other are one.
  package internal(set) var missing: [BlobPart] = []
  /// Behind the last chunk.
  package internal(set) var end: UInt64 = 0
}
