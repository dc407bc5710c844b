/// Builds the records of one compacted segment: copies of live records at the positions they had, with
/// checksums, actor numbers and transaction boundaries of their new location, encrypted under the segment's
/// own keys if the store is encrypted.
struct CompactedSegmentBuilder {
  let header: SegmentHeader
  /// The content after the header page.
  private let memory: Mapping
  private let target: WritableBytes
  private(set) var count = 0
  private var numbers: [ActorID: UInt16] = [:]
  /// The actor numbers here, by number in the segment that is copied; nil where not assigned yet.
  private var renumbered: [UInt16?] = []
  private var renumberedSegment: UInt32?
  /// The actors by number in the segment that is copied; nil if the caller holds the engine's lock, so that
  /// the segment itself can be read.
  private var actors: [ActorID?]?
  /// Records of the transaction in progress.
  private var pending: [CompactedRecord] = []
  /// Buffer for one record, not encrypted.
  private var record: [UInt8] = []
  private let cipher: SegmentCipher?
  private var epochKey: SegmentCipher.EpochKey?
  /// New offsets of records that the index refers to.
  private(set) var moves: [SegmentInstall.Move] = []
  /// Offsets of all other records, definitions included.
  private(set) var others: [Int] = []

  /// False for the records of a copy's state in a backup: they precede all positions, whenever they were
  /// written.
  private let givesPositions: Bool

  /// A builder for a segment with this header, whose size and length are still unknown. `capacity` is the
  /// number of bytes of the records to copy.
  init(
    _ header: SegmentHeader, capacity: Int, cipher: SegmentCipher?, givesPositions: Bool = true
  ) throws(StoreError) {
    (self.header, self.cipher, self.givesPositions) = (header, cipher, givesPositions)
    // Encryption adds less to a record than its fixed part. Memory is populated as it is used.
    memory = try .blank(2 * capacity + EncryptedRecordLayout.definitions)
    target = WritableBytes(memory)
  }

  /// A copy of the content.
  var bytes: [UInt8] { memory.bytes(0..<count) }

  /// Offset of the end of the records.
  var end: Int { SegmentHeader.length + count }

  /// Writes the content into the file, after its header.
  func write(to file: any StorageFile) throws(StoreError) {
    for start in stride(from: 0, to: count, by: Self.pieceBytes) {
      try file.write(
        memory.bytes(start..<min(start + Self.pieceBytes, count)), at: SegmentHeader.length + start)
    }
  }

  private static let pieceBytes = 1 << 20

  /// Adds a record of the transaction in progress, whose checksum was verified.
  @inline(__always)
  mutating func add(_ record: CompactedRecord) { pending.append(record) }

  /// Completes the transaction in progress. Returns false if a record of it cannot be copied: more actors
  /// than a segment can number, an unknown author, or a position outside of the copy's range.
  @inline(__always)
  mutating func endTransaction(of source: CompactionSource) -> Bool {
    pending.isEmpty || copyTransaction(of: source)
  }

  private mutating func copyTransaction(of source: CompactionSource) -> Bool {
    defer { pending.removeAll(keepingCapacity: true) }
    if renumberedSegment != source.segment.number {
      renumberedSegment = source.segment.number
      renumbered = Array(repeating: nil, count: source.actors.count)
      actors = source.actors
    }
    if pending.count == 1, copyPlain(pending[0], of: source, continues: false) { return true }
    for record in pending where plain(record, of: source) == nil {
      guard define(actorsOf: RecordView(segment: source.segment, offset: record.offset)) else { return false }
    }
    for index in pending.indices {
      let continues = index < pending.count - 1
      if !copyPlain(pending[index], of: source, continues: continues) {
        let view = RecordView(segment: source.segment, offset: pending[index].offset)
        guard let start = copy(view, continues: continues) else { return false }
        recordMove(pending[index], of: source, at: start)
      }
    }
    return true
  }

  /// Copies the records of a transaction. Returns false if one cannot be copied, as above. The caller holds
  /// the engine's lock.
  mutating func copy(transaction views: [RecordView]) -> Bool {
    (renumberedSegment, actors) = (nil, nil)
    for view in views { guard define(actorsOf: view) else { return false } }
    for (index, view) in views.enumerated() {
      guard copy(view, continues: index < views.count - 1) != nil else { return false }
    }
    return true
  }

  /// Copies a simple record byte by byte, except for the fields that depend on its location. Returns false if
  /// that is impossible.
  private mutating func copyPlain(
    _ record: CompactedRecord, of source: CompactionSource, continues: Bool
  ) -> Bool {
    guard let (plain, actor, base) = plain(record, of: source) else { return false }
    let position =
      source.segment.header.basePosition + plain.bytes.recordPosition()
    guard let here = relative(position) else { return false }
    let start = count
    let length = plain.bytes.count
    let end = start + RecordLayout.aligned(length)
    let copy = target.extracting(start..<end)
    copy.store(plain.bytes)
    var flags = plain.flags
    if continues { flags.insert(.continues) } else { flags.remove(.continues) }
    copy.store(flags.rawValue, at: RecordLayout.flags)
    copy.store(UInt32(0), at: RecordLayout.durable)
    copy.store(actor, at: RecordLayout.actor)
    if let base { copy.store(base, at: RecordLayout.fixedLength) }
    copy.store(here, at: RecordLayout.position)
    count = end
    copy.close(length: length, seed: seed(at: start))
    recordMove(record, of: source, at: start)
    return true
  }

  /// The record, and the numbers here of its author and its base's; nil if it is no simple record, or the
  /// numbers are not assigned yet.
  @inline(__always)
  private func plain(
    _ record: CompactedRecord, of source: CompactionSource
  ) -> (SimpleRecord, actor: UInt16, base: UInt16?)? {
    guard cipher == nil, source.segment.cipher == nil,
      let plain = SimpleRecord(
        MappedBytes(source.segment.mapping).extracting(record.offset..<source.end), seed: nil),
      let actor = number(of: plain.actorNumber)
    else { return nil }
    guard plain.flags.contains(.base) else { return (plain, actor, nil) }
    return number(of: plain.bytes.recordDot(at: RecordLayout.fixedLength).actor).map { (plain, actor, $0) }
  }

  /// The number here of the actor with this number in the segment that is copied; nil if not assigned yet.
  private func number(of number: UInt16) -> UInt16? {
    Int(number) < renumbered.count ? renumbered[Int(number)] : nil
  }

  private mutating func recordMove(_ record: CompactedRecord, of source: CompactionSource, at start: Int) {
    let offset = SegmentHeader.length + start
    switch record.liveness {
    case .indexed(let hash):
      moves.append(
        SegmentInstall.Move(
          hash: hash, from: source.ref(at: record.offset), to: UInt32(offset), extent: UInt32(count - start)
        ))
    case .byLocation: others.append(offset)
    }
  }

  /// A position relative to this segment; nil if it is before its records or out of range.
  @inline(__always)
  private func relative(_ position: UInt64) -> UInt32? {
    position < header.basePosition ? nil : UInt32(exactly: position - header.basePosition)
  }

  /// Copies a record and returns where it begins; nil if its position is out of range.
  private mutating func copy(_ view: RecordView, continues: Bool) -> Int? {
    guard let position = givesPositions ? relative(view.position) : 0 else { return nil }
    record.removeAll(keepingCapacity: true)
    view.bytes.append(view.start..<(view.start + view.length), to: &record)
    var flags = view.flags
    if continues { flags.insert(.continues) } else { flags.remove(.continues) }
    record[RecordLayout.flags] = flags.rawValue
    put(UInt32(0), at: RecordLayout.durable)
    put(position, at: RecordLayout.position)
    if view.namesActor, let shape = view.shape {
      renumber(view, at: RecordLayout.actor)
      if let base = shape.base { renumber(view, at: base - view.start) }
      for index in 0..<shape.openCount {
        renumber(view, at: shape.open - view.start + index * RecordLayout.dotLength)
      }
    }
    return append()
  }

  private mutating func renumber(_ view: RecordView, at field: Int) {
    guard let actor = actor(of: view, at: field), let number = numbers[actor] else { return }
    put(number, at: field)
  }

  /// The actor whose number is in `field` of a record; nil if its definition was lost.
  private func actor(of view: RecordView, at field: Int) -> ActorID? {
    guard let actors else { return view.actor(at: field) }
    let number = Int(view.number(at: field))
    return number < actors.count ? actors[number] : nil
  }

  private mutating func define(actorsOf view: RecordView) -> Bool {
    guard view.namesActor else { return true }
    guard let shape = view.shape else { return false }
    let fields =
      [RecordLayout.actor] + (shape.base.map { [$0 - view.start] } ?? [])
      + (0..<shape.openCount).map { shape.open - view.start + $0 * RecordLayout.dotLength }
    for field in fields {
      guard let actor = actor(of: view, at: field) else { return false }
      let here: UInt16
      if let number = numbers[actor] {
        here = number
      } else {
        guard numbers.count < Int(UInt16.max) else { return false }
        here = UInt16(numbers.count)
        numbers[actor] = here
        for _ in 0..<2 { define(actor, as: here, position: view.position) }
      }
      let there = Int(view.number(at: field))
      if renumberedSegment == view.segment.number, there < renumbered.count { renumbered[there] = here }
    }
    return true
  }

  private mutating func define(_ actor: ActorID, as number: UInt16, position: UInt64) {
    record.removeAll(keepingCapacity: true)
    record.append(contentsOf: repeatElement(0, count: RecordLayout.actorDefinitionLength))
    record[RecordLayout.kind] = RecordLayout.Kind.actor.rawValue
    put(number, at: RecordLayout.actor)
    put(UInt16(actor.bytes.count), at: RecordLayout.keyLength)
    // As everywhere, it has the last position assigned: that of the record before.
    let before = position > header.basePosition ? relative(position - 1) ?? 0 : 0
    put(before, at: RecordLayout.position)
    record.replaceSubrange(RecordLayout.fixedLength..<record.count, with: actor.bytes)
    others.append(SegmentHeader.length + append())
  }

  /// Appends the record, encrypted if the segment is. Returns where it begins.
  private mutating func append() -> Int {
    put(UInt32(record.count), at: RecordLayout.length)
    var length = record.count
    if let cipher {
      let sealer = epochKey ?? beginEncryption(cipher)
      let plain = SegmentCipher.room(record.count)
      plain.store(record, at: 0)
      length = cipher.encrypt(
        plain, length: record.count, place: end, writer: sealer, into: memory, at: count)
    } else {
      memory.store(record, at: count)
    }
    let start = count
    count += RecordLayout.aligned(length)
    target.extracting(start..<count).close(length: length, seed: seed(at: start))
    return start
  }

  /// The checksum seed of the record that begins at `start`.
  private func seed(at start: Int) -> UInt64 { header.salt &+ UInt64(SegmentHeader.length + start) }

  private mutating func beginEncryption(_ cipher: SegmentCipher) -> SegmentCipher.EpochKey {
    let room = SegmentCipher.room(EncryptedRecordLayout.definitions)
    let writer = cipher.define(at: end, in: room, from: end, durable: 0, position: 0)
    memory.store(0..<EncryptedRecordLayout.definitions, of: room, at: count)
    count += EncryptedRecordLayout.definitions
    epochKey = writer
    return writer
  }

  private mutating func put<Integer: FixedWidthInteger>(_ value: Integer, at offset: Int) {
    for place in 0..<(Integer.bitWidth / 8) {
      record[offset + place] = UInt8(truncatingIfNeeded: value >> Integer(place * 8))
    }
  }
}

/// A segment that is compacted, with its slot in the index.
struct CompactionSource: Sendable {
  let segment: Segment
  let slot: Int
  let end: Int
  /// Its actors by number when this was made: the engine may replay more definitions during the copy.
  let actors: [ActorID?]
  /// Damage whose records were received again from a peer, by its beginning: it is skipped.
  let resolved: [Int: Range<Int>]

  /// The record ref of the record at `offset`.
  func ref(at offset: Int) -> UInt64 { SegmentTable.ref(slot: slot, offset: offset) }
}

/// A live record to be copied.
struct CompactedRecord {
  /// Reason why it is live.
  enum Liveness {
    /// The index refers to it, for the key with this hash.
    case indexed(UInt64)
    /// It is known by its location.
    case byLocation
  }

  var offset: Int
  var liveness: Liveness
}
