/// The segments of a journal as they were mapped at a moment, for reading without the engine's lock. Whatever compaction
/// replaces stays readable here as long as this lives.
///
/// Invariants: nothing here changes; what is read lies before the place up to which the engine had read the journal when
/// this was made, where bytes are never stored to again.
final class FrozenSegments: Sendable {
  let bytes: MappingTable
  /// Missing ones have nothing mapped.
  private let segments: [Segment?]
  private let headings: [Heading]
  /// Of all segments, one behind the other; nil where a definition was lost.
  private let actors: [ActorID?]
  private let appended: UInt32
  private let compacted: UInt32
  private let appendedCount: Int

  private struct Heading {
    var salt: UInt64 = 0
    var firstActor = 0
    var actorCount = 0
  }

  /// For the holder of the lock on the engine that the journal is of.
  init(_ journal: Journal) {
    let lanes = journal.table.lanes
    (appended, compacted, appendedCount) = (lanes.appended, lanes.compacted, lanes.appendedCount)
    segments = lanes.segments
    bytes = MappingTable(segments.map { $0?.mapping })
    var actors: [ActorID?] = []
    headings = segments.map { segment in
      guard let segment else { return Heading() }
      defer { actors += segment.actors }
      return Heading(
        salt: segment.header.salt, firstActor: actors.count, actorCount: segment.actors.count)
    }
    self.actors = actors
  }

  /// The number among the mappings; one that does not exist if there is no such segment.
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

  /// The first bytes of a record are fetched: they are read soon.
  @inline(__always)
  func prefetch(_ location: Location, _ count: Int) {
    bytes.prefetch(number(of: location), location.offset, count)
  }

  /// How long the record at a place says that it is.
  @inline(__always)
  func length(_ location: Location) -> Int {
    let (number, offset) = (number(of: location), location.offset)
    guard offset + RecordLayout.fixedLength <= bytes.byteCount(number) else { return 0 }
    return Int(bytes.load(number, offset + RecordLayout.length, as: UInt32.self))
  }

  /// Why the record at a place cannot be had.
  func error(at location: Location) -> StoreError {
    let number = number(of: location)
    let path = segments.indices.contains(number) ? segments[number]?.file.path : nil
    let reason =
      isWhole(location) ? "lost the definition of its actor" : "does not match its checksum"
    return StoreError(
      .damaged, "the record at offset \(location.offset) \(reason): run `verify --repair`", path: path)
  }

  // MARK: Records

  /// The fields of a record that a reader needs.
  struct Fields {
    var kind: RecordLayout.Kind?
    var type: ValueType
    var stamp: Stamp
    var dot: Dot
    /// `UInt64.max` if it does not expire.
    var lastsUntil: UInt64
    var hasDeadline: Bool
    /// Where the key begins and where the value does, from the beginning of the record on.
    var key: Int
    var value: Int

    var deadline: UInt64? { hasDeadline ? lastsUntil : nil }

    /// Has it a value at this time, in milliseconds since 1970?
    @inline(__always)
    func isLive(at time: UInt64) -> Bool {
      (kind == .value || kind == .blob) && (!hasDeadline || lastsUntil > time)
    }
  }

  /// Works on the record at a place, in place, its checksum verified and its author known; nil if it is damaged. Each
  /// length is looked at once: bytes that change meanwhile must not end the process.
  @inline(__always)
  func withRecord<Result>(
    _ location: Location, _ body: (RawSpan, Fields) throws -> Result
  ) rethrows -> Result? {
    let (number, offset) = (number(of: location), location.offset)
    let limit = bytes.byteCount(number)
    guard offset &+ RecordLayout.fixedLength <= limit else { return nil }
    let sum: UInt64 = bytes.load(number, offset)
    let length = Int(truncatingIfNeeded: sum >> 32)
    guard length >= RecordLayout.fixedLength, offset &+ length <= limit else { return nil }
    let heading = headings[number]
    return try bytes.withBytes(number, offset..<(offset &+ length)) { record in
      let seed = heading.salt &+ UInt64(truncatingIfNeeded: offset)
      let hash = XXH3.hash64(record.extracting(droppingFirst: RecordLayout.length), seed: seed)
      guard UInt32(truncatingIfNeeded: hash) == UInt32(truncatingIfNeeded: sum) else { return nil }
      let kinds: UInt32 = record.load(RecordLayout.kind)
      let counts: UInt32 = record.load(RecordLayout.actor)
      let actor = Int(counts & 0xFFFF)
      guard actor < heading.actorCount, let author = actors[heading.firstActor &+ actor] else { return nil }
      let flags = RecordLayout.Flags(rawValue: UInt8(truncatingIfNeeded: kinds >> 8))
      var key = RecordLayout.fixedLength
      var (deadline, hasDeadline) = (UInt64.max, false)
      if !flags.isDisjoint(with: .fields) {
        if flags.contains(.base) { key &+= RecordLayout.dotLength }
        if flags.contains(.deadline) {
          guard key &+ 8 <= length else { return nil }
          (deadline, hasDeadline) = (record.load(key), true)
          key &+= 8
        }
        if flags.contains(.open) {
          guard key &+ 2 <= length else { return nil }
          key &+= 2 &+ Int(record.load(key, as: UInt16.self)) &* RecordLayout.dotLength
        }
      }
      let value = key &+ Int(truncatingIfNeeded: counts >> 16)
      guard value <= length else { return nil }
      return try body(
        record,
        Fields(
          kind: RecordLayout.Kind(rawValue: UInt8(truncatingIfNeeded: kinds)),
          type: ValueType(rawValue: UInt8(truncatingIfNeeded: kinds >> 16)),
          stamp: Stamp(rawValue: record.load(RecordLayout.stamp)),
          dot: Dot(actor: author, sequence: record.load(RecordLayout.sequence)),
          lastsUntil: deadline, hasDeadline: hasDeadline, key: key, value: value))
    }
  }

  /// Is the record at a place what was written there?
  @inline(__always)
  func isWhole(_ location: Location) -> Bool { end(number(of: location), location.offset) != nil }

  /// Where the record ends, its checksum verified; nil if it is damaged.
  @inline(__always)
  private func end(_ number: Int, _ offset: Int) -> Int? {
    let limit = bytes.byteCount(number)
    guard offset + RecordLayout.fixedLength <= limit else { return nil }
    let sum: UInt64 = bytes.load(number, offset)
    let length = Int(truncatingIfNeeded: sum >> 32)
    let end = offset + length
    guard length >= RecordLayout.fixedLength, end <= limit else { return nil }
    let seed = headings[number].salt &+ UInt64(offset)
    let hash = bytes.withBytes(number, (offset + RecordLayout.length)..<end) { XXH3.hash64($0, seed: seed) }
    return UInt32(truncatingIfNeeded: hash) == UInt32(truncatingIfNeeded: sum) ? end : nil
  }

  // MARK: Keys

  /// Where the key of a record lies.
  struct KeyPlace {
    var number: Int
    var start: Int
    var count: Int

    static let none = KeyPlace(number: -1, start: 0, count: 0)
    var range: Range<Int> { start..<(start + count) }
  }

  /// The key at a place that was absorbed; empty if nothing can be read there.
  @inline(__always)
  func key(at location: Location) -> KeyPlace {
    let (number, offset) = (number(of: location), location.offset)
    let limit = bytes.byteCount(number)
    guard offset + RecordLayout.fixedLength <= limit else { return .none }
    let count = Int(bytes.load(number, offset + RecordLayout.keyLength, as: UInt16.self))
    let flags = RecordLayout.Flags(rawValue: bytes.load(number, offset + RecordLayout.flags))
    var start = offset + RecordLayout.fixedLength
    if !flags.isDisjoint(with: .fields) {
      if flags.contains(.base) { start += RecordLayout.dotLength }
      if flags.contains(.deadline) { start += 8 }
      if flags.contains(.open) {
        guard start + 2 <= limit else { return .none }
        start += 2 + Int(bytes.load(number, start, as: UInt16.self)) * RecordLayout.dotLength
      }
    }
    guard start + count <= limit else { return .none }
    return KeyPlace(number: number, start: start, count: count)
  }

  /// Eight bytes of a key from `offset` on, the first one highest; zeros behind the end.
  @inline(__always)
  func word(_ key: KeyPlace, at offset: Int) -> UInt64 {
    let left = key.count - offset
    guard left > 0 else { return 0 }
    if left >= 8 { return bytes.load(key.number, key.start + offset, as: UInt64.self).byteSwapped }
    // The eight bytes that end with the key: what lies behind it may be being written. A record has that many before it.
    let last: UInt64 = bytes.load(key.number, key.start + key.count - 8)
    return last.byteSwapped << UInt64(8 * (8 - left))
  }

  /// Is the left key before the right one? They are known to agree in the first `depth` bytes.
  func isLess(_ left: KeyPlace, _ right: KeyPlace, behind depth: Int = 0) -> Bool {
    var offset = depth
    while offset < left.count, offset < right.count {
      let (first, second) = (word(left, at: offset), word(right, at: offset))
      if first != second { return first < second }
      offset += 8
    }
    return left.count < right.count
  }

  /// Is the key before `other`?
  func isLess(_ key: KeyPlace, than other: [UInt8]) -> Bool {
    guard key.number >= 0 else { return !other.isEmpty }
    let order = bytes.compare(key.number, key.range, other.span)
    return order == 0 ? key.count < other.count : order < 0
  }

  /// How many bytes from the beginning are the same, up to `limit`.
  @inline(__always)
  func commonPrefix(_ left: KeyPlace, _ right: KeyPlace, limit: Int) -> Int {
    let limit = min(limit, left.count, right.count)
    var offset = 0
    while offset < limit {
      let difference = word(left, at: offset) ^ word(right, at: offset)
      if difference != 0 { return min(limit, offset + difference.leadingZeroBitCount / 8) }
      offset += 8
    }
    return limit
  }
}
