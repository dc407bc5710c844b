// Evicting values.
extension DiskCache {
  /// Evicts the least recently used values until all limits hold, including that of the files, and reclaims
  /// space. Returns the number of evicted values.
  ///
  /// - Parameter progress: Values evicted so far, and the total.
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read; `.diskFull` if there is no
  ///   room to move what stays. Values evicted until then stay evicted.
  @discardableResult
  public func trim(progress: (_ done: Int, _ total: Int) -> Void = { _, _ in }) throws(StoreError) -> Int {
    let limits = limits
    var removed = 0
    if limits.age < Double(UInt64.max / 2048) { removed += try trim(toAge: limits.age, progress: progress) }
    if limits.freeDiskBytes > 0 {
      removed += try trim(toFreeDiskBytes: limits.freeDiskBytes, progress: progress)
    }
    if try exceeds(limits) {
      removed += try evict(progress) { uses in
        Self.needed(uses, count: limits.count, bytes: limits.bytes)
      }
    }
    let limit = packs.space.limit
    if packs.takenBytes > limit {
      removed += try makingRoom.withLock { _ throws(StoreError) in try shrink(to: limit) }
    }
    return removed
  }

  /// Waits until the files have room for `count` more bytes within their limit.
  ///
  /// A writer that is faster than space is reclaimed makes room itself: an eighth of the limit at once, so
  /// that it is not needed for each value.
  ///
  /// - Parameter seen: Size of the files when there was no room.
  func makeRoom(for count: Int, seen: Int) throws(StoreError) {
    try makingRoom.withLock { _ throws(StoreError) in
      // Another writer may have made room concurrently.
      guard packs.takenBytes >= seen else { return }
      let limit = packs.space.limit
      guard limit < .max else { return }
      _ = try shrink(to: max(0, limit - limit / 8 - count))
    }
  }

  /// Reclaims space until the files have at most `target` bytes: first dead values, then the least recently
  /// used ones.
  ///
  /// The caller must hold `makingRoom`. Returns the number of evicted values.
  private func shrink(to target: Int) throws(StoreError) -> Int {
    if packs.space.trashBytes > 0 { emptyTrash { _, _ in } }
    var removed = 0
    while packs.takenBytes > target {
      let before = packs.takenBytes
      do throws(StoreError) {
        try packs.reclaim()
        if packs.takenBytes > target { try packs.reclaim(downTo: target) }
      } catch {
        // Without room to move live values, evict values instead.
        guard error.code == .diskFull else { throw error }
      }
      let excess = packs.takenBytes - target
      guard excess > 0 else { break }
      let share = max(excess, packs.space.limit / 32)
      do throws(StoreError) {
        let left = try evict({ _, _ in }) { uses in
          Self.needed(uses, count: .max, bytes: uses.reduce(0) { $0 + $1.size } - share)
        }
        removed += left
        if left == 0, packs.takenBytes >= before { break }
      } catch {
        // Some were evicted; once there are no values left, nothing needs to be moved either.
        guard error.code == .diskFull else { throw error }
      }
    }
    return removed
  }

  /// Evicts the least recently used values until at most `count` are left.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read; `.diskFull` if there is no
  ///   room to move what stays. Values evicted until then stay evicted.
  @discardableResult
  public func trim(
    toCount count: Int, progress: (_ done: Int, _ total: Int) -> Void = { _, _ in }
  ) throws(StoreError) -> Int {
    try evict(progress) { Self.needed($0, count: count, bytes: .max) }
  }

  /// Evicts the least recently used values until those left have at most `bytes` bytes.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read; `.diskFull` if there is no
  ///   room to move what stays. Values evicted until then stay evicted.
  @discardableResult
  public func trim(
    toBytes bytes: Int, progress: (_ done: Int, _ total: Int) -> Void = { _, _ in }
  ) throws(StoreError) -> Int {
    try evict(progress) { Self.needed($0, count: .max, bytes: bytes) }
  }

  /// Evicts values that were not set or read for this many seconds.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read; `.diskFull` if there is no
  ///   room to move what stays. Values evicted until then stay evicted.
  @discardableResult
  public func trim(
    toAge seconds: Double, progress: (_ done: Int, _ total: Int) -> Void = { _, _ in }
  ) throws(StoreError) -> Int {
    let age = UInt64(max(0, min(seconds, Double(UInt64.max / 4096))) * 1000)
    let now = clock()
    guard now > age else { return 0 }
    return try evict(progress) { uses in uses.prefix { $0.stamp >> 16 < now - age }.count }
  }

  /// Evicts the least recently used values until the file system has `free` bytes free, or no value is left.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read; `.diskFull` if there is no
  ///   room to move what stays. Values evicted until then stay evicted.
  @discardableResult
  public func trim(
    toFreeDiskBytes free: UInt64, progress: (_ done: Int, _ total: Int) -> Void = { _, _ in }
  ) throws(StoreError) -> Int {
    let present = try files.storage.freeBytes(path)
    guard present < free else { return 0 }
    let wanted = Int(clamping: free - present)
    return try evict(progress) { uses in
      var bytes = 0
      return uses.prefix { use in
        guard bytes < wanted else { return false }
        bytes += use.size
        return true
      }.count
    }
  }

  /// Removes values that take more than this many bytes, including keys and extended data
  /// (`Information.bytes`).
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read; `.diskFull` if there is no
  ///   room to move what stays. Values removed until then stay removed.
  @discardableResult
  public func removeLarger(than bytes: Int) throws(StoreError) -> Int {
    try evict({ _, _ in }, which: { $0.size > bytes }) { $0.count }
  }

  /// Removes values last set or read before a time in milliseconds since 1970.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read; `.diskFull` if there is no
  ///   room to move what stays. Values removed until then stay removed.
  @discardableResult
  public func removeOlder(than time: UInt64) throws(StoreError) -> Int {
    try evict({ _, _ in }, which: { $0.stamp >> 16 < time }) { $0.count }
  }

  /// Removes all values at once: their directory is renamed, and deleted in the background.
  ///
  /// - Parameter progress: Files deleted so far, and the total; with it, the call returns once all are
  ///   deleted.
  /// - Throws: `.closed`; `.inputOutput` if the directory cannot be renamed: then all values are still there.
  public func removeAll(progress: ((_ done: Int, _ total: Int) -> Void)? = nil) throws(StoreError) {
    try moveToTrash()
    emptyTrash(progress)
  }

  func moveToTrash() throws(StoreError) {
    try checkOpen()
    try packs.moveToTrash()
  }

  /// Deletes the trash: before returning if `progress` is given, otherwise in the background.
  func emptyTrash(_ progress: ((_ done: Int, _ total: Int) -> Void)?) {
    if let progress {
      Self.empty(Self.trash(of: files), of: packs, progress)
    } else {
      Self.emptyTrashInBackground(of: packs)
    }
  }

  /// Deletes the present trash in the background. Trash added later is left to the call that adds it, which
  /// reports its own progress.
  static func emptyTrashInBackground(of packs: PackSet) {
    let trash = trash(of: packs.files)
    guard !trash.isEmpty else { return }
    Background.runMaintenance { empty(trash, of: packs) { _, _ in } }
  }

  /// Directories that `removeAll` has moved aside, also in a killed process.
  private static func trash(of files: BlobFiles) -> [String] {
    ((try? files.storage.list(files.directory)) ?? []).filter { $0.hasPrefix("trash-") }
  }

  private static func empty(
    _ trash: [String], of packs: PackSet, _ progress: (_ done: Int, _ total: Int) -> Void
  ) {
    let files = packs.files
    let all = trash.flatMap { name in
      ((try? files.storage.list(files.path(name))) ?? []).map { name + "/" + $0 }
    }
    for (done, name) in all.enumerated() {
      _ = try? files.storage.remove(files.path(name))
      progress(done + 1, all.count)
    }
    for name in trash { _ = try? files.storage.removeDirectory(files.path(name)) }
    // Trash added concurrently is counted again at the next opening, or the next emptying.
    if Self.trash(of: files).isEmpty { packs.space.setTrashBytes(0) }
  }

  /// Counts the trash that a killed process left.
  static func countTrash(of packs: PackSet) throws(StoreError) {
    var bytes = 0
    for name in trash(of: packs.files) {
      bytes += try Store.files(at: packs.files.path(name), packs.files.storage).reduce(0) { $0 + $1.size }
    }
    packs.space.setTrashBytes(bytes)
  }

  private static func needed(_ uses: [PackSet.Use], count: Int, bytes: Int) -> Int {
    var (left, total) = (uses.count, uses.reduce(0) { $0 + $1.size })
    var needed = 0
    while needed < uses.count, left > max(count, 0) || total > max(bytes, 0) {
      (left, total) = (left - 1, total - uses[needed].size)
      needed += 1
    }
    return needed
  }

  /// Evicts the first `count` of the values in the order of their last use. Those used since stay.
  private func evict(
    _ progress: (_ done: Int, _ total: Int) -> Void, which: (PackSet.Use) -> Bool = { _ in true },
    count: ([PackSet.Use]) -> Int
  ) throws(StoreError) -> Int {
    try checkOpen()
    let uses = try packs.uses().filter(which).sorted { $0.stamp < $1.stamp }
    let total = count(uses)
    guard total > 0 else { return 0 }
    var removed = 0
    for start in stride(from: 0, to: total, by: Self.evictionBatchSize) {
      let batch = uses[start..<min(start + Self.evictionBatchSize, total)]
      removed += try packs.remove(batch.map(\.place), below: (batch.last?.stamp ?? 0) + 1)
      progress(min(start + Self.evictionBatchSize, total), total)
    }
    do throws(StoreError) { try packs.reclaim() } catch {
      // Above the limit nothing can be moved: `shrink` evicts more.
      guard error.code == .diskFull, error.errno == 0 else { throw error }
    }
    return removed
  }

  private static let evictionBatchSize = 4096
}

extension PackSet {
  /// Last use of an object.
  struct Use {
    let place: UInt32
    let stamp: UInt64
    let size: Int
  }

  /// Size of all files, including trash.
  var takenBytes: Int { state.withLock { $0.fileBytes } + space.trashBytes }

  /// Limits the size of all files. Directories, and making room, may take up to a fifth more than `bytes`.
  ///
  /// A limit below `smallestLimit` applies to the values alone: it is less than the files that hold a few of
  /// them.
  func limitFileBytes(to bytes: Int) {
    let isBound = (Self.smallestLimit..<Int.max / 2).contains(bytes)
    space.setLimit(
      isBound ? bytes - Self.directoryBytes : .max,
      forMoving: isBound ? bytes + bytes / 5 - Self.directoryBytes : .max)
  }

  /// In bytes.
  static let smallestLimit = 1 << 20
  /// Allowance for the directories of a cache and its lock file, with room to grow.
  private static let directoryBytes = 64 << 10

  /// All objects with their last uses, for eviction.
  func uses() throws(StoreError) -> [Use] {
    try load()
    let all = state.withLock { Array($0.slotsByPrefix.values) + $0.slotsByName.values }
    // In the order of their packs.
    return try inGroups(all.sorted()) { place, state throws(StoreError) -> Use? in
      guard let pack = try pack(Self.ordinal(place), &state) else { return nil }
      let word = pack.word(Self.slot(place))
      guard word.isLive else { return nil }
      return Use(place: place, stamp: word.stamp, size: pack.size(Self.slot(place)))
    }.compactMap(\.self)
  }

  /// Removes all objects at once, durably, by renaming their directory. Requires exclusive use of the
  /// directory.
  func moveToTrash() throws(StoreError) {
    try load()
    try moving.withLock { _ throws(StoreError) in
      try writing.withLock { writer throws(StoreError) in try moveToTrash(&writer) }
    }
  }

  private func moveToTrash(_ writer: inout Writer) throws(StoreError) {
    try state.withLock { state throws(StoreError) in
      let name = "trash-\(BlobFiles.uniqueName())"
      guard try files.storage.renameUnlessPresent(files.path("packs"), to: files.path(name)) else {
        throw StoreError(.inputOutput, "a name that is used once is taken: try again", path: files.path(name))
      }
      space.addTrashBytes(state.fileBytes)
      for ordinal in state.packs.indices where !state.packs[ordinal].isGone { drop(ordinal, &state) }
      (state.slotsByPrefix, state.slotsByName, state.duplicates, writer) = ([:], [:], [:], Writer())
      _ = try files.storage.createDirectory(files.path("packs"))
      try files.storage.syncDirectory(files.directory)
    }
  }
}
