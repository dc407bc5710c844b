/// A batch checked for bulk insert, and where it was stored.
struct PreparedBulkInsert {
  let batch: CompactBatch
  /// Hashes of the keys, in the index that was checked.
  fileprivate let hashes: [UInt64]
  fileprivate let keys: HashIndex
  /// Offset of the first record in the active segment, and end of each; the next record begins there.
  private(set) var start = 0
  private(set) var ends: [Int] = []

  fileprivate init(_ batch: CompactBatch, hashes: [UInt64], keys: HashIndex) {
    (self.batch, self.hashes, self.keys) = (batch, hashes, keys)
  }

  /// Length of all records in the segment.
  var bytes: Int { (ends.last ?? start) - start }

  /// Records where the batch was stored.
  mutating func stored(from start: Int, to ends: [Int]) { (self.start, self.ends) = (start, ends) }
}

extension Engine {
  /// Index lookups in flight, so that their cache misses overlap.
  private static let lookahead = 16

  /// Prepares a bulk insert; nil if any record of the batch needs the general path. Each must be new to this
  /// copy, of a user's key that is neither held nor parked, with a stamp that is not ahead of the clock
  /// (above `limit`) and above the purge horizon.
  ///
  /// Only for the holder of the writers' mutex, with everything committed indexed.
  mutating func prepareBulkInsert(of batch: CompactBatch, limit: Stamp) -> PreparedBulkInsert? {
    guard state.scope == nil, damage.gaps.isEmpty, parked.isEmpty, !indexIsInvalid, !batch.entries.isEmpty
    else {
      return nil
    }
    let vector = state.vector
    let covered = batch.actors.map { vector[$0] }
    guard !batch.actors.contains(where: { state.isMine(Dot(actor: $0, sequence: 1)) }) else { return nil }
    let keys = index.hashIndex
    let bytes = batch.bytes.span
    let hashes = batch.entries.map { keys.hash(bytes.extracting($0.key)) }
    for hash in hashes.prefix(Self.lookahead) { keys.prefetch(hash) }
    var seen = HashSet(count: hashes.count)
    for (place, entry) in batch.entries.enumerated() {
      if place + Self.lookahead < hashes.count { keys.prefetch(hashes[place + Self.lookahead]) }
      guard entry.sequence > covered[entry.author], entry.stamp > state.purged.horizon, entry.stamp <= limit,
        !batch.isReserved(entry), seen.insert(hashes[place]), let mayBeHeld = try? keys.has(hashes[place])
      else { return nil }
      // One in thousands collides with the hash of another key: compare the keys.
      if mayBeHeld, search(bytes.extracting(entry.key)).found != nil { return nil }
    }
    return indexIsInvalid ? nil : PreparedBulkInsert(batch, hashes: hashes, keys: keys)
  }

  /// Indexes the records of a batch stored in this segment without reading them again. Returns the end of
  /// the indexed records.
  mutating func indexBulkInsert(_ intake: PreparedBulkInsert, in segment: Segment) -> Int {
    // Another index uses other hashes.
    guard intake.keys === index.hashIndex, index.failure == nil, parked.isEmpty, let slot = segment.slot,
      let end = intake.ends.last
    else { return intake.start }
    let (batch, keys) = (intake.batch, intake.keys)
    let bytes = batch.bytes.span
    var digest = index.checkpoint.keepsDigest ? StateDigest() : nil
    var hasher = SimpleRecordDigest()
    var offset = intake.start
    do throws(StoreError) {
      for (place, entry) in batch.entries.enumerated() {
        if place + Self.lookahead < intake.hashes.count {
          keys.prefetch(intake.hashes[place + Self.lookahead])
        }
        try keys.insert(intake.hashes[place], SegmentTable.ref(slot: slot, offset: offset))
        if !entry.isTombstone {
          digest?.add(
            hasher.part(
              of: bytes.extracting(entry.key), value: bytes.extracting(entry.value), type: entry.type,
              dot: Dot(actor: batch.actors[entry.author], sequence: entry.sequence), stamp: entry.stamp))
        }
        offset = intake.ends[place]
      }
    } catch {
      // The index will be rebuilt from the journal.
      index.failure = error
    }
    if let digest { index.checkpoint.changeDigest { $0.add(digest) } }
    segment.liveBytes += end - intake.start
    lastRef = SegmentTable.ref(slot: slot, offset: intake.ends.dropLast().last ?? intake.start)
    position += UInt64(batch.entries.count)
    // Even if indexing failed, the next write here must be stamped above these records.
    state.author.clock.observe(batch.entries.reduce(.zero) { max($0, $1.stamp) })
    return end
  }
}

/// A set of hashes, of at most the announced number.
private struct HashSet {
  private var slots: [UInt64]

  init(count: Int) {
    // At most half of the slots are taken.
    slots = Array(repeating: 0, count: 1 << (Int.bitWidth - (2 * count).leadingZeroBitCount))
  }

  /// False if the hash, or one that cannot be told from it, is already in the set.
  @inline(__always)
  mutating func insert(_ hash: UInt64) -> Bool {
    // Zero marks a free slot.
    let hash = hash | 1
    var slot = Int(truncatingIfNeeded: hash >> 8) & (slots.count - 1)
    while slots[slot] != 0 {
      if slots[slot] == hash { return false }
      slot = (slot + 1) & (slots.count - 1)
    }
    slots[slot] = hash
    return true
  }
}
