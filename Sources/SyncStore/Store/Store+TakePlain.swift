/// The short way of batches: records of the ordinary form, each the first of its key here, as a first copy brings them. What the rules
/// make of them (`Composer.receive`) is known beforehand: each one wins, against nothing. So they go from where they came into the
/// journal without becoming objects in between; a batch with one that is not so goes the general way as a whole.
extension Store {
  /// Appends the records of a batch, and what `conclude` adds. Nil if it has to go the general way; nothing was done then.
  func takePlain(
    _ batch: PlainBatch, _ conclude: (inout Composer) throws(StoreError) -> Void
  ) throws(StoreError) -> (echo: (behind: UInt64, upTo: UInt64), tail: UInt64)? {
    try checkWritable()
    waitForCompaction()
    try lockWriters()
    defer { control.unlock() }
    var composer = freshComposer(limit: Limits.transactionBytes)
    var extent = AppendExtent()
    extent.add(batch)
    guard extent.bytes <= 2 * Limits.batchBytes,
      engine.withLock({ $0.takesPlainly(batch, limit: composer.limit) })
    else { return nil }
    try conclude(&composer)
    for entry in composer.entries { extent.add(entry) }
    return try engine.withLock { engine throws(StoreError) in
      let position = engine.position
      try commit(composer.entries, extent, behind: batch, wall: composer.wall, &engine)
      return ((position, engine.position), control.tail)
    }
  }
}

extension Engine {
  /// How many look-ups are under way at once: their cache misses overlap.
  private static let lookahead = 16

  /// Is each record of the batch one that is taken in as it is, whatever the others are: news to this copy, of a user's key of
  /// which nothing is held or waits, with a stamp that is neither ahead of the clock (above `limit`) nor as old as what was purged? Only
  /// for the holder of the writers' mutex, whose index has all that was committed.
  mutating func takesPlainly(_ batch: PlainBatch, limit: Stamp) -> Bool {
    guard state.scope == nil, gaps.isEmpty, parked.isEmpty, !isInTrouble, !batch.entries.isEmpty else {
      return false
    }
    let vector = state.vector
    let covered = batch.actors.map { vector[$0] }
    guard !batch.actors.contains(where: { state.isMine(Dot(actor: $0, sequence: 1)) }) else { return false }
    let keys = index.keys
    let bytes = batch.bytes.span
    let hashes = batch.entries.map { keys.hash(bytes.extracting($0.key)) }
    for hash in hashes.prefix(Self.lookahead) { keys.prefetch(hash) }
    var met = HashSet(count: hashes.count)
    for (place, entry) in batch.entries.enumerated() {
      if place + Self.lookahead < hashes.count { keys.prefetch(hashes[place + Self.lookahead]) }
      guard entry.sequence > covered[entry.author], entry.stamp > state.horizon, entry.stamp <= limit,
        !batch.isReserved(entry), met.insert(hashes[place]), let mayBeHeld = try? keys.has(hashes[place])
      else { return false }
      // Among thousands there is one whose hash meets another's where the index looks.
      if mayBeHeld, search(bytes.extracting(entry.key)).found != nil { return false }
    }
    return !isInTrouble
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
