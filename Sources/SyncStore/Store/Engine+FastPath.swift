/// The short way of ordinary writes: what a view keeps for them, and what it takes in of them.
extension Engine {
  /// Appends ordinary writes to the segment at the tail; nil if none can be now. Only for the holder of the writers' mutex,
  /// whose view has all that was committed.
  @inline(__always)
  mutating func fastPathWriter() -> FastPathWriter? {
    guard usesFastPath, state.scope == nil, state.writeDenial == nil, gaps.isEmpty,
      !index.checkpoint.keepsDigest, !indexIsInvalid,
      !control.isLost, overdueParkedUpTo == nil
    else {
      return nil
    }
    if let writer, writer.segment.number == applied.segment,
      writer.isValid(for: state.author.actor, index: index, table: journal.table)
    {
      return writer
    }
    return makeFastPathWriter()
  }

  @inline(never)
  private mutating func makeFastPathWriter() -> FastPathWriter? {
    guard let actor = state.author.actor, let segment = journal.segment(applied.segment),
      segment.numbers(behind: position)
    else { return nil }
    writer = FastPathWriter(segment, of: actor, index: index, table: journal.table)
    return writer
  }

  /// Up to where the segment is known durable, as its records say it; 0 if that is not known of it.
  @inline(__always)
  mutating func durableOffset(in segment: Segment) -> Int {
    let durable = Location(packed: control.durable)
    return durable.segment == segment.number ? durable.offset : 0
  }

  /// Takes in an ordinary write that was stored at `bytes` of the segment at the tail.
  @inline(__always)
  mutating func indexFastPath(
    _ hash: UInt64, bytes: Range<Int>, replacing held: FastPathWriter.Held, _ writer: FastPathWriter
  ) {
    do throws(StoreError) {
      deadBytes += try writer.indexWrite(hash, bytes: bytes, replacing: held)
    } catch {
      index.failure = error
    }
    lastRef = writer.ref(at: bytes.lowerBound)
    applied = Location(segment: writer.segment.number, offset: bytes.upperBound)
    endIndexWrite()
  }

  /// The same for several at once, of which each ends where `ends` says.
  mutating func indexFastPath(
    _ writes: WriteBatch, from start: Int, _ ends: [Int], replacing held: [FastPathWriter.Held],
    _ writer: FastPathWriter
  ) {
    // Whoever reads a part of these from the index sees that there may be more.
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
        deadBytes += try writer.indexWrite(write.hash, bytes: offset..<ends[index], replacing: held)
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

/// What it takes to read the ordinary records of a plain segment: those that follow no other rule than that the greatest
/// counts.
struct FastPathReader {
  let segment: Segment

  /// Nil for a sealed segment.
  init?(_ segment: Segment) {
    guard segment.cipher == nil else { return nil }
    self.segment = segment
  }

  /// A record that was read ahead.
  fileprivate struct PrefetchedRecord {
    var offset: Int
    var end: Int
    var hash: UInt64
    var version: Version
    var position: UInt64
  }
}

/// What the first records of keys add to the running digest.
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
  /// How many records are read before they are taken in: the cache misses of all then overlap.
  private static let readAhead = 16

  /// Takes in the ordinary records from the beginning of `bytes` on. Returns where another one is, or something else.
  mutating func replayFastPath(
    _ reading: FastPathReader, bytes: Range<Int>, verifies: Bool, limit: Stamp, indexing: Bool
  ) -> Int {
    guard parked.isEmpty else { return bytes.lowerBound }
    var digesting = indexing && index.checkpoint.keepsDigest ? DigestAccumulator() : nil
    var ahead: [FastPathReader.PrefetchedRecord] = []
    ahead.reserveCapacity(Self.readAhead)
    var reader = RecordIterator(
      reading.segment, from: bytes.lowerBound, limit: bytes.upperBound, verifies: verifies)
    let keys = index.hashIndex
    var offset = bytes.lowerBound
    var isOrdinary = true
    while isOrdinary {
      ahead.removeAll(keepingCapacity: true)
      while ahead.count < Self.readAhead {
        guard let record = reader.next(),
          let next = simpleRecord(record, at: offset, reading: reading, limit: limit)
        else {
          isOrdinary = false
          break
        }
        if indexing { keys.prefetch(next.hash) }
        ahead.append(next)
        offset = reader.offset
      }
      for next in ahead {
        applyFastPath(next, reading: reading, limit: limit, digesting: &digesting, indexing: indexing)
      }
    }
    if let sum = digesting?.sum, index.checkpoint.keepsDigest {
      index.checkpoint.changeDigest { $0.add(sum) }
    }
    return offset
  }

  /// The greatest applied records of the keys of `records`, where there is one that can be read. Only for the holder of the
  /// writers' mutex, whose index has all that was committed.
  mutating func held(of records: [PositionedRecord]) -> [Record?] {
    let keys = index.hashIndex
    let hashes = records.map { keys.hash($0.record.key.span) }
    for hash in hashes.prefix(Self.readAhead) { keys.prefetch(hash) }
    return records.indices.map { index in
      if index + Self.readAhead < hashes.count { keys.prefetch(hashes[index + Self.readAhead]) }
      // Most that is received for the first time is of keys whose hash nobody has.
      if gaps.isEmpty, let found = try? keys.has(hashes[index]), !found { return nil }
      return readable(records[index].record.key)
    }
  }

  /// Records of the same keys that wait for their time.
  func parked(of records: [PositionedRecord]) -> [[UInt8]: [Record]] {
    var waiting: [[UInt8]: [Record]] = [:]
    guard !parked.isEmpty else { return waiting }
    for item in records {
      guard let places = parked[item.record.key] else { continue }
      waiting[item.record.key] = places.compactMap { try? record(at: $0) }
    }
    return waiting
  }

  /// The record, if it is ordinary and its time has come.
  @inline(__always)
  private func simpleRecord(
    _ record: MappedBytes, at offset: Int, reading: FastPathReader, limit: Stamp
  ) -> FastPathReader.PrefetchedRecord? {
    guard let plain = SimpleRecord(record, seed: nil),
      plain.flags.isDisjoint(with: [.deadline, .loser, .parked]),
      let actor = reading.segment.actor(numbered: plain.actorNumber),
      plain.key < plain.value, record.load(plain.key, as: UInt8.self) != ReservedKey.first
    else { return nil }
    let version = Version(
      stamp: Stamp(rawValue: record.load(RecordLayout.stamp)),
      dot: Dot(actor: actor, sequence: record.load(RecordLayout.sequence)))
    guard applies(version, limit: limit, waited: false) else { return nil }
    return FastPathReader.PrefetchedRecord(
      offset: offset, end: offset + RecordLayout.aligned(record.count),
      hash: plain.withKey { index.hashIndex.hash($0) }, version: version,
      position: reading.segment.header.basePosition
        + UInt64(record.load(RecordLayout.position, as: UInt32.self)))
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

  /// Enters a record if it is the first of its key. False if there may be another one, which is to be compared with it.
  @inline(__always)
  private mutating func indexNewKey(_ next: FastPathReader.PrefetchedRecord, reading: FastPathReader) -> Bool
  {
    do throws(StoreError) {
      let keys = index.hashIndex
      // Hashes of different keys seldom meet where tags do; whoever looks closely then is `absorb`.
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
