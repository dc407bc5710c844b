private import Synchronization

/// Purging of tombstones that all members have seen (rule R8).
extension Compactor {
  /// Candidates purged in one append.
  private static let purgesPerAppend = 256

  /// Purges tombstones and expired records that every active member has seen, except those at the last
  /// `spared` positions.
  ///
  /// Costs a pass through the journal. The next compaction frees their space.
  ///
  /// - Returns: the number of keys purged.
  @discardableResult
  func purge(sparing spared: UInt64 = 0) throws(StoreError) -> Int {
    try checkWritable()
    let (rule, position) = try reading { engine throws(StoreError) in
      (engine.purgeRule(at: environment.now()), engine.position)
    }
    guard rule.isOpen else { return 0 }
    let end = position - min(position, spared)
    var purged = 0
    var candidates: [PurgeCandidate] = []
    var walk = try deadRecords(after: 0)
    while let more = try walk.next({ rule.allows($0, open: $1, isTombstone: $2, deadline: $3) }) {
      candidates += more.lazy.filter { $0.position <= end }
      guard candidates.count >= Self.purgesPerAppend else { continue }
      purged += try purge(candidates)
      candidates.removeAll(keepingCapacity: true)
      try checkUsable()
    }
    purged += try purge(candidates)
    // The records written by this purge must not trigger the next one.
    let now = try reading { engine throws(StoreError) in engine.position }
    purgedAt.store(now, ordering: .relaxed)
    return purged
  }

  /// Purges before a compaction, unless some member has never reported its vector: each purge would cost it a
  /// full state.
  ///
  /// With `always` false, only if enough was written since the last purge to be worth a pass through the
  /// journal.
  func purgeBeforeCompaction(
    always: Bool, sparing spared: UInt64 = Limits.changesKept
  ) throws(StoreError) {
    let purgedAt = purgedAt.load(ordering: .relaxed)
    let isDue = try reading { engine throws(StoreError) in
      guard try engine.allMembersReported(at: environment.now()) else { return false }
      let written = engine.position - min(purgedAt, engine.position)
      let least = try engine.index.hashIndex.count / 2 + Self.minWritesToScan
      return always || written >= UInt64(least)
    }
    if isDue { try purge(sparing: spared) }
  }

  /// With fewer writes since the last purge no scan is made.
  private static let minWritesToScan = 1024

  /// A scanner for possibly dead records after a position.
  func deadRecords(after position: UInt64) throws(StoreError) -> DeadRecordScanner {
    try reading { engine throws(StoreError) in
      DeadRecordScanner(engine.slice(after: position)?.sources ?? [])
    }
  }

  /// Purges the candidates that are still current, by the purge rule as of now.
  private func purge(_ candidates: [PurgeCandidate]) throws(StoreError) -> Int {
    guard !candidates.isEmpty else { return 0 }
    // Compaction itself purges: throttling would make it wait for itself.
    return try writes.append(limit: .max, pacing: false) { builder throws(StoreError) in
      var dead: [TransactionBuilder.RecordToPurge] = []
      var last: UInt64 = 0
      try core.engine.withLock { engine throws(StoreError) in
        let rule = engine.purgeRule(at: builder.wall)
        for candidate in candidates {
          guard let record = try? engine.held(candidate.key), record.version == candidate.version,
            rule.allows(record),
            // A parked record that it beats would become visible once due.
            engine.parked[candidate.key] == nil
          else { continue }
          dead.append(TransactionBuilder.RecordToPurge(key: record.key, version: record.version))
          last = max(last, candidate.position)
        }
      }
      try builder.purge(dead, position: last)
      return dead.count
    }.0
  }
}

/// A dead record found in the journal.
struct PurgeCandidate {
  var key: [UInt8]
  var version: Version
  var position: UInt64
}

/// Scans the journal for tombstones and records with deadlines. Takes no lock: the scanned bytes never
/// change.
struct DeadRecordScanner {
  private let sources: [JournalSlice.Source]
  private var index = 0
  /// Offset of the next record; nil at the beginning of a source.
  private var offset: Int?

  /// Records read in one step.
  private static let recordsPerStep = 4096

  /// A scanner of these parts of segments.
  init(_ sources: [JournalSlice.Source]) { self.sources = sources }

  /// The wanted records of the next step; nil at the end. `isWanted` gets version, open dots, whether it is a
  /// tombstone, and deadline.
  mutating func next(
    _ isWanted: (Version, [Dot], Bool, UInt64?) -> Bool
  ) throws(StoreError) -> [PurgeCandidate]? {
    guard index < sources.count else { return nil }
    let source = sources[index]
    let (segment, end) = (source.segment, source.bytes.upperBound)
    var found: [PurgeCandidate] = []
    var reader = RecordIterator(segment, from: offset ?? source.bytes.lowerBound, limit: end, verifies: false)
    for _ in 0..<Self.recordsPerStep {
      let start = reader.offset
      guard let record = reader.next() else {
        // At the end of the source, or at damage: records after damage are not purged.
        (index, offset) = (index + 1, nil)
        return found
      }
      guard segment.cipher != nil || Self.mayBeDead(record),
        let view = segment.record(at: start, limit: end), view.isOfKey, let shape = view.shape,
        !view.isReserved(shape), let dot = source.dot(of: view),
        case let version = Version(stamp: view.stamp, dot: dot),
        isWanted(version, source.open(of: view, shape), view.kind == .tombstone, view.deadline(shape))
      else { continue }
      found.append(PurgeCandidate(key: view.key(shape), version: version, position: view.position))
    }
    if let fault = segment.faultError { throw fault }
    offset = reader.offset
    return found
  }

  /// Whether the unencrypted header shows a tombstone or a deadline.
  @inline(__always)
  private static func mayBeDead(_ record: MappedBytes) -> Bool {
    let kinds = record.recordKinds()
    return kinds.isOf(.tombstone) || kinds.flags.contains(.deadline)
  }
}

extension PurgeRule {
  /// Whether this record may be purged.
  func allows(_ record: Record) -> Bool {
    !record.isReserved
      && allows(record.version, open: record.open, isTombstone: record.isTombstone, deadline: record.deadline)
  }
}
