/// Fast path: the writer for simple records, and their replay.
extension Engine {
  /// The writer that appends simple records to the active segment; nil if the fast path is unavailable now.
  /// Only for the holder of the writers' mutex, with everything committed replayed.
  @inline(__always)
  mutating func fastPathWriter() -> FastPathWriter? {
    guard fastPath.isOn, state.scope == nil, state.writeDenial == nil, damage.gaps.isEmpty,
      !index.checkpoint.keepsDigest, !indexIsInvalid,
      !context.control.isLost, parked.overdueUpTo == nil
    else {
      return nil
    }
    if let writer = fastPath.writer, writer.segment.number == applied.segment,
      writer.isValid(for: state.author.actor, index: index, table: journal.table)
    {
      return writer
    }
    return makeFastPathWriter()
  }

  @inline(never)
  private mutating func makeFastPathWriter() -> FastPathWriter? {
    guard let actor = state.author.actor, let segment = journal.segment(applied.segment),
      segment.numbers(after: position)
    else { return nil }
    let writer = FastPathWriter(segment, of: actor, index: index, table: journal.table)
    fastPath.writer = writer
    return writer
  }

  /// Durable offset of the segment, to be stored in its records; 0 if unknown.
  @inline(__always)
  mutating func durableOffset(in segment: Segment) -> Int {
    let durable = Location(packed: context.control.durable)
    return durable.segment == segment.number ? durable.offset : 0
  }

  /// Indexes a fast-path write stored at `bytes` of the active segment.
  @inline(__always)
  mutating func indexFastPath(
    _ hash: UInt64, bytes: Range<Int>, replacing held: FastPathWriter.Held, _ writer: FastPathWriter
  ) {
    do throws(StoreError) {
      compaction.deadBytes += try writer.indexWrite(hash, bytes: bytes, replacing: held)
    } catch {
      index.failure = error
    }
    lastRef = writer.ref(at: bytes.lowerBound)
    applied = Location(segment: writer.segment.number, offset: bytes.upperBound)
    endIndexWrite()
  }

  /// Indexes several fast-path writes; each ends at its entry in `ends`.
  mutating func indexFastPath(
    _ writes: WriteBatch, from start: Int, _ ends: [Int], replacing held: [FastPathWriter.Held],
    _ writer: FastPathWriter
  ) {
    // The odd seqlock tells readers who see some of these writes that more may follow.
    beginIndexWrite(from: applied)
    var offset = start
    do throws(StoreError) {
      for index in 0..<writes.count {
        let write = writes.list[index]
        var held = held[index]
        if let previous = write.previous {
          let earlier = previous - TransactionBuilder.firstPendingIndex
          held = writer.own(at: (earlier == 0 ? start : ends[earlier - 1])..<ends[earlier])
        }
        compaction.deadBytes += try writer.indexWrite(
          write.hash, bytes: offset..<ends[index], replacing: held)
        lastRef = writer.ref(at: offset)
        offset = ends[index]
      }
    } catch {
      index.failure = error
    }
    applied = Location(segment: writer.segment.number, offset: ends.last ?? start)
    endIndexWrite()
  }
}

/// Reads simple records of an unencrypted segment, to which no rule applies but that the greatest version
/// wins.
struct FastPathReader {
  let segment: Segment

  /// Nil for an encrypted segment.
  init?(_ segment: Segment) {
    guard segment.cipher == nil else { return nil }
    self.segment = segment
  }

  /// A record read ahead of indexing.
  fileprivate struct PrefetchedRecord {
    var offset: Int
    var end: Int
    var hash: UInt64
    var version: Version
    var position: UInt64
  }
}

/// Contribution of new keys to the running digest.
private struct DigestAccumulator {
  private(set) var sum = StateDigest()
  private var hasher = SimpleRecordDigest()

  @inline(__always)
  mutating func add(_ segment: Segment, bytes: Range<Int>, by actor: ActorID) {
    let bytes = MappedBytes(segment.mapping).extracting(bytes)
    guard let record = SimpleRecord(bytes, seed: nil), SimpleRecordDigest.counts(record) else { return }
    sum.add(hasher.part(of: record, by: actor))
  }
}

extension Engine {
  /// Records read before they are indexed, so that their index cache misses overlap.
  private static let readAhead = 16

  /// Replays the simple records at the start of `bytes`. Returns the offset of the first byte that is not a
  /// simple record.
  mutating func replayFastPath(
    _ reading: FastPathReader, bytes: Range<Int>, limit: Stamp, options: ReplayOptions
  ) -> Int {
    guard parked.isEmpty else { return bytes.lowerBound }
    let indexing = options.contains(.index)
    var digesting = indexing && index.checkpoint.keepsDigest ? DigestAccumulator() : nil
    var prefetched: [FastPathReader.PrefetchedRecord] = []
    prefetched.reserveCapacity(Self.readAhead)
    var reader = RecordIterator(
      reading.segment, from: bytes.lowerBound, limit: bytes.upperBound,
      verifies: options.contains(.verifyChecksums))
    let keys = index.hashIndex
    var offset = bytes.lowerBound
    var isOrdinary = true
    while isOrdinary {
      prefetched.removeAll(keepingCapacity: true)
      while prefetched.count < Self.readAhead {
        guard let record = reader.next(),
          let next = simpleRecord(record, at: offset, reading: reading, limit: limit)
        else {
          isOrdinary = false
          break
        }
        if indexing { keys.prefetch(next.hash) }
        prefetched.append(next)
        offset = reader.offset
      }
      for next in prefetched {
        applyFastPath(next, reading: reading, limit: limit, digesting: &digesting, indexing: indexing)
      }
    }
    if let sum = digesting?.sum, index.checkpoint.keepsDigest {
      index.checkpoint.changeDigest { $0.add(sum) }
    }
    return offset
  }

  /// The greatest applied readable records of the keys of `records`. Only for the holder of the writers'
  /// mutex, with everything committed indexed.
  mutating func held(of records: [PositionedRecord]) -> [Record?] {
    let keys = index.hashIndex
    let hashes = records.map { keys.hash($0.record.key.span) }
    for hash in hashes.prefix(Self.readAhead) { keys.prefetch(hash) }
    return records.indices.map { index in
      if index + Self.readAhead < hashes.count { keys.prefetch(hashes[index + Self.readAhead]) }
      // In a first copy most keys are new, and their hash is not in the index.
      if damage.gaps.isEmpty, let found = try? keys.has(hashes[index]), !found { return nil }
      return readable(records[index].record.key)
    }
  }

  /// Parked records of the same keys.
  func parked(of records: [PositionedRecord]) -> [[UInt8]: [Record]] {
    var waiting: [[UInt8]: [Record]] = [:]
    guard !parked.isEmpty else { return waiting }
    for item in records {
      guard let places = parked[item.record.key] else { continue }
      waiting[item.record.key] = places.compactMap { try? record(at: $0) }
    }
    return waiting
  }

  /// The record, if it is simple and its time has come.
  @inline(__always)
  private func simpleRecord(
    _ record: MappedBytes, at offset: Int, reading: FastPathReader, limit: Stamp
  ) -> FastPathReader.PrefetchedRecord? {
    guard let plain = SimpleRecord(record, seed: nil),
      plain.flags.isDisjoint(with: [.deadline, .loser, .parked]),
      let actor = reading.segment.actors.actor(numbered: plain.actorNumber),
      plain.key < plain.value, record.load(plain.key, as: UInt8.self) != ReservedKey.first
    else { return nil }
    let version = Version(
      stamp: record.recordStamp(),
      dot: Dot(actor: actor, sequence: record.recordSequence()))
    guard applies(version, limit: limit, waited: false) else { return nil }
    return FastPathReader.PrefetchedRecord(
      offset: offset, end: offset + RecordLayout.aligned(record.count),
      hash: plain.withKey { index.hashIndex.hash($0) }, version: version,
      position: reading.segment.header.basePosition + record.recordPosition())
  }

  @inline(__always)
  private mutating func applyFastPath(
    _ next: FastPathReader.PrefetchedRecord, reading: FastPathReader, limit: Stamp,
    digesting: inout DigestAccumulator?, indexing: Bool
  ) {
    guard !indexing || indexNewKey(next, reading: reading) else {
      let view = RecordView(segment: reading.segment, offset: next.offset)
      return apply(view, limit: limit, indexing: true)
    }
    digesting?.add(reading.segment, bytes: next.offset..<next.end, by: next.version.dot.actor)
    position = max(position, next.position)
    state.observe(next.version, applied: true)
  }

  /// Indexes a record whose key hash is not in the index yet. False if the key may exist, so that versions
  /// must be compared.
  @inline(__always)
  private mutating func indexNewKey(_ next: FastPathReader.PrefetchedRecord, reading: FastPathReader) -> Bool
  {
    do throws(StoreError) {
      let keys = index.hashIndex
      // Tags of different keys rarely collide; `apply` then compares the keys.
      guard try !keys.has(next.hash) else { return false }
      let place = reading.segment.ref(at: next.offset)
      try keys.insert(next.hash, place)
      reading.segment.liveBytes += next.end - next.offset
      lastRef = place
      return true
    } catch {
      index.failure = error
      return true
    }
  }
}
