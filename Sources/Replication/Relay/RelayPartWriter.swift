internal import SyncStore

/// Writes the batches of a round as objects; a small round stays in memory.
struct RelayPartWriter: Sendable {
  let client: RelayClient
  let keys: RelayClient.Keys
  /// The name of a part by its index.
  let name: @Sendable (Int) -> String

  /// Bytes of records in a batch.
  private static let batchBytes = 1 << 20
  /// Batches that are deflated and encrypted at the same time, while the next ones are read.
  private static let batchesInFlight = 4

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
    var waiting = try await read(upTo: 2, of: round, &written)
    if waiting.count == 1, waiting[0].payload.count <= inline {
      written.content = .inline([waiting[0].payload])
      written.bytes = UInt64(waiting[0].payload.count)
      return written
    }
    var (parts, part, batches): ([RelayPart], [UInt8], UInt32) = ([], [], 0)
    while !waiting.isEmpty {
      let group = Self.beginning(of: waiting, after: part.count)
      waiting.removeFirst(group.count)
      async let encrypting = encrypt(group, part: parts.count, after: batches)
      waiting += try await read(upTo: Self.batchesInFlight - waiting.count, of: round, &written)
      for batch in try await encrypting.get() { part += batch }
      batches += UInt32(group.count)
      if part.count >= RelayLimits.partBytes {
        parts.append(try await finish(&part, &batches, index: parts.count))
      }
    }
    if batches > 0 { parts.append(try await finish(&part, &batches, index: parts.count)) }
    written.content = parts.isEmpty ? .inline([]) : .parts(parts)
    written.bytes = parts.reduce(0) { $0 + $1.bytes }
    return written
  }

  /// The longest prefix of the batches that a part with `bytes` bytes takes: a batch is added as long as the
  /// part is not full.
  private static func beginning(of batches: [Batch], after bytes: Int) -> [Batch] {
    var end = bytes
    var group: [Batch] = []
    for batch in batches {
      guard group.isEmpty || end < RelayLimits.partBytes else { break }
      group.append(batch)
      // Encrypted it has at most so many bytes more.
      end += batch.payload.count + BatchCodec.overheadBytes + MemoryLayout<UInt32>.size
    }
    return group
  }

  /// Reads further batches; fewer than `count` at the end of the round.
  private func read(
    upTo count: Int, of round: DeltaStream, _ written: inout Written
  ) async throws(ReplicationError) -> [Batch] {
    var batches: [Batch] = []
    while batches.count < count, let batch = try await next(of: round, &written) { batches.append(batch) }
    return batches
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

  /// The batches, each after its size, as numbers `first` and following of a part.
  private func encrypt(
    _ batches: [Batch], part: Int, after first: UInt32
  ) async -> Result<[[UInt8]], ReplicationError> {
    let (client, keys, name) = (client, keys, name(part))
    do throws(ReplicationError) {
      let indexed = Array(batches.enumerated())
      return .success(
        try await inParallel(indexed, limit: Self.batchesInFlight) { item throws(ReplicationError) in
          try await client.workers.run { () throws(ReplicationError) in
            let batch = try keys.encrypt(
              item.element.payload, as: name, kind: .records, index: UInt64(first) + UInt64(item.offset))
            var writer = ByteWriter(capacity: batch.count + 4)
            writer.write(UInt32(batch.count))
            writer.write(raw: batch)
            return writer.bytes
          }
        })
    } catch { return .failure(error) }
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
