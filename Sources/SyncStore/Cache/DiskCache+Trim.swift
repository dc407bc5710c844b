// Making values leave.
extension DiskCache {
  /// Makes the least recently used values leave until the limits hold, and gives space back. Returns how many have left.
  ///
  /// - Parameter progress: how many of how many.
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read; `.diskFull` if there is no
  ///   room to move what stays. What has left until then has left.
  @discardableResult
  public func trim(progress: (_ done: Int, _ total: Int) -> Void = { _, _ in }) throws(StoreError) -> Int {
    let limits = limits
    var removed = 0
    if limits.age < Double(UInt64.max / 2048) { removed += try trim(toAge: limits.age, progress: progress) }
    if limits.freeDiskBytes > 0 {
      removed += try trim(toFreeDiskBytes: limits.freeDiskBytes, progress: progress)
    }
    guard try exceeds(limits) else { return removed }
    return removed
      + (try leave(progress) { uses in
        Self.needed(uses, count: limits.count, bytes: limits.bytes)
      })
  }

  /// Makes the least recently used leave until there are at most so many.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read; `.diskFull` if there is no
  ///   room to move what stays. What has left until then has left.
  @discardableResult
  public func trim(
    toCount count: Int, progress: (_ done: Int, _ total: Int) -> Void = { _, _ in }
  ) throws(StoreError) -> Int {
    try leave(progress) { Self.needed($0, count: count, bytes: .max) }
  }

  /// Makes the least recently used leave until they have at most so many bytes.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read; `.diskFull` if there is no
  ///   room to move what stays. What has left until then has left.
  @discardableResult
  public func trim(
    toBytes bytes: Int, progress: (_ done: Int, _ total: Int) -> Void = { _, _ in }
  ) throws(StoreError) -> Int {
    try leave(progress) { Self.needed($0, count: .max, bytes: bytes) }
  }

  /// Makes those leave that nobody has set or got for so many seconds.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read; `.diskFull` if there is no
  ///   room to move what stays. What has left until then has left.
  @discardableResult
  public func trim(
    toAge seconds: Double, progress: (_ done: Int, _ total: Int) -> Void = { _, _ in }
  ) throws(StoreError) -> Int {
    let age = UInt64(max(0, min(seconds, Double(UInt64.max / 4096))) * 1000)
    let now = clock()
    guard now > age else { return 0 }
    return try leave(progress) { uses in uses.prefix { $0.stamp >> 16 < now - age }.count }
  }

  /// Makes the least recently used leave until the file system has so many bytes free, or nothing is left.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read; `.diskFull` if there is no
  ///   room to move what stays. What has left until then has left.
  @discardableResult
  public func trim(
    toFreeDiskBytes free: UInt64, progress: (_ done: Int, _ total: Int) -> Void = { _, _ in }
  ) throws(StoreError) -> Int {
    let present = try files.storage.freeBytes(path)
    guard present < free else { return 0 }
    let wanted = Int(clamping: free - present)
    return try leave(progress) { uses in
      var bytes = 0
      return uses.prefix { use in
        guard bytes < wanted else { return false }
        bytes += use.size
        return true
      }.count
    }
  }

  /// Makes values leave that take more than so many bytes, with their keys and extended data (`Information.bytes`).
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read; `.diskFull` if there is no
  ///   room to move what stays. What has left until then has left.
  @discardableResult
  public func removeLarger(than bytes: Int) throws(StoreError) -> Int {
    try leave({ _, _ in }, which: { $0.size > bytes }) { $0.count }
  }

  /// Makes values leave that were set or got last before a time in milliseconds since 1970.
  ///
  /// - Throws: `.closed`; `.damaged`, `.inputOutput` if its files cannot be read; `.diskFull` if there is no
  ///   room to move what stays. What has left until then has left.
  @discardableResult
  public func removeOlder(than time: UInt64) throws(StoreError) -> Int {
    try leave({ _, _ in }, which: { $0.stamp >> 16 < time }) { $0.count }
  }

  /// Makes all values leave, at once: the directory of them is moved aside, and removed while others go on.
  ///
  /// - Parameter progress: how many of how many files are gone; with it, the call returns when all are.
  /// - Throws: `.closed`; `.inputOutput` if the directory cannot be moved aside: then all are still there.
  public func removeAll(progress: ((_ done: Int, _ total: Int) -> Void)? = nil) throws(StoreError) {
    try moveAside()
    emptyTrash(progress)
  }

  func moveAside() throws(StoreError) {
    try checkOpen()
    try packs.moveAside()
  }

  /// Removes what was moved aside: on return with `progress`, in the background without.
  func emptyTrash(_ progress: ((_ done: Int, _ total: Int) -> Void)?) {
    if let progress {
      Self.empty(Self.trash(of: files), of: files, progress)
    } else {
      Self.emptyTrashBeside(of: files)
    }
  }

  /// Removes in the background what is moved aside by now. What is moved aside later is left to who does it, and tells how far it is.
  static func emptyTrashBeside(of files: BlobFiles) {
    let trash = trash(of: files)
    guard !trash.isEmpty else { return }
    Background.tidy { empty(trash, of: files) { _, _ in } }
  }

  /// What `removeAll` has moved aside, also what a killed process left.
  private static func trash(of files: BlobFiles) -> [String] {
    ((try? files.storage.list(files.directory)) ?? []).filter { $0.hasPrefix("trash-") }
  }

  private static func empty(
    _ trash: [String], of files: BlobFiles, _ progress: (_ done: Int, _ total: Int) -> Void
  ) {
    let all = trash.flatMap { name in
      ((try? files.storage.list(files.path(name))) ?? []).map { name + "/" + $0 }
    }
    for (done, name) in all.enumerated() {
      _ = try? files.storage.remove(files.path(name))
      progress(done + 1, all.count)
    }
    for name in trash { _ = try? files.storage.removeDirectory(files.path(name)) }
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

  /// Makes the first `count` of the values in the order of their last use leave. Those used meanwhile stay.
  private func leave(
    _ progress: (_ done: Int, _ total: Int) -> Void, which: (PackSet.Use) -> Bool = { _ in true },
    count: ([PackSet.Use]) -> Int
  ) throws(StoreError) -> Int {
    try checkOpen()
    let uses = try packs.uses().filter(which).sorted { $0.stamp < $1.stamp }
    let total = count(uses)
    guard total > 0 else { return 0 }
    var removed = 0
    for start in stride(from: 0, to: total, by: Self.leaveAtOnce) {
      let batch = uses[start..<min(start + Self.leaveAtOnce, total)]
      removed += try packs.remove(batch.map(\.place), below: (batch.last?.stamp ?? 0) + 1)
      progress(min(start + Self.leaveAtOnce, total), total)
    }
    try packs.reclaim()
    return removed
  }

  private static let leaveAtOnce = 4096
}

extension PackSet {
  /// When an object was last counted on.
  struct Use {
    let place: UInt32
    let stamp: UInt64
    let size: Int
  }

  /// All objects, for who makes the least recently used leave.
  func uses() throws(StoreError) -> [Use] {
    try load()
    let all = state.withLock { Array($0.places.values) + $0.others.values }
    // In the order of their packs.
    return try inGroups(all.sorted()) { place, state throws(StoreError) -> Use? in
      guard let pack = try pack(Self.ordinal(place), &state) else { return nil }
      let word = pack.word(Self.slot(place))
      guard word.isLive else { return nil }
      return Use(place: place, stamp: word.stamp, size: pack.size(Self.slot(place)))
    }.compactMap(\.self)
  }

  /// Lets all objects go at once, durably: their directory gets another name. Only for who has the directory alone.
  func moveAside() throws(StoreError) {
    try load()
    try moving.withLock { _ throws(StoreError) in
      try writing.withLock { writer throws(StoreError) in try moveAside(&writer) }
    }
  }

  private func moveAside(_ writer: inout Writer) throws(StoreError) {
    try state.withLock { state throws(StoreError) in
      let name = "trash-\(SystemCall.processID)-\(BlobFiles.nextNumber())"
      guard try files.storage.renameUnlessPresent(files.path("packs"), to: files.path(name)) else {
        throw StoreError(.inputOutput, "a name that is used once is taken", path: files.path(name))
      }
      for ordinal in state.packs.indices where !state.packs[ordinal].isGone { drop(ordinal, &state) }
      (state.places, state.others, state.spares, writer) = ([:], [:], [:], Writer())
      _ = try files.storage.createDirectory(files.path("packs"))
      try files.storage.syncDirectory(files.directory)
    }
  }
}
