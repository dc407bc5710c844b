private import Synchronization

/// Records whose blobs a loss of power took.
///
/// A small blob is not synced when it is put, but before the journal is (`Store.syncBlobs`). So what was acknowledged as
/// durable has its blob; of what was not, a record may have reached the disk and its blob not. It is lost then, with all
/// behind it, as a torn tail is (rules R3, R7).
extension Journal {
  /// Cuts before the first record, behind what is known durable, whose blob is not whole: `open` gives the blob tier. Only
  /// after a loss of power.
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

  /// Does an earlier record refer to the blob, or say that it is wanted? Then it is not this loss that took it.
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
  /// The blob that a local key of the store says is wanted.
  fileprivate func wanted(_ shape: Shape) -> BlobHash? {
    guard kind == .local else { return nil }
    let key = key(shape)
    guard key.starts(with: AbsentBlob.prefix) else { return nil }
    return BlobHash(bytes: key.dropFirst(AbsentBlob.prefix.count))
  }
}

extension RecoveryPlan {
  /// Cuts at a place above the watermark: what lies behind is not whole.
  fileprivate mutating func truncateTorn(at index: Int, _ offset: Int) {
    watermark = index == durableIndex ? durableOffset : SegmentHeader.length
    (tailIndex, tailOffset, truncates) = (index, offset, true)
  }
}

extension Store {
  /// Makes blobs durable before the records that refer to them can be (rule R7): those of this process, of others, and what a process of
  /// an earlier life has left.
  ///
  /// - Throws: `.diskFull` if what was left has first to be copied, and there is no room; `.busy` if another process is to do that, or does
  ///   it: nothing was written that could be lost, and the next sync tries again. `.inputOutput` where no descriptor is left: the same.
  ///   `.poisoned` if anything else fails: nothing more is written.
  func syncBlobs() throws(StoreError) {
    let put = control.blobsPut
    let isFirst = !hasSyncedBlobs.load(ordering: .acquiring)
    guard isFirst || put != control.blobsDurable else { return }
    var mayWait = true
    do throws(StoreError) {
      let packs = path + "/" + StoreLayout.blobs + "/packs"
      if try put == control.blobsDurable ? environment.storage.status(packs) != nil : true {
        let blobs = try blobs
        try blobs.salvageFailedPacks()
        mayWait = false
        try blobs.sync()
      }
    } catch {
      // It was closed before this could begin: nothing has failed, and nothing is called durable.
      if error.code == .closed || error.code == .forked { throw error }
      // Nothing of what this process has written has failed.
      guard error.code == .busy || error.isOutOfDescriptors || mayWait && error.code == .diskFull else {
        throw poisoned(by: error)
      }
      throw StoreError(
        error.code, "large values that could not be made durable are to be copied first: \(error.message)",
        path: error.path, errno: error.errno)
    }
    control.raiseBlobsDurable(to: put)
    hasSyncedBlobs.store(true, ordering: .releasing)
  }

  /// The blob tier as a recovery sees it, which changes nothing.
  static func blobsForRecovery(
    at path: String, environment: Environment, seal: JournalKeys
  ) throws(StoreError) -> BlobStore {
    try BlobStore.open(
      directory: path + "/" + StoreLayout.blobs, storage: environment.storage, readOnly: true,
      boot: environment.bootWord, keys: BlobKeySource(seal), clock: environment.now,
      random: environment.randomWord)
  }
}

extension BlobStore {
  /// Is the object here, with all its bytes?
  func isWhole(_ reference: BlobReference) throws(StoreError) -> Bool {
    for (name, isSealed) in names(of: reference.hash) {
      guard let (pack, slot) = try packs.lookUp(name, refreshing: false) else { continue }
      guard let entry = pack.entry(slot),
        Self.contentSize(UInt64(entry.size), isEncrypted: isSealed) == reference.size
      else { return false }
      return try pack.isWhole(entry)
    }
    return try has(reference)
  }
}
