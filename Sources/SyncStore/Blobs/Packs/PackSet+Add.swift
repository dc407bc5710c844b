internal import Synchronization

// Adding objects to packs, and making them durable.
extension PackSet {
  /// Retains an existing object: false if it is missing, or can no longer become durable.
  func retain(_ name: BlobHash, size: Int? = nil, refreshing: Bool = false) throws(StoreError) -> Bool {
    try retainedDurability(name, size: size, refreshing: refreshing) != nil
  }

  /// Retains an existing object, and tells whether it is known to be durable; nil if it is missing or can no
  /// longer become so.
  func retainedDurability(
    _ name: BlobHash, size: Int? = nil, refreshing: Bool = false
  ) throws(StoreError) -> Bool? {
    guard let (pack, slot) = try lookUp(name, refreshing: refreshing) else { return nil }
    if let size, pack.size(slot) != size { return nil }
    guard !cannotBecomeDurable(pack, slot), pack.raiseStamp(of: slot, to: stamp(), strictly: true) else {
      return nil
    }
    let isNamed = pack.isClosed || pack.isNamed.load(ordering: .acquiring)
    return isNamed && slot < pack.durable
  }

  /// Raises the stamp of an object that is read: the order of last use is exact.
  ///
  /// It costs one word in a mapped table, which the kernel writes back at its own pace.
  func recordUse(_ pack: Pack, _ slot: Int) {
    // If stores to mapped pages are refused, as on a full copy-on-write file system, reads continue without
    // recording uses.
    guard !useStamps.isRecordingPaused else { return }
    pack.raiseStamp(of: slot, to: stamp())
    if pack.hasMappingFault { useStamps.pauseRecording() }
  }

  /// Whether the entry can no longer become durable, because a sync failed.
  func cannotBecomeDurable(_ pack: Pack, _ slot: Int) -> Bool { pack.hasFailed && slot >= pack.durable }

  /// Treatment of an existing object of the same name.
  enum Adding {
    case unlessThere, replacing
    /// A copy of an object that is being moved: the original stays for now; one that was removed or replaced
    /// since is not moved.
    case moving(MovedObject)
  }

  /// Adds an object. Nothing is synced. Returns the size of the object that it replaced.
  @discardableResult
  func add(
    _ name: BlobHash, _ bytes: [UInt8], isEncrypted: Bool = false, stamp given: UInt64? = nil,
    _ adding: Adding = .unlessThere
  ) throws(StoreError) -> Int? {
    try load()
    let checksum = XXH3.hash64(bytes, seed: 0)
    return try writing.withLock { writer throws(StoreError) in
      var isMoving = false
      if case .moving = adding { isMoving = true }
      let (pack, ordinal) = try room(for: bytes.count, isMoving: isMoving, &writer)
      let entry = PackEntry(
        name: name, offset: writer.end, size: bytes.count, isEncrypted: isEncrypted, checksum: checksum)
      try pack.file.write(bytes, at: entry.offset)
      pack.publish(entry, stamp: given ?? stamp())
      guard !pack.hasMappingFault else { throw pack.mappingFaultError }
      writer.end = PackLayout.aligned(entry.offset + entry.size)
      syncs.recordAdded()
      return try state.withLock { state throws(StoreError) in
        let slot = pack.count - 1
        state.packs[ordinal].isOwn = true
        // Other threads may have indexed the entry between publishing and locking.
        defer { state.packs[ordinal].loaded = max(state.packs[ordinal].loaded, slot + 1) }
        if case .moving(let source) = adding, !source.isLive {
          pack.remove(slot)
          return nil
        }
        if case .moving(let source) = adding { source.recordCopy(Self.slotReference(ordinal, slot)) }
        guard let (old, oldSlot) = try lookUp(name, &state), !(old.isSame(as: pack) && oldSlot == slot) else {
          try indexEntry(pack, slot: slot, ordinal: ordinal, &state)
          return nil
        }
        switch adding {
        case .unlessThere:
          // Another thread added it first; an object that can no longer become durable is replaced, too.
          guard cannotBecomeDurable(old, oldSlot) else {
            pack.remove(slot)
            return nil
          }
        case .replacing: break
        case .moving(let source):
          guard source.lies(in: old, oldSlot) || cannotBecomeDurable(old, oldSlot) else {
            pack.remove(slot)
            return nil
          }
          // Carry over the stamp: a use of the original since it was read counts for the copy.
          pack.raiseStamp(of: slot, to: source.pack.word(source.slot).stamp)
          try indexEntry(pack, slot: slot, ordinal: ordinal, &state, replacing: true)
          return nil
        }
        let size = old.size(oldSlot)
        try indexEntry(pack, slot: slot, ordinal: ordinal, &state, replacing: true)
        old.remove(oldSlot)
        if case .replacing = adding {
          removeDuplicates(name, &state)
        } else if let ordinal = state.ordinals[old.header.number] {
          forgetDuplicate(old, slot: oldSlot, place: Self.slotReference(ordinal, oldSlot), &state)
        }
        return size
      }
    }
  }

  /// The pack to add `count` bytes to.
  private func room(
    for count: Int, isMoving: Bool, _ writer: inout Writer
  ) throws(StoreError) -> (Pack, Int) {
    let needed = PackLayout.aligned(count)
    if let pack = writer.pack, let ordinal = writer.ordinal {
      if !pack.hasFailed, pack.count < pack.header.slots, writer.end + needed <= pack.header.size {
        return (pack, ordinal)
      }
      let isMany = state.withLock { state in
        state.packs[ordinal].isRetired = true
        return state.openPacks >= Self.maxOpenPacks
      }
      let mean = (writer.end - pack.header.tableBytes) / max(pack.count, 1)
      if settings.savesSpace { cut(pack, ordinal) }
      writer = Writer(meanBytes: mean)
      // Only the descriptors of closed packs can be released, and a cache that never fills up closes none
      // by itself.
      if isMany { Background.runMaintenance { [weak self] in _ = try? self?.sync() } }
    }
    let mean = writer.meanBytes > 0 ? writer.meanBytes : needed
    let pack = try makePack(for: needed, mean: mean, isMoving: isMoving)
    let ordinal = try state.withLock { state throws(StoreError) in try register(pack, &state) }
    writer = Writer(ordinal: ordinal, pack: pack, end: pack.header.tableBytes, meanBytes: mean)
    return (pack, ordinal)
  }

  /// Frees what was allocated beyond the end of a pack that is full. Until it is closed, opening recovers it
  /// like one whose writer was killed.
  private func cut(_ pack: Pack, _ ordinal: Int) {
    let size = max((pack.end + 4095) & ~4095, pack.header.tableBytes)
    guard size < pack.header.size, !pack.hasFailed, (try? pack.file.resize(to: size)) != nil else { return }
    state.withLock { $0.setFileBytes(size, ordinal) }
  }

  /// - Parameter mean: Average size of an object, as far as known.
  private func makePack(for needed: Int, mean: Int, isMoving: Bool) throws(StoreError) -> Pack {
    let (present, fileBytes) = state.withLock { ($0.liveBytes, $0.fileBytes) }
    let limit = space.limit
    var wanted = settings.smallestBytes
    while wanted < settings.packBytes, wanted < present / 4 { wanted *= 2 }
    // Space is reclaimed by whole files: none may take a large share of the limit.
    if limit < .max { wanted = min(wanted, max(limit / 16, 64 << 10) & ~4095) }
    // A full disk may have room for this one object.
    let least = PackLayout.fileBytes(for: needed)
    let allowed = isMoving ? space.limitForMoving : limit
    let taken = fileBytes + space.trashBytes
    guard allowed == .max || taken + max(wanted, least) <= allowed else {
      throw StoreError(
        .diskFull, "the files have \(taken) of \(allowed) bytes that they may have: raise the limit",
        path: files.directory)
    }
    let sizes = wanted > least ? [wanted, least] : [least]
    let free = try files.storage.freeBytes(files.directory)
    for size in sizes {
      guard free >= settings.reserveBytes, free - settings.reserveBytes >= size else { continue }
      let fitting = PackLayout.tableBytes(for: size, mean: mean)
      let table = settings.savesSpace && size - fitting >= needed ? fitting : nil
      do throws(StoreError) { return try makePack(size: size, table: table) } catch {
        guard error.code == .diskFull, size != sizes.last else { throw error }
      }
    }
    throw StoreError(
      .diskFull,
      "\(needed) bytes do not fit into \(free) free ones, of which \(settings.reserveBytes) stay reserved: make room",
      path: files.directory, errno: SystemCall.noSpace)
  }

  private func makePack(size: Int, table: Int?) throws(StoreError) -> Pack {
    // Never reuse a number: a process that knows the removed pack would take the new one for it. The
    // directory does not show removed numbers, so numbers start at the current time.
    var number = max(state.withLock { ($0.packs.map(\.number).max() ?? 0) + 1 }, environment.now())
    // It is missing if removing everything at once was interrupted.
    if try files.storage.createDirectory(files.path("packs")) {
      try files.storage.syncDirectory(files.directory)
    }
    while true {
      guard number <= PackLayout.greatestNumber else {
        throw StoreError(.outOfBounds, "no number is left for a pack: set the clock", path: files.directory)
      }
      let name = Pack.name(number)
      let file: any StorageFile
      do throws(StoreError) { file = try files.storage.open(name, beneath: files.directory, .create) } catch {
        guard error.errno == SystemCall.exists else { throw error }
        number += 1
        continue
      }
      do throws(StoreError) {
        // Held until the pack is closed, or its writer is dead. Another process may be checking this empty
        // file right now.
        guard try file.lock(byte: 0, .exclusive, wait: true), try file.status().links > 0 else {
          number += 1
          continue
        }
        try file.allocate(to: size)
        let header = PackHeader(number: number, size: size, salt: environment.randomWord(), table: table)
        let pack = try Pack(header, name: name, file: file, isWritable: true)
        // It is filled from its start, and the rest reads as zeros until then.
        pack.table.adviseRandom()
        pack.boot = environment.boot
        file.mark()
        for offset in PackLayout.headerCopies { try file.write(header.encoded, at: offset) }
        return pack
      } catch {
        _ = try? files.remove(name)
        throw error
      }
    }
  }

  // MARK: Durability

  /// Makes all objects durable that any process added so far, except those of packs awaiting
  /// `salvageFailedPacks`.
  ///
  /// Calls during a running sync share the next one.
  ///
  /// - Throws: the error of a failed sync; its objects are never retained again.
  func sync() throws(StoreError) {
    try load()
    if !isShared, syncs.isAllDurable { return }
    try syncs.wait { () throws(StoreError) in try syncNow() }
  }

  private func syncNow() throws(StoreError) {
    let coverage = syncs.begin()
    if isShared { try refresh() }
    let open = try state.withLock { state throws(StoreError) -> [(Pack, KnownPack)] in
      var open: [(Pack, KnownPack)] = []
      for ordinal in state.packs.indices {
        let known = state.packs[ordinal]
        if known.isClosed || known.isGone || known.isEvacuating || known.needsSalvage { continue }
        guard var pack = try pack(ordinal, &state) else { continue }
        if pack.hasMappingFault { pack = try remap(pack, ordinal: ordinal, &state, ignoringBackoff: true) }
        open.append((pack, known))
      }
      return open
    }
    for (pack, known) in open { try syncPack(pack, isOwn: known.isOwn) }
    let unnamed = open.filter { !$0.0.isNamed.load(ordering: .acquiring) }
    if !unnamed.isEmpty {
      do throws(StoreError) {
        try files.storage.syncDirectory(files.path("packs"))
        try files.syncDirectories()
      } catch {
        if !error.isOutOfDescriptors { onFailedSync(error) }
        throw error
      }
      for (pack, _) in unnamed { pack.isNamed.store(true, ordering: .releasing) }
    }
    syncs.complete(coverage)
    for (pack, known) in open where known.isRetired { closePack(pack) }
  }

  private func syncPack(_ pack: Pack, isOwn: Bool) throws(StoreError) {
    let (count, durable) = (pack.count, pack.durable)
    guard !pack.hasMappingFault else {
      // *count* cannot be read. Objects that this process added must not be reported durable; an abandoned
      // pack of another process costs its own keys, not the store.
      guard isOwn else { return }
      onFailedSync(pack.mappingFaultError)
      throw pack.mappingFaultError
    }
    guard durable < count else { return }
    guard !pack.hasFailed else {
      guard isOwn else {
        throw StoreError(
          .busy, "another process could not make durable what is in it, or is copying it: try again",
          path: pack.file.path)
      }
      throw StoreError(
        .poisoned, "a sync of this pack failed: close the store, check the disk, and open it again",
        path: pack.file.path)
    }
    do throws(StoreError) { try pack.file.sync() } catch {
      pack.setState(PackLayout.failedState)
      onFailedSync(error)
      throw error
    }
    pack.durable = count
  }

  /// Closes a full pack whose objects are all durable, and frees what was allocated beyond its end.
  func closePack(_ pack: Pack) {
    // Check for failure last: what was read before is then what the file holds.
    guard pack.durable == pack.count, !pack.hasFailed else { return }
    pack.setState(PackLayout.closedState)
    let size = max((pack.end + 4095) & ~4095, pack.header.tableBytes)
    let isCut = (try? pack.file.resize(to: size)) != nil
    _ = try? pack.file.lock(byte: 0, .none, wait: false)
    state.withLock { state in
      guard let ordinal = state.ordinals[pack.header.number] else { return }
      if isCut, !state.packs[ordinal].isGone { state.setFileBytes(size, ordinal) }
      // Otherwise it is marked closed once all its entries are indexed.
      if state.packs[ordinal].loaded >= pack.count { state.packs[ordinal].isClosed = true }
    }
  }

  /// Makes everything durable and releases the pack being written. The set can be used again afterwards.
  func close() {
    guard !readOnly else { return }
    _ = try? sync()
    writing.withLock { writer in
      if let pack = writer.pack {
        // The next process continues with it.
        _ = try? pack.file.lock(byte: 0, .none, wait: false)
        state.withLock { state in
          if let ordinal = writer.ordinal, pack.durable == pack.count {
            state.packs[ordinal].isClosed = pack.isClosed
          }
        }
      }
      writer = Writer()
    }
  }
}
