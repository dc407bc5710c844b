/// The short way of batches: records of the ordinary form, each the first of its key here, as a first copy brings them. What the rules
/// make of them (`TransactionBuilder.receive`) is known beforehand: each one wins, against nothing. So they go from where they came into the
/// journal without becoming objects in between; a batch with one that is not so goes the general way as a whole.
extension Store {
  /// Appends the records of a batch, and what `conclude` adds. Nil if it has to go the general way; nothing was done then.
  func bulkInsert(
    _ batch: CompactBatch, _ conclude: (inout TransactionBuilder) throws(StoreError) -> Void
  ) throws(StoreError) -> (echo: (behind: UInt64, upTo: UInt64), tail: UInt64)? {
    try checkWritable()
    throttleWriter()
    try lockWriters()
    defer { control.unlock() }
    var composer = newTransactionBuilder(limit: Limits.transactionBytes)
    var extent = AppendExtent()
    extent.add(batch)
    guard extent.bytes <= 2 * Limits.batchBytes,
      let intake = engine.withLock({ $0.prepareBulkInsert(of: batch, limit: composer.stampLimit) })
    else { return nil }
    try conclude(&composer)
    for entry in composer.entries { extent.add(entry) }
    return try engine.withLock { engine throws(StoreError) in
      let position = engine.position
      try commit(composer.entries, extent: extent, behind: intake, wall: composer.wall, &engine)
      return ((position, engine.position), control.tail)
    }
  }
}

/// A batch of which each record is taken in as it is, on its way through the journal into the index.
struct PreparedBulkInsert {
  let batch: CompactBatch
  /// Those of the keys, in the index that was asked.
  fileprivate let hashes: [UInt64]
  fileprivate let keys: HashIndex
  /// Where the first record was stored in the segment at the tail, and where each ends: the next one begins there.
  private(set) var start = 0
  private(set) var ends: [Int] = []

  fileprivate init(_ batch: CompactBatch, hashes: [UInt64], keys: HashIndex) {
    (self.batch, self.hashes, self.keys) = (batch, hashes, keys)
  }

  /// Bytes that they take up there.
  var bytes: Int { (ends.last ?? start) - start }

  /// It was stored.
  mutating func stored(from start: Int, to ends: [Int]) { (self.start, self.ends) = (start, ends) }
}

extension Engine {
  /// How many look-ups are under way at once: their cache misses overlap.
  private static let lookahead = 16

  /// The batch, if each of its records is one that is taken in as it is, whatever the others are: news to this copy, of a user's key of
  /// which nothing is held or waits, with a stamp that is neither ahead of the clock (above `limit`) nor as old as what was purged. Only
  /// for the holder of the writers' mutex, whose index has all that was committed.
  mutating func prepareBulkInsert(of batch: CompactBatch, limit: Stamp) -> PreparedBulkInsert? {
    guard state.scope == nil, gaps.isEmpty, parked.isEmpty, !indexIsInvalid, !batch.entries.isEmpty else {
      return nil
    }
    let vector = state.vector
    let covered = batch.actors.map { vector[$0] }
    guard !batch.actors.contains(where: { state.isMine(Dot(actor: $0, sequence: 1)) }) else { return nil }
    let keys = index.hashIndex
    let bytes = batch.bytes.span
    let hashes = batch.entries.map { keys.hash(bytes.extracting($0.key)) }
    for hash in hashes.prefix(Self.lookahead) { keys.prefetch(hash) }
    var met = HashSet(count: hashes.count)
    for (place, entry) in batch.entries.enumerated() {
      if place + Self.lookahead < hashes.count { keys.prefetch(hashes[place + Self.lookahead]) }
      guard entry.sequence > covered[entry.author], entry.stamp > state.horizon, entry.stamp <= limit,
        !batch.isReserved(entry), met.insert(hashes[place]), let mayBeHeld = try? keys.has(hashes[place])
      else { return nil }
      // Among thousands there is one whose hash meets another's where the index looks.
      if mayBeHeld, search(bytes.extracting(entry.key)).found != nil { return nil }
    }
    return indexIsInvalid ? nil : PreparedBulkInsert(batch, hashes: hashes, keys: keys)
  }

  /// Takes in the records of a batch that were stored in this segment: what is known of them need not be read there again. Returns up to
  /// where that was done.
  mutating func indexBulkInsert(_ intake: PreparedBulkInsert, in segment: Segment) -> Int {
    // Another index has other hashes.
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
      // There will be another index, of all that stands in the journal.
      index.failure = error
    }
    if let digest { index.checkpoint.changeDigest { $0.add(digest) } }
    segment.liveBytes += end - intake.start
    lastRef = SegmentTable.ref(slot: slot, offset: intake.ends.dropLast().last ?? intake.start)
    position += UInt64(batch.entries.count)
    // Whatever became of the index: what is written here next is stamped above them.
    state.author.clock.observe(batch.entries.reduce(.zero) { max($0, $1.stamp) })
    return end
  }
}

/// Which hashes were met: as many as were announced at most.
private struct HashSet {
  private var slots: [UInt64]

  init(count: Int) {
    // At most half of them are taken.
    slots = Array(repeating: 0, count: 1 << (Int.bitWidth - (2 * count).leadingZeroBitCount))
  }

  /// False if it was met before, or another one that is taken for it.
  @inline(__always)
  mutating func insert(_ hash: UInt64) -> Bool {
    // Zero marks what is free.
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
