package import SyncStore

/// Decoding the payload of a batch.
extension RecordCodec {
  /// A decoded payload. Its records stay undecoded (compact) if all of them have the compact form.
  package struct DecodedBatch: Hashable, Sendable {
    /// As `Payload.position`.
    package var position: UInt64
    /// The records.
    package var records: BatchRecords
    /// As `Payload.present`.
    package var present: [Dot]

    /// Approximate bytes of memory that it takes in addition to the payload.
    package var memoryBytes: Int {
      let recordBytes =
        switch records {
        // Allocations for key and value of each record.
        case .list(let records): records.count * (MemoryLayout<PositionedRecord>.stride + 128)
        case .compact(let batch): batch.entries.count * MemoryLayout<CompactBatch.Entry>.stride
        }
      return recordBytes + present.count * MemoryLayout<Dot>.stride
    }
  }

  /// Decodes the payload in `bytes`; trailing bytes are an error.
  package static func decode(_ bytes: [UInt8]) throws(DecodingFailure) -> Payload {
    let reading = try read(bytes)
    return Payload(position: reading.position, records: reading.records.list, present: reading.present)
  }

  /// Decodes the payload in `bytes` and keeps its records in compact form if possible.
  package static func read(_ bytes: [UInt8]) throws(DecodingFailure) -> DecodedBatch {
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
    guard count <= UInt64(WireLimits.batchRecords) else {
      throw DecodingFailure("more records than \(WireLimits.batchRecords): \(count)")
    }
    guard count <= UInt64(reader.remaining / leastRecordBytes) else {
      throw DecodingFailure("records cut off")
    }
    var state = DecodingState(actors: actors)
    let records = try Self.records(Int(count), from: &reader, &state)
    let present = try Self.present(from: &reader, actors)
    guard reader.remaining == 0 else {
      throw DecodingFailure("\(CountText.of(reader.remaining, noun: "byte")) too many")
    }
    guard state.position <= end else { throw DecodingFailure("a record behind the end position") }
    guard !state.continues else { throw DecodingFailure("a transaction is cut") }
    return DecodedBatch(position: end, records: records, present: present)
  }

  /// Flags, position, actor, sequence, stamp, length of the key, key: one byte each.
  private static let leastRecordBytes = 7

  /// Context from earlier records that the next one is encoded against.
  private struct DecodingState {
    let actors: [ActorID]
    var lastSequences: [UInt64]
    var position: UInt64 = 0
    var stamp: UInt64 = 0
    var continues = false
    /// Whether the last record has the compact form. If not, `rest` has its other fields.
    var isCompact = true
    var rest = OptionalFields()

    init(actors: [ActorID]) {
      self.actors = actors
      lastSequences = Array(repeating: 0, count: actors.count)
    }

    mutating func dot(
      from reader: inout FieldReader
    ) throws(DecodingFailure) -> (actor: Int, sequence: UInt64) {
      let actor = try reader.index(below: actors.count)
      let sequence = try reader.variable()
      guard sequence > 0 else { throw DecodingFailure("sequence 0") }
      return (actor, sequence)
    }
  }

  /// The fields of a record that its compact entry cannot hold.
  private struct OptionalFields {
    var deadline: UInt64?
    var open: [Dot] = []
    var blob: BlobReference?
  }

  private static func records(
    _ count: Int, from reader: inout FieldReader, _ state: inout DecodingState
  ) throws(DecodingFailure) -> BatchRecords {
    var entries: [CompactBatch.Entry] = []
    entries.reserveCapacity(count)
    while entries.count < count {
      let entry = try Self.entry(from: &reader, &state)
      guard state.isCompact else {
        return .list(try list(entries, entry: entry, count: count, from: &reader, &state))
      }
      entries.append(entry)
    }
    return .compact(CompactBatch(bytes: reader.bytes, actors: state.actors, entries: entries))
  }

  /// Decodes all records individually, because `entry` does not have the compact form.
  private static func list(
    _ entries: [CompactBatch.Entry], entry: CompactBatch.Entry, count: Int,
    from reader: inout FieldReader, _ state: inout DecodingState
  ) throws(DecodingFailure) -> [PositionedRecord] {
    let plain = CompactBatch(bytes: reader.bytes, actors: state.actors, entries: entries)
    var records: [PositionedRecord] = []
    records.reserveCapacity(count)
    for entry in entries { records.append(plain.record(entry)) }
    var next = entry
    while true {
      var positioned = plain.record(next)
      if !state.isCompact {
        (positioned.record.deadline, positioned.record.open) = (state.rest.deadline, state.rest.open)
        if let blob = state.rest.blob { positioned.record.content = .blob(blob) }
      }
      records.append(positioned)
      if records.count == count { return records }
      next = try Self.entry(from: &reader, &state)
    }
  }

  private static func entry(
    from reader: inout FieldReader, _ state: inout DecodingState
  ) throws(DecodingFailure) -> CompactBatch.Entry {
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
    state.continues = flags & Flag.continues != 0
    let content = flags & Flag.content
    state.isCompact = flags & (Flag.deadline | Flag.open) == 0 && content < 2
    if !state.isCompact { state.rest = OptionalFields() }
    if flags & Flag.deadline != 0 {
      let deadline = try reader.variable()
      guard deadline != 0 else { throw DecodingFailure("deadline 0") }
      state.rest.deadline = deadline
    }
    let base = flags & Flag.base != 0 ? try state.dot(from: &reader) : nil
    if flags & Flag.open != 0 { state.rest.open = try openDots(from: &reader, &state) }
    let key = try reader.counted(limit: Limits.keyBytes)
    guard !key.isEmpty else { throw DecodingFailure("key of no bytes") }
    var value = key.upperBound..<key.upperBound
    switch content {
    case 0: break
    case 1: value = try reader.counted(limit: Limits.inlineValueBytes)
    case 2: state.rest.blob = try blob(from: &reader)
    default: throw DecodingFailure("record of unknown kind")
    }
    var entry = CompactBatch.Entry(
      position: position, stamp: Stamp(rawValue: state.stamp),
      dot: CompactBatch.IndexedDot(author: author, sequence: sequence), continues: state.continues,
      type: type, key: key, value: content == 0 ? nil : value)
    if let base { entry.setBase(CompactBatch.IndexedDot(author: base.actor, sequence: base.sequence)) }
    return entry
  }

  private static func openDots(
    from reader: inout FieldReader, _ state: inout DecodingState
  ) throws(DecodingFailure) -> [Dot] {
    var open: [Dot] = []
    let count = try reader.count(limit: Limits.openDots)
    guard count > 0 else { throw DecodingFailure("no open dots") }
    for _ in 0..<count {
      let (actor, sequence) = try state.dot(from: &reader)
      open.append(Dot(actor: state.actors[actor], sequence: sequence))
    }
    return open
  }

  private static func blob(from reader: inout FieldReader) throws(DecodingFailure) -> BlobReference {
    guard let hash = BlobHash(bytes: try reader.slice(32)) else { throw DecodingFailure("hash") }
    let size = try reader.variable()
    guard size <= Limits.blobBytes else {
      throw DecodingFailure("blob of \(CountText.of(size, noun: "byte"))")
    }
    return BlobReference(
      hash: hash, size: size, metadata: Array(try reader.slice(reader.count(limit: Limits.blobMetadataBytes)))
    )
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
        // Values below 2^62 cannot overflow in the sum.
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

  private static func unzigzag(_ value: UInt64) -> UInt64 {
    value >> 1 ^ (0 &- (value & 1))
  }
}

/// `ByteReader` for a hot path: reads an array by index, so that a byte costs a bounds check and no slice.
private struct FieldReader {
  let bytes: [UInt8]
  private var index = 0

  init(_ bytes: [UInt8]) { self.bytes = bytes }

  var remaining: Int { bytes.count - index }

  @inline(__always)
  mutating func byte() throws(DecodingFailure) -> UInt8 {
    guard index < bytes.count else { throw DecodingFailure("bytes cut off") }
    defer { index += 1 }
    return bytes[index]
  }

  @inline(__always)
  mutating func variable() throws(DecodingFailure) -> UInt64 {
    let first = try byte()
    return first < 0x80 ? UInt64(first) : try longVariable(UInt64(first & 0x7F))
  }

  private mutating func longVariable(_ first: UInt64) throws(DecodingFailure) -> UInt64 {
    var value = first
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

  /// The range of the next `count` bytes.
  mutating func range(_ count: Int) throws(DecodingFailure) -> Range<Int> {
    guard count <= remaining else {
      throw DecodingFailure("\(CountText.of(count, noun: "byte")) wanted, \(remaining) left")
    }
    defer { index += count }
    return index..<(index + count)
  }

  mutating func slice(_ count: Int) throws(DecodingFailure) -> ArraySlice<UInt8> { bytes[try range(count)] }

  /// The range of a byte string that follows its length.
  mutating func counted(limit: Int) throws(DecodingFailure) -> Range<Int> {
    try range(try count(limit: limit))
  }
}
