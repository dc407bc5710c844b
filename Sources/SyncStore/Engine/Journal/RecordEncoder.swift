/// A record that one append puts into the journal.
enum JournalEntry: Sendable {
  /// A write; with `position` nil it gets the next one.
  case write(Record, position: UInt64?)
  /// A write whose time has not come yet: a later append applies it once it has.
  case parked(Record, position: UInt64?)
  /// The losing value of a conflict, kept for a while.
  case loser(Record)
  /// A key and value of this copy alone; a nil value removes the key.
  case local(key: [UInt8], value: [UInt8]?)
  /// Only carries the durable offset.
  case checkpoint
  /// Drops what is stored of a key (rule R8).
  case purge(Purge)
}

/// Purge of a key by a copy: as if it had never had it.
struct Purge: Hashable, Sendable {
  /// The purged key.
  var key: [UInt8]
  /// Version of the purged record. Older ones of the key go with it.
  var version: Version
  /// True if the record was parked. Then it goes alone.
  var isParked = false
  /// True if the record had a value.
  var hadValue = false
}

/// The fields of a write that precede its key.
struct WriteHeader {
  var version: Version
  var base: Dot?
  var open: [Dot] = []
  var deadline: UInt64?
  var type: ValueType
}

/// The fixed fields of a record that depend on its content alone; `RecordEncoder` adds those that depend on
/// its location.
private struct FixedFields {
  var kind: RecordLayout.Kind
  var flags: RecordLayout.Flags
  var type = ValueType.bytes
  /// The number of its author in the segment.
  var actor: UInt16 = 0
  var sequence: UInt64 = 0
  var stamp = Stamp.zero
}

/// Encodes the records of one append at their final offsets. Checksums, actor numbers and offsets depend on
/// the location, so the same entries are encoded anew for another segment. Readers see nothing before the
/// tail is moved past the records.
///
/// For an encrypted segment a record is composed in a plaintext buffer, then encrypted into its location.
struct RecordEncoder {
  private let segment: Segment
  private let start: Int
  private let durable: Int
  private var position: UInt64
  /// Actor numbers that this append defines.
  private var numbers: [ActorID: UInt16] = [:]
  /// End of the last record stored.
  private(set) var end: Int
  /// Where the next record is composed: its location, or the plaintext buffer.
  private var target: Mapping
  private var origin: Int

  /// Encodes into `segment` from `start` on. `durable` is the offset known durable there, `position` the last
  /// one given.
  init(segment: Segment, start: Int, durable: Int, position: UInt64) {
    (self.segment, self.start, self.durable, self.position) = (segment, start, durable, position)
    (end, target, origin) = (start, segment.target, start)
  }

  /// The bytes stored so far.
  var bytes: [UInt8] { segment.target.bytes(start..<end) }

  /// The most bytes that `entries` can take up anywhere.
  static func bound(_ entries: [JournalEntry], encrypted: Bool = false) -> Int {
    let extent = AppendExtent(entries)
    return extent.bytes + (encrypted ? extent.encryptionBytes : 0)
  }

  /// Stores all entries as one transaction: all but the last one continue. `actors`, if given, are all that
  /// they use.
  mutating func encode(_ entries: [JournalEntry], actors: Set<ActorID>? = nil) {
    beginEncryption()
    let areDefined = actors?.allSatisfy { segment.actors.number(of: $0) != nil } ?? false
    if !areDefined {
      for entry in entries { defineActors(of: entry) }
    }
    for (index, entry) in entries.enumerated() {
      encode(entry, continues: index < entries.count - 1)
    }
  }

  /// Stores the records of a batch; the last one `continues` if more of its append follow. Returns where the
  /// first begins and where each ends.
  ///
  /// If `room` is given, the records are encoded there from its beginning on: the caller must copy them to
  /// their offsets.
  mutating func encode(
    _ batch: CompactBatch, continues: Bool, into room: Mapping? = nil
  ) -> (start: Int, ends: [Int]) {
    beginEncryption()
    for actor in batch.used { define(batch.actors[actor]) }
    var numbers = [UInt16](repeating: 0, count: batch.actors.count)
    for actor in batch.used { numbers[actor] = number(of: batch.actors[actor]) }
    let start = end
    var ends: [Int] = []
    ends.reserveCapacity(batch.entries.count)
    // Loaded once: per record, a million records would retain and release a million times.
    let (segment, base, salt) = (segment, segment.header.basePosition, segment.header.salt)
    let (memory, shift) = room.map { ($0, start) } ?? (segment.target, 0)
    let target = WritableBytes(memory)
    let (bytes, last) = (batch.bytes.span, batch.entries.count - 1)
    var (offset, position) = (end, position)
    for (place, entry) in batch.entries.enumerated() {
      position &+= 1
      let (key, value) = (bytes.extracting(entry.key), bytes.extracting(entry.value))
      let keyStart = RecordLayout.fixedLength &+ (entry.hasBase ? RecordLayout.dotLength : 0)
      var length = keyStart &+ key.count &+ value.count
      var flags: RecordLayout.Flags = continues || place < last ? .continues : []
      if entry.hasBase { flags.insert(.base) }
      let fixed = FixedPart(
        kind: entry.isTombstone ? .tombstone : .value, flags: flags, type: entry.type,
        actor: numbers[entry.author], keyCount: UInt16(key.count), position: position &- base,
        sequence: entry.sequence, stamp: entry.stamp, durable: durable)
      func compose(in record: WritableBytes) {
        fixed.store(in: record, length: length)
        if entry.hasBase {
          record.store(numbers[entry.baseAuthor], at: RecordLayout.fixedLength)
          record.store(entry.baseSequence, at: RecordLayout.fixedLength &+ 2)
        }
        record.store(key, at: keyStart)
        record.store(value, at: keyStart &+ key.count)
      }
      let next: Int
      if segment.cipher == nil {
        next = offset &+ RecordLayout.aligned(length)
        compose(in: target.extracting(offset &- shift..<next &- shift))
      } else {
        let plain = SegmentCipher.room(length)
        compose(in: WritableBytes(plain))
        length = encrypt(plain, length: length, at: offset, into: memory, offset &- shift)
        next = offset &+ RecordLayout.aligned(length)
      }
      target.extracting(offset &- shift..<next &- shift).close(
        length: length, seed: salt &+ UInt64(truncatingIfNeeded: offset))
      ends.append(next)
      offset = next
    }
    (end, origin, self.position) = (offset, offset, position)
    return (start, ends)
  }

  private mutating func encode(_ entry: JournalEntry, continues: Bool) {
    let flags: RecordLayout.Flags = continues ? .continues : []
    switch entry {
    case .write(let record, let given):
      position = given ?? position + 1
      store(record, flags)
    case .parked(let record, let given):
      position = given ?? position + 1
      store(record, flags.union(.parked))
    case .loser(let record): store(record, flags.union(.loser))
    case .local(let key, let value?):
      store(FixedFields(kind: .local, flags: flags), key: key.span, value: value.span)
    case .local(let key, nil):
      store(FixedFields(kind: .localRemoval, flags: flags), key: key.span, value: Span())
    case .checkpoint: store(FixedFields(kind: .checkpoint, flags: flags), key: Span(), value: Span())
    case .purge(let purge):
      position += 1
      var flags = flags
      if purge.isParked { flags.insert(.parked) }
      if purge.hadValue { flags.insert(.valued) }
      let dot = purge.version.dot
      let fields = FixedFields(
        kind: .purge, flags: flags, actor: number(of: dot.actor), sequence: dot.sequence,
        stamp: purge.version.stamp)
      store(fields, key: purge.key.span, value: Span())
    }
  }

  private mutating func store(_ record: Record, _ flags: RecordLayout.Flags) {
    let heading = WriteHeader(
      version: record.version, base: record.base, open: record.open, deadline: record.deadline,
      type: record.type)
    switch record.content {
    case .tombstone: store(heading, kind: .tombstone, flags: flags, key: record.key.span, value: Span())
    case .inline(let value):
      store(heading, kind: .value, flags: flags, key: record.key.span, value: value.span)
    case .blob(let blob):
      var writer = ByteWriter()
      writer.write(raw: blob.hash.bytes)
      writer.write(blob.size)
      writer.write(raw: blob.metadata)
      let reference = writer.bytes
      store(heading, kind: .blob, flags: flags, key: record.key.span, value: reference.span)
    }
  }

  private mutating func store(
    _ heading: WriteHeader, kind: RecordLayout.Kind, flags: RecordLayout.Flags, key: Span<UInt8>,
    value: Span<UInt8>
  ) {
    let fields = 20 + heading.open.count * RecordLayout.dotLength
    compose(RecordLayout.fixedLength + fields + key.count + value.count)
    let mapping = target
    var flags = flags
    var place = origin + RecordLayout.fixedLength
    if let base = heading.base {
      flags.insert(.base)
      store(base, at: &place)
    }
    if let deadline = heading.deadline {
      flags.insert(.deadline)
      mapping.store(deadline, at: place)
      place += 8
    }
    if !heading.open.isEmpty {
      flags.insert(.open)
      mapping.store(UInt16(heading.open.count), at: place)
      place += 2
      for dot in heading.open { store(dot, at: &place) }
    }
    let dot = heading.version.dot
    let fixed = FixedFields(
      kind: kind, flags: flags, type: heading.type, actor: number(of: dot.actor), sequence: dot.sequence,
      stamp: heading.version.stamp)
    store(fixed, after: place, key: key, value: value)
  }

  /// Stores a record at `end`. Optional fields are already composed between its fixed part and `optionalEnd`.
  private mutating func store(
    _ fields: FixedFields, after optionalEnd: Int? = nil, key: Span<UInt8>, value: Span<UInt8>
  ) {
    if optionalEnd == nil { compose(RecordLayout.fixedLength + key.count + value.count) }
    let keyStart = (optionalEnd ?? origin + RecordLayout.fixedLength) - origin
    let length = keyStart + key.count + value.count
    let record = WritableBytes(target).extracting(origin..<origin + length)
    FixedPart(
      kind: fields.kind, flags: fields.flags, type: fields.type, actor: fields.actor,
      keyCount: UInt16(key.count), position: position - segment.header.basePosition,
      sequence: fields.sequence, stamp: fields.stamp, durable: durable
    ).store(in: record, length: length)
    record.store(key, at: keyStart)
    record.store(value, at: keyStart + key.count)
    close(
      length: segment.cipher == nil
        ? length : encrypt(target, length: length, at: end, into: segment.target, end))
  }

  /// Completes the record at `end`, of `length` bytes: zero padding up to the next, and the checksum.
  @inline(__always)
  private mutating func close(length: Int) {
    let next = end + RecordLayout.aligned(length)
    WritableBytes(segment.target).extracting(end..<next).close(length: length, seed: segment.seed(at: end))
    (end, origin) = (next, next)
  }

  // MARK: Encryption

  /// Provides memory to compose a record of at most `count` bytes.
  @inline(__always)
  private mutating func compose(_ count: Int) {
    if segment.cipher != nil { (target, origin) = (SegmentCipher.room(count), 0) }
  }

  /// Encrypts a record composed in memory, for the location `offset`, and stores it at `start` of `memory`.
  /// Returns its encrypted length.
  private func encrypt(
    _ plain: Mapping, length: Int, at offset: Int, into memory: Mapping, _ start: Int
  ) -> Int {
    guard let cipher = segment.cipher, let epochKey = segment.epochKey else {
      preconditionFailure("an epoch is defined before anything is encrypted under it")
    }
    return cipher.encrypt(plain, length: length, place: offset, writer: epochKey, into: memory, at: start)
  }

  /// Defines an epoch for this process if it has none in this segment.
  private mutating func beginEncryption() {
    guard !segment.isReadyToEncrypt else { return }
    end = segment.beginEncryption(at: end, durable: durable, position: position)
    origin = end
  }

  private func store(_ dot: Dot, at place: inout Int) {
    target.store(number(of: dot.actor), at: place)
    target.store(dot.sequence, at: place + 2)
    place += RecordLayout.dotLength
  }

  private func number(of actor: ActorID) -> UInt16 {
    guard let number = segment.actors.number(of: actor) ?? numbers[actor] else {
      preconditionFailure("actors are defined before they are used")
    }
    return number
  }

  private mutating func defineActors(of entry: JournalEntry) {
    switch entry {
    case .write(let record, _), .parked(let record, _), .loser(let record):
      define(record.dot.actor)
      if let base = record.base { define(base.actor) }
      for dot in record.open { define(dot.actor) }
    case .purge(let purge): define(purge.version.dot.actor)
    case .local, .checkpoint: break
    }
  }

  private mutating func define(_ actor: ActorID) {
    guard segment.actors.number(of: actor) == nil, numbers[actor] == nil else { return }
    let number = UInt16(segment.actors.nextNumber + numbers.count)
    numbers[actor] = number
    let name = actor.bytes
    let fields = FixedFields(kind: .actor, flags: [], actor: number)
    for _ in 0..<2 { store(fields, key: name.span, value: Span()) }
  }
}
