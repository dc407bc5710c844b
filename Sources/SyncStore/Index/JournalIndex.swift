/// The index of a journal and the ledger beside it, as one process has them: shared with all others, or, where no file
/// can be had or believed, in the memory of this one.
///
/// Which records count is changed by the holder of the writers' mutex alone if it is shared, and under the engine's lock
/// if it is not.
final class JournalIndex: @unchecked Sendable {
  /// Hash of a key → place of its record.
  let hashIndex: HashIndex
  /// What else is to be known of the journal.
  let checkpoint: IndexCheckpoint
  /// Do other processes use it? Not before it has its name.
  private(set) var isShared: Bool
  /// Is it in files, with or without their names?
  let isInFiles: Bool
  /// The segments that the ledger has numbered, in order, as far as it was read; owned by the engine.
  private var slotNumbers: [UInt32] = []
  /// How many come before those: the ledger has all that there ever were since the index was built, and is read from its end, as far as
  /// there is any that is looked for.
  private var unreadSlots: Int?
  /// It was found to be damaged, or replaced, and is to be built anew; owned by the engine.
  var failure: StoreError?
  /// Faults of this process among which there was none of its pages; owned by the engine.
  private var faultsSeen: UInt32 = 0
  /// It names a segment that this process has not mapped yet; owned by the engine.
  var namesUnmappedSegment = false

  private init(_ keys: HashIndex, _ ledger: IndexCheckpoint, isInFiles: Bool, isShared: Bool) {
    (self.hashIndex, self.checkpoint, self.isInFiles, self.isShared) = (keys, ledger, isInFiles, isShared)
  }

  /// Where its files are.
  struct Files: Sendable {
    let storage: any Storage
    /// The store's directory.
    let directory: String
    let store: StoreID
    /// Names the boot; 0 is unknown.
    let boot: UInt64
    /// Has the secret of an encrypted store.
    let seal: JournalKeys

    fileprivate var index: String { directory + "/" + HashIndex.fileName }
    fileprivate var checkpointPath: String { directory + "/" + IndexCheckpoint.fileName }
  }

  /// The one in the directory, if it can be believed; nil if it must be built anew.
  ///
  /// - Throws: `.newerFormat` for an index of a newer program.
  static func open(_ files: Files, writable: Bool) throws(StoreError) -> JournalIndex? {
    let secret = files.seal.indexSecret
    do throws(StoreError) {
      guard
        case .trusted(let keys) = try HashIndex.open(
          at: files.index, files.storage, store: files.store, boot: files.boot, sealing: secret,
          writable: writable),
        let ledger = try IndexCheckpoint.open(
          at: files.checkpointPath, files.storage, identity: identity(of: keys),
          concealing: IndexKeys(random: keys.secret, secret: secret).digest, writable: writable)
      else { return nil }
      return JournalIndex(keys, ledger, isInFiles: true, isShared: true)
    } catch {
      // Derived from the journal: whatever stands there instead is in nobody's way.
      guard error.code == .foreignFile || error.code == .damaged else { throw error }
      return nil
    }
  }

  /// An empty one in files of its own, which have no names yet. `secret` are 16 random bytes.
  static func create(_ files: Files, secret: [UInt8], expected: Int) throws(StoreError) -> JournalIndex {
    let sealing = files.seal.indexSecret
    let keys = try HashIndex.create(
      at: files.index, files.storage, store: files.store, boot: files.boot, secret: secret, sealing: sealing,
      expected: expected)
    _ = try files.storage.remove(files.checkpointPath + ".new")
    let file = try files.storage.open(files.checkpointPath + ".new", .create)
    let ledger = try IndexCheckpoint.create(
      on: file, identity: identity(of: keys),
      concealing: IndexKeys(random: secret, secret: sealing).digest)
    return JournalIndex(keys, ledger, isInFiles: true, isShared: false)
  }

  /// An empty one in memory. `secret` are 16 random bytes.
  static func inMemory(_ files: Files, secret: [UInt8]) -> JournalIndex {
    do throws(StoreError) {
      let keys = try HashIndex.create(
        on: MemoryFile(path: files.index), store: files.store, boot: files.boot, secret: secret)
      let ledger = try IndexCheckpoint.create(
        on: MemoryFile(path: files.checkpointPath), identity: identity(of: keys))
      return JournalIndex(keys, ledger, isInFiles: false, isShared: false)
    } catch {
      preconditionFailure("memory does not fail: \(error)")
    }
  }

  /// Gives the files their names, durably. From now on others use them; only for the holder of the writers' mutex.
  func install(_ files: Files) throws(StoreError) {
    // A ledger without its index is not believed, nor the other way round.
    try files.storage.rename(files.checkpointPath + ".new", to: files.checkpointPath)
    try hashIndex.install(at: files.index, files.storage)
    isShared = true
  }

  /// Sees to it that no index is found there any more, durably, before the journal goes on without it.
  static func removeFiles(_ files: Files) throws(StoreError) {
    let names = [files.index, files.checkpointPath]
    var isThere = false
    for name in names + names.map({ $0 + ".new" }) {
      if let status = try files.storage.status(name), status.kind == .file {
        // First: else whoever has it open would go on with a file that nobody else can find.
        if name == files.index { try HashIndex.retire(at: name, files.storage) }
        _ = try files.storage.remove(name)
        isThere = true
      }
    }
    if isThere { try files.storage.syncDirectory(files.directory) }
  }

  /// What the ledger that goes with an index names: the half of the random bytes that keys nothing.
  private static func identity(of keys: HashIndex) -> UInt64 {
    keys.secret.suffix(8).reduce(0) { $0 << 8 | UInt64($1) }
  }

  // MARK: Using it

  /// Did the kernel refuse a page of it (F26, F28, F38)? Then what was entered is not all there for other processes.
  var hasFaulted: Bool {
    let faults = Mapping.faults
    // Looked at once for each fault, of whatever mapping.
    guard faults != faultsSeen else { return false }
    guard hashIndex.pages.hasFaulted || checkpoint.pages.hasFaulted else {
      faultsSeen = faults
      return false
    }
    return true
  }

  /// Must come before the first change; see `HashIndex.beginWriting`.
  @inline(__always)
  func beginWriting() throws(StoreError) {
    if !hashIndex.isWriting { try hashIndex.beginWriting() }
  }

  /// Makes all durable and notes that it was closed cleanly. Only for a writer while nobody else has it open.
  func close() throws(StoreError) {
    guard isShared, hashIndex.isWriting, !hashIndex.isRetired, failure == nil else { return }
    try checkpoint.sync()
    try hashIndex.close()
  }

  /// The number of a segment in the index; nil if it has none yet.
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

  /// Gives a segment the next number.
  func add(segment number: UInt32) throws(StoreError) -> Int {
    guard let slot = try checkpoint.add(segment: number, live: 0) else {
      throw StoreError(.damaged, "has numbered as many segments as it can: it is to be built anew")
    }
    return slot
  }
}
