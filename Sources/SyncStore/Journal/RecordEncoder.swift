/// What one append puts into the journal.
enum JournalEntry: Sendable {
  /// A write. With `position` nil it is given the next one.
  case write(Record, position: UInt64?)
  /// The same for one whose time has not come: it is applied once that is so, and by an append.
  case waiting(Record, position: UInt64?)
  /// The beaten side of a conflict, kept for a while.
  case loser(Record)
  /// A key and value of this copy alone; nil ends the key.
  case local(key: [UInt8], value: [UInt8]?)
  /// Only carries the durable offset.
  case checkpoint
  /// What was held of a key is given up (rule R8).
  case purge(Purge)
}

/// What a copy gives up of a key: as if it had never had it.
struct Purge: Hashable, Sendable {
  /// Whose.
  var key: [UInt8]
  /// That of the record that goes. Older ones of the key go with it.
  var version: Version
  /// Was it one whose time had not come? Then it goes alone.
  var isParked = false
  /// Had it a value?
  var hadValue = false
}

/// The fields of a write that lie before its key.
struct WriteHeading {
  var version: Version
  var base: Dot?
  var open: [Dot] = []
  var deadline: UInt64?
  var type: ValueType
}

/// Stores the records of one append in their place: checksums, numbers of actors and offsets belong to a place, so the
/// same entries are encoded anew for another segment. Nobody sees them before the tail is moved behind them.
///
/// In a sealed segment a record is composed elsewhere, in its plain form, and sealed into its place.
struct RecordEncoder {
  private let segment: Segment
  private let start: Int
  private let durable: Int
  private var position: UInt64
  /// Numbers that this append defines.
  private var numbers: [ActorID: UInt16] = [:]
  /// Behind the last record stored.
  private(set) var end: Int
  /// Where the next record is composed, and where in it: in its place, or in the memory of its plain form.
  private var target: Mapping
  private var origin: Int

  /// Stores in `segment` from `start` on. `durable` is the offset known durable there, `position` the last one given.
  init(segment: Segment, start: Int, durable: Int, position: UInt64) {
    (self.segment, self.start, self.durable, self.position) = (segment, start, durable, position)
    (end, target, origin) = (start, segment.target, start)
  }

  /// What was stored.
  var bytes: [UInt8] { segment.target.bytes(start..<end) }

  /// The most bytes that `entries` can take up anywhere.
  static func bound(_ entries: [JournalEntry], sealed: Bool = false) -> Int {
    let extent = AppendExtent(entries)
    return extent.bytes + (sealed ? extent.sealing : 0)
  }

  /// Stores all entries as one transaction: all but the last one continue. `actors`, if given, are all that they use.
  mutating func encode(_ entries: [JournalEntry], actors: Set<ActorID>? = nil) {
    beginSealing()
    let areDefined = actors?.allSatisfy { segment.number(of: $0) != nil } ?? false
    if !areDefined {
      for entry in entries { defineActors(of: entry) }
    }
    for (index, entry) in entries.enumerated() {
      encode(entry, continues: index < entries.count - 1)
    }
  }

  /// Stores the records of a batch; the last one `continues` if more of its append follow.
  mutating func encode(_ batch: PlainBatch, continues: Bool) {
    beginSealing()
    for actor in batch.used { define(batch.actors[actor]) }
    var numbers = [UInt16](repeating: 0, count: batch.actors.count)
    for actor in batch.used { numbers[actor] = number(of: batch.actors[actor]) }
    let bytes = batch.bytes.span
    for (place, entry) in batch.entries.enumerated() {
      var flags: RecordLayout.Flags = continues || place < batch.entries.count - 1 ? .continues : []
      position += 1
      let (key, value) = (bytes.extracting(entry.key), bytes.extracting(entry.value))
      var behind: Int?
      if entry.hasBase {
        flags.insert(.base)
        compose(RecordLayout.fixedLength + RecordLayout.dotLength + key.count + value.count)
        let start = origin + RecordLayout.fixedLength
        target.store(numbers[entry.baseAuthor], at: start)
        target.store(entry.baseSequence, at: start + 2)
        behind = start + RecordLayout.dotLength
      }
      store(
        entry.isTombstone ? .tombstone : .value, flags, type: entry.type, actor: numbers[entry.author],
        sequence: entry.sequence, stamp: entry.stamp, behind: behind, key: key, value: value)
    }
  }

  private mutating func encode(_ entry: JournalEntry, continues: Bool) {
    let flags: RecordLayout.Flags = continues ? .continues : []
    switch entry {
    case .write(let record, let given):
      position = given ?? position + 1
      store(record, flags)
    case .waiting(let record, let given):
      position = given ?? position + 1
      store(record, flags.union(.parked))
    case .loser(let record): store(record, flags.union(.loser))
    case .local(let key, let value?): store(.local, flags, key: key.span, value: value.span)
    case .local(let key, nil): store(.localRemoval, flags, key: key.span, value: Span())
    case .checkpoint: store(.checkpoint, flags, key: Span(), value: Span())
    case .purge(let purge):
      position += 1
      var flags = flags
      if purge.isParked { flags.insert(.parked) }
      if purge.hadValue { flags.insert(.valued) }
      store(
        .purge, flags, actor: number(of: purge.version.dot.actor), sequence: purge.version.dot.sequence,
        stamp: purge.version.stamp, key: purge.key.span, value: Span())
    }
  }

  private mutating func store(_ record: Record, _ flags: RecordLayout.Flags) {
    let heading = WriteHeading(
      version: record.version, base: record.base, open: record.open, deadline: record.deadline,
      type: record.type)
    switch record.content {
    case .tombstone: store(heading, .tombstone, flags, key: record.key.span, value: Span())
    case .inline(let value): store(heading, .value, flags, key: record.key.span, value: value.span)
    case .blob(let blob):
      var writer = ByteWriter()
      writer.write(raw: blob.hash.bytes)
      writer.write(blob.size)
      writer.write(raw: blob.metadata)
      let reference = writer.bytes
      store(heading, .blob, flags, key: record.key.span, value: reference.span)
    }
  }

  private mutating func store(
    _ heading: WriteHeading, _ kind: RecordLayout.Kind, _ flags: RecordLayout.Flags, key: Span<UInt8>,
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
    store(
      kind, flags, type: heading.type, actor: number(of: dot.actor), sequence: dot.sequence,
      stamp: heading.version.stamp, behind: place, key: key, value: value)
  }

  /// Stores a record at `end`. Optional fields stand between its fixed part and `behind` already, where it is composed.
  private mutating func store(
    _ kind: RecordLayout.Kind, _ flags: RecordLayout.Flags, type: ValueType = .bytes, actor: UInt16 = 0,
    sequence: UInt64 = 0, stamp: Stamp = .zero, behind: Int? = nil, key: Span<UInt8>, value: Span<UInt8>
  ) {
    if behind == nil { compose(RecordLayout.fixedLength + key.count + value.count) }
    let mapping = target
    let start = origin
    let keyStart = behind ?? start + RecordLayout.fixedLength
    let valueStart = keyStart + key.count
    let last = valueStart + value.count
    let small = UInt32(kind.rawValue) | UInt32(flags.rawValue) << 8 | UInt32(type.rawValue) << 16
    let named = UInt32(actor) | UInt32(UInt16(key.count)) << 16
    mapping.store(UInt32(last - start), at: start + RecordLayout.length)
    mapping.store(UInt32(durable), at: start + RecordLayout.durable)
    mapping.store(small, at: start + RecordLayout.kind)
    mapping.store(named, at: start + RecordLayout.actor)
    mapping.store(UInt32(position - segment.header.basePosition), at: start + RecordLayout.position)
    mapping.store(sequence, at: start + RecordLayout.sequence)
    mapping.store(stamp.rawValue, at: start + RecordLayout.stamp)
    mapping.store(key, at: keyStart)
    mapping.store(value, at: valueStart)
    close(at: segment.seal == nil ? last : seal(length: last - start))
  }

  /// Ends the record whose bytes end at `last`: zeros up to the next, and the checksum.
  @inline(__always)
  private mutating func close(at last: Int) {
    let mapping = segment.target
    let next = end + RecordLayout.aligned(last - end)
    if next > last { mapping.clear(last..<next) }
    let checksum = mapping.withBytes((end + RecordLayout.length)..<last) {
      XXH3.hash64($0, seed: segment.seed(at: end))
    }
    mapping.store(UInt32(truncatingIfNeeded: checksum), at: end + RecordLayout.checksum)
    (end, origin) = (next, next)
  }

  // MARK: Sealing

  /// Makes room for a record of `count` bytes at most where it is composed.
  @inline(__always)
  private mutating func compose(_ count: Int) {
    if segment.seal != nil { (target, origin) = (SegmentSeal.room(count), 0) }
  }

  /// Seals what was composed into its place. Returns where it ends.
  private func seal(length: Int) -> Int {
    guard let seal = segment.seal, let sealer = segment.sealer else {
      preconditionFailure("an epoch is defined before anything is sealed under it")
    }
    return end
      + seal.seal(target, length: length, place: end, writer: sealer, into: segment.target, at: end)
  }

  /// Sees to it that this process has an epoch to seal under.
  private mutating func beginSealing() {
    guard !segment.isReadyToSeal else { return }
    end = segment.beginSealing(at: end, durable: durable, position: position)
    origin = end
  }

  private func store(_ dot: Dot, at place: inout Int) {
    target.store(number(of: dot.actor), at: place)
    target.store(dot.sequence, at: place + 2)
    place += RecordLayout.dotLength
  }

  private func number(of actor: ActorID) -> UInt16 {
    guard let number = segment.number(of: actor) ?? numbers[actor] else {
      preconditionFailure("actors are defined before they are used")
    }
    return number
  }

  private mutating func defineActors(of entry: JournalEntry) {
    switch entry {
    case .write(let record, _), .waiting(let record, _), .loser(let record):
      define(record.dot.actor)
      if let base = record.base { define(base.actor) }
      for dot in record.open { define(dot.actor) }
    case .purge(let purge): define(purge.version.dot.actor)
    case .local, .checkpoint: break
    }
  }

  private mutating func define(_ actor: ActorID) {
    guard segment.number(of: actor) == nil, numbers[actor] == nil else { return }
    let number = UInt16(segment.nextNumber + numbers.count)
    numbers[actor] = number
    let name = actor.bytes
    for _ in 0..<2 { store(.actor, [], actor: number, key: name.span, value: Span()) }
  }
}
