/// What one append puts into the journal.
enum JournalEntry: Sendable {
  /// A write. With `position` nil it is given the next one.
  case write(Record, position: UInt64?)
  /// The beaten side of a conflict, kept for a while.
  case loser(Record)
  /// A key and value of this copy alone; nil ends the key.
  case local(key: [UInt8], value: [UInt8]?)
  /// Only carries the durable offset.
  case checkpoint
}

/// Turns entries into the bytes of one append at one place: checksums, numbers of actors and offsets belong to a place,
/// so the same entries are encoded anew for another segment.
struct RecordEncoder {
  private let segment: Segment
  private let start: Int
  private let durable: Int
  private var position: UInt64
  private var numbers: [ActorID: UInt16] = [:]
  private(set) var bytes: [UInt8] = []

  /// Encodes for `segment` from `start` on. `durable` is the offset known durable there, `position` the last one given.
  init(segment: Segment, start: Int, durable: Int, position: UInt64) {
    (self.segment, self.start, self.durable, self.position) = (segment, start, durable, position)
  }

  /// The most bytes that `entries` can take up anywhere.
  static func bound(_ entries: [JournalEntry]) -> Int {
    var bytes = 0
    for entry in entries {
      var length = RecordLayout.fixedLength
      switch entry {
      case .write(let record, _), .loser(let record):
        length += 10 + 8 + 2 + record.open.count * RecordLayout.dotLength + record.key.count
        switch record.content {
        case .tombstone: break
        case .inline(let value): length += value.count
        case .blob(let blob): length += 40 + blob.metadata.count
        }
      case .local(let key, let value): length += key.count + (value?.count ?? 0)
      case .checkpoint: break
      }
      bytes += RecordLayout.aligned(length)
    }
    let definition = RecordLayout.aligned(RecordLayout.actorDefinitionLength)
    return bytes + 2 * actors(of: entries).count * definition
  }

  /// All whose numbers `entries` use.
  static func actors(of entries: [JournalEntry]) -> Set<ActorID> {
    var actors: Set<ActorID> = []
    for entry in entries {
      switch entry {
      case .write(let record, _), .loser(let record):
        actors.insert(record.dot.actor)
        if let base = record.base { actors.insert(base.actor) }
        for dot in record.open { actors.insert(dot.actor) }
      case .local, .checkpoint: break
      }
    }
    return actors
  }

  /// Appends all entries as one transaction: all but the last one continue.
  mutating func encode(_ entries: [JournalEntry]) {
    for entry in entries { defineActors(of: entry) }
    for (index, entry) in entries.enumerated() {
      encode(entry, continues: index < entries.count - 1)
    }
  }

  private mutating func encode(_ entry: JournalEntry, continues: Bool) {
    var flags: RecordLayout.Flags = continues ? .continues : []
    switch entry {
    case .write(let record, let given):
      position = given ?? position + 1
      write(record, flags)
    case .loser(let record):
      flags.insert(.loser)
      write(record, flags)
    case .local(let key, let value):
      write(value == nil ? .localRemoval : .local, flags, key: key, value: value ?? [])
    case .checkpoint:
      write(.checkpoint, flags, key: [], value: [])
    }
  }

  private mutating func write(_ record: Record, _ given: RecordLayout.Flags) {
    var flags = given
    var optional = ByteWriter()
    if let base = record.base {
      flags.insert(.base)
      write(base, into: &optional)
    }
    if let deadline = record.deadline {
      flags.insert(.deadline)
      optional.write(deadline)
    }
    if !record.open.isEmpty {
      flags.insert(.open)
      optional.write(UInt16(record.open.count))
      for dot in record.open { write(dot, into: &optional) }
    }
    let kind: RecordLayout.Kind
    var value: [UInt8] = []
    switch record.content {
    case .tombstone: kind = .tombstone
    case .inline(let bytes): (kind, value) = (.value, bytes)
    case .blob(let blob):
      kind = .blob
      var writer = ByteWriter()
      writer.write(raw: blob.hash.bytes)
      writer.write(blob.size)
      writer.write(raw: blob.metadata)
      value = writer.bytes
    }
    write(
      kind, flags, type: record.type, actor: number(of: record.dot.actor), sequence: record.dot.sequence,
      stamp: record.stamp, optional: optional.bytes, key: record.key, value: value)
  }

  private mutating func write(
    _ kind: RecordLayout.Kind, _ flags: RecordLayout.Flags, type: ValueType = .bytes, actor: UInt16 = 0,
    sequence: UInt64 = 0, stamp: Stamp = .zero, optional: [UInt8] = [], key: [UInt8], value: [UInt8]
  ) {
    let length = RecordLayout.fixedLength + optional.count + key.count + value.count
    var writer = ByteWriter(capacity: RecordLayout.aligned(length))
    writer.write(UInt32(length))
    writer.write(UInt32(durable))
    writer.write(kind.rawValue)
    writer.write(flags.rawValue)
    writer.write(type.rawValue)
    writer.write(UInt8(0))
    writer.write(actor)
    writer.write(UInt16(key.count))
    writer.write(UInt32(position - segment.header.basePosition))
    writer.write(sequence)
    writer.write(stamp.rawValue)
    writer.write(raw: optional)
    writer.write(raw: key)
    writer.write(raw: value)
    let checksum = XXH3.hash64(writer.bytes, seed: segment.seed(at: start + bytes.count))
    let little = UInt32(truncatingIfNeeded: checksum)
    for shift in [0, 8, 16, 24] { bytes.append(UInt8(truncatingIfNeeded: little >> UInt32(shift))) }
    bytes.append(contentsOf: writer.bytes)
    bytes.append(contentsOf: repeatElement(0, count: RecordLayout.aligned(length) - length))
  }

  private func write(_ dot: Dot, into writer: inout ByteWriter) {
    writer.write(number(of: dot.actor))
    writer.write(dot.sequence)
  }

  private func number(of actor: ActorID) -> UInt16 {
    guard let number = segment.number(of: actor) ?? numbers[actor] else {
      preconditionFailure("actors are defined before they are used")
    }
    return number
  }

  private mutating func defineActors(of entry: JournalEntry) {
    switch entry {
    case .write(let record, _), .loser(let record):
      define(record.dot.actor)
      if let base = record.base { define(base.actor) }
      for dot in record.open { define(dot.actor) }
    case .local, .checkpoint: break
    }
  }

  private mutating func define(_ actor: ActorID) {
    guard segment.number(of: actor) == nil, numbers[actor] == nil else { return }
    let number = UInt16(segment.nextNumber + numbers.count)
    numbers[actor] = number
    for _ in 0..<2 { write(.actor, [], actor: number, key: actor.bytes, value: []) }
  }
}
