/// Computes the contribution of simple records to the state digest directly from their bytes in the journal:
/// the result of `StateDigest.add`, without an array for each.
struct SimpleRecordDigest {
  /// Buffer for the canonical bytes of a record.
  private var room = Mapping.heap(4096)

  /// True if the record counts in the digest at any time: it has a value, a user's key and no deadline.
  @inline(__always)
  static func counts(_ record: SimpleRecord) -> Bool {
    !record.isTombstone && !record.flags.contains(.deadline) && record.key < record.value
      && record.bytes.load(record.key, as: UInt8.self) != ReservedKey.first
  }

  /// The digest part of a record that counts; `actor` wrote it.
  mutating func part(of record: SimpleRecord, by actor: ActorID) -> StateDigest {
    let bytes = record.bytes
    let dot = Dot(actor: actor, sequence: bytes.recordSequence())
    let stamp = bytes.recordStamp()
    return bytes.withSpan(record.key..<record.value) { key in
      bytes.withSpan(record.value..<bytes.count) { value in
        part(of: key, value: value, type: record.type, dot: dot, stamp: stamp)
      }
    }
  }

  /// The digest part of a value without a deadline. `schemas/wire.md` has the layout of the hashed bytes.
  mutating func part(
    of key: Span<UInt8>, value: Span<UInt8>, type: ValueType, dot: Dot, stamp: Stamp
  ) -> StateDigest {
    // The two counts and the sequence have thirty bytes at most, the other fields 34.
    let needed = key.count &+ value.count &+ 64
    if room.count < needed { room = Mapping.heap(2 &* needed) }
    let target = WritableBytes(room)
    var end = Self.store(key.count, at: 0, target)
    target.store(key, at: end)
    end &+= key.count
    target.store(dot.actor.high.bigEndian, at: end)
    target.store(dot.actor.low.bigEndian, at: end &+ 8)
    end = Self.store(dot.sequence, at: end &+ 16, target)
    target.store(stamp.rawValue, at: end)
    target.store(type.rawValue, at: end &+ 8)
    target.store(0 as UInt64, at: end &+ 9)
    target.store(1 as UInt8, at: end &+ 17)
    end = Self.store(value.count, at: end &+ 18, target)
    target.store(value, at: end)
    end &+= value.count
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
