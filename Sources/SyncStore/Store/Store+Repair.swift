/// Repair of two copies that cover the same writes, lack nothing of each other, and still have different
/// digests: some write has two contents, because a machine was cloned or rolled back undetected (F61).
///
/// The keys are found by bucket digests, then by record fingerprints, and repaired on both sides. Both copies
/// may be written to concurrently. Records after the position at which they were compared are unrelated to
/// that difference: such keys are left alone (`RepairScope`).
extension Store {
  /// Number of buckets of keys, by the lower bits of XXH3-64 with seed 0.
  package static let digestBuckets = 1 << 16

  /// The digest of each bucket, over the records live at a time in milliseconds since 1970. Their sum is the
  /// store's digest. Reads all keys.
  package func bucketDigests(at time: UInt64) throws(StoreError) -> [StateDigest] {
    var digests = [StateDigest](repeating: StateDigest(), count: Self.digestBuckets)
    try forEachGreatest { record, hash, _ in
      guard record.isLive(at: time) else { return }
      digests[Int(RecordFingerprint.bucket(of: hash))].add(record)
    }
    return digests
  }

  /// The fingerprints of the keys of these buckets, including dead ones. Reads all keys.
  ///
  /// - Parameter most: limit on keys; the last buckets beyond it are left out. A bucket is never split.
  /// - Throws: `.outOfBounds` if the first bucket alone has more.
  package func fingerprints(
    in buckets: [UInt16], _ scope: RepairScope, most: Int
  ) throws(StoreError) -> BucketFingerprints {
    var found = BucketFingerprints(buckets: buckets.sorted())
    var byBucket = [UInt16: [UInt64: BucketFingerprints.Entry]](
      uniqueKeysWithValues: Set(buckets).map { ($0, [:]) })
    var count = 0
    let wanted = Set(buckets)
    try forEachGreatest(where: { wanted.contains(RecordFingerprint.bucket(of: $0)) }) {
      record, hash, position in
      let bucket = RecordFingerprint.bucket(of: hash)
      guard byBucket[bucket] != nil else { return }
      let one = RecordFingerprint(record, hash, isNewer: position > scope.position, at: scope.time)
      byBucket[bucket]?[hash, default: .init(keyHash: hash)].add(one, record.key)
      count += 1
      while count > most, found.buckets.count > 1 {
        let last = found.buckets.removeLast()
        count -= byBucket.removeValue(forKey: last)?.values.reduce(0) { $0 + $1.keys.count } ?? 0
      }
    }
    guard count <= most else {
      throw StoreError(
        .outOfBounds,
        "more than \(most) keys have one hash in common: they cannot be compared one by one: copy the store to the other side anew",
        path: path)
    }
    for bucket in found.buckets {
      for entry in (byBucket[bucket] ?? [:]).values.sorted(by: { $0.print.keyHash < $1.print.keyHash }) {
        found.prints.append(entry.print)
        found.keys[entry.print.keyHash] = entry.keys
      }
    }
    return found
  }

  /// The greatest records of these keys, dead or alive, except those written or received after the scope's
  /// position.
  package func records(of keys: some Sequence<[UInt8]>, _ scope: RepairScope) throws(StoreError) -> [Record] {
    let keys = Array(keys)
    return try reading { engine throws(StoreError) in
      keys.compactMap { key in
        guard let (record, position) = engine.greatestWithPosition(key), position <= scope.position,
          !record.isReserved
        else { return nil }
        return record.standalone
      }
    }
  }

  /// Repairs the keys on which the copies differ. Durable on return.
  ///
  /// Both values are kept, the copy with the greater one issues it again, and a copy that has given one dot
  /// twice becomes a new actor first. A winner that reached the other copy before the loser was kept there
  /// would remove the loser without a trace, since both bear the same dot. So until the other copy has
  /// confirmed this whole step, only `.keep` is taken here.
  ///
  /// - Parameters:
  ///   - keys: the keys known here or there.
  ///   - theirs: the other copy's record of each key; none if it has none.
  package func repair(
    _ keys: some Sequence<[UInt8]>, against theirs: [[UInt8]: Record], scope: RepairScope,
    steps: RepairSteps
  ) throws(StoreError) -> RepairOutcome {
    let keys = Set(keys).sorted { $0.lexicographicallyPrecedes($1) }
    if steps.contains(.issue) {
      let isForked = try reading { engine throws(StoreError) in
        let differences = Self.differences(keys, theirs: theirs, scope: scope, engine: engine)
        return engine.state.actor.map { actor in differences.contains { $0.isFork(of: actor) } } ?? false
      }
      if isForked { try applier.preserveOverwrittenForkValues() }
    }
    let newActor = applier.anotherActor()
    let (outcome, tail) = try writes.append(limit: .max) { builder throws(StoreError) in
      let (differences, kept) = core.engine.withLock { engine in
        (Self.differences(keys, theirs: theirs, scope: scope, engine: engine), engine.losers.digests)
      }
      var outcome = RepairOutcome(keys: differences.map(\.key))
      if steps.contains(.keep) {
        for difference in differences where !difference.isMineGreater {
          guard let own = difference.mine, own.isLive(at: scope.time),
            !kept.contains(StateDigest(of: own))
          else { continue }
          try builder.keepLoser(own)
        }
      }
      guard steps.contains(.issue) else { return outcome }
      if let actor = builder.state.actor, differences.contains(where: { $0.isFork(of: actor) }) {
        // Before anything is issued: the other holder of the actor may give out the next sequences, too.
        try builder.changeActor(.forked, as: newActor)
        outcome.hasNewActor = true
      }
      for difference in differences where difference.isMineGreater {
        if let own = difference.mine { try builder.reissue(own) }
      }
      return outcome
    }
    try sync(upTo: tail)
    return outcome
  }

  private static func differences(
    _ keys: [[UInt8]], theirs: [[UInt8]: Record], scope: RepairScope, engine: borrowing Engine
  ) -> [Difference] {
    var differences: [Difference] = []
    for key in keys where !ReservedKey.isReserved(key) {
      let placed = engine.greatestWithPosition(key)
      guard placed?.position ?? 0 <= scope.position,
        let difference = Difference(key, mine: placed?.record, theirs: theirs[key], at: scope.time)
      else { continue }
      differences.append(difference)
    }
    return differences
  }

  /// Visits the greatest record, parked or not, of each user key whose hash is wanted, with its position.
  /// Reads in batches.
  private func forEachGreatest(
    where isWanted: (_ keyHash: UInt64) -> Bool = { _ in true },
    _ body: (Record, _ keyHash: UInt64, _ position: UInt64) -> Void
  ) throws(StoreError) {
    let pin = SnapshotPin()
    let (places, parked) = try writes.readingExclusively { engine, isAlone throws(StoreError) in
      engine.retainSegments(for: pin)
      return (try engine.locations(isExclusive: isAlone), engine.parked)
    }
    for start in stride(from: 0, to: places.count, by: 1024) {
      let records = try reading { engine throws(StoreError) -> [(Record, UInt64, UInt64)] in
        try pin.check(path)
        var records: [(Record, UInt64, UInt64)] = []
        for place in places[start..<min(start + 1024, places.count)] {
          let view = try engine.journal.record(at: place)
          guard let shape = view.shape else { continue }
          let hash = view.bytes.withSpan(shape.key) { XXH3.hash64($0, seed: 0) }
          // Usually few are wanted: the others are not decoded.
          guard isWanted(hash) else { continue }
          let record = try engine.decoded(view)
          guard !record.isReserved, parked[record.key] == nil else { continue }
          records.append((record, hash, view.position))
        }
        return records
      }
      for (record, hash, position) in records { body(record, hash, position) }
    }
    for key in parked.keys {
      let hash = RecordFingerprint.hash(key)
      guard isWanted(hash), let (record, position) = core.engine.withLock({ $0.greatestWithPosition(key) }),
        !record.isReserved
      else { continue }
      body(record, hash, position)
    }
  }
}

/// The extent of a comparison of two copies.
package struct RepairScope: Hashable, Sendable {
  /// The time at which both copies evaluate deadlines, in milliseconds since 1970.
  package var time: UInt64
  /// The own journal's last position when the digests were compared. Later records are ignored.
  package var position: UInt64

  /// Both fields.
  package init(time: UInt64, position: UInt64) { (self.time, self.position) = (time, position) }
}

/// The two steps of a repair.
package struct RepairSteps: OptionSet, Sendable {
  /// One bit for each step.
  package let rawValue: UInt8
  /// Makes a set of these bits.
  package init(rawValue: UInt8) { self.rawValue = rawValue }

  /// Keep the own values that are beaten.
  package static let keep = RepairSteps(rawValue: 1)
  /// Issue the own values that win again, as a new actor if this copy gave a dot twice.
  package static let issue = RepairSteps(rawValue: 2)
}

/// The result of a repair.
package struct RepairOutcome: Hashable, Sendable {
  /// The keys that differed, in order.
  package var keys: [[UInt8]]
  /// Whether this copy has become a new actor.
  package var hasNewActor = false

  /// All fields.
  package init(keys: [[UInt8]], isRenewed: Bool = false) { (self.keys, self.hasNewActor) = (keys, isRenewed) }
}

/// A key for which two copies in step have different records.
private struct Difference {
  var key: [UInt8]
  var mine: Record?
  var theirs: Record?

  /// Nil if the records are equal, or neither has a value.
  init?(_ key: [UInt8], mine: Record?, theirs: Record?, at time: UInt64) {
    guard mine?.standalone != theirs?.standalone,
      mine?.isLive(at: time) ?? false || theirs?.isLive(at: time) ?? false
    else { return nil }
    (self.key, self.mine, self.theirs) = (key, mine, theirs)
  }

  /// Both sides agree on the greater record: for equal versions the one whose bytes are greater.
  var isMineGreater: Bool {
    guard let mine else { return false }
    guard let theirs else { return true }
    guard mine.version == theirs.version else { return mine.version > theirs.version }
    return theirs.orderBytes.lexicographicallyPrecedes(mine.orderBytes)
  }

  /// Whether this actor gave one dot two contents.
  func isFork(of actor: ActorID) -> Bool { mine?.dot.actor == actor && mine?.dot == theirs?.dot }
}

extension Record {
  /// The record without its transaction flag.
  fileprivate var standalone: Record {
    var record = self
    record.continues = false
    return record
  }

  /// Type, deadline and content: a total order, the same on all copies, for two contents of one write.
  fileprivate var orderBytes: [UInt8] {
    let head =
      [type.rawValue] + (0..<8).reversed().map { UInt8(truncatingIfNeeded: (deadline ?? 0) >> ($0 * 8)) }
    switch content {
    case .tombstone: return head + [0]
    case .inline(let value): return head + [1] + value
    case .blob(let blob): return head + [2] + blob.hash.bytes + blob.metadata
    }
  }
}
