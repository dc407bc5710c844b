/// Reads the records of a round from one segment, concurrently with writers and without reference counting:
/// the bytes of a record never change, and a segment replaced by compaction stays mapped as long as this
/// lives.
struct DeltaSegmentReader {
  /// Records handed to the writer in one call.
  static let recordsPerWrite = 64

  let segment: Segment
  private let bytes: MappedBytes
  /// The actors defined in the segment, and the index in `actors` of each actor number: -1 if its definition
  /// was lost.
  private let actors: [ActorID]
  private let actorIndexes: [Int]

  /// The segment must already hold all records of the round that are in it.
  init(_ segment: Segment) {
    self.segment = segment
    bytes = MappedBytes(segment.mapping)
    var (actors, places) = ([ActorID](), [Int]())
    for actor in segment.actors.all {
      places.append(actor == nil ? -1 : actors.count)
      if let actor { actors.append(actor) }
    }
    (self.actors, self.actorIndexes) = (actors, places)
  }

  /// Writes the leading items that lie in this segment and are simple records. Returns the index of the first
  /// other item, or the end.
  func write(
    _ items: ArraySlice<DeltaStream.Item>, into writer: inout some BatchWriter, users: inout Int
  ) throws(StoreError) -> Int {
    guard segment.cipher == nil else { return items.startIndex }
    let (number, salt, last) = (segment.number, segment.header.salt, items.endIndex - 1)
    var entries: [CompactBatch.Entry] = []
    entries.reserveCapacity(min(items.count, Self.recordsPerWrite))
    var next = items.startIndex
    while next <= last {
      let item = items[next]
      // In the journal the next record may not belong to the round: superseded, or local to this copy.
      let continues = next < last && items[next + 1].group == item.group
      guard item.location.segment == number,
        let entry = entry(of: item, salt: salt, continues: continues, users: &users)
      else { break }
      entries.append(entry)
      next += 1
      if entries.count == Self.recordsPerWrite { try flush(&entries, of: items[..<next], to: &writer) }
    }
    try flush(&entries, of: items[..<next], to: &writer)
    return next
  }

  /// Writes the collected entries, which are those of the last of these items.
  private func flush(
    _ entries: inout [CompactBatch.Entry], of items: ArraySlice<DeltaStream.Item>,
    to writer: inout some BatchWriter
  ) throws(StoreError) {
    guard !entries.isEmpty else { return }
    bytes.withSpan(0..<bytes.count) { writer.write(entries, of: actors, in: $0) }
    // A page that could not be read appeared as zeros: verify the records once more.
    for item in items.suffix(segment.mapping.fault == nil ? 0 : entries.count) {
      try segment.checkUnchanged(at: item.location.offset)
    }
    entries.removeAll(keepingCapacity: true)
  }

  /// The entry of a simple record; nil for any other kind, or if it cannot be read in place.
  @inline(__always)
  private func entry(
    of item: DeltaStream.Item, salt: UInt64, continues: Bool, users: inout Int
  ) -> CompactBatch.Entry? {
    let offset = item.location.offset
    guard offset < bytes.count,
      let record = SimpleRecord(
        bytes.extracting(offset..<bytes.count), seed: salt &+ UInt64(truncatingIfNeeded: offset)),
      record.isWhole, !record.flags.contains(.deadline), !record.flags.contains(.loser),
      record.key < record.value, let author = actorIndex(record.actorNumber)
    else { return nil }
    var entry = CompactBatch.Entry(
      position: item.position, stamp: record.bytes.recordStamp(),
      dot: CompactBatch.IndexedDot(author: author, sequence: record.bytes.recordSequence()),
      continues: continues, type: record.type, key: offset &+ record.key..<offset &+ record.value,
      value: record.isTombstone ? nil : offset &+ record.value..<offset &+ record.bytes.count)
    if record.flags.contains(.base) {
      let (number, sequence) = record.bytes.recordDot(at: RecordLayout.fixedLength)
      guard let base = actorIndex(number) else { return nil }
      entry.setBase(CompactBatch.IndexedDot(author: base, sequence: sequence))
    }
    if record.bytes.load(record.key, as: UInt8.self) != ReservedKey.first { users += 1 }
    return entry
  }

  @inline(__always)
  private func actorIndex(_ number: UInt16) -> Int? {
    guard Int(number) < actorIndexes.count, case let place = actorIndexes[Int(number)], place >= 0 else {
      return nil
    }
    return place
  }
}
