/// Inspection and verification: the log, why a key has its value, a check of every byte.
extension Store {
  /// Records of the journal from `position` on, in order, at most `limit`.
  ///
  /// Superseded records are included as long as their bytes exist. The cost is proportional to the result:
  /// polling from the last position seen shows which keys were written since, by any process.
  ///
  /// - Parameters:
  ///   - position: the first position, from 1; 0 means 1.
  ///   - limit: 0 or less returns nothing. There is no upper bound but memory: each entry copies its value,
  ///     up to `Limits.inlineValueBytes`, so ask for some hundreds at a time.
  /// - Throws: `.damaged`, `.inputOutput` if the journal cannot be read there; `.closed`, `.forked`. Single
  ///   damaged records are left out.
  public func log(from position: UInt64, limit: Int) throws(StoreError) -> [LogEntry] {
    guard limit > 0 else { return [] }
    return try reading { engine throws(StoreError) in
      var entries: [LogEntry] = []
      try engine.visit(from: engine.start(of: position)) { view throws(StoreError) in
        guard view.isWrite, view.position >= position, let record = view.decoded() else { return true }
        entries.append(LogEntry(record, position: view.position, isCurrent: engine.isCurrent(view)))
        return entries.count < limit
      }
      return entries
    }
  }

  /// Records of the journal before `position`, the newest first, at most `limit`, and the others of the last
  /// one's position: a conflict loser has the position of the record before it.
  ///
  /// The cost is proportional to the result, except where compaction has dropped most records.
  ///
  /// - Parameters:
  ///   - position: that of the last record of an earlier call, to continue it; by default the end.
  ///   - limit: 0 or less returns nothing. Each entry copies its value, as those of `log(from:limit:)` do.
  /// - Throws: `.damaged`, `.inputOutput` if the journal cannot be read there; `.closed`, `.forked`. Single
  ///   damaged records are left out.
  public func log(before position: UInt64 = .max, limit: Int) throws(StoreError) -> [LogEntry] {
    guard limit > 0 else { return [] }
    return try reading { engine throws(StoreError) in
      var entries: [LogEntry] = []
      var end = min(position, engine.position + 1)
      var width = UInt64(limit)
      while end > 1, entries.count < limit {
        let start = end > width ? end - width : 1
        entries += try engine.newestWrites(in: start..<end, limit: limit - entries.count)
        (end, width) = (start, min(width * 2, 1 << 20))
      }
      return entries
    }
  }

  /// Waits until the journal ends after `position`, and returns its last position; nil if the task is
  /// cancelled.
  ///
  /// - Throws: `.damaged`, `.inputOutput` if the journal cannot be read there; `.closed`, `.forked`.
  package func lastPosition(after position: UInt64) async throws(StoreError) -> UInt64? {
    let follower = JournalFollower<UInt64>(changeSignal) { [self] () throws(StoreError) in
      let last = try reading { engine throws(StoreError) in engine.position }
      return last > position ? .found(last) : .wait(milliseconds: nil)
    }
    switch await follower.next() {
    case .found(let last): return last
    case .cancelled: return nil
    case .failed(let error): throw error
    }
  }

  /// The most recently written keys of a range, newest first.
  ///
  /// Only the last `records` records of the journal are searched, and superseded ones are skipped. The cost
  /// is that of reading them.
  func writtenLast(in range: KeyRange, among records: UInt64, limit: Int) throws(StoreError) -> [Key] {
    try reading { engine throws(StoreError) in
      let first = engine.position > records ? engine.position - records + 1 : 1
      var places: [(key: Key, view: RecordView)] = []
      try engine.visit(from: engine.start(of: first)) { view throws(StoreError) in
        guard view.isWrite, view.position >= first, let bytes = view.keyBytes, range.contains(bytes),
          let key = try? Key(bytes: bytes)
        else { return true }
        places.append((key, view))
        return true
      }
      var keys: [Key] = []
      for (key, view) in places.reversed() where keys.count < limit && engine.isCurrent(view) {
        keys.append(key)
      }
      return keys
    }
  }

  /// Why a key has its value: its record and the concurrent values it beat. Nil if nothing is known of the
  /// key.
  ///
  /// Lists all losers still kept: `Limits.conflictMilliseconds` and `Limits.conflictBytes` bound what a
  /// compaction keeps of them.
  ///
  /// - Throws: `.damaged` if the record of the key may have been lost; `.closed`, `.forked`.
  public func explain(_ key: Key) throws(StoreError) -> Explanation? {
    guard let record = try currentRecord(key.bytes) else { return nil }
    let (mine, position) = try reading { engine throws(StoreError) in
      let place = engine.find(key.bytes)
      return (
        engine.state.incarnations.all, place.flatMap { try? engine.journal.record(at: $0).position } ?? 0
      )
    }
    return Explanation(
      winner: LogEntry(record, position: position, isCurrent: true),
      isLocal: mine.contains(record.dot.actor), beaten: try conflictLosers { $0.key == key.bytes })
  }

  /// Beaten concurrent values that are kept, newest first.
  ///
  /// - Throws: `.closed`, `.forked`. Unreadable records are left out.
  public func conflicts() throws(StoreError) -> [LogEntry] { try conflictLosers { _ in true } }

  /// `conflicts()` that reports each unreadable record to `unreadable`.
  package func conflicts(unreadable: (StoreError) -> Void) throws(StoreError) -> [LogEntry] {
    try conflictLosers(unreadable: unreadable) { _ in true }
  }

  /// The losers that satisfy `isWanted`, newest first. Reads a few per lock acquisition, so that writers are
  /// not blocked.
  private func conflictLosers(
    unreadable: (StoreError) -> Void = { _ in }, where isWanted: (Record) -> Bool
  ) throws(StoreError) -> [LogEntry] {
    let pin = SnapshotPin()
    let places = try reading { engine throws(StoreError) in
      engine.retainSegments(for: pin)
      return engine.losers.locations
    }
    // Repeated calls that find few losers end no step of a pass: without this they keep waiting writers out.
    yieldEngineLock()
    var entries: [LogEntry] = []
    try visit(places, pin: pin) { engine, place throws(StoreError) -> Result<LogEntry?, StoreError> in
      do throws(StoreError) {
        let record = try engine.record(at: place)
        return .success(isWanted(record) ? LogEntry(record, position: 0, isCurrent: false) : nil)
      } catch { return .failure(error) }
    } take: { result throws(StoreError) in
      switch result {
      case .success(let entry?): entries.append(entry)
      case .success(nil): break
      case .failure(let error): unreadable(error)
      }
    }
    return entries.sorted { $0.stamp > $1.stamp }
  }

  /// Reads every record and every blob, and reports damage.
  ///
  /// If the store is open for writing, damage newly found in the journal is recovered from: peers then send
  /// again what was lost.
  ///
  /// - Parameter progress: receives the bytes read so far and the total.
  /// - Throws: `.inputOutput` if the disk fails; `.closed`, `.forked`. Damage is not an error: the report
  ///   lists it.
  public func verify(
    progress: (_ done: UInt64, _ total: UInt64) -> Void = { _, _ in }
  ) throws(StoreError) -> VerificationReport {
    var report = VerificationReport()
    var blobs: [BlobHash: BlobReference] = [:]
    let pin = SnapshotPin()
    let (journal, found) = try reading { engine throws(StoreError) in
      engine.retainSegments(for: pin)
      return (engine.segmentsToVerify, self.describeDamage(engine))
    }
    let fresh = try Self.reread(journal) { () throws(StoreError) in try self.checkUsable() }
    try visitKeysInSteps {
      report = found
      report.damage += fresh
      blobs = [:]
    } read: { engine, place throws(StoreError) -> Result<BlobReference?, LostRecord> in
      do throws(StoreError) {
        let record = try engine.record(at: place)
        if case .blob(let blob) = record.content { return .success(blob) }
        return .success(nil)
      } catch {
        let key = engine.key(at: place)
        let name = key.isEmpty ? "a key that cannot be read" : "key \(Key(unchecked: key))"
        return .failure(LostRecord(line: "\(name): \(error.description)"))
      }
    } collect: { result throws(StoreError) in
      switch result {
      case .success(let blob):
        report.records += 1
        if let blob { blobs[blob.hash] = blob }
      case .failure(let lost): report.damage.append(lost.line)
      }
    }
    let isNew = !fresh.isEmpty
    if isNew, isWritable { try recovery.recoverFromDamage() }
    let problems = try self.blobs.verify(progress: progress)
    // A torn object that no record refers to belongs to a transaction that never committed: it is set aside,
    // nothing is lost.
    for problem in problems where problem.hash.map({ blobs[$0] != nil }) ?? true {
      report.damage.append("blobs/\(problem.name): \(problem.problem)")
    }
    let wanted = Set(try missingBlobsWithoutForgetting())
    let leftOut = Set(try absentBlobs(.leftOut).map(\.hash))
    var evicted = Set(try absentBlobs(.evicted).map(\.hash))
    let damaged = Set(problems.compactMap(\.hash))
    for blob in blobs.values.sorted(by: { $0.hash < $1.hash }) {
      if !damaged.contains(blob.hash), try self.blobs.has(blob) {
        report.blobs += 1
      } else if wanted.contains(blob.hash), !damaged.contains(blob.hash) {
        report.missingBlobs.append(blob)
      } else if leftOut.contains(blob.hash), !damaged.contains(blob.hash) {
        report.absentBlobs += 1
      } else if !damaged.contains(blob.hash), try wasEvictedMeanwhile(blob.hash, &evicted) {
        report.absentBlobs += 1
        report.evictedBlobs += 1
      } else {
        if !damaged.contains(blob.hash) { report.damage.append("blob \(blob.hash) is gone") }
        report.damagedBlobs.append(blob)
        if isWritable { try want(blob) }
      }
    }
    return report
  }

  /// Whether the blob was evicted to keep the limits.
  ///
  /// Reads the eviction records again if `evicted` lacks the hash: another process may have evicted the blob
  /// since. The record is written before the blob is removed, so it is visible by now.
  private func wasEvictedMeanwhile(
    _ hash: BlobHash, _ evicted: inout Set<BlobHash>
  ) throws(StoreError) -> Bool {
    if !evicted.contains(hash) { evicted = Set(try absentBlobs(.evicted).map(\.hash)) }
    return evicted.contains(hash)
  }

  /// Known damage, and what was repaired when the store was opened.
  private func describeDamage(_ engine: borrowing Engine) -> VerificationReport {
    var report = VerificationReport()
    let keys = Dictionary(engine.damage.keys.map { ($1, $0) }, uniquingKeysWith: { $1 })
    for gap in engine.unresolvedDamage {
      let key = keys[gap.location].map { " (a record of key \(Key(unchecked: $0)))" } ?? ""
      // A compacted segment's number differs from its file name.
      let name = engine.journal.segments.first { $0.number == gap.segment }?.header.name.text
      report.damage.append("\(name ?? "segment \(gap.segment)"), bytes \(gap.bytes): damaged\(key)")
    }
    for segment in engine.journal.segments {
      let (name, defects) = (segment.header.name.text, segment.defects)
      report.damage += defects.unrepaired(isWritable: isWritable).map { "\(name): \($0)" }
      report.mended += defects.repairs.map { "\(name): \($0)" }
    }
    return report
  }

  /// Finds damage below a watermark that occurred since the journal was read. Takes no lock: bytes before the
  /// end of a segment are never stored to again.
  private static func reread(
    _ journal: [SegmentToVerify], while isUsable: () throws(StoreError) -> Void
  ) throws(StoreError) -> [String] {
    var lines: [String] = []
    for part in journal {
      try isUsable()
      var walker = ResyncingRecordIterator(part.segment, limit: part.end)
      while let step = walker.next() {
        guard case .gap(let range) = step else { continue }
        let damage = JournalDamage(segment: part.segment.number, bytes: range)
        if !part.known.contains(damage) {
          lines.append("\(part.segment.header.name.text), bytes \(range): damaged while in use")
        }
      }
    }
    return lines
  }

  private func missingBlobsWithoutForgetting() throws(StoreError) -> [BlobHash] {
    isWritable
      ? try missingBlobs().map(\.hash)
      : try absentBlobs(.awaited).map(\.hash)
  }
}

extension Engine {
  /// The last writes at these positions, newest first: `limit` of them, and the others of the last one's
  /// position. Only so many are in memory, however many there are.
  fileprivate func newestWrites(in positions: Range<UInt64>, limit: Int) throws(StoreError) -> [LogEntry] {
    var writes: [LogEntry] = []
    try visit(from: start(of: positions.lowerBound)) { view throws(StoreError) in
      guard view.isWrite, view.position >= positions.lowerBound else { return true }
      guard view.position < positions.upperBound else { return false }
      guard let record = view.decoded() else { return true }
      writes.append(LogEntry(record, position: view.position, isCurrent: isCurrent(view)))
      if writes.count / 2 > limit { dropOld(&writes, keeping: limit) }
      return true
    }
    dropOld(&writes, keeping: limit)
    return writes.reversed()
  }

  private func dropOld(_ writes: inout [LogEntry], keeping limit: Int) {
    guard writes.count > limit else { return }
    let oldest = writes[writes.count - limit].position
    writes.removeFirst(writes.firstIndex { $0.position == oldest } ?? 0)
  }
}

/// A record of the journal, for display.
public struct LogEntry: Hashable, Sendable {
  /// Its position in this copy's journal.
  public let position: UInt64
  /// The dot of the write.
  public let dot: Dot
  /// When the write was made.
  public let stamp: Stamp
  /// The newest write by another actor that it replaced.
  public let base: Dot?
  /// The key; nil for one of the store's reserved keys.
  public let key: Key?
  /// Whether the record deletes the key.
  public let isTombstone: Bool
  /// The type of the value.
  public let type: ValueType
  /// Size of the value in bytes.
  public let size: UInt64
  /// The value, if it is stored inline in the journal.
  public let value: [UInt8]?
  /// The blob, if the value is in the blob tier.
  public let blob: BlobReference?
  /// When it expires, in milliseconds since 1970.
  public let deadline: UInt64?
  /// Whether it is the latest record of the key.
  public let isCurrent: Bool

  /// Decodes the value as a `Decodable` type; nil for a delete and for a value in the blob tier.
  ///
  /// - Throws: as `EncodedValue.decoded`.
  public func decoded<Content: Decodable>(as _: Content.Type = Content.self) throws(StoreError) -> Content? {
    guard !isTombstone, let value else { return nil }
    return try EncodedValue(bytes: value, type: type).decoded(as: Content.self)
  }

  init(_ record: Record, position: UInt64, isCurrent: Bool) {
    let entry = Entry(record)
    (self.position, self.isCurrent, dot, stamp, base) = (
      position, isCurrent, record.dot, record.stamp, record.base
    )
    key = record.isReserved ? nil : entry.key
    isTombstone = record.isTombstone
    (type, size, blob, deadline) = (record.type, entry.size, entry.blob, record.deadline)
    if case .inline(let bytes) = record.content { value = bytes } else { value = nil }
  }
}

/// Why a key has the value it has.
public struct Explanation: Hashable, Sendable {
  /// The current record.
  public let winner: LogEntry
  /// Whether this copy wrote it, in this or an earlier incarnation.
  public let isLocal: Bool
  /// Concurrent values that it beat and that are kept.
  public let beaten: [LogEntry]
}

/// The result of `verify`.
public struct VerificationReport: Hashable, Sendable {
  /// Current records that are intact.
  public var records = 0
  /// Blobs that are intact.
  public var blobs = 0
  /// One line for each damaged place.
  public var damage: [String] = []
  /// One line for each repair made without a peer when the store was opened for writing. No data was lost by
  /// these.
  public var mended: [String] = []
  /// Blobs that are damaged or missing unexpectedly.
  public var damagedBlobs: [BlobReference] = []
  /// Blobs that have not arrived from a peer yet: not damage.
  public var missingBlobs: [BlobReference] = []
  /// Blobs that are absent on purpose: excluded by the policy, or evicted to keep the limits. Other members
  /// hold them.
  public var absentBlobs = 0
  /// The subset of `absentBlobs` that was evicted to keep the limits.
  public var evictedBlobs = 0
  /// Whether no damage was found.
  public var isClean: Bool { damage.isEmpty }
}

/// A segment, and the offset up to which it is verified.
private struct SegmentToVerify {
  var segment: Segment
  var end: Int
  /// Damage that was found when the segment was read.
  var known: Set<JournalDamage>
}

/// Why a record named by the index cannot be read.
private struct LostRecord: Error {
  var line: String
}

extension Engine {
  fileprivate var segmentsToVerify: [SegmentToVerify] {
    journal.segments.enumerated().map { place, segment in
      let end = segment.number == applied.segment ? applied.offset : journal.closedLength(at: place) ?? 0
      let known: Set<JournalDamage> =
        damage.gaps.isEmpty ? [] : damage.gapSet.filter { $0.segment == segment.number }
      return SegmentToVerify(segment: segment, end: end, known: known)
    }
  }
}
