/// The records of one compacted segment, put together one after the other: copies of those that count, at the positions
/// they had, with checksums, actors' numbers and transaction boundaries of their new place, sealed under its own keys if
/// the store is encrypted.
struct CompactedBytes {
  let header: SegmentHeader
  /// What follows the header's page.
  private(set) var bytes: [UInt8] = []
  private var numbers: [ActorID: UInt16] = [:]
  /// Records of the transaction under way.
  private var open: [RecordView] = []
  /// One record, in its plain form.
  private var record: [UInt8] = []
  private let seal: SegmentSeal?
  private var sealer: SegmentSeal.Writer?

  /// False for what a backup keeps of a copy's state: it stands before all positions, whenever it was written.
  private let givesPositions: Bool

  /// For a segment with this header, of which size and length are not known yet.
  init(_ header: SegmentHeader, seal: SegmentSeal?, givesPositions: Bool = true) {
    (self.header, self.seal, self.givesPositions) = (header, seal, givesPositions)
  }

  /// Where the records end.
  var end: Int { SegmentHeader.length + bytes.count }

  /// Takes a record whose checksum holds.
  mutating func keep(_ view: RecordView) { open.append(view) }

  /// The transaction under way is complete. False if a record of it cannot be copied: more actors than a segment can
  /// number, or an author that is not known any more.
  mutating func endTransaction() -> Bool {
    defer { open = [] }
    for view in open { guard define(actorsOf: view) else { return false } }
    for (index, view) in open.enumerated() { copy(view, continues: index < open.count - 1) }
    return true
  }

  private mutating func copy(_ view: RecordView, continues: Bool) {
    record.removeAll(keepingCapacity: true)
    view.bytes.append(view.start..<(view.start + view.length), to: &record)
    var flags = view.flags
    if continues { flags.insert(.continues) } else { flags.remove(.continues) }
    record[RecordLayout.flags] = flags.rawValue
    put(UInt32(0), at: RecordLayout.durable)
    let position = givesPositions ? view.position : header.basePosition
    put(UInt32(position - header.basePosition), at: RecordLayout.position)
    if view.isOfActor, let shape = view.shape {
      renumber(view, at: RecordLayout.actor)
      if let base = shape.base { renumber(view, at: base - view.start) }
      for index in 0..<shape.openCount {
        renumber(view, at: shape.open - view.start + index * RecordLayout.dotLength)
      }
    }
    append()
  }

  private mutating func renumber(_ view: RecordView, at field: Int) {
    guard let actor = view.actor(at: field), let number = numbers[actor] else { return }
    put(number, at: field)
  }

  private mutating func define(actorsOf view: RecordView) -> Bool {
    guard view.isOfActor else { return true }
    guard let shape = view.shape, let author = view.actor(at: RecordLayout.actor) else { return false }
    var actors = [author]
    for field in [shape.base].compactMap({ $0 })
      + (0..<shape.openCount).map({ shape.open + $0 * RecordLayout.dotLength })
    {
      guard let actor = view.actor(at: field - view.start) else { return false }
      actors.append(actor)
    }
    for actor in actors where numbers[actor] == nil {
      guard numbers.count < Int(UInt16.max) else { return false }
      let number = UInt16(numbers.count)
      numbers[actor] = number
      for _ in 0..<2 { define(actor, as: number, position: view.position) }
    }
    return true
  }

  private mutating func define(_ actor: ActorID, as number: UInt16, position: UInt64) {
    record.removeAll(keepingCapacity: true)
    record.append(contentsOf: repeatElement(0, count: RecordLayout.actorDefinitionLength))
    record[RecordLayout.kind] = RecordLayout.Kind.actor.rawValue
    put(number, at: RecordLayout.actor)
    put(UInt16(actor.bytes.count), at: RecordLayout.keyLength)
    // As everywhere, it bears the last position given: that of the record before.
    let before = position > header.basePosition ? position - 1 - header.basePosition : 0
    put(UInt32(before), at: RecordLayout.position)
    record.replaceSubrange(RecordLayout.fixedLength..<record.count, with: actor.bytes)
    append()
  }

  /// Appends the record: as it is, or sealed.
  private mutating func append() {
    put(UInt32(record.count), at: RecordLayout.length)
    var start = bytes.count
    if let seal {
      let sealer = sealer ?? beginSealing(seal)
      start = bytes.count
      let plain = SegmentSeal.room(record.count)
      plain.store(record, at: 0)
      let target = SegmentSeal.room(record.count + SealedLayout.overhead)
      let length = seal.seal(
        plain, length: record.count, place: SegmentHeader.length + start, writer: sealer, into: target, at: 0)
      target.append(0..<length, to: &bytes)
    } else {
      bytes.append(contentsOf: record)
    }
    let end = bytes.count
    bytes.append(contentsOf: repeatElement(0, count: RecordLayout.aligned(end - start) - (end - start)))
    let seed = header.salt &+ UInt64(SegmentHeader.length + start)
    let hash = XXH3.hash64(bytes, in: (start + RecordLayout.length)..<end, seed: seed)
    for byte in 0..<4 {
      bytes[start + RecordLayout.checksum + byte] = UInt8(truncatingIfNeeded: hash >> UInt64(byte * 8))
    }
  }

  private mutating func beginSealing(_ seal: SegmentSeal) -> SegmentSeal.Writer {
    let room = SegmentSeal.room(SealedLayout.definitions)
    let writer = seal.define(at: end, in: room, from: end, durable: 0, position: 0)
    room.append(0..<SealedLayout.definitions, to: &bytes)
    sealer = writer
    return writer
  }

  private mutating func put<Integer: FixedWidthInteger>(_ value: Integer, at offset: Int) {
    for place in 0..<(Integer.bitWidth / 8) {
      record[offset + place] = UInt8(truncatingIfNeeded: value >> Integer(place * 8))
    }
  }
}
