internal import Synchronization

// What killed processes and losses of power leave, and giving space back.
extension PackSet {
  /// Looks at packs that nobody adds to and that are not sealed: what is whole is made durable, one that has room is
  /// added to from now on, the others are sealed. What those hold whose sync had failed is to be copied.
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
      // What is added behind the end of the file could not be read in this process.
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
      // Whoever comes to it first copies it.
      _ = try pack.file.lock(byte: 0, .none, wait: false)
    }
  }

  /// Copies to others what lives in packs that were left with a sync that had failed, and removes them.
  ///
  /// - Throws: `.diskFull` if there is no room for the copies, `.busy` if another process is at it: what is left can be read, and it can be
  ///   tried again.
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

  /// What a process has left that has gone since this one came.
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

  /// False if a living process adds to it.
  private func recover(_ pack: Pack) throws(StoreError) -> Bool {
    guard try pack.file.lock(byte: 0, .exclusive, wait: false) else { return false }
    if pack.isClosed {
      _ = try pack.file.lock(byte: 0, .none, wait: false)
      return false
    }
    if try pack.file.status().size < pack.header.size {
      // Sealing was interrupted, or the size lost: where there is no room now, nothing is added.
      _ = try? pack.file.allocate(to: pack.header.size)
    }
    if pageCacheSurvived(pack) {
      // No checksum guards *count*: an entry after it that is whole was there.
      pack.count = pack.entryCount(atLeast: pack.count)
    } else {
      var end = 0
      for slot in 0..<pack.header.slots where pack.isValid(slot) || pack.repair(slot) { end = slot + 1 }
      let known = min(pack.durable, end)
      pack.count = end
      for slot in known..<end {
        // What was not durable may be lost, and that is no damage.
        guard let entry = pack.entry(slot) else {
          pack.table.clear(PackLayout.offset(slot)..<PackLayout.offset(slot + 1))
          continue
        }
        if pack.word(slot).isLive, try !pack.isWhole(entry) { pack.remove(slot) }
      }
    }
    if !pack.hasMappingFault {
      pack.table.clear(PackLayout.offset(pack.count)..<pack.header.tableBytes)
      pack.boot = boot
      pack.file.mark()
    }
    // What cannot be read, or written, stays as it is, for a day when it can.
    guard !pack.hasMappingFault else {
      _ = try pack.file.lock(byte: 0, .none, wait: false)
      return false
    }
    // Pages whose sync failed are not synced again: what they hold is written anew, elsewhere (F31).
    guard !pack.hasFailed else { return true }
    do throws(StoreError) { try pack.file.sync() } catch {
      pack.setState(PackLayout.failedState)
      throw error
    }
    pack.durable = pack.count
    return true
  }

  /// Is all there that was written to it last, whether it was synced or not? A file system that was lost and is mounted anew shows
  /// what the disk has, in the same boot.
  func pageCacheSurvived(_ pack: Pack) -> Bool { pack.boot == boot && boot != 0 && pack.file.isMarked }

  // MARK: Giving back

  /// Removes an object, whoever counts on it. Its bytes; nil if it was not here.
  func remove(_ name: BlobHash) throws(StoreError) -> Int? {
    guard try lookUp(name, refreshing: true) != nil else { return nil }
    // At once, so that nothing takes its place in between.
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

  /// Removes that very object, and no other one of its name.
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

  /// Removes objects whose stamps are below `limit` still. Returns how many it were.
  func remove(_ places: [UInt32], below limit: UInt64) throws(StoreError) -> Int {
    try inGroups(places) { place, state throws(StoreError) in
      guard let pack = try pack(Self.ordinal(place), &state) else { return false }
      return removeEntry(pack, slot: Self.slot(place), ordinal: Self.ordinal(place), below: limit, &state)
    }.count { $0 }
  }

  /// Gives back the files in which nothing lives, and copies what lives out of those of which less than half does. One that cannot be
  /// emptied keeps no other one.
  func reclaim() throws(StoreError) { try reclaim { !$0.isHalfUsed($1) } }

  /// Gives back files until all of them have at most `target` bytes: those in which nothing lives, then those in which the least
  /// does. What lives is copied out of those alone of which a third or more does not: of the others little would come back.
  func reclaim(downTo target: Int) throws(StoreError) {
    try reclaim { known, used in
      let isAbove = self.state.withLock { $0.fileBytes } > target
      return isAbove && known.alignedBytes(used) * 3 <= used * 2
    }
  }

  /// - Parameter isDue: whether what lives in a pack that has so many bytes of objects is to be copied to others.
  private func reclaim(_ isDue: (KnownPack, Int) -> Bool) throws(StoreError) {
    guard !readOnly else { return }
    try load()
    var failure: StoreError?
    do throws(StoreError) { try closeRetired(isDue) } catch {
      // What another process cannot make durable is no matter here.
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
        // For each one alone: who wants all to leave at once does not wait for the others.
        try moving.withLock { _ throws(StoreError) in try reclaim(ordinal, isDue) }
      } catch {
        guard error.code == .poisoned || error.code == .diskFull else { throw error }
        failure = failure ?? error
      }
    }
    if let failure { throw failure }
  }

  /// Seals, by a sync, the packs that this process has filled, where one of them is to be emptied: in a store each sync does that, in a
  /// cache nothing else.
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
      // It is this process's own, and what it is not durable of need never be once nothing lives in it.
      if pack.live.count == 0 { try evacuate(pack, ordinal) }
      return
    }
    _ = try evacuateUnused(pack, ordinal)
  }

  /// Copies what lives in a pack to which nobody adds any more to others, and removes it. False if another process is at it. The
  /// caller holds `moving`.
  func evacuateUnused(_ pack: Pack, _ ordinal: Int) throws(StoreError) -> Bool {
    guard try pack.file.lock(byte: 0, .exclusive, wait: false) else { return false }
    defer { _ = try? pack.file.lock(byte: 0, .none, wait: false) }
    try evacuate(pack, ordinal)
    return true
  }

  /// Copies what lives in a pack to others, and removes it. The caller holds its lock, and `moving`.
  func evacuate(_ pack: Pack, _ ordinal: Int) throws(StoreError) {
    state.withLock { $0.packs[ordinal].isEvacuating = true }
    defer { state.withLock { $0.packs[ordinal].isEvacuating = false } }
    var moved: [MovedObject] = []
    for slot in 0..<pack.count {
      let word = pack.word(slot)
      guard word.isLive, let entry = pack.entry(slot) else { continue }
      let object = MovedObject(pack: pack, slot: slot, name: entry.name)
      // A copy of it may have been left by one who was killed in the middle of this.
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
        // Damage is for who reads it, or verifies: the file stays. But one whose sync has failed would have each sync to come
        // fail, and what it could not store is often what is damaged.
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

  /// An object that has a successor.
  final class MovedObject: Sendable {
    let pack: Pack
    let slot: Int
    /// What its successor is called.
    let name: BlobHash
    /// One more than the place of the copy that this process has made of it; 0 if it has made none.
    private let copied = Atomic<UInt64>(0)

    init(pack: Pack, slot: Int, name: BlobHash) {
      (self.pack, self.slot, self.name) = (pack, slot, name)
    }

    /// Where the copy lies that this process has made; nil if it has made none.
    var copy: UInt32? {
      let copied = copied.load(ordering: .relaxed)
      return copied == 0 ? nil : UInt32(copied - 1)
    }

    func recordCopy(_ place: UInt32) { copied.store(UInt64(place) + 1, ordering: .relaxed) }

    var isLive: Bool { pack.word(slot).isLive }
    func lies(in other: Pack, _ place: Int) -> Bool { pack.isSame(as: other) && slot == place }
  }

  /// Makes the successors durable, then ends the old ones; whoever counted on one meanwhile, or removed it, did so to the new
  /// one. The caller holds `moving` since it looked for the first of them: what another has ended would seem removed.
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
      // Zeros of a page that was refused are no removal.
      guard !moved.pack.hasMappingFault else { throw moved.pack.mappingFaultError }
      guard word.isLive else { return try removeObsoleteCopy(of: moved, below: word.stamp + 1, &state) }
      // It has gone meanwhile: the old one is what there is then.
      guard copy.raiseStamp(of: place, to: word.stamp) else { return }
      let ended = moved.pack.newWord(stamp: word.stamp, isLive: false)
      if moved.pack.exchange(word, by: ended, moved.slot) {
        return unindexOriginal(moved, &state)
      }
    }
  }

  /// Of one that somebody else has ended: it was removed, or moved by another process, whose copy is all that there is then. So nothing
  /// is ended but what this process has made, unless somebody has counted on it since.
  private func removeObsoleteCopy(of moved: MovedObject, below limit: UInt64, _ state: inout State)
    throws(StoreError)
  {
    guard let place = moved.copy else { return }
    let (ordinal, slot) = (Self.ordinal(place), Self.slot(place))
    guard let pack = try pack(ordinal, &state), pack.isNamed(moved.name, slot) else { return }
    _ = removeEntry(pack, slot: slot, ordinal: ordinal, below: limit, withDuplicates: false, &state)
    if !pack.word(slot).isLive { forgetDuplicate(pack, slot: slot, place: place, &state) }
  }

  /// One that had another name than its successor was still counted.
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
