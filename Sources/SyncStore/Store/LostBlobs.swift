/// Recovery of records whose blobs were lost with the power.
///
/// A small blob is not synced when it is put, but before the journal is (`BlobTier.syncBlobs`). Every write
/// acknowledged as durable therefore has its blob. Of other writes the record may have reached the disk
/// without its blob: it is truncated with everything after it, like a torn tail (rules R3, R7).
extension Journal {
  /// Truncates before the first record above the durable offset whose blob is incomplete; `open` opens the
  /// blob tier. Only after a loss of power.
  func truncateAtLostBlob(
    _ plan: inout RecoveryPlan, _ open: () throws(StoreError) -> BlobStore
  ) throws(StoreError) {
    var blobs: BlobStore?
    for index in plan.durableIndex...plan.tailIndex where segments[index].header.compaction == 0 {
      let start = index == plan.durableIndex ? plan.durableOffset : SegmentHeader.length
      let end = index == plan.tailIndex ? plan.tailOffset : closedLength(at: index)
      var walker = ResyncingRecordIterator(
        segments[index], from: start, limit: end ?? segments[index].mapping.count)
      var transaction = (start: start, blobs: [BlobReference](), wanted: Set<BlobHash>())
      while let step = walker.next() {
        guard case .record(let view) = step else {
          transaction = (walker.offset, [], [])
          continue
        }
        if let shape = view.shape {
          if let blob = view.blob(shape) { transaction.blobs.append(blob) }
          if let hash = view.wanted(shape) { transaction.wanted.insert(hash) }
        }
        guard !view.flags.contains(.continues) else { continue }
        for blob in transaction.blobs where !transaction.wanted.contains(blob.hash) {
          if blobs == nil { blobs = try open() }
          guard let tier = blobs else { continue }
          if try tier.isWhole(blob) || hasEarlierReference(to: blob.hash, before: index, transaction.start) {
            continue
          }
          plan.truncateTorn(at: index, transaction.start)
          return
        }
        transaction = (walker.offset, [], [])
      }
    }
  }

  /// Whether an earlier record refers to the blob or marks it as absent: then it was not lost by this power
  /// failure.
  private func hasEarlierReference(to hash: BlobHash, before last: Int, _ limit: Int) -> Bool {
    for index in 0...last {
      let end = index == last ? limit : closedLength(at: index) ?? segments[index].mapping.count
      var walker = ResyncingRecordIterator(segments[index], limit: end)
      while let step = walker.next() {
        guard case .record(let view) = step, let shape = view.shape else { continue }
        if view.blob(shape)?.hash == hash || view.wanted(shape) == hash { return true }
      }
    }
    return false
  }
}

extension RecordView {
  /// The blob that a local record marks as absent.
  fileprivate func wanted(_ shape: RecordShape) -> BlobHash? {
    guard kind == .local else { return nil }
    let key = key(shape)
    guard key.starts(with: AbsentBlob.prefix) else { return nil }
    return BlobHash(bytes: key.dropFirst(AbsentBlob.prefix.count))
  }
}

extension RecoveryPlan {
  /// Truncates at an offset above the watermark, as at a torn write.
  fileprivate mutating func truncateTorn(at index: Int, _ offset: Int) {
    watermark = index == durableIndex ? durableOffset : SegmentHeader.length
    (tailIndex, tailOffset, truncates) = (index, offset, true)
  }
}

extension BlobStore {
  /// Whether the blob is here with all its bytes.
  func isWhole(_ reference: BlobReference) throws(StoreError) -> Bool {
    for (name, isEncrypted) in names(of: reference.hash) {
      guard let (pack, slot) = try packs.lookUp(name, refreshing: false) else { continue }
      guard let entry = pack.entry(slot),
        Self.contentSize(UInt64(entry.size), isEncrypted: isEncrypted) == reference.size
      else { return false }
      return try pack.isWhole(entry)
    }
    return try has(reference)
  }
}
