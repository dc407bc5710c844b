internal import SyncStore

/// Writes the batches of a round as objects; a small round stays in memory.
struct RelayPartWriter: Sendable {
  let client: RelayClient
  let keys: RelayClient.Keys
  /// The name of a part by its index.
  let name: @Sendable (Int) -> String

  /// Bytes of records in a batch.
  private static let batchBytes = 1 << 20

  /// The result of writing a round.
  struct Written: Sendable {
    var content = RelayEntry.Content.inline([])
    /// Records, and those with users' keys.
    var records: UInt64 = 0
    var users = 0
    /// Bytes in objects, or in the entry.
    var bytes: UInt64 = 0
    /// Large values that the records refer to.
    var blobs: [BlobReference] = []
  }

  /// A batch before it is encrypted.
  private struct Batch: Sendable {
    var payload: [UInt8]
    var summary: BatchSummary
    var blobs: [BlobReference]
  }

  /// Writes the round; up to `inline` bytes stay in memory.
  func write(_ round: DeltaStream, inline: Int) async throws(ReplicationError) -> Written {
    var written = Written()
    var (parts, part, batches): ([RelayPart], [UInt8], UInt32) = ([], [], 0)
    var first = try await next(of: round, &written)
    let second = first == nil ? nil : try await next(of: round, &written)
    if let only = first, second == nil, only.payload.count <= inline {
      written.content = .inline([only.payload])
      written.bytes = UInt64(only.payload.count)
      return written
    }
    var waiting = second
    while let batch = first {
      part += try encrypt(batch.payload, part: parts.count, index: batches)
      batches += 1
      if part.count >= RelayLimits.partBytes {
        parts.append(try await finish(&part, &batches, index: parts.count))
      }
      first = waiting
      waiting = first == nil ? nil : try await next(of: round, &written)
    }
    if batches > 0 { parts.append(try await finish(&part, &batches, index: parts.count)) }
    written.content = parts.isEmpty ? .inline([]) : .parts(parts)
    written.bytes = parts.reduce(0) { $0 + $1.bytes }
    return written
  }

  private func next(
    of round: DeltaStream, _ written: inout Written
  ) async throws(ReplicationError) -> Batch? {
    let batch = try await client.storeWork { _ throws(StoreError) -> Batch? in
      var encoder = BlobNotingEncoder(capacity: min(round.bytesLeft, Self.batchBytes) + 4096)
      guard let summary = try round.next(maximumBytes: Self.batchBytes, into: &encoder) else { return nil }
      let payload = encoder.records.finish(position: summary.position, present: summary.present)
      return Batch(payload: payload, summary: summary, blobs: encoder.blobs)
    }
    guard let batch else { return nil }
    written.records += UInt64(batch.summary.records)
    written.users += batch.summary.users
    written.blobs += batch.blobs
    return batch
  }

  private func encrypt(_ payload: [UInt8], part: Int, index: UInt32) throws(ReplicationError) -> [UInt8] {
    let batch = try keys.encrypt(payload, as: name(part), kind: .records, index: UInt64(index))
    var writer = ByteWriter(capacity: batch.count + 4)
    writer.write(UInt32(batch.count))
    writer.write(raw: batch)
    return writer.bytes
  }

  private func finish(
    _ part: inout [UInt8], _ batches: inout UInt32, index: Int
  ) async throws(ReplicationError) -> RelayPart {
    let done = RelayPart(
      name: name(index), bytes: UInt64(part.count), batches: batches,
      fingerprint: RelaySeal.fingerprint(part))
    _ = try await client.put(done.name, part, if: .always)
    (part, batches) = ([], 0)
    return done
  }
}

/// Encodes records, and notes the large values that they refer to.
private struct BlobNotingEncoder: BatchWriter {
  var records: RecordCodec.Encoder
  var blobs: [BlobReference] = []

  init(capacity: Int) { records = RecordCodec.Encoder(capacity: capacity) }

  mutating func write(_ entries: [CompactBatch.Entry], of actors: [ActorID], in bytes: Span<UInt8>) {
    records.write(entries, of: actors, in: bytes)
  }

  mutating func write(_ record: PositionedRecord) {
    if case .blob(let blob) = record.record.content { blobs.append(blob) }
    records.write(record)
  }
}
