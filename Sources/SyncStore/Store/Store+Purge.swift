/// Deletes that all have seen leave the journal (rule R8).
extension Store {
  /// Candidates that are purged in one append.
  private static let purgesPerAppend = 256

  /// Gives up tombstones, and records past their deadlines, that every active member has seen, but those at the last
  /// `spared` positions. Their space is given back by the next compaction. Costs a pass through the journal. Returns how many
  /// keys were given up.
  @discardableResult
  package func purge(sparing spared: UInt64 = 0) throws(StoreError) -> Int {
    try checkWritable()
    let (rule, position) = try reading { engine throws(StoreError) in
      (engine.purgeRule(at: environment.now()), engine.position)
    }
    guard rule.isOpen else { return 0 }
    let end = position - min(position, spared)
    var purged = 0
    var candidates: [PurgeCandidate] = []
    var walk = try deadRecords(behind: 0)
    while let more = try walk.next({ rule.allows($0, open: $1, isTombstone: $2, deadline: $3) }) {
      candidates += more.lazy.filter { $0.position <= end }
      guard candidates.count >= Self.purgesPerAppend else { continue }
      purged += try purge(candidates)
      candidates.removeAll(keepingCapacity: true)
      try checkUsable()
    }
    purged += try purge(candidates)
    // What was written for this does not call for the next time.
    let now = try reading { engine throws(StoreError) in engine.position }
    lifecycle.withLock { $0.purgedAt = now }
    return purged
  }

  /// The same before a compaction, unless there are members that have never said what they cover: what is purged now
  /// costs each of them a full state. With `always` false only if so much was written since the last time that a pass
  /// through the journal is worth it.
  func purgeBeforeCompaction(
    always: Bool, sparing spared: UInt64 = Limits.changesKept
  ) throws(StoreError) {
    let purgedAt = lifecycle.withLock { $0.purgedAt }
    let isDue = try reading { engine throws(StoreError) in
      guard try engine.allMembersReported(at: environment.now()) else { return false }
      let written = engine.position - min(purgedAt, engine.position)
      let least = try engine.index.hashIndex.count / 2 + Self.minWritesToScan
      return always || written >= UInt64(least)
    }
    if isDue { try purge(sparing: spared) }
  }

  /// With fewer writes since the last time nothing is looked at.
  private static let minWritesToScan = 1024

  /// What the journal has that may be dead, behind a position.
  func deadRecords(behind position: UInt64) throws(StoreError) -> DeadRecordScanner {
    try reading { engine throws(StoreError) in
      DeadRecordScanner(engine.slice(behind: position)?.sources ?? [])
    }
  }

  /// Gives up those that still count, by the rule as it is now.
  private func purge(_ candidates: [PurgeCandidate]) throws(StoreError) -> Int {
    guard !candidates.isEmpty else { return 0 }
    // Compaction purges: it must not wait for itself.
    return try append(limit: .max, pacing: false) { composer throws(StoreError) in
      var dead: [TransactionBuilder.RecordToPurge] = []
      var last: UInt64 = 0
      try engine.withLock { engine throws(StoreError) in
        let rule = engine.purgeRule(at: composer.wall)
        for candidate in candidates {
          guard let record = try? engine.held(candidate.key), record.version == candidate.version,
            rule.allows(record),
            // What it has beaten would come alive in its time.
            engine.parked[candidate.key] == nil
          else { continue }
          dead.append(TransactionBuilder.RecordToPurge(key: record.key, version: record.version))
          last = max(last, candidate.position)
        }
      }
      try composer.purge(dead, position: last)
      return dead.count
    }.0
  }
}

/// A dead record that was met in the journal.
struct PurgeCandidate {
  var key: [UInt8]
  var version: Version
  var position: UInt64
}

/// Goes through the journal for deletes and records with deadlines, without a lock: what stands there is never changed.
struct DeadRecordScanner {
  private let sources: [JournalSlice.Source]
  private var index = 0
  /// Where the next record is; nil at the beginning of a source.
  private var offset: Int?

  /// Records that are read at once.
  private static let recordsPerStep = 4096

  /// Those in these parts of segments.
  init(_ sources: [JournalSlice.Source]) { self.sources = sources }

  /// Those among the next records that are wanted: by version, open dots, whether it is a tombstone, deadline. Nil at the end.
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
        // At the end, or at damage: what lies behind that stays.
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

  /// Is it, by what stands in the clear, a tombstone, or has it a deadline?
  @inline(__always)
  private static func mayBeDead(_ record: MappedBytes) -> Bool {
    let flags = RecordLayout.Flags(rawValue: record.load(RecordLayout.flags))
    let kind: UInt8 = record.load(RecordLayout.kind)
    return kind == RecordLayout.Kind.tombstone.rawValue || flags.contains(.deadline)
  }
}

extension PurgeRule {
  /// May this record go?
  func allows(_ record: Record) -> Bool {
    !record.isReserved
      && allows(record.version, open: record.open, isTombstone: record.isTombstone, deadline: record.deadline)
  }
}
