internal import Synchronization

// Recovery after killed processes and power failures, and reclaiming space.
extension PackSet {
  /// Recovers packs that are not closed and have no writer.
  ///
  /// Valid objects are made durable. A pack that has room becomes the one to add to, the others are closed.
  /// Packs whose sync failed are marked for salvage.
  func recoverAbandoned() throws(StoreError) {
    var ours: [(pack: Pack, ordinal: Int)] = []
    try eachPack { pack, ordinal throws(StoreError) in
      if try recover(pack) { ours.append((pack, ordinal)) }
    }
    guard !ours.isEmpty else { return }
    try files.storage.syncDirectory(files.path("packs"))
    try files.syncDirectories()
    var writer = Writer()
    for (pack, ordinal) in ours where !pack.hasFailed {
      pack.isNamed.store(true, ordering: .releasing)
      let end = pack.end
      // Objects beyond the end of the file could not be read in this process.
      let isWhole = try pack.file.status().size >= pack.header.size
      if writer.pack == nil, isWhole, pack.count < pack.header.slots, end + 4096 <= pack.header.size {
        writer = Writer(ordinal: ordinal, pack: pack, end: end)
      } else {
        closePack(pack)
      }
    }
    let chosen = writer
    writing.withLock { $0 = chosen }
    for (pack, ordinal) in ours where pack.hasFailed {
      state.withLock { $0.packs[ordinal].needsSalvage = true }
      // The first process to reach it copies it.
      _ = try pack.file.lock(byte: 0, .none, wait: false)
    }
  }

  /// Copies live objects out of abandoned packs whose sync failed, and removes the packs.
  ///
  /// - Throws: `.diskFull` if there is no room for the copies, `.busy` if another process is copying. The
  ///   objects can still be read, and the call can be retried.
  func salvageFailedPacks() throws(StoreError) {
    guard !readOnly else { return }
    try load()
    if isShared { try findFailedPacks() }
    let left = state.withLock { state in
      state.packs.indices.filter { state.packs[$0].needsSalvage && !state.packs[$0].isGone }
    }
    guard !left.isEmpty else { return }
    try moving.withLock { _ throws(StoreError) in
      for ordinal in left {
        let found = try state.withLock { state throws(StoreError) in try pack(ordinal, &state) }
        guard let found, try !evacuateUnused(found, ordinal) else { continue }
        throw StoreError(.busy, "another process copies what is in it: try again", path: found.file.path)
      }
    }
  }

  /// Finds failed packs of processes that have ended since this one opened the set.
  private func findFailedPacks() throws(StoreError) {
    try refresh()
    try state.withLock { state throws(StoreError) in
      for ordinal in state.packs.indices {
        let known = state.packs[ordinal]
        guard !known.isClosed, !known.isGone, !known.isOwn, !known.needsSalvage,
          let pack = try pack(ordinal, &state),
          !pack.hasMappingFault, pack.hasFailed, try pack.file.lock(byte: 0, .exclusive, wait: false)
        else { continue }
        state.packs[ordinal].needsSalvage = true
        _ = try pack.file.lock(byte: 0, .none, wait: false)
      }
    }
  }

  /// Recovers one pack. False if it is closed or unusable, or a live process adds to it.
  private func recover(_ pack: Pack) throws(StoreError) -> Bool {
    guard try pack.file.lock(byte: 0, .exclusive, wait: false) else { return false }
    if pack.isClosed {
      _ = try pack.file.lock(byte: 0, .none, wait: false)
      return false
    }
    if try pack.file.status().size < pack.header.size {
      // Closing was interrupted, or the size was lost: if there is no room now, nothing is added.
      _ = try? pack.file.allocate(to: pack.header.size)
    }
    if pageCacheSurvived(pack) {
      // No checksum guards *count*: valid entries beyond it had been added.
      pack.count = pack.entryCount(atLeast: pack.count)
    } else {
      var end = 0
      for slot in 0..<pack.header.slots where pack.isValid(slot) || pack.repair(slot) { end = slot + 1 }
      let known = min(pack.durable, end)
      pack.count = end
      for slot in known..<end {
        // Objects that were not durable may be lost; that is no damage.
        guard let entry = pack.entry(slot) else {
          pack.table.clear(PackLayout.offset(slot)..<PackLayout.offset(slot + 1))
          continue
        }
        if pack.word(slot).isLive, try !pack.isWhole(entry) { pack.remove(slot) }
      }
    }
    if !pack.hasMappingFault {
      pack.table.clear(PackLayout.offset(pack.count)..<pack.header.tableBytes)
      pack.boot = environment.boot
      pack.file.mark()
    }
    // A pack that cannot be read or written stays unchanged; a later opening may succeed.
    guard !pack.hasMappingFault else {
      _ = try pack.file.lock(byte: 0, .none, wait: false)
      return false
    }
    // Pages whose sync failed are not synced again: their objects are copied elsewhere (F31).
    guard !pack.hasFailed else { return true }
    do throws(StoreError) { try pack.file.sync() } catch {
      pack.setState(PackLayout.failedState)
      throw error
    }
    pack.durable = pack.count
    return true
  }

  /// Whether everything written to the pack is still visible, synced or not.
  ///
  /// A file system that was lost and mounted again within the same boot shows only what reached the disk.
  func pageCacheSurvived(_ pack: Pack) -> Bool {
    pack.boot == environment.boot && environment.boot != 0 && pack.file.isMarked
  }

  // MARK: Removal

  /// Removes an object even if it is in use. Returns its size; nil if it was missing.
  func remove(_ name: BlobHash) throws(StoreError) -> Int? {
    guard try lookUp(name, refreshing: true) != nil else { return nil }
    // Under one lock, so that no other object takes its place in between.
    return try state.withLock { state throws(StoreError) in
      guard let (pack, slot) = try lookUp(name, &state), let ordinal = state.ordinals[pack.header.number]
      else {
        return nil
      }
      let size = pack.size(slot)
      guard removeEntry(pack, slot: slot, ordinal: ordinal, &state) else {
        if pack.hasMappingFault { throw pack.mappingFaultError }
        return nil
      }
      return size
    }
  }

  /// Removes exactly this object, not another one of the same name.
  func remove(_ entry: PackEntry, in pack: Pack) throws(StoreError) {
    try state.withLock { state throws(StoreError) in
      guard let ordinal = state.ordinals[pack.header.number],
        let slot = (0..<pack.count).first(where: {
          pack.isNamed(entry.name, $0) && pack.entry($0)?.offset == entry.offset
        })
      else { return }
      guard
        removeEntry(pack, slot: slot, ordinal: ordinal, withDuplicates: false, &state)
          || !pack.hasMappingFault
      else { throw pack.mappingFaultError }
      forgetDuplicate(pack, slot: slot, place: Self.slotReference(ordinal, slot), &state)
    }
  }

  /// Removes objects whose stamps are still below `limit`. Returns their count.
  func remove(_ places: [UInt32], below limit: UInt64) throws(StoreError) -> Int {
    try inGroups(places) { place, state throws(StoreError) in
      guard let pack = try pack(Self.ordinal(place), &state) else { return false }
      return removeEntry(pack, slot: Self.slot(place), ordinal: Self.ordinal(place), below: limit, &state)
    }.count { $0 }
  }

  /// Removes packs without live objects, and copies live objects out of packs that are less than half live. A
  /// pack that cannot be emptied does not stop the others.
  func reclaim() throws(StoreError) { try reclaim { !$0.isHalfUsed($1) } }

  /// Reclaims files until their total is at most `target` bytes: first those without live objects, then those
  /// with the fewest.
  ///
  /// Live objects are copied only out of packs of which at least a third is dead: others would free too
  /// little.
  func reclaim(downTo target: Int) throws(StoreError) {
    try reclaim { known, used in
      let isAbove = self.state.withLock { $0.fileBytes } > target
      return isAbove && known.alignedBytes(used) * 3 <= used * 2
    }
  }

  /// - Parameter isDue: Whether to copy live objects out of a pack that has the given bytes of objects.
  private func reclaim(_ isDue: (KnownPack, Int) -> Bool) throws(StoreError) {
    guard !readOnly else { return }
    try load()
    var failure: StoreError?
    do throws(StoreError) { try closeRetired(isDue) } catch {
      // A sync that failed because of another process's pack does not matter here.
      if error.code != .busy { failure = error }
    }
    let candidates = state.withLock { state in
      state.packs.indices.filter {
        (state.packs[$0].isClosed || state.packs[$0].isRetired) && !state.packs[$0].isGone
      }
      .sorted { state.packs[$0].liveCount < state.packs[$1].liveCount }
    }
    for ordinal in candidates {
      do throws(StoreError) {
        // Lock for each pack separately: clearing everything at once must not wait for all of them.
        try moving.withLock { _ throws(StoreError) in try reclaim(ordinal, isDue) }
      } catch {
        guard error.code == .poisoned || error.code == .diskFull else { throw error }
        failure = failure ?? error
      }
    }
    if let failure { throw failure }
  }

  /// Syncs, and thereby closes, packs that this process has filled, if one of them is to be emptied: in a
  /// store every sync closes them, in a cache nothing else does.
  private func closeRetired(_ isDue: (KnownPack, Int) -> Bool) throws(StoreError) {
    let retired = state.withLock { state in
      state.packs.filter { $0.isRetired && !$0.isClosed && !$0.isGone && $0.liveCount > 0 }
    }
    let isOneDue = retired.contains { known in
      guard let pack = known.pack, !pack.hasFailed else { return false }
      return isDue(known, pack.end - pack.header.tableBytes)
    }
    if isOneDue { try sync() }
  }

  private func reclaim(_ ordinal: Int, _ isDue: (KnownPack, Int) -> Bool) throws(StoreError) {
    let (pack, known) = try state.withLock { state throws(StoreError) in
      (try self.pack(ordinal, &state), state.packs[ordinal])
    }
    guard let pack else { return }
    let used = pack.end - pack.header.tableBytes
    guard known.liveCount == 0 || isDue(known, used) else { return }
    if !known.isClosed {
      // It is this process's own; once it has no live object, its entries need not become durable.
      if pack.live.count == 0 { try evacuate(pack, ordinal) }
      return
    }
    _ = try evacuateUnused(pack, ordinal)
  }

  /// Copies live objects out of a pack without a writer, and removes it. False if another process is doing
  /// so. The caller must hold `moving`.
  func evacuateUnused(_ pack: Pack, _ ordinal: Int) throws(StoreError) -> Bool {
    guard try pack.file.lock(byte: 0, .exclusive, wait: false) else { return false }
    defer { _ = try? pack.file.lock(byte: 0, .none, wait: false) }
    try evacuate(pack, ordinal)
    return true
  }

  /// Copies live objects out of a pack, and removes it. The caller must hold the lock of the pack, and
  /// `moving`.
  func evacuate(_ pack: Pack, _ ordinal: Int) throws(StoreError) {
    state.withLock { $0.packs[ordinal].isEvacuating = true }
    defer { state.withLock { $0.packs[ordinal].isEvacuating = false } }
    var moved: [MovedObject] = []
    for slot in 0..<pack.count {
      let word = pack.word(slot)
      guard word.isLive, let entry = pack.entry(slot) else { continue }
      let object = MovedObject(pack: pack, slot: slot, name: entry.name)
      // A process killed while copying may have left a copy.
      if let (other, place) = try lookUp(entry.name, refreshing: false), !other.isSame(as: pack),
        !cannotBecomeDurable(other, place)
      {
        moved.append(object)
        continue
      }
      var copy: [UInt8] = []
      do throws(StoreError) { try pack.withBytes(entry) { copy = [UInt8](copying: $0) } } catch {
        guard error.code == .damaged, pack.hasFailed else { throw error }
      }
      guard XXH3.hash64(copy, seed: 0) == entry.checksum else {
        // Damage is reported by reads and `verify`: the file stays. But a pack whose sync failed would make
        // every later sync fail, and its damage is often what the sync could not write.
        guard pack.hasFailed else { return }
        try files.quarantineBytes(copy, entry.name)
        try remove(entry, in: pack)
        continue
      }
      try add(entry.name, copy, isEncrypted: entry.isEncrypted, stamp: word.stamp, .moving(object))
      moved.append(object)
    }
    try commitMoves(moved)
    let isEmpty = pack.live.count == 0
    guard !pack.hasMappingFault else { throw pack.mappingFaultError }
    guard isEmpty else { return }
    try files.remove(pack.name)
    state.withLock { drop(ordinal, &$0) }
  }

  /// An object that was copied to another pack.
  final class MovedObject: Sendable {
    let pack: Pack
    let slot: Int
    /// Stored name of the copy.
    let name: BlobHash
    /// Slot reference of the copy made by this process, plus one; 0 if it made none.
    private let copied = Atomic<UInt64>(0)

    init(pack: Pack, slot: Int, name: BlobHash) {
      (self.pack, self.slot, self.name) = (pack, slot, name)
    }

    /// Slot reference of the copy made by this process; nil if it made none.
    var copy: UInt32? {
      let copied = copied.load(ordering: .relaxed)
      return copied == 0 ? nil : UInt32(copied - 1)
    }

    func recordCopy(_ place: UInt32) { copied.store(UInt64(place) + 1, ordering: .relaxed) }

    var isLive: Bool { pack.word(slot).isLive }
    func lies(in other: Pack, _ place: Int) -> Bool { pack.isSame(as: other) && slot == place }
  }

  /// Makes the copies durable, then removes the originals. Uses and removals since the copy apply to the
  /// copy.
  ///
  /// The caller must have held `moving` since it looked up the first object: an original removed by another
  /// thread would look deleted.
  func commitMoves(_ batch: [MovedObject]) throws(StoreError) {
    guard !batch.isEmpty else { return }
    try sync()
    for moved in batch {
      try state.withLock { state throws(StoreError) in try commitMove(moved, &state) }
    }
  }

  private func commitMove(_ moved: MovedObject, _ state: inout State) throws(StoreError) {
    guard let (copy, place) = try lookUp(moved.name, &state), !moved.lies(in: copy, place),
      !cannotBecomeDurable(copy, place)
    else { return }
    while true {
      let word = moved.pack.word(moved.slot)
      // Zeros of a refused page are no removal.
      guard !moved.pack.hasMappingFault else { throw moved.pack.mappingFaultError }
      guard word.isLive else { return try removeObsoleteCopy(of: moved, below: word.stamp + 1, &state) }
      // The copy was removed since: the original is the only one left.
      guard copy.raiseStamp(of: place, to: word.stamp) else { return }
      let ended = moved.pack.newWord(stamp: word.stamp, .removed)
      if moved.pack.exchange(word, by: ended, moved.slot) {
        return unindexOriginal(moved, &state)
      }
    }
  }

  /// Removes the copy of an original that another thread or process removed.
  ///
  /// The original was deleted, or moved by another process, whose copy is then the only one. So only the copy
  /// made by this process is removed, unless it was used since.
  private func removeObsoleteCopy(of moved: MovedObject, below limit: UInt64, _ state: inout State)
    throws(StoreError)
  {
    guard let place = moved.copy else { return }
    let (ordinal, slot) = (Self.ordinal(place), Self.slot(place))
    guard let pack = try pack(ordinal, &state), pack.isNamed(moved.name, slot) else { return }
    _ = removeEntry(pack, slot: slot, ordinal: ordinal, below: limit, withDuplicates: false, &state)
    if !pack.word(slot).isLive { forgetDuplicate(pack, slot: slot, place: place, &state) }
  }

  /// Unindexes a removed original. One indexed under another name than its copy is still counted as live.
  private func unindexOriginal(_ moved: MovedObject, _ state: inout State) {
    guard let ordinal = state.ordinals[moved.pack.header.number] else { return }
    let place = Self.slotReference(ordinal, moved.slot)
    if state.slotsByPrefix[moved.pack.prefix(moved.slot)] == place {
      uncountLive(moved.pack, slot: moved.slot, ordinal: ordinal, &state)
      state.slotsByPrefix[moved.pack.prefix(moved.slot)] = nil
    } else {
      forgetDuplicate(moved.pack, slot: moved.slot, place: place, &state)
    }
  }
}
