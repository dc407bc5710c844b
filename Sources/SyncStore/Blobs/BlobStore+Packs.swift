// Packed objects.
extension BlobStore {
  /// Stores a small object, once.
  func putPacked(_ bytes: [UInt8], _ form: StoredBlobDescriptor, durable: Bool) throws(StoreError) {
    if try packs.retain(form.name, size: Int(form.size)) {
      if durable { try packs.sync() }
      return
    }
    // It may be stored in a file: put by an earlier version, or restored from a backup.
    if try liesInFile(form.name), try retainExisting(form, durable: durable) { return }
    try packs.add(form.name, form.stored(bytes, salt: newSalt()), isEncrypted: form.isEncrypted)
    if durable { try packs.sync() }
  }

  /// Whether the object may be stored in a file.
  ///
  /// An object that another process put into a file after our first scan is stored a second time: that costs
  /// space, but scanning the directory would slow each put.
  private func liesInFile(_ name: BlobHash) throws(StoreError) -> Bool {
    let prefix = name.prefix
    if let known = memory.withLock({ $0.filePrefixes }) { return known.contains(prefix) }
    let found = try files.objectPrefixes()
    memory.withLock { $0.filePrefixes = found }
    return found.contains(prefix)
  }

  /// Removes unreferenced packed objects that have not been used since `cutoff`, and reclaims their space.
  /// `referenced` holds stored names.
  func sweepPacks(referenced: Set<BlobHash>, before cutoff: UInt64) throws(StoreError) -> Int {
    var orphans: [UInt32] = []
    try packs.eachObject { (pack, slot, ordinal) throws(StoreError) in
      guard pack.word(slot).milliseconds < cutoff, let name = pack.entry(slot)?.name,
        !referenced.contains(name)
      else { return }
      orphans.append(PackSet.slotReference(ordinal, slot))
    }
    // A use from now on raises the stamp of the object, and it stays.
    let removed = try packs.remove(orphans, below: cutoff << 16)
    try packs.reclaim()
    return removed
  }

  /// Quarantines the bytes of a corrupt packed object; returns the error to throw.
  func quarantine(_ hash: BlobHash, pack: Pack, entry: PackEntry) -> StoreError {
    let (name, damaged) = (entry.name, Self.damaged(hash, pack.file.path))
    guard !readOnly else { return damaged }
    do throws(StoreError) {
      var bytes: [UInt8] = []
      try? pack.withBytes(entry) { bytes = [UInt8](copying: $0) }
      try files.quarantineBytes(bytes, name)
      try packs.remove(entry, in: pack)
    } catch {
      // An object that cannot be quarantined stays in place, and is not served.
    }
    return damaged
  }

  /// Inconsistencies in the tables of packs.
  func verifyTables() throws(StoreError) -> [BlobProblem] {
    var problems: [BlobProblem] = []
    for (pack, slots) in try packs.damagedEntries() {
      problems.append(
        BlobProblem(
          hash: nil, name: pack.name,
          problem: "\(slots) entries of its table are damaged: what they named is fetched again"))
    }
    try packs.eachPack { pack, _ throws(StoreError) in
      if pack.headerState == .damaged {
        problems.append(
          BlobProblem(
            hash: nil, name: pack.name, problem: SegmentHeader.oneCopyDamaged(isWritable: !readOnly)))
      }
      let doubtful = (0..<pack.count).count { pack.isValid($0) && pack.word($0).hasFlippedBits }
      if doubtful > 0 {
        problems.append(
          BlobProblem(
            hash: nil, name: pack.name,
            problem:
              "of \(doubtful) objects bits were changed that say whether they are there: nothing was lost"))
        guard !readOnly else { return }
        for slot in 0..<pack.count where pack.word(slot).hasFlippedBits { pack.repairWord(slot) }
      }
    }
    return problems
  }
}

extension PackSet {
  /// Packs with invalid table entries, and their counts.
  func damagedEntries() throws(StoreError) -> [(Pack, Int)] {
    try load()
    var damaged: [(Pack, Int)] = []
    try eachPack { pack, _ throws(StoreError) in
      let count = (0..<pack.count).reduce(0) { $0 + (pack.isValid($1) || pack.isVoid($1) ? 0 : 1) }
      if count > 0 { damaged.append((pack, count)) }
    }
    return damaged
  }
}
