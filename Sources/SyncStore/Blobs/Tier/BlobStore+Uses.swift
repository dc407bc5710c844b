// The order of last use of objects, and eviction of those not used since.

/// Last use of an object.
struct BlobUse: Sendable {
  /// Slot reference in a pack; nil for an object in a file of its own.
  var place: UInt32?
  /// Stored name; nil for a packed object, whose name is in the table.
  var name: BlobHash?
  /// Milliseconds since 1970, then 16 bits that order uses within one.
  var stamp: UInt64
  /// Stored bytes.
  var size: UInt64

  var milliseconds: UInt64 { stamp >> 16 }
}

extension BlobStore {
  /// All objects here, the least recently used first. Takes locks only briefly.
  func uses() throws(StoreError) -> [BlobUse] {
    checkpoint()
    if packs.isShared { try packs.refresh() }
    var uses = try packs.uses().map {
      BlobUse(place: $0.place, name: nil, stamp: $0.stamp, size: UInt64($0.size))
    }
    for row in try catalogue.rows() where row.state == .present {
      guard let size = try files.size(of: row.hash) else { continue }
      uses.append(BlobUse(place: nil, name: row.hash, stamp: row.accessed << 16, size: size))
    }
    uses.sort { $0.stamp < $1.stamp }
    return uses
  }

  /// Stored names of objects; nil for those that are gone.
  func names(of uses: ArraySlice<BlobUse>) throws(StoreError) -> [BlobHash?] {
    let packed = try packs.names(of: uses.compactMap(\.place))
    var next = 0
    return uses.map { use in
      guard use.place != nil else { return use.name }
      next += 1
      return packed[next - 1]
    }
  }

  /// Evicts objects, except those used since they were listed. Returns which were evicted.
  ///
  /// A concurrent use either keeps the object, or finds it gone and puts it again.
  func evict(_ uses: [(name: BlobHash, use: BlobUse)]) throws(StoreError) -> [Bool] {
    try requireWritable()
    var gone = [Bool](repeating: false, count: uses.count)
    let packed = uses.indices.filter { uses[$0].use.place != nil }
    let removed = try packs.removeEach(packed.map { (uses[$0].use.place ?? 0, uses[$0].use.stamp + 1) })
    for (index, isGone) in zip(packed, removed) { gone[index] = isGone }
    let inFiles = uses.indices.filter { uses[$0].use.place == nil }
    if !inFiles.isEmpty {
      let left = try catalogue.evict(inFiles.map { (uses[$0].name, uses[$0].use.milliseconds) }) {
        (name) throws(StoreError) in _ = try files.remove(BlobFiles.object(name))
      }
      for index in inFiles { gone[index] = left.contains(uses[index].name) }
    }
    let names = zip(uses, gone).filter(\.1).map(\.0.name)
    memory.withLock { $0.verified.subtract(names) }
    return gone
  }

  /// Reclaims the space of evicted objects.
  func reclaim() throws(StoreError) { try packs.reclaim() }

  /// Indexes objects that other processes added to packs.
  func refresh() throws(StoreError) { if packs.isShared { try packs.refresh() } }

  /// Whether the object is here, as far as this process knows.
  func isKnown(_ hash: BlobHash) throws(StoreError) -> Bool {
    for (name, _) in names(of: hash) {
      if try packs.lookUp(name, refreshing: false) != nil { return true }
      if try files.size(of: name) != nil { return true }
    }
    return false
  }

  /// Retains an object if it is here: no removal begun earlier takes it away.
  package func retain(_ hash: BlobHash) throws(StoreError) -> Bool { try retainedLocation(of: hash) != nil }

  /// Retains an object if it is here, and makes it durable.
  func retainDurably(_ hash: BlobHash) throws(StoreError) -> Bool {
    guard let claim = try retainedLocation(of: hash) else { return false }
    switch claim {
    case .durable: return true
    case .packed: try packs.sync()
    case .file(let name):
      guard let file = try files.open(name) else { return false }
      try makeDurable(name, file)
      let size = UInt64(try file.status().size)
      ignoringCatalogueErrors { (catalogue) throws(StoreError) in
        try catalogue.record(name, size: size, .present, durable: true)
      }
    }
    return true
  }

  /// Where a retained object is stored.
  enum RetainedLocation {
    /// Anywhere; it is durable.
    case durable
    /// In a pack, which may have to be synced.
    case packed
    /// In a file of that name, which may have to be synced.
    case file(BlobHash)
  }

  private func retainedLocation(of hash: BlobHash) throws(StoreError) -> RetainedLocation? {
    let names = names(of: hash)
    for following in [false, true] {
      for (name, _) in names {
        if let isDurable = try packs.retainedDurability(name, refreshing: following) {
          return isDurable ? .durable : .packed
        }
        guard !following, try files.size(of: name) != nil, !memory.withLock({ $0.syncFailed.contains(name) })
        else { continue }
        let row = try retainRow(name)
        // Check only after retaining.
        if try files.size(of: name) != nil { return row?.durable == true ? .durable : .file(name) }
      }
    }
    return nil
  }

  /// Result of checking an object.
  enum CheckResult: Sendable { case intact, missing, corrupt }

  /// Retains an object and verifies it. A corrupt object is quarantined.
  ///
  /// - Throws: `.cancelled` if `isCancelled` returns true.
  func retainAndCheck(
    _ reference: BlobReference, isCancelled: () -> Bool = { false }
  ) throws(StoreError) -> CheckResult {
    func checkCancelled() throws(StoreError) {
      if isCancelled() {
        throw StoreError(.cancelled, "reading \(reference.hash) was cancelled: ask again")
      }
    }
    try checkCancelled()
    // A wrong size is an error of the asking member: no reason to quarantine.
    guard try retain(reference.hash), try has(reference) else { return .missing }
    do throws(StoreError) {
      let reader = try reader(reference)
      // The checksum of the pack detects damage; that the name matches the content was checked at the put.
      if case .packed(let pack, let entry) = reader.source {
        guard try pack.isWhole(entry) else { throw reader.quarantine() }
      } else {
        // Always reread: the asking member evicts its own object based on this answer, and a file verified
        // earlier may have rotted since.
        try reader.verify { _, _ throws(StoreError) in try checkCancelled() }
        rememberVerified(reader.name)
      }
      return .intact
    } catch {
      switch error.code {
      case .blobUnavailable: return .missing
      case .damaged: return .corrupt
      default: throw error
      }
    }
  }
}

extension BlobCatalogue {
  /// Evicts objects in files that were not used after the given times, in milliseconds since 1970: `remove`
  /// deletes the file. Returns the evicted ones.
  func evict(
    _ objects: [(name: BlobHash, accessed: UInt64)], _ remove: (BlobHash) throws(StoreError) -> Void
  ) throws(StoreError) -> Set<BlobHash> {
    try perform { (database) throws(StoreError) in
      var left: Set<BlobHash> = []
      try Self.synced(database) { () throws(StoreError) in
        try database.transaction { () throws(StoreError) in
          for (name, accessed) in objects {
            try database.run(
              "UPDATE object SET state = 3, durable = 0 WHERE hash = ? AND accessed <= ? AND state = 0",
              [.bytes(name.bytes), .integer(Int64(clamping: accessed))])
            if database.changes == 1 { left.insert(name) }
          }
        }
      }
      let marked = left
      try database.transaction { () throws(StoreError) in
        for name in marked {
          try database.run(
            "DELETE FROM object WHERE hash = ? AND state = 3", [.bytes(name.bytes)])
          guard database.changes == 1 else {
            left.remove(name)
            continue
          }
          try Self.forgetChunks(of: name, database)
          try remove(name)
        }
      }
      return left
    }
  }
}

extension PackSet {
  /// Stored names of objects; nil for those that are gone. Takes locks only briefly.
  func names(of places: [UInt32]) throws(StoreError) -> [BlobHash?] {
    try inGroups(places) { place, state throws(StoreError) in
      try pack(Self.ordinal(place), &state)?.entry(Self.slot(place))?.name
    }
  }

  /// Removes objects whose stamps are still below their own limits. Returns which names are gone.
  ///
  /// A duplicate of the same name has its own stamp, and is evicted when it is listed itself: while one is
  /// left, the name is not gone.
  func removeEach(_ places: [(place: UInt32, limit: UInt64)]) throws(StoreError) -> [Bool] {
    try inGroups(places) { (object, state) throws(StoreError) in
      let (place, limit) = object
      guard let pack = try pack(Self.ordinal(place), &state) else { return false }
      let slot = Self.slot(place)
      guard
        removeEntry(
          pack, slot: slot, ordinal: Self.ordinal(place), below: limit, withDuplicates: false, &state)
      else {
        if pack.hasMappingFault { throw pack.mappingFaultError }
        return false
      }
      guard !state.duplicates.isEmpty, let name = pack.entry(slot)?.name else { return true }
      return try lookUp(name, &state) == nil
    }
  }

  /// Objects processed under one hold of the lock.
  private static let groupSize = 256
  /// Microseconds between two groups: longer than waking a waiter takes. Otherwise this thread would take the
  /// lock again first, and starve all others until it is done.
  private static let pauseMicroseconds: UInt32 = 50

  /// Results of `body` for each item, in groups: the lock is released between groups.
  func inGroups<Item, Answer>(
    _ items: [Item], _ body: (Item, inout State) throws(StoreError) -> Answer
  ) throws(StoreError) -> [Answer] {
    var answers: [Answer] = []
    answers.reserveCapacity(items.count)
    for start in stride(from: 0, to: items.count, by: Self.groupSize) {
      if start > 0 { SystemCall.sleep(microseconds: Self.pauseMicroseconds) }
      try state.withLock { state throws(StoreError) in
        for item in items[start..<min(start + Self.groupSize, items.count)] {
          answers.append(try body(item, &state))
        }
      }
    }
    return answers
  }
}
