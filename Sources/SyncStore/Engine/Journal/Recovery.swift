/// Crash recovery of a journal. `RecoveryPlan` decides; this extension carries it out.
extension Journal {
  /// Scans all segments.
  func scan() -> [SegmentScan] {
    segments.indices.map { index in
      SegmentScan(
        segments[index], limit: closedLength(at: index) ?? segments[index].mapping.count,
        isLast: index == segments.count - 1 && segments[index].defects.truncatedEnd == nil)
    }
  }

  /// Decides where the valid part ends. Writes nothing.
  ///
  /// - Throws: `.inputOutput` or `.damaged` if pages there cannot be read: what is unreadable now must not be
  ///   cut off (F28).
  func plan(_ scans: [SegmentScan], atWatermark: Bool) throws(StoreError) -> RecoveryPlan? {
    guard !segments.isEmpty else { return nil }
    let plan = RecoveryPlan(
      headers: segments.map(\.header), ends: segments.indices.map { closedLength(at: $0) }, scans: scans,
      atWatermark: atWatermark)
    try checkFaults(segments[plan.tailIndex...])
    return plan
  }

  /// Sets aside everything after the valid part and closes the segment there: appending continues in a new
  /// one (rule R3). Idempotent: repeated after a crash in the middle, it ends in the same state (F8).
  ///
  /// `transactions` are in the new segment from its beginning. If they come from segments that could not be
  /// synced (`isRescue`) and this fails, those segments are restored by `restoreUnsyncedNames`. Returns where
  /// the transactions end; nil if nothing was cut.
  mutating func carryOut(
    _ plan: RecoveryPlan, position: UInt64, blank: UInt32?, transactions: [[JournalEntry]],
    isRescue: Bool = false
  ) throws(StoreError) -> Int? {
    let storage = environment.storage
    if let blank { _ = try storage.remove(path(of: blank)) }
    guard plan.truncates else { return nil }
    // Later segments first, from the last one, each durably: the chain of numbers stays dense at every
    // moment.
    for segment in segments[(plan.tailIndex + 1)...].reversed() {
      // A compacted segment was synced before it was installed.
      let isUnsynced = isRescue && segment.header.compaction == 0
      try storage.rename(
        path(of: segment.number), to: isUnsynced ? unsyncedPath(segment.number) : asidePath(segment.number))
      try storage.syncDirectory(directory)
    }
    drop(after: plan.tailIndex)
    let tail = segments[plan.tailIndex]
    if let last = tail.mapping.lastNonZero(plan.tailOffset..<tail.mapping.count) {
      do throws(StoreError) {
        try storage.replace(
          directory + "/torn-\(tail.number)-\(plan.tailOffset)",
          with: tail.mapping.bytes(plan.tailOffset..<(last + 1)))
      } catch {
        // On a full disk these bytes stay in the segment alone, after its end, until it is compacted.
        guard error.code == .diskFull else { throw error }
      }
    }
    return try begin(
      after: plan.tailOffset, durable: min(plan.watermark, plan.tailOffset), position: position,
      transactions: transactions, claim: .compaction)
  }

  private static let unsynced = "unsynced-"
  private static let rescued = "rescued-"
  private func unsyncedPath(_ number: UInt32) -> String { directory + "/\(Self.unsynced)\(number)" }
  private func asidePath(_ number: UInt32) -> String { directory + "/aside-\(number)-\(environment.now())" }

  /// Restores the names of segments that could not be synced, if a recovery set them aside and did not finish
  /// rewriting what they hold; what it has written is removed. Only with exclusive access, before anything
  /// reads the journal. Returns the names in the directory afterwards.
  func restoreUnsyncedNames() throws(StoreError) -> [String] {
    let storage = environment.storage
    let names = try storage.list(directory)
    let (numbers, isRescued) = Self.unsyncedSegments(among: names)
    if isRescued {
      try setAsideUnsynced()
      return try storage.list(directory)
    }
    guard let first = numbers.first else { return names }
    let chain = SegmentName.chain(of: try SegmentName.all(of: names, in: directory), from: 1).names
    for name in chain.reversed() where name.covered.lowerBound >= first {
      try storage.rename(directory + "/" + name.text, to: asidePath(name.number))
      try storage.syncDirectory(directory)
    }
    for number in numbers {
      try storage.rename(unsyncedPath(number), to: directory + "/" + SegmentName(number).text)
    }
    try storage.syncDirectory(directory)
    return try storage.list(directory)
  }

  /// True if an unfinished rescue is left to complete or undo.
  var hasUnsynced: Bool {
    get throws(StoreError) {
      let (numbers, isRescued) = try unsyncedSegments()
      return isRescued || !numbers.isEmpty
    }
  }

  /// Sets the unsynced segments aside for good, after all that they hold was written again.
  func finishRescue() throws(StoreError) {
    guard let first = try unsyncedSegments().numbers.first else { return }
    try environment.storage.rename(unsyncedPath(first), to: directory + "/\(Self.rescued)\(first)")
    try environment.storage.syncDirectory(directory)
    try setAsideUnsynced()
  }

  private func setAsideUnsynced() throws(StoreError) {
    let storage = environment.storage
    for number in try unsyncedSegments().numbers {
      try storage.rename(unsyncedPath(number), to: asidePath(number))
    }
    try storage.syncDirectory(directory)
    // Last: this file marks the rescue as complete while others may remain.
    for name in try storage.list(directory) where name.hasPrefix(Self.rescued) {
      let number = UInt32(name.dropFirst(Self.rescued.count)) ?? 0
      try storage.rename(directory + "/" + name, to: asidePath(number))
    }
    try storage.syncDirectory(directory)
  }

  private func unsyncedSegments() throws(StoreError) -> (numbers: [UInt32], isRescued: Bool) {
    Self.unsyncedSegments(among: try environment.storage.list(directory))
  }

  private static func unsyncedSegments(among names: [String]) -> (numbers: [UInt32], isRescued: Bool) {
    let numbers = names.compactMap { name in
      name.hasPrefix(unsynced) ? UInt32(name.dropFirst(unsynced.count)) : nil
    }
    return (numbers.sorted(), names.contains { $0.hasPrefix(rescued) })
  }

  /// The end of the last complete transaction that a killed writer stored but did not publish. Up to there it
  /// is replayed; the rest is zeroed, otherwise it would be taken for records once new ones end where it
  /// begins (F2, F13).
  func endOfUnpublished(from offset: Int, to limit: Int, in segment: Segment) -> Int {
    let limit = min(limit, segment.mapping.count)
    var walker = ResyncingRecordIterator(segment, from: offset, limit: limit, leavesEncrypted: true)
    var end = offset
    while case .record(let view)? = walker.next() {
      if !view.flags.contains(.continues) { end = view.end }
    }
    return end
  }

  /// Zeros what a dead writer may have stored after the valid part, up to `writing`.
  func blank(after end: Location, upTo writing: Location?) {
    guard let segment = segment(end.segment), let writing, writing.segment == end.segment else { return }
    let limit = min(writing.offset, segment.mapping.count)
    if end.offset < limit, let last = segment.mapping.lastNonZero(end.offset..<limit) {
      segment.mapping.clear(end.offset..<(last + 1))
    }
  }
}
