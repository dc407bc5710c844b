/// Opening a journal after whatever happened to it. The decision is `RecoveryPlan`; this carries it out.
extension Journal {
  /// Reads all segments.
  func scan() -> [SegmentScan] {
    segments.indices.map { index in
      SegmentScan(
        segments[index], limit: sealedLength(at: index) ?? segments[index].mapping.count,
        isLast: index == segments.count - 1)
    }
  }

  /// Decides where the valid part ends. Writes nothing.
  func plan(_ scans: [SegmentScan], atWatermark: Bool) -> RecoveryPlan? {
    guard !segments.isEmpty else { return nil }
    return RecoveryPlan(
      headers: segments.map(\.header), ends: segments.indices.map { sealedLength(at: $0) }, scans: scans,
      atWatermark: atWatermark)
  }

  /// Sets aside what lies behind the valid part and seals the segment there: appending goes on in a new one (rule R3).
  /// Done again after a crash in the middle, it ends in the same state (F8).
  ///
  /// `transactions` are to be in the new segment as soon as it is there. Returns where they end; nil if nothing was cut.
  mutating func carryOut(
    _ plan: RecoveryPlan, position: UInt64, blank: UInt32?, transactions: [[JournalEntry]]
  ) throws(StoreError) -> Int? {
    let storage = environment.storage
    if let blank { _ = try storage.remove(path(of: blank)) }
    guard plan.cuts else { return nil }
    // Later segments first, from the last one, each durably: the chain of numbers stays dense at every moment.
    for segment in segments[(plan.tailIndex + 1)...].reversed() {
      try storage.rename(
        path(of: segment.number), to: directory + "/aside-\(segment.number)-\(environment.now())")
      try storage.syncDirectory(directory)
    }
    drop(behind: plan.tailIndex)
    let tail = segments[plan.tailIndex]
    if let last = tail.mapping.lastNonZero(plan.tailOffset..<tail.mapping.count) {
      try storage.replace(
        directory + "/torn-\(tail.number)-\(plan.tailOffset)",
        with: tail.mapping.bytes(plan.tailOffset..<(last + 1)))
    }
    return try begin(
      after: plan.tailOffset, durable: min(plan.watermark, plan.tailOffset), position: position,
      transactions: transactions)
  }

  /// Does the valid part of the last segment end in a whole, complete transaction? What a killed writer had stored, but
  /// not yet published, is taken in as far as it is complete; the rest is blanked, lest it be taken for records once new
  /// ones end where it begins (F2, F13).
  func endOfUnpublished(from offset: Int, to limit: Int, in segment: Segment) -> Int {
    let limit = min(limit, segment.mapping.count)
    var walker = SegmentWalker(segment, from: offset, limit: limit, isSealed: true)
    var end = offset
    while case .record(let view)? = walker.next() {
      if !view.flags.contains(.continues) { end = view.end }
    }
    return end
  }
}
