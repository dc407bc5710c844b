/// What two copies do that cover the same writes, and of which neither lacks anything of the other, but whose digests differ: one write has
/// two contents somewhere, because a machine was cloned or rolled back and nobody could see it (F61). The keys are found by
/// digests of buckets, and put right on both sides.
extension Store {
  /// Keys fall into so many buckets, by the lower bits of XXH3-64 with seed 0.
  package static let digestBuckets = 1 << 16

  private static func bucket(of key: [UInt8]) -> UInt16 {
    UInt16(truncatingIfNeeded: XXH3.hash64(key, seed: 0))
  }

  /// The digest of each bucket, of what is live at a time in milliseconds since 1970. Their sum is the store's digest. Reads all keys.
  package func bucketDigests(at time: UInt64) throws(StoreError) -> [StateDigest] {
    var digests = [StateDigest](repeating: StateDigest(), count: Self.digestBuckets)
    try forEachGreatest { record in
      guard record.isLive(at: time) else { return }
      digests[Int(Self.bucket(of: record.key))].add(record)
    }
    return digests
  }

  /// The greatest record of each key in these buckets, dead or alive, as long as they take no more than about `maximumBytes` bytes
  /// in all; those of a bucket come together or not at all. Returns also which buckets those are.
  package func records(
    in buckets: [UInt16], maximumBytes: Int
  ) throws(StoreError) -> (buckets: [UInt16], records: [Record]) {
    let wanted = Set(buckets)
    var found: [UInt16: [Record]] = [:]
    try forEachGreatest { record in
      let bucket = Self.bucket(of: record.key)
      if wanted.contains(bucket) { found[bucket, default: []].append(record) }
    }
    var (taken, records, bytes): ([UInt16], [Record], Int) = ([], [], 0)
    for bucket in buckets {
      let part = found[bucket] ?? []
      bytes += part.reduce(0) { $0 + $1.transferSize }
      if !taken.isEmpty, bytes > maximumBytes { break }
      taken.append(bucket)
      records += part
    }
    return (taken, records)
  }

  /// Puts right the keys of these buckets that the other copy, whose records are `theirs`, has otherwise: both values are kept, the
  /// greater is issued again by who holds it, and who has given one dot twice becomes a new actor. Durable on return. Returns the
  /// keys.
  package func repair(
    _ buckets: [UInt16], against theirs: [Record], at time: UInt64
  ) throws(StoreError) -> [[UInt8]] {
    let wanted = Set(buckets)
    var mine: [[UInt8]: Record] = [:]
    try forEachGreatest { record in
      if wanted.contains(Self.bucket(of: record.key)) { mine[record.key] = record }
    }
    var others: [[UInt8]: Record] = [:]
    for record in theirs where wanted.contains(Self.bucket(of: record.key)) && !record.isReserved {
      others[record.key] = record
    }
    let differences = Set(mine.keys).union(others.keys).sorted { $0.lexicographicallyPrecedes($1) }
      .compactMap { key in Difference(mine: mine[key], theirs: others[key], at: time) }
    guard !differences.isEmpty else { return [] }
    let newActor = environment.newActor()
    let (_, tail) = try append(limit: .max) { composer throws(StoreError) in
      let kept = engine.withLock { $0.keptLosers }
      var isForked = false
      for difference in differences {
        guard let own = difference.mine else { continue }
        isForked = isForked || own.dot == difference.theirs?.dot && own.dot.actor == composer.state.actor
        if difference.isMineGreater {
          try composer.reissue(own)
        } else if own.isLive(at: time), !kept.contains(own.dot) {
          try composer.append(.loser(own))
        }
      }
      if isForked { try composer.renew(.copied, as: newActor) }
    }
    try sync(upTo: tail)
    return differences.map(\.key)
  }

  /// Visits the greatest record of each of the user's keys, parked or not, a part at a time.
  private func forEachGreatest(_ body: (Record) -> Void) throws(StoreError) {
    let pin = SnapshotPin()
    let (places, parked) = try readingAlone { engine, isAlone throws(StoreError) in
      engine.hold(pin)
      return (try engine.locations(isExclusive: isAlone), engine.parked)
    }
    for start in stride(from: 0, to: places.count, by: 1024) {
      let records = try reading { engine throws(StoreError) -> [Record] in
        try pin.check(path)
        var records: [Record] = []
        for place in places[start..<min(start + 1024, places.count)] {
          let record = try engine.record(at: place)
          if !record.isReserved, parked[record.key] == nil { records.append(record) }
        }
        return records
      }
      records.forEach(body)
    }
    for key in parked.keys {
      guard let record = engine.withLock({ $0.greatest(key) }), !record.isReserved else { continue }
      body(record)
    }
  }
}

/// A key of which two copies in step have different records.
private struct Difference {
  var key: [UInt8]
  var mine: Record?
  var theirs: Record?

  /// Nil if they are the same, or neither has a value.
  init?(mine: Record?, theirs: Record?, at time: UInt64) {
    guard let key = (mine ?? theirs)?.key, mine?.alone != theirs?.alone,
      mine?.isLive(at: time) ?? false || theirs?.isLive(at: time) ?? false
    else { return nil }
    (self.key, self.mine, self.theirs) = (key, mine, theirs)
  }

  /// Both sides find the same one greater: of one version the one whose bytes are greater.
  var isMineGreater: Bool {
    guard let mine else { return false }
    guard let theirs else { return true }
    guard mine.version == theirs.version else { return mine.version > theirs.version }
    return theirs.orderBytes.lexicographicallyPrecedes(mine.orderBytes)
  }
}

extension Record {
  /// The record without what its place in a transaction gave it.
  fileprivate var alone: Record {
    var record = self
    record.continues = false
    return record
  }

  /// Type, deadline and content, for telling two contents of one write apart in the same way everywhere.
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
