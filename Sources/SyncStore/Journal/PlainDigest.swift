/// Computes what plain records add to the state digest from their bytes in the journal: what `StateDigest.add` does, without
/// an array for each.
struct PlainDigest {
  /// Where the canonical bytes of a record are put together.
  private var room = Mapping.heap(4096)

  /// Does the record count in the digest whatever the time is? It has a value, a user's key, and no deadline.
  @inline(__always)
  static func counts(_ record: PlainRecord) -> Bool {
    !record.isTombstone && !record.flags.contains(.deadline) && record.key < record.value
      && record.bytes.load(record.key, as: UInt8.self) != ReservedKey.first
  }

  /// The part of one that counts; `actor` wrote it. `schemas/wire.md` has the layout of what is hashed.
  mutating func part(of record: PlainRecord, by actor: ActorID) -> StateDigest {
    let length = record.bytes.count
    // The two counts and the sequence have ten bytes at most, the other fields 34.
    if room.count < length &+ 64 { room = Mapping.heap(2 &* (length &+ 64)) }
    let target = WritableBytes(room)
    var end = Self.store(record.value &- record.key, at: 0, target)
    record.bytes.withSpan(record.key..<record.value) { target.store($0, at: end) }
    end &+= record.value &- record.key
    target.store(actor.high.bigEndian, at: end)
    target.store(actor.low.bigEndian, at: end &+ 8)
    end = Self.store(record.bytes.load(RecordLayout.sequence, as: UInt64.self), at: end &+ 16, target)
    target.store(record.bytes.load(RecordLayout.stamp, as: UInt64.self), at: end)
    target.store(record.type.rawValue, at: end &+ 8)
    target.store(0 as UInt64, at: end &+ 9)
    target.store(1 as UInt8, at: end &+ 17)
    end = Self.store(length &- record.value, at: end &+ 18, target)
    record.bytes.withSpan(record.value..<length) { target.store($0, at: end) }
    end &+= length &- record.value
    let hash = target.withBytes(0..<end) { XXH3.hash128($0) }
    return StateDigest(high: hash.high, low: hash.low)
  }

  /// Stores an integer in LEB128. Returns where it ends.
  @inline(__always)
  private static func store(_ value: some FixedWidthInteger, at offset: Int, _ target: WritableBytes) -> Int {
    var (rest, end) = (UInt64(truncatingIfNeeded: value), offset)
    while rest >= 0x80 {
      target.store(UInt8(truncatingIfNeeded: rest) | 0x80, at: end)
      (rest, end) = (rest >> 7, end &+ 1)
    }
    target.store(UInt8(truncatingIfNeeded: rest), at: end)
    return end &+ 1
  }
}
