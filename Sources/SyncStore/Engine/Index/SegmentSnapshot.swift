/// The segments of a journal as mapped at one time, for reading without the engine's lock. Segments that
/// compaction replaces stay readable as long as this lives.
///
/// Invariants: nothing here changes; reads stay before the location up to which the engine had replayed the
/// journal when this was made, where bytes are never stored to again.
///
/// Encrypted records are decrypted into memory of the reading thread.
final class SegmentSnapshot: KeySource, Sendable {
  let bytes: MappingTable
  /// True if any segment is encrypted.
  let isEncrypted: Bool
  /// Segments by mapping number; nil entries have nothing mapped.
  private let segments: [Segment?]
  private let headings: [SegmentInfo]
  /// Actors of all segments, concatenated; nil where a definition was lost.
  private let actors: [ActorID?]
  private let appended: UInt32
  private let compacted: UInt32
  private let appendedCount: Int

  private struct SegmentInfo {
    var salt: UInt64 = 0
    var firstActor = 0
    var actorCount = 0
    var isEncrypted = false
  }

  /// Requires the lock of the engine that the journal belongs to.
  init(_ journal: Journal) {
    let lanes = journal.table.runs
    (appended, compacted, appendedCount) = (lanes.appended, lanes.compacted, lanes.appendedCount)
    segments = lanes.segments
    bytes = MappingTable(segments.map { $0?.mapping })
    isEncrypted = segments.contains { $0?.cipher != nil }
    var actors: [ActorID?] = []
    headings = segments.map { segment in
      guard let segment else { return SegmentInfo() }
      let known = segment.actors.all
      defer { actors += known }
      return SegmentInfo(
        salt: segment.header.salt, firstActor: actors.count, actorCount: known.count,
        isEncrypted: segment.cipher != nil)
    }
    self.actors = actors
  }

  /// The mapping number of a location; one that does not exist if there is no such segment.
  @inline(__always)
  func number(of location: Location) -> Int {
    let segment = location.segment
    if segment < SegmentHeader.compacted {
      let number = Int(segment) - Int(appended)
      return number < appendedCount ? number : -1
    }
    let number = Int(segment) - Int(compacted)
    return number < 0 ? -1 : number + appendedCount
  }

  /// Prefetches the first bytes of a record that is read soon.
  @inline(__always)
  func prefetch(_ location: Location, _ count: Int) {
    bytes.prefetch(number(of: location), at: location.offset, bytes: count)
  }

  /// The length that the record at a location states.
  @inline(__always)
  func length(_ location: Location) -> Int {
    let (number, offset) = (number(of: location), location.offset)
    guard offset + RecordLayout.fixedLength <= bytes.byteCount(number) else { return 0 }
    return Int(bytes.load(number, at: offset + RecordLayout.length, as: UInt32.self))
  }

  /// The error that explains why the record at a location cannot be read.
  func error(at location: Location) -> StoreError {
    let number = number(of: location)
    let path = segments.indices.contains(number) ? segments[number]?.file.path : nil
    let reason =
      if !isWhole(location) {
        "does not match its checksum"
      } else if headings[number].isEncrypted, decrypted(number, location.offset) == nil {
        "was not encrypted with the store's keys"
      } else {
        "lost the definition of its actor"
      }
    return StoreError(
      .damaged, "the record at offset \(location.offset) \(reason): run `Store.verify`", path: path)
  }

  // MARK: Records

  /// The fields of a record that a reader needs.
  struct Fields {
    var kind: RecordLayout.Kind?
    var type: ValueType
    var stamp: Stamp
    var dot: Dot
    /// `UInt64.max` if it does not expire.
    var expiresAt: UInt64
    var hasDeadline: Bool
    /// Offsets of key and value from the beginning of the record.
    var key: Int
    var value: Int

    var deadline: UInt64? { hasDeadline ? expiresAt : nil }

    /// True if it has a value at this time, in milliseconds since 1970.
    @inline(__always)
    func isLive(at time: UInt64) -> Bool {
      (kind == .value || kind == .blob) && (!hasDeadline || expiresAt > time)
    }
  }

  /// Calls `body` with the record in place, its checksum verified and its author known; returns nil if it is
  /// damaged. Each length is read once: bytes that change concurrently must not crash the process.
  @inline(__always)
  func withRecord<Result>(
    _ location: Location, _ body: (RawSpan, Fields) throws -> Result
  ) rethrows -> Result? {
    let (number, offset) = (number(of: location), location.offset)
    let limit = bytes.byteCount(number)
    guard offset &+ RecordLayout.fixedLength <= limit else { return nil }
    let sum: UInt64 = bytes.load(number, at: offset)
    let length = Int(truncatingIfNeeded: sum >> 32)
    guard length >= RecordLayout.fixedLength, offset &+ length <= limit else { return nil }
    let heading = headings[number]
    guard !heading.isEncrypted else {
      return try withDecrypted(number, offset: offset, heading: heading, body)
    }
    return try bytes.withBytes(of: number, in: offset..<(offset &+ length)) { record in
      let seed = heading.salt &+ UInt64(truncatingIfNeeded: offset)
      let hash = XXH3.hash64(record.extracting(droppingFirst: RecordLayout.length), seed: seed)
      guard UInt32(truncatingIfNeeded: hash) == UInt32(truncatingIfNeeded: sum),
        let fields = fields(of: record, heading)
      else { return nil }
      return try body(record, fields)
    }
  }

  /// The fields of a whole record; nil if its author is unknown or they contradict each other.
  @inline(__always)
  private func fields(of record: RawSpan, _ heading: SegmentInfo) -> Fields? {
    let (kinds, actor) = (record.recordKinds(), Int(record.recordActorAndKey().actor))
    guard actor < heading.actorCount, let author = actors[heading.firstActor &+ actor],
      let key = record.recordKeyRange(length: record.byteCount)
    else { return nil }
    let hasDeadline = kinds.flags.contains(.deadline)
    return Fields(
      kind: kinds.kind, type: kinds.type, stamp: record.recordStamp(),
      dot: Dot(actor: author, sequence: record.recordSequence()),
      expiresAt: hasDeadline ? record.load(RecordLayout.deadline(kinds.flags)) : .max,
      hasDeadline: hasDeadline,
      key: key.lowerBound, value: key.upperBound)
  }

  /// `withRecord` for an encrypted record.
  @inline(never)
  private func withDecrypted<Result>(
    _ number: Int, offset: Int, heading: SegmentInfo, _ body: (RawSpan, Fields) throws -> Result
  ) rethrows -> Result? {
    guard let plain = decrypted(number, offset) else { return nil }
    return try plain.withBytes(0..<plain.recordLength()) { record in
      guard let fields = fields(of: record, heading) else { return nil }
      return try body(record, fields)
    }
  }

  /// Decrypts a record of an encrypted segment; nil on failure.
  private func decrypted(_ number: Int, _ offset: Int) -> Mapping? {
    guard let segment = segments[number] else { return nil }
    return segment.record(at: offset, limit: segment.mapping.count)?.bytes
  }

  /// True if the record at a location matches its checksum.
  @inline(__always)
  func isWhole(_ location: Location) -> Bool { end(number(of: location), location.offset) != nil }

  /// The end of the record, its checksum verified; nil if it is damaged.
  @inline(__always)
  private func end(_ number: Int, _ offset: Int) -> Int? {
    let limit = bytes.byteCount(number)
    guard offset + RecordLayout.fixedLength <= limit else { return nil }
    let sum: UInt64 = bytes.load(number, at: offset)
    let length = Int(truncatingIfNeeded: sum >> 32)
    let end = offset + length
    guard length >= RecordLayout.fixedLength, end <= limit else { return nil }
    let seed = headings[number].salt &+ UInt64(offset)
    let hash = bytes.withBytes(of: number, in: (offset + RecordLayout.length)..<end) {
      XXH3.hash64($0, seed: seed)
    }
    return UInt32(truncatingIfNeeded: hash) == UInt32(truncatingIfNeeded: sum) ? end : nil
  }

  // MARK: Keys

  /// The key at a replayed location, in a segment that is not encrypted; empty if it cannot be read.
  @inline(__always)
  func key(at location: Location) -> KeyLocation {
    let (number, offset) = (number(of: location), location.offset)
    let limit = bytes.byteCount(number)
    guard offset + RecordLayout.fixedLength <= limit else { return .none }
    guard
      let range = bytes.withBytes(of: number, in: offset..<limit, { $0.recordKeyRange(length: $0.byteCount) })
    else {
      return .none
    }
    return KeyLocation(number: number, start: offset + range.lowerBound, count: range.count)
  }

  /// Calls `body` with the key at a location, encrypted or not; nil if it cannot be read.
  @inline(__always)
  func withKey<Result>(_ location: Location, _ body: (RawSpan) -> Result) -> Result? {
    if isEncrypted, isEncrypted(location) { return withDecryptedKey(location, body) }
    let place = key(at: location)
    guard place.number >= 0 else { return nil }
    return bytes.withBytes(of: place.number, in: place.range, body)
  }

  private func isEncrypted(_ location: Location) -> Bool {
    let number = number(of: location)
    return headings.indices.contains(number) && headings[number].isEncrypted
  }

  @inline(never)
  private func withDecryptedKey<Result>(_ location: Location, _ body: (RawSpan) -> Result) -> Result? {
    guard let plain = decrypted(number(of: location), location.offset) else { return nil }
    return plain.withBytes(0..<plain.recordLength()) { record in
      record.recordKeyRange(length: record.byteCount).map { body(record.extracting($0)) }
    }
  }

  /// The key of the damaged record at a location; nil if it cannot be determined.
  func lostKey(at location: Location) -> [UInt8]? {
    let number = number(of: location)
    guard segments.indices.contains(number), let segment = segments[number] else { return nil }
    var walker = ResyncingRecordIterator(segment, from: location.offset, limit: segment.mapping.count)
    guard case .gap(let range)? = walker.next() else { return nil }
    return DamagedRecord.key(in: range, of: segment).flatMap { $0.isEmpty ? nil : $0 }
  }

  /// A copy of the key at a location; empty if it cannot be read.
  func keyBytes(at location: Location) -> [UInt8] { withKey(location) { [UInt8](copying: $0) } ?? [] }

  /// Compares the key at a location with `other`: negative if before, 0 if equal, positive if after.
  func compare(_ location: Location, _ other: [UInt8]) -> Int {
    let order = withKey(location) { key in
      let order = key.compare(other.span)
      return order == 0 ? key.byteCount - other.count : order
    }
    return order ?? (other.isEmpty ? 0 : -1)
  }
}
