/// State digest and parked records: what depends on the time.
extension Engine {
  /// Updates the running digest after a change of a key whose greatest record was `before`.
  func updateDigest(of key: [UInt8], from before: Record?) {
    if index.checkpoint.keepsDigest { updateDigest(from: before, to: greatest(key)) }
  }

  /// Updates the running digest when the greatest record changes from `before` to `after`.
  func updateDigest(from before: Record?, to after: Record?) {
    guard before != after else { return }
    index.checkpoint.changeDigest { digest in
      if let before, Self.countsInDigest(before) { digest.remove(before) }
      if let after, Self.countsInDigest(after) { digest.add(after) }
    }
  }

  /// Whether a record is part of the running digest. Records with a deadline are not: they are added for a
  /// given time.
  static func countsInDigest(_ record: Record) -> Bool {
    !record.isReserved && !record.isTombstone && record.deadline == nil
  }

  /// The digest of the live records at `time`, in milliseconds since 1970.
  ///
  /// Computed from all keys at the first call, which also returns the live records; after that it is
  /// maintained incrementally if `keeps`, for the holder of the writers' mutex or of an index of its own.
  mutating func digest(
    at time: UInt64, keeps: Bool
  ) throws(StoreError) -> (digest: StateDigest, current: LiveRecordBitmap?) {
    var digest: StateDigest
    var current: LiveRecordBitmap?
    let mayExpire = try index.checkpoint.flags.contains(.deadlines)
    if let known = index.checkpoint.digest(at: applied.packed), expiring != nil || !mayExpire {
      digest = known
    } else {
      (digest, expiring, current) = try computeDigest(isExclusive: keeps)
      if keeps { index.checkpoint.setDigest(digest, at: applied.packed) }
    }
    for key in expiring ?? [] {
      guard let record = greatest(key), let deadline = record.deadline else {
        expiring?.remove(key)
        continue
      }
      if deadline > time, !record.isTombstone, !record.isReserved { digest.add(record) }
    }
    return (digest, current)
  }

  /// The running digest; nil if it is not maintained.
  var runningDigest: StateDigest? { index.checkpoint.digest(at: applied.packed) }

  /// Computes the time-independent part of the digest, and the keys with a deadline, from all keys.
  func computeDigest(
    isExclusive: Bool
  ) throws(StoreError) -> (digest: StateDigest, expiring: Set<[UInt8]>, current: LiveRecordBitmap?) {
    // After a page fault, fall back to reading each record separately.
    if parked.isEmpty, let current = try liveRecordBitmap(isExclusive: isExclusive),
      case let found = try computeDigestInParallel(current),
      !journal.segments.contains(where: { $0.mapping.fault != nil })
    {
      return (found.digest, found.expiring, current)
    }
    var digest = StateDigest()
    var expiring: Set<[UInt8]> = []
    for location in try locations(isExclusive: isExclusive) {
      let record = try record(at: location)
      if parked[record.key] == nil { Self.addToDigest(record, digest: &digest, expiring: &expiring) }
    }
    for key in parked.keys {
      if let record = greatest(key) { Self.addToDigest(record, digest: &digest, expiring: &expiring) }
    }
    return (digest, expiring, nil)
  }

  private func computeDigestInParallel(
    _ current: LiveRecordBitmap
  ) throws(StoreError) -> (digest: StateDigest, expiring: Set<[UInt8]>) {
    let segments = SlotSegments(journal.table)
    let actors = journal.table.bySlot([]) { $0.actors.all }
    let shares = current.shares(current.count < Self.parallelThreshold ? 1 : Background.processors)
    let found = Locked((digest: StateDigest(), unsure: [UInt64]()))
    Background.concurrentPerform(shares.count) { share in
      let part = Self.digest(of: current, share: shares[share], segments: segments, actors: actors)
      found.withLock { found in
        found.digest.add(part.digest)
        found.unsure += part.unsure
      }
    }
    var (digest, unsure) = found.withLock { $0 }
    var expiring: Set<[UInt8]> = []
    for place in unsure { Self.addToDigest(try record(atRef: place), digest: &digest, expiring: &expiring) }
    return (digest, expiring)
  }

  /// Below this number of records one thread does it all.
  static let parallelThreshold = 1 << 14

  /// Digest of the simple records in a share of the bitmap, and the refs of the records that must be decoded.
  /// `actors` has the definitions of each segment.
  private static func digest(
    of current: LiveRecordBitmap, share: Range<Int>, segments: SlotSegments, actors: [[ActorID?]]
  ) -> (digest: StateDigest, unsure: [UInt64]) {
    var digest = StateDigest()
    var unsure: [UInt64] = []
    var hasher = SimpleRecordDigest()
    current.forEach(in: share) { place in
      guard let plain = segments.record(atRef: place), plain.isWhole, !plain.flags.contains(.deadline),
        case let defined = actors[SegmentTable.slot(ofRef: place)],
        Int(plain.actorNumber) < defined.count, let actor = defined[Int(plain.actorNumber)]
      else { return unsure.append(place) }
      if SimpleRecordDigest.counts(plain) { digest.add(hasher.part(of: plain, by: actor)) }
    }
    return (digest, unsure)
  }

  private func record(atRef place: UInt64) throws(StoreError) -> Record {
    guard let segment = journal.table.segment(ofRef: place) else {
      throw indexMismatchError()
    }
    return try record(
      at: Location(segment: segment.number, offset: SegmentTable.offset(ofRef: place)))
  }

  private static func addToDigest(_ record: Record, digest: inout StateDigest, expiring: inout Set<[UInt8]>) {
    if countsInDigest(record) { digest.add(record) }
    if record.deadline != nil { expiring.insert(record.key) }
  }

  // MARK: Parked records

  /// Parked records that are due by `limit`, in the order of their versions.
  func dueParked(upTo limit: Stamp) -> [Location] { parkedRecords { $0.stamp <= limit } }

  /// Parked records whose version satisfies `isMeant`, in the order of their versions.
  func parkedRecords(where isMeant: (Version) -> Bool) -> [Location] {
    var found: [(Version, Location)] = []
    for location in parked.locations {
      guard let version = try? journal.record(at: location).version, isMeant(version) else { continue }
      found.append((version, location))
    }
    return found.sorted { $0.0 < $1.0 }.map(\.1)
  }

  /// Due parked records grouped by key; keys in the order of their least versions.
  func dueParkedByKey(upTo limit: Stamp) -> [[Location]] {
    let due = dueParked(upTo: limit)
    guard !due.isEmpty else { return [] }
    let ranks = Dictionary(uniqueKeysWithValues: zip(due, due.indices))
    return parked.groups.map { $0.compactMap { ranks[$0] }.sorted() }.filter { !$0.isEmpty }
      .sorted { $0[0] < $1[0] }.map { $0.map { due[$0] } }
  }

  /// Applies a parked record. Only with the right to change the index.
  mutating func unpark(_ location: Location) throws(StoreError) {
    let view = try journal.record(at: location)
    guard let shape = view.shape, let version = view.version else { return }
    let key = view.key(shape)
    let before = index.checkpoint.keepsDigest ? greatest(key) : nil
    parked.remove([location], from: key)
    specialRecords.isStale = true
    state.observe(version, applied: true)
    sortedKeys.index = nil
    // Its bytes counted as live while it was parked.
    markDead(location)
    let search = search(key.span)
    if view.isReserved(shape), reserved.insert(key).inserted { try addSpecialRecord(view) }
    try upsertIfNewer(version, at: view, search)
    updateDigest(of: key, from: before)
    index.checkpoint.moveDigest(to: applied.packed)
    if parked.isEmpty { publish() }
  }
}
