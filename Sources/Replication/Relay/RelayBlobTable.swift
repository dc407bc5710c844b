package import SyncStore

/// How a large value is stored in a relay: whole, or as groups of chunks and a table of them. Pure;
/// schemas/relay.md has the bytes.
///
/// Chunks are those of live transfers (`BlobRecipe`), so that a reader finds what it has already. Groups are
/// cut where a chunk's name says so: a change in the middle of a value changes the groups that it touches.
package struct RelayBlobTable: Hashable, Sendable {
  /// Consecutive chunks that are one object, named as a blob with their bytes would be.
  package struct Group: Hashable, Sendable {
    /// SHA-256 of its bytes.
    package var hash: BlobHash
    /// Its chunks.
    package var chunks: [BlobChunk]

    /// Both fields.
    package init(hash: BlobHash, chunks: [BlobChunk]) { (self.hash, self.chunks) = (hash, chunks) }

    /// Number of its bytes.
    package var count: Int { chunks.reduce(0) { $0 + $1.count } }
  }

  /// The groups, in order.
  package var groups: [Group]

  /// A table of these groups.
  package init(groups: [Group]) { self.groups = groups }

  /// Cuts a recipe into groups.
  package static func cut(_ chunks: [BlobChunk]) -> [ArraySlice<BlobChunk>] {
    var groups: [ArraySlice<BlobChunk>] = []
    var (start, bytes) = (0, 0)
    for (index, chunk) in chunks.enumerated() {
      bytes += chunk.count
      let length = index + 1 - start
      let isCut = length >= RelayLimits.groupChunks && chunk.name[0] & RelayLimits.groupMask == 0
      guard isCut || bytes >= RelayLimits.groupBytes else { continue }
      groups.append(chunks[start...index])
      (start, bytes) = (index + 1, 0)
    }
    if start < chunks.count { groups.append(chunks[start...]) }
    return groups
  }

  /// The recipe of the whole value.
  package var recipe: BlobRecipe { BlobRecipe(offset: 0, chunks: groups.flatMap(\.chunks)) }

  /// Groups of one payload.
  private static let payloadGroups = 1024

  /// The payloads of the object's batches.
  package var payloads: [[UInt8]] {
    stride(from: 0, to: groups.count, by: Self.payloadGroups).map { start in
      var writer = ByteWriter(capacity: 1 << 18)
      writer.write(RelayBlobForm.table.rawValue)
      let some = groups[start..<min(start + Self.payloadGroups, groups.count)]
      writer.writeVariable(UInt64(some.count))
      for group in some {
        writer.write(raw: group.hash.bytes)
        writer.writeVariable(UInt64(group.chunks.count))
        for chunk in group.chunks {
          writer.writeVariable(UInt64(chunk.count))
          writer.write(raw: chunk.name)
        }
      }
      return writer.bytes
    }
  }

  /// Decodes the payloads for a value of `size` bytes. The groups must have exactly that many.
  package init(payloads: [[UInt8]], size: UInt64) throws(DecodingFailure) {
    groups = []
    var total: UInt64 = 0
    for payload in payloads {
      var reader = ByteReader(payload)
      guard try reader.read(UInt8.self) == RelayBlobForm.table.rawValue else {
        throw DecodingFailure("no table of a large value")
      }
      for _ in 0..<(try reader.readCount(limit: Self.payloadGroups)) {
        let group = try Group(from: &reader)
        total += UInt64(group.count)
        guard total <= size else { throw DecodingFailure("a table of more bytes than its value has") }
        groups.append(group)
      }
      try reader.end()
    }
    guard total == size else { throw DecodingFailure("a table of \(total) bytes for a value of \(size)") }
  }
}

extension RelayBlobTable.Group {
  fileprivate init(from reader: inout ByteReader) throws(DecodingFailure) {
    guard let hash = BlobHash(bytes: Array(try reader.read(raw: 32))) else { throw DecodingFailure("hash") }
    var (chunks, bytes): ([BlobChunk], UInt64) = ([], 0)
    for _ in 0..<(try reader.readCount(limit: RelayLimits.maximumGroupBytes)) {
      let count = try reader.readVariable()
      guard count > 0, count <= UInt64(WireLimits.chunkBytes) else {
        throw DecodingFailure("size of a chunk")
      }
      bytes += count
      guard bytes <= UInt64(RelayLimits.maximumGroupBytes) else { throw DecodingFailure("size of a group") }
      chunks.append(BlobChunk(count: Int(count), name: Array(try reader.read(raw: BlobChunk.nameBytes))))
    }
    guard !chunks.isEmpty else { throw DecodingFailure("a group of no chunks") }
    self.init(hash: hash, chunks: chunks)
  }
}

/// The first byte of each payload of an object under `b/`.
package enum RelayBlobForm: UInt8, Sendable, CaseIterable {
  /// The bytes of a value, or of a group, follow.
  case bytes = 0
  /// Groups follow.
  case table = 1

  /// The bytes in the payloads of an object of this form, which has one; nil for other payloads.
  static func bytes(in payloads: [[UInt8]]) -> ArraySlice<UInt8>? {
    guard payloads.count == 1, payloads[0].first == Self.bytes.rawValue else { return nil }
    return payloads[0].dropFirst()
  }
}
