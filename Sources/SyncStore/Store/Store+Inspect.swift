/// Looking at a store from outside its values: the log, the reason of a value, the truth of every byte.
extension Store {
  /// Records of the journal from `position` on, in order, at most `limit`. Superseded ones are shown as long as their
  /// bytes are there. Costs what it gives: a process that asks again behind the last position it has seen learns which keys
  /// were written meanwhile, by whatever process.
  ///
  /// - Parameters:
  ///   - position: the first one, from 1; 0 is the same.
  ///   - limit: 0 or less for none. It has no upper bound but memory: an entry has a copy of its value, up to
  ///     `Limits.inlineValueBytes`, so ask for some hundreds at a time.
  /// - Throws: `.damaged`, `.inputOutput` if the journal cannot be read there; `.closed`, `.forked`. Single damaged records are left out.
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

  /// The keys of a range that were written last, as far as they still count and are among so many records at the end of the journal; the
  /// last one first. Costs what those records do.
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

  /// Why a key has the value it has: its record and the concurrent values it beat. Nil if nothing is known of it. Of those it gives
  /// all that are still kept: `Limits.conflictMilliseconds` and `Limits.conflictBytes` bound what a compaction keeps of them.
  ///
  /// - Throws: `.damaged` if it cannot be known what the key holds; `.closed`, `.forked`.
  public func explain(_ key: Key) throws(StoreError) -> Explanation? {
    guard let record = try current(key.bytes) else { return nil }
    return try reading { engine throws(StoreError) in
      let mine = engine.state.mine
      let position = engine.find(key.bytes).flatMap { try? engine.journal.record(at: $0).position } ?? 0
      let beaten = engine.losers.compactMap { try? engine.record(at: $0) }.filter { $0.key == key.bytes }
      return Explanation(
        winner: LogEntry(record, position: position, isCurrent: true),
        isLocal: mine.contains(record.dot.actor),
        beaten: beaten.map { LogEntry($0, position: 0, isCurrent: false) }.sorted { $0.stamp > $1.stamp })
    }
  }

  /// Beaten concurrent values that are kept, newest first.
  ///
  /// - Throws: `.closed`, `.forked`. What cannot be read is left out.
  public func conflicts() throws(StoreError) -> [LogEntry] {
    try reading { engine throws(StoreError) in
      engine.losers.compactMap { try? engine.record(at: $0) }
        .map { LogEntry($0, position: 0, isCurrent: false) }.sorted { $0.stamp > $1.stamp }
    }
  }

  /// Reads every record and every blob. `progress` is told how many bytes were read of how many. A store that is open for
  /// writing does what is to be done about damage to its journal: from then on peers give again what was lost.
  ///
  /// - Throws: `.inputOutput` if the disk fails; `.closed`, `.forked`. Damage is no error here: the report
  ///   has it.
  public func verify(
    progress: (_ done: UInt64, _ total: UInt64) -> Void = { _, _ in }
  ) throws(StoreError) -> VerificationReport {
    var report = VerificationReport()
    var blobs: [BlobHash: BlobReference] = [:]
    var isNew = false
    try reading { engine throws(StoreError) in
      report = VerificationReport()
      for gap in engine.gaps where !engine.state.resolved.contains(gap.place) {
        report.damage.append(describe(gap, engine))
      }
      for segment in engine.journal.segments where segment.headerDamaged {
        report.damage.append("segment \(segment.number): one of the two copies of its header is damaged")
      }
      try Self.reread(engine) { line in
        report.damage.append(line)
        isNew = true
      }
      for location in try engine.locations() {
        do throws(StoreError) {
          let record = try engine.record(at: location)
          report.records += 1
          if case .blob(let blob) = record.content { blobs[blob.hash] = blob }
        } catch {
          let key = Key(unchecked: engine.key(at: location))
          report.damage.append("key \(key): \(error.description)")
        }
      }
    }
    if isNew, isWritable { try mend() }
    let problems = try self.blobs.verify(progress: progress)
    // A torn object that no record refers to is what a transaction left that never happened: it is set aside, nothing is lost.
    for problem in problems where problem.hash.map({ blobs[$0] != nil }) ?? true {
      report.damage.append("blobs/\(problem.name): \(problem.problem)")
    }
    let wanted = Set(try missingBlobsWithoutForgetting())
    let left = Set(try (absentBlobs(.leftOut) + absentBlobs(.evicted)).map(\.hash))
    let damaged = Set(problems.compactMap(\.hash))
    for blob in blobs.values.sorted(by: { $0.hash < $1.hash }) {
      if !damaged.contains(blob.hash), try self.blobs.has(blob) {
        report.blobs += 1
      } else if wanted.contains(blob.hash), !damaged.contains(blob.hash) {
        report.missingBlobs.append(blob)
      } else if left.contains(blob.hash), !damaged.contains(blob.hash) {
        report.absentBlobs += 1
      } else {
        if !damaged.contains(blob.hash) { report.damage.append("blob \(blob.hash) is gone") }
        report.damagedBlobs.append(blob)
        if isWritable { try want(blob) }
      }
    }
    return report
  }

  /// Damage below a watermark that came about since the journal was read.
  private static func reread(_ engine: Engine, _ report: (String) -> Void) throws(StoreError) {
    for (place, segment) in engine.journal.segments.enumerated() {
      let limit =
        segment.number == engine.applied.segment
        ? engine.applied.offset : engine.journal.sealedLength(at: place) ?? 0
      var walker = SegmentWalker(segment, limit: limit)
      while let step = walker.next() {
        guard case .gap(let range) = step else { continue }
        let damage = JournalDamage(segment: segment.number, bytes: range)
        if !engine.knownGaps.contains(damage) {
          report("segment \(segment.number), bytes \(range): damaged while in use")
        }
      }
    }
  }

  private func describe(_ gap: JournalDamage, _ engine: Engine) -> String {
    let key = engine.damagedKeys.first { $0.value == gap.place }.map {
      " (a record of key \(Key(unchecked: $0.key)))"
    }
    return "segment \(gap.segment), bytes \(gap.bytes): damaged\(key ?? "")"
  }

  private func missingBlobsWithoutForgetting() throws(StoreError) -> [BlobHash] {
    isWritable
      ? try missingBlobs().map(\.hash)
      : try absentBlobs(.awaited).map(\.hash)
  }
}

/// A record of the journal, for people to look at.
public struct LogEntry: Hashable, Sendable {
  /// Its place in this copy's journal.
  public let position: UInt64
  /// Which write it is.
  public let dot: Dot
  /// When it was made.
  public let stamp: Stamp
  /// The newest write by another actor that it replaced.
  public let base: Dot?
  /// Whose value it is; nil for a key of the store's own.
  public let key: Key?
  /// Was the key deleted?
  public let isTombstone: Bool
  /// The type of the value.
  public let type: ValueType
  /// Bytes of the value.
  public let size: UInt64
  /// The value, if it lies in the journal.
  public let value: [UInt8]?
  /// Where the value is, if it lies in the blob tier.
  public let blob: BlobReference?
  /// When it expires, in milliseconds since 1970.
  public let deadline: UInt64?
  /// Is it the key's latest?
  public let isCurrent: Bool

  /// The value as a type of the program; nil for a delete, and for a value in the blob tier.
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
  /// The record that counts.
  public let winner: LogEntry
  /// Was it written by this copy, in this or an earlier incarnation?
  public let isLocal: Bool
  /// Concurrent values that it beat and that are kept.
  public let beaten: [LogEntry]
}

/// What `verify` found.
public struct VerificationReport: Hashable, Sendable {
  /// Records that are whole and current.
  public var records = 0
  /// Blobs that are whole.
  public var blobs = 0
  /// One line for each place that is damaged.
  public var damage: [String] = []
  /// Blobs that are damaged or gone.
  public var damagedBlobs: [BlobReference] = []
  /// Blobs that have not arrived from a peer yet: not damage.
  public var missingBlobs: [BlobReference] = []
  /// Blobs that are not here on purpose: left out by the policy, or left to keep the limits. Other members hold them.
  public var absentBlobs = 0
  /// Is everything whole?
  public var isClean: Bool { damage.isEmpty }
}
