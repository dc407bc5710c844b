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

extension Engine {
  /// How many records are fetched before the first of them is looked at.
  private static let fetchedAhead = 24

  /// The part of the digest that does not depend on the time, and the keys whose part does, from all keys.
  func computeDigest(isExclusive: Bool) throws(StoreError) -> (digest: StateDigest, expiring: Set<[UInt8]>) {
    let places = try places(isExclusive: isExclusive)
    // Where pages cannot be had, each record is looked at closely.
    if parked.isEmpty, let found = try computeQuickly(places),
      !journal.segments.contains(where: { $0.mapping.fault != nil })
    {
      return found
    }
    var digest = StateDigest()
    var expiring: Set<[UInt8]> = []
    for place in places {
      let record = try record(atPlace: place)
      if parked[record.key] == nil { Self.take(record, &digest, &expiring) }
    }
    for key in parked.keys { if let record = greatest(key) { Self.take(record, &digest, &expiring) } }
    return (digest, expiring)
  }

  private func computeQuickly(
    _ places: [UInt64]
  ) throws(StoreError) -> (digest: StateDigest, expiring: Set<[UInt8]>)? {
    var digest = StateDigest()
    var expiring: Set<[UInt8]> = []
    let segments = IndexedSegments(journal.table)
    var hasher = PlainDigest()
    for index in places.indices {
      if index + Self.fetchedAhead < places.count {
        segments.prefetch(atPlace: places[index + Self.fetchedAhead])
      }
      let place = places[index]
      guard let plain = segments.record(atPlace: place), plain.isWhole, !plain.flags.contains(.deadline),
        let actor = journal.table.segment(ofPlace: place)?.actor(numbered: plain.actorNumber)
      else {
        Self.take(try record(atPlace: place), &digest, &expiring)
        continue
      }
      if PlainDigest.counts(plain) { digest.add(hasher.part(of: plain, by: actor)) }
    }
    return (digest, expiring)
  }

  private func record(atPlace place: UInt64) throws(StoreError) -> Record {
    guard let segment = journal.table.segment(ofPlace: place) else {
      throw StoreError(.damaged, "names a segment that is not there: it is to be built anew")
    }
    return try record(
      at: Location(segment: segment.number, offset: SegmentTable.offset(ofPlace: place)))
  }

  private static func take(_ record: Record, _ digest: inout StateDigest, _ expiring: inout Set<[UInt8]>) {
    if counts(record) { digest.add(record) }
    if record.deadline != nil { expiring.insert(record.key) }
  }
}
