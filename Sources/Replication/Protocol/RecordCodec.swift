package import SyncStore

/// The payload of a batch before it is sealed: records of one round in the sender's order. `schemas/wire.md`
/// has the bytes.
///
/// Invariants of what `decode` returns: positions rise and do not pass the end position; the last record ends
/// its transaction; keys, values, open dots and meta-data are within `Limits`; no stamp is the maximum (F51).
package enum RecordCodec {
  /// Records and the position they reach; of a full state also what else the sender holds up to there.
  package struct Payload: Hashable, Sendable {
    /// The sender's position up to which the journal has been received once the records are applied.
    package var position: UInt64
    /// The records.
    package var records: [PositionedRecord]
    /// Writes that the sender holds and that the receiver covers: at most `WireLimits.presentDots`, in order.
    package var present: [Dot]

    /// All fields.
    package init(position: UInt64, records: [PositionedRecord], present: [Dot] = []) {
      (self.position, self.records, self.present) = (position, records, present)
    }
  }

  /// The version of the layout, the first byte.
  package static let version: UInt8 = 1

  fileprivate enum Flag {
    static let content: UInt8 = 0b0000_0011
    static let base: UInt8 = 0b0000_0100
    static let open: UInt8 = 0b0000_1000
    static let deadline: UInt8 = 0b0001_0000
    static let continues: UInt8 = 0b0010_0000
    static let type: UInt8 = 0b0100_0000
    static let unknown: UInt8 = 0b1000_0000
  }

  /// The bytes of the payload. The records must be what `decode` accepts: those of a journal are.
  package static func encode(_ payload: Payload) -> [UInt8] {
    var encoder = Encoder(capacity: payload.records.reduce(64) { $0 + $1.record.encodedSizeHint })
    for record in payload.records { encoder.write(record) }
    return encoder.finish(position: payload.position, present: payload.present)
  }

  /// Puts a payload together from one record after the other. They must be what `decode` accepts: those of a journal are.
  package struct Encoder: BatchWriter {
    private var actors = ActorTable()
    private var body: ByteWriter
    private var position: UInt64 = 0
    private var stamp: UInt64 = 0
    /// How many records it was given.
    package private(set) var count: UInt64 = 0

    /// None yet; the bytes of all are expected to be about `capacity`.
    package init(capacity: Int) { body = ByteWriter(capacity: capacity) }

    /// Adds a record.
    package mutating func write(_ positioned: PositionedRecord) {
      let record = positioned.record
      var flags: UInt8 =
        switch record.content {
        case .tombstone: 0
        case .inline: 1
        case .blob: 2
        }
      if record.base != nil { flags |= Flag.base }
      if !record.open.isEmpty { flags |= Flag.open }
      if record.deadline != nil { flags |= Flag.deadline }
      if record.continues { flags |= Flag.continues }
      write(
        flags, at: positioned.position, Version(stamp: record.stamp, dot: record.dot), record.type)
      if let deadline = record.deadline { body.writeVariable(deadline) }
      if let base = record.base { body.write(base, in: &actors) }
      if !record.open.isEmpty {
        body.writeVariable(UInt64(record.open.count))
        for dot in record.open { body.write(dot, in: &actors) }
      }
      body.write(counted: record.key)
      switch record.content {
      case .tombstone: break
      case .inline(let value): body.write(counted: value)
      case .blob(let blob):
        body.write(raw: blob.hash.bytes)
        body.writeVariable(blob.size)
        body.write(counted: blob.metadata)
      }
    }

    /// Adds a record of the ordinary form.
    package mutating func write(_ heading: OutgoingHeading, key: Span<UInt8>, value: Span<UInt8>) {
      var flags: UInt8 = heading.isTombstone ? 0 : 1
      if heading.base != nil { flags |= Flag.base }
      if heading.continues { flags |= Flag.continues }
      write(flags, at: heading.position, heading.version, heading.type)
      if let base = heading.base { body.write(base, in: &actors) }
      body.write(counted: key)
      if !heading.isTombstone { body.write(counted: value) }
    }

    /// The fields that every record begins with.
    private mutating func write(
      _ flags: UInt8, at position: UInt64, _ version: Version, _ type: ValueType
    ) {
      body.write(type == .bytes ? flags : flags | Flag.type)
      body.writeVariable(position &- self.position)
      self.position = position
      let author = actors.index(of: version.dot.actor)
      body.writeVariable(UInt64(author))
      body.writeVariable(zigzag(version.dot.sequence &- actors.lastSequences[author]))
      actors.lastSequences[author] = version.dot.sequence
      body.writeVariable(zigzag(version.stamp.rawValue &- stamp))
      stamp = version.stamp.rawValue
      if type != .bytes { body.write(type.rawValue) }
      count += 1
    }

    /// The payload, which reaches up to `position` and names what else is held up to there.
    package func finish(position: UInt64, present: [Dot]) -> [UInt8] {
      var actors = actors
      var end = ByteWriter()
      RecordCodec.write(present: present, to: &end, &actors)
      let bytes = body.bytes.count + end.bytes.count + 16 * actors.names.count + 32
      var writer = ByteWriter(capacity: bytes)
      writer.write(RecordCodec.version)
      writer.writeVariable(UInt64(actors.names.count))
      for actor in actors.names { writer.write(raw: actor.bytes) }
      writer.writeVariable(position)
      writer.writeVariable(count)
      writer.write(body)
      writer.write(end)
      return writer.bytes
    }
  }

  /// Runs of consecutive sequences, actor by actor: most of what a copy holds was written in a row.
  fileprivate static func write(present dots: [Dot], to body: inout ByteWriter, _ actors: inout ActorTable) {
    let runs = Self.runs(of: dots)
    body.writeVariable(UInt64(runs.count))
    for (actor, runs) in runs {
      body.writeVariable(UInt64(actors.index(of: actor)))
      body.writeVariable(UInt64(runs.count))
      var end: UInt64 = 0
      for run in runs {
        body.writeVariable(run.lowerBound - end - 1)
        body.writeVariable(run.upperBound - run.lowerBound)
        end = run.upperBound
      }
    }
  }

  private static func runs(of dots: [Dot]) -> [(actor: ActorID, runs: [ClosedRange<UInt64>])] {
    var all: [(actor: ActorID, runs: [ClosedRange<UInt64>])] = []
    for dot in dots {
      if all.last?.actor != dot.actor { all.append((dot.actor, [])) }
      let place = all.count - 1
      if let last = all[place].runs.last, last.upperBound + 1 == dot.sequence {
        all[place].runs[all[place].runs.count - 1] = last.lowerBound...dot.sequence
      } else {
        all[place].runs.append(dot.sequence...dot.sequence)
      }
    }
    return all
  }

  private static func present(
    from reader: inout FieldReader, _ actors: [ActorID]
  ) throws(DecodingFailure) -> [Dot] {
    var dots: [Dot] = []
    for _ in 0..<(try reader.count(limit: actors.count)) {
      let actor = actors[try reader.index(below: actors.count)]
      var end: UInt64 = 0
      for _ in 0..<(try reader.count(limit: WireLimits.presentDots)) {
        let (gap, more) = (try reader.variable(), try reader.variable())
        // Each of the three is far from the end of the numbers, or there are too many dots.
        guard gap < 1 << 62, more < UInt64(WireLimits.presentDots - dots.count), end < 1 << 62 else {
          throw DecodingFailure("more than \(WireLimits.presentDots) writes, or sequences out of bounds")
        }
        let first = end + gap + 1
        for sequence in first...(first + more) { dots.append(Dot(actor: actor, sequence: sequence)) }
        end = first + more
      }
    }
    return dots
  }

  /// The payload in `bytes`, every byte of which must belong to it.
  package static func decode(_ bytes: [UInt8]) throws(DecodingFailure) -> Payload {
    var reader = FieldReader(bytes)
    let version = try reader.byte()
    guard version == Self.version else { throw DecodingFailure("records of layout \(version)") }
    let actorCount = try reader.count(limit: Limits.actors)
    guard actorCount * 16 <= reader.remaining else { throw DecodingFailure("actors cut off") }
    var actors: [ActorID] = []
    actors.reserveCapacity(actorCount)
    for _ in 0..<actorCount {
      guard let actor = ActorID(bytes: try reader.slice(16)) else { throw DecodingFailure("actor") }
      actors.append(actor)
    }
    guard Set(actors).count == actorCount else { throw DecodingFailure("an actor twice") }
    let end = try reader.variable()
    let count = try reader.variable()
    guard count <= UInt64(reader.remaining / leastRecordBytes) else {
      throw DecodingFailure("records cut off")
    }
    var state = DecodingState(actors: actors)
    var records: [PositionedRecord] = []
    records.reserveCapacity(Int(count))
    for _ in 0..<Int(count) { records.append(try record(from: &reader, &state)) }
    let present = try present(from: &reader, actors)
    guard reader.remaining == 0 else { throw DecodingFailure("\(reader.remaining) bytes too many") }
    guard state.position <= end else { throw DecodingFailure("a record behind the end position") }
    guard records.last?.record.continues != true else { throw DecodingFailure("a transaction is cut") }
    return Payload(position: end, records: records, present: present)
  }

  /// Flags, position, actor, sequence, stamp, length of the key, key.
  private static let leastRecordBytes = 7

  private struct DecodingState {
    let actors: [ActorID]
    var lastSequences: [UInt64]
    var position: UInt64 = 0
    var stamp: UInt64 = 0

    init(actors: [ActorID]) {
      self.actors = actors
      lastSequences = Array(repeating: 0, count: actors.count)
    }

    mutating func dot(from reader: inout FieldReader) throws(DecodingFailure) -> Dot {
      let actor = try reader.index(below: actors.count)
      let sequence = try reader.variable()
      guard sequence > 0 else { throw DecodingFailure("sequence 0") }
      return Dot(actor: actors[actor], sequence: sequence)
    }
  }

  private static func record(
    from reader: inout FieldReader, _ state: inout DecodingState
  ) throws(DecodingFailure) -> PositionedRecord {
    let flags = try reader.byte()
    guard flags & Flag.unknown == 0 else { throw DecodingFailure("unknown flag in a record") }
    let (position, overflow) = state.position.addingReportingOverflow(try reader.variable())
    guard !overflow, position > state.position else { throw DecodingFailure("positions do not rise") }
    state.position = position
    let author = try reader.index(below: state.actors.count)
    let sequence = state.lastSequences[author] &+ unzigzag(try reader.variable())
    guard sequence > 0 else { throw DecodingFailure("sequence 0") }
    state.lastSequences[author] = sequence
    state.stamp &+= unzigzag(try reader.variable())
    guard state.stamp < Stamp.maximum.rawValue else { throw DecodingFailure("stamp at its maximum") }
    let type = flags & Flag.type != 0 ? ValueType(rawValue: try reader.byte()) : .bytes
    guard flags & Flag.type == 0 || type != .bytes else {
      throw DecodingFailure("type not in its shortest form")
    }
    let deadline: UInt64? = flags & Flag.deadline != 0 ? try reader.variable() : nil
    guard deadline != 0 else { throw DecodingFailure("deadline 0") }
    let base: Dot? = flags & Flag.base != 0 ? try state.dot(from: &reader) : nil
    var open: [Dot] = []
    if flags & Flag.open != 0 {
      let count = try reader.count(limit: Limits.openDots)
      guard count > 0 else { throw DecodingFailure("no open dots") }
      for _ in 0..<count { open.append(try state.dot(from: &reader)) }
    }
    let key = try reader.array(limit: Limits.keyBytes)
    guard !key.isEmpty else { throw DecodingFailure("key of no bytes") }
    let record = Record(
      dot: Dot(actor: state.actors[author], sequence: sequence), stamp: Stamp(rawValue: state.stamp),
      base: base,
      open: open, deadline: deadline, type: type, key: key, content: try content(flags, from: &reader),
      continues: flags & Flag.continues != 0)
    return PositionedRecord(position: position, record: record)
  }

  private static func content(
    _ flags: UInt8, from reader: inout FieldReader
  ) throws(DecodingFailure) -> Record.Content {
    switch flags & Flag.content {
    case 0: return .tombstone
    case 1: return .inline(try reader.array(limit: Limits.inlineValueBytes))
    case 2:
      guard let hash = BlobHash(bytes: try reader.slice(32)) else { throw DecodingFailure("hash") }
      let size = try reader.variable()
      guard size <= Limits.blobBytes else { throw DecodingFailure("blob of \(size) bytes") }
      return .blob(
        BlobReference(hash: hash, size: size, metadata: try reader.array(limit: Limits.blobMetadataBytes)))
    default: throw DecodingFailure("record of unknown kind")
    }
  }

  /// Small numbers of either sign as small unsigned ones; the difference is taken modulo 2^64.
  fileprivate static func zigzag(_ difference: UInt64) -> UInt64 {
    let signed = Int64(bitPattern: difference)
    return UInt64(bitPattern: signed << 1 ^ signed >> 63)
  }

  fileprivate static func unzigzag(_ value: UInt64) -> UInt64 {
    value >> 1 ^ (0 &- (value & 1))
  }
}

/// The actors of a batch, in the order in which they are first named, and what each wrote last in it.
private struct ActorTable {
  private(set) var names: [ActorID] = []
  var lastSequences: [UInt64] = []
  private var indices: [ActorID: Int] = [:]
  private var latest = -1

  mutating func index(of actor: ActorID) -> Int {
    // Most batches are long runs of one author.
    if latest >= 0, names[latest] == actor { return latest }
    if let known = indices[actor] {
      latest = known
      return known
    }
    latest = names.count
    indices[actor] = latest
    names.append(actor)
    lastSequences.append(0)
    return latest
  }
}

extension ByteWriter {
  fileprivate mutating func write(_ dot: Dot, in actors: inout ActorTable) {
    writeVariable(UInt64(actors.index(of: dot.actor)))
    writeVariable(dot.sequence)
  }
}

extension Record {
  /// About how many bytes the record takes, for reserving room.
  fileprivate var encodedSizeHint: Int {
    switch content {
    case .tombstone: 24 + key.count
    case .inline(let value): 28 + key.count + value.count
    case .blob(let blob): 64 + key.count + blob.metadata.count
    }
  }
}

/// `ByteReader` for a hot path: it reads an array by index, so that a byte costs a bounds check and no slice.
private struct FieldReader {
  private let bytes: [UInt8]
  private var index = 0

  init(_ bytes: [UInt8]) { self.bytes = bytes }

  var remaining: Int { bytes.count - index }

  @inline(__always)
  mutating func byte() throws(DecodingFailure) -> UInt8 {
    guard index < bytes.count else { throw DecodingFailure("bytes cut off") }
    defer { index += 1 }
    return bytes[index]
  }

  mutating func variable() throws(DecodingFailure) -> UInt64 {
    let first = try byte()
    if first < 0x80 { return UInt64(first) }
    var value = UInt64(first & 0x7F)
    var shift: UInt64 = 7
    while true {
      let next = try byte()
      guard shift < 63 || next <= 1 else { throw DecodingFailure("integer above 64 bits") }
      value |= UInt64(next & 0x7F) << shift
      if next < 0x80 {
        guard next != 0 else { throw DecodingFailure("integer not in its shortest form") }
        return value
      }
      shift += 7
    }
  }

  mutating func count(limit: Int) throws(DecodingFailure) -> Int {
    let count = try variable()
    guard count <= UInt64(limit) else { throw DecodingFailure("count \(count) above the limit \(limit)") }
    return Int(count)
  }

  mutating func index(below count: Int) throws(DecodingFailure) -> Int {
    let value = try variable()
    guard value < UInt64(count) else { throw DecodingFailure("actor \(value) of \(count)") }
    return Int(value)
  }

  mutating func slice(_ count: Int) throws(DecodingFailure) -> ArraySlice<UInt8> {
    guard count <= remaining else { throw DecodingFailure("\(count) bytes wanted, \(remaining) left") }
    defer { index += count }
    return bytes[index..<(index + count)]
  }

  mutating func array(limit: Int) throws(DecodingFailure) -> [UInt8] {
    Array(try slice(try count(limit: limit)))
  }
}
