/// Where an index is stored, and thus which processes use it.
enum IndexBacking {
  /// The memory of this process.
  case memory
  /// Files under temporary names, which no other process uses yet.
  case unnamedFiles
  /// Files under their final names, which all processes of the store use.
  case shared
}

/// The index of a journal with its index checkpoint, as one process has them: shared with all other
/// processes, or, where no file is available or trusted, in memory of this one.
///
/// A shared index is changed only by the holder of the writers' mutex, one in memory under the engine's lock.
final class JournalIndex: @unchecked Sendable {
  /// Hash of a key → record ref.
  let hashIndex: HashIndex
  /// The index checkpoint.
  let checkpoint: IndexCheckpoint
  /// Where it is stored.
  private(set) var backing: IndexBacking
  /// The segment numbers in the checkpoint's slots, in order, as far as they were read; owned by the engine.
  private var slotNumbers: [UInt32] = []
  /// Number of slots before those: the checkpoint has all segments since the index was built, and is read
  /// from its end, only as far as a lookup needs.
  private var unreadSlots: Int?
  /// Set if it was found damaged or replaced and must be rebuilt; owned by the engine.
  var failure: StoreError?
  /// Page faults of this process that were found not to concern its pages; owned by the engine.
  private var faultsSeen: UInt32 = 0
  /// True if it refers to a segment that this process has not mapped yet; owned by the engine.
  var namesUnmappedSegment = false

  private init(_ keys: HashIndex, _ checkpoint: IndexCheckpoint, backing: IndexBacking) {
    (self.hashIndex, self.checkpoint, self.backing) = (keys, checkpoint, backing)
  }

  /// True if other processes use it: not before it has its name.
  @inline(__always)
  var isShared: Bool { backing == .shared }

  /// True if it is in files, with or without their names.
  var isInFiles: Bool { backing != .memory }

  /// Location of its files.
  struct Files: Sendable {
    let storage: any Storage
    /// The store's directory.
    let directory: String
    let store: StoreID
    /// Identifies the boot; 0 is unknown.
    let boot: UInt64
    /// Provides the secret of an encrypted store.
    let journalKeys: JournalKeys

    fileprivate var index: String { directory + "/" + HashIndex.fileName }
    fileprivate var checkpointPath: String { directory + "/" + IndexCheckpoint.fileName }

    /// The identity of a new index in these files.
    fileprivate func identity(secret: [UInt8]) -> IndexIdentity {
      IndexIdentity(store: store, boot: boot, secret: secret, storeSecret: journalKeys.indexSecret)
    }
  }

  /// The index in the directory, if it can be trusted; nil if it must be rebuilt.
  ///
  /// - Throws: `.newerFormat` for an index of a newer program.
  static func open(_ files: Files, writable: Bool) throws(StoreError) -> JournalIndex? {
    let secret = files.journalKeys.indexSecret
    do throws(StoreError) {
      guard
        case .trusted(let keys) = try HashIndex.open(
          at: files.index, files.storage, store: files.store, boot: files.boot, storeSecret: secret,
          writable: writable),
        let checkpoint = try IndexCheckpoint.open(
          at: files.checkpointPath, files.storage, identity: identity(of: keys),
          concealing: IndexKeys(random: keys.secret, secret: secret).digest, writable: writable)
      else { return nil }
      return JournalIndex(keys, checkpoint, backing: .shared)
    } catch {
      // Derived from the journal: a foreign or damaged file here can simply be replaced.
      guard error.code == .foreignFile || error.code == .damaged else { throw error }
      return nil
    }
  }

  /// Creates an empty index in files that have no names yet. `secret` is 16 random bytes.
  static func create(_ files: Files, secret: [UInt8], expected: Int) throws(StoreError) -> JournalIndex {
    let identity = files.identity(secret: secret)
    let keys = try HashIndex.create(
      at: files.index, files.storage, identity: identity, expected: expected)
    _ = try files.storage.remove(files.checkpointPath + ".new")
    let file = try files.storage.open(files.checkpointPath + ".new", .create)
    let checkpoint = try IndexCheckpoint.create(
      on: file, identity: Self.identity(of: keys),
      concealing: IndexKeys(random: secret, secret: identity.storeSecret).digest)
    return JournalIndex(keys, checkpoint, backing: .unnamedFiles)
  }

  /// Creates an empty index in memory. `secret` is 16 random bytes.
  static func inMemory(_ files: Files, secret: [UInt8]) -> JournalIndex {
    do throws(StoreError) {
      let keys = try HashIndex.create(
        on: MemoryFile(path: files.index),
        identity: IndexIdentity(store: files.store, boot: files.boot, secret: secret))
      let checkpoint = try IndexCheckpoint.create(
        on: MemoryFile(path: files.checkpointPath), identity: identity(of: keys))
      return JournalIndex(keys, checkpoint, backing: .memory)
    } catch {
      preconditionFailure("memory does not fail: \(error)")
    }
  }

  /// Renames the files to their final names, durably. From then on other processes use them; only for the
  /// holder of the writers' mutex.
  func install(_ files: Files) throws(StoreError) {
    // Neither file is trusted without the other.
    try files.storage.rename(files.checkpointPath + ".new", to: files.checkpointPath)
    try hashIndex.install(at: files.index, files.storage)
    backing = .shared
  }

  /// Removes the index durably, before the journal continues without it.
  static func removeFiles(_ files: Files) throws(StoreError) {
    let names = [files.index, files.checkpointPath]
    var isThere = false
    for name in names + names.map({ $0 + ".new" }) {
      if let status = try files.storage.status(name), status.kind == .file {
        // First: otherwise processes that have it open would continue with a file that no other process can
        // find.
        if name == files.index { try HashIndex.retire(at: name, files.storage) }
        _ = try files.storage.remove(name)
        isThere = true
      }
    }
    if isThere { try files.storage.syncDirectory(files.directory) }
  }

  /// The identity stored in the checkpoint of an index: the half of the random bytes that is no key.
  private static func identity(of keys: HashIndex) -> UInt64 {
    keys.secret.suffix(8).reduce(0) { $0 << 8 | UInt64($1) }
  }

  // MARK: Faults and releases

  /// True if the kernel refused a page of it (F26, F28, F38). Then indexed records may be invisible to other
  /// processes.
  var hasFaulted: Bool {
    let faults = Mapping.faults
    // Checked once for each fault, of any mapping.
    guard faults != faultsSeen else { return false }
    guard hashIndex.pages.hasFaulted || checkpoint.pages.hasFaulted else {
      faultsSeen = faults
      return false
    }
    return true
  }

  /// Must precede the first change; see `HashIndex.beginWriting`.
  @inline(__always)
  func beginWriting() throws(StoreError) {
    if !hashIndex.isWriting { try hashIndex.beginWriting() }
  }

  /// Syncs everything and marks the index as cleanly closed. Only for a writer with no other process using
  /// it.
  func close() throws(StoreError) {
    guard isShared, hashIndex.isWriting, !hashIndex.isRetired, failure == nil else { return }
    try checkpoint.sync()
    try hashIndex.close()
  }

  /// The slot of a segment; nil if it has none yet.
  func slot(of number: UInt32) throws(StoreError) -> Int? {
    let count = try checkpoint.segmentCount
    var unread = self.unreadSlots ?? count
    defer { self.unreadSlots = unread }
    if unread + slotNumbers.count < count {
      slotNumbers += try checkpoint.segments(in: unread + slotNumbers.count..<count)
    }
    if let place = slotNumbers.lastIndex(of: number) { return unread + place }
    while unread > 0 {
      let start = (unread - 1) / IndexCheckpoint.segmentsPerPage * IndexCheckpoint.segmentsPerPage
      let earlier = try checkpoint.segments(in: start..<unread)
      (slotNumbers, unread) = (earlier + slotNumbers, start)
      if let place = earlier.lastIndex(of: number) { return start + place }
    }
    return nil
  }

  /// Assigns the next slot to a segment.
  func add(segment number: UInt32) throws(StoreError) -> Int {
    guard let slot = try checkpoint.add(segment: number, live: 0) else {
      throw StoreError(.damaged, "has numbered as many segments as it can: it is to be built anew")
    }
    return slot
  }
}
