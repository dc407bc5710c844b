/// The records of one compacted segment, put together one after the other: copies of those that count, at the positions
/// they had, with checksums, actors' numbers and transaction boundaries of their new place.
struct CompactedBytes {
  let header: SegmentHeader
  /// What follows the header's page.
  private(set) var bytes: [UInt8] = []
  private var numbers: [ActorID: UInt16] = [:]
  /// Records of the transaction under way.
  private var open: [RecordView] = []

  /// For a segment with this header, of which size and length are not known yet.
  init(_ header: SegmentHeader) { self.header = header }

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
    let start = bytes.count
    let length = view.length
    view.segment.mapping.append(view.offset..<(view.offset + length), to: &bytes)
    bytes.append(contentsOf: repeatElement(0, count: RecordLayout.aligned(length) - length))
    var flags = view.flags
    if continues { flags.insert(.continues) } else { flags.remove(.continues) }
    bytes[start + RecordLayout.flags] = flags.rawValue
    put(UInt32(0), at: start + RecordLayout.durable)
    put(UInt32(view.position - header.basePosition), at: start + RecordLayout.position)
    if view.isOfActor, let shape = view.shape {
      renumber(view, at: RecordLayout.actor, from: start)
      if let base = shape.base { renumber(view, at: base - view.offset, from: start) }
      for index in 0..<shape.openCount {
        renumber(view, at: shape.open - view.offset + index * RecordLayout.dotLength, from: start)
      }
    }
    seal(start, length)
  }

  private mutating func renumber(_ view: RecordView, at field: Int, from start: Int) {
    guard let actor = view.actor(at: field), let number = numbers[actor] else { return }
    put(number, at: start + field)
  }

  private mutating func define(actorsOf view: RecordView) -> Bool {
    guard view.isOfActor else { return true }
    guard let shape = view.shape, let author = view.actor(at: RecordLayout.actor) else { return false }
    var actors = [author]
    for field in [shape.base].compactMap({ $0 })
      + (0..<shape.openCount).map({ shape.open + $0 * RecordLayout.dotLength })
    {
      guard let actor = view.actor(at: field - view.offset) else { return false }
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
    let start = bytes.count
    bytes.append(contentsOf: repeatElement(0, count: RecordLayout.actorDefinitionLength))
    put(UInt32(RecordLayout.actorDefinitionLength), at: start + RecordLayout.length)
    bytes[start + RecordLayout.kind] = RecordLayout.Kind.actor.rawValue
    put(number, at: start + RecordLayout.actor)
    put(UInt16(actor.bytes.count), at: start + RecordLayout.keyLength)
    // As everywhere, it bears the last position given: that of the record before.
    let before = position > header.basePosition ? position - 1 - header.basePosition : 0
    put(UInt32(before), at: start + RecordLayout.position)
    bytes.replaceSubrange((start + RecordLayout.fixedLength)..<bytes.count, with: actor.bytes)
    seal(start, RecordLayout.actorDefinitionLength)
  }

  private mutating func seal(_ start: Int, _ length: Int) {
    let seed = header.salt &+ UInt64(SegmentHeader.length + start)
    let hash = XXH3.hash64(bytes, in: (start + RecordLayout.length)..<(start + length), seed: seed)
    put(UInt32(truncatingIfNeeded: hash), at: start + RecordLayout.checksum)
  }

  private mutating func put<Integer: FixedWidthInteger>(_ value: Integer, at offset: Int) {
    for place in 0..<(Integer.bitWidth / 8) {
      bytes[offset + place] = UInt8(truncatingIfNeeded: value >> Integer(place * 8))
    }
  }
}
