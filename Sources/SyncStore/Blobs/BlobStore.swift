private import Glibc

/// Access mode of a blob tier: shared or exclusive, writable or not.
package enum BlobAccess: Sendable {
  /// This process alone.
  case exclusive
  /// Any number of processes.
  case shared
  /// Any number of processes; this one only reads.
  case readOnly
}

/// The boot, the clock and the source of randomness that a blob tier depends on; tests replace them.
package struct BlobEnvironment: Sendable {
  /// Identifies this boot of the machine; 0 if unknown.
  package var boot: UInt64
  /// The wall clock, in milliseconds since 1970.
  package var now: @Sendable () -> UInt64
  /// Returns an unpredictable 64-bit number.
  package var randomWord: @Sendable () -> UInt64

  /// This machine, as far as nothing else is given.
  package init(
    boot: UInt64 = 0, now: @escaping @Sendable () -> UInt64 = { SystemCall.wallMilliseconds() },
    randomWord: @escaping @Sendable () -> UInt64 = { SystemCall.randomWord() }
  ) {
    (self.boot, self.now, self.randomWord) = (boot, now, randomWord)
  }

  /// The parts of the store's environment.
  init(_ environment: Environment) {
    self.init(boot: environment.bootWord, now: environment.now, randomWord: environment.randomWord)
  }
}

/// Large values, each stored once under the SHA-256 of its content.
///
/// Thread safe, and safe between processes that use one directory concurrently. All calls block.
///
/// Invariants:
/// - A small object is stored in a pack (`Packs/`), whose table records its presence; a large one in a file
///   of its own, whose existence is its presence. The catalogue only caches facts about files: a catalogue
///   that fails, or is deleted while in use, never fails a read or a put.
/// - An object gets its name in this order: content complete → synced → renamed → directory synced → row. It
///   is thus complete or absent at any moment (F10), and durable when a durable put returns.
/// - Values are hashed when they are served (F44); incoming objects are hashed before they get their name
///   (F85).
/// - An object that may not be durable is not assumed to be: a durable put that reuses it reads and syncs it
///   first.
package final class BlobStore: Sendable {
  /// Bytes held in memory at a time when content is streamed.
  package static let pieceBytes = 1 << 20
  /// Free space of the file system that blobs leave to the journal.
  package static let reserveBytes: UInt64 = 4 << 20
  /// Maximum number of objects remembered as verified by this process.
  static let maxRemembered = 65_536
  /// Reads collected before they are recorded in the catalogue.
  static let touchesKept = 256

  /// State in memory, by the stored names of objects.
  struct Memory {
    /// Objects verified since this process began: only a power failure could have torn them, and it would
    /// have ended the process.
    var verified: Set<BlobHash> = []
    /// Objects whose sync failed: they must not be synced again, but written anew (rule R4).
    var syncFailed: Set<BlobHash> = []
    /// Shard directories known to be durable.
    var durableShards: Set<UInt8> = []
    /// Files under `partial/` that this process is writing unencrypted.
    var plainTemporaries: StringSet = []
    var reads: [BlobHash: UInt64] = [:]
    var transfers: [BlobHash: PartialTransfer] = [:]
    var lastCatalogueError: StoreError?
    /// The first eight bytes of the names of objects in files, as of the first scan by this process.
    var filePrefixes: Set<UInt64>?
  }

  let files: BlobFiles
  /// The packs of small objects.
  let packs: PackSet
  let memory = LockedField(Memory())
  let clock: @Sendable () -> UInt64
  /// Metadata of each object.
  package let catalogue: BlobCatalogue
  /// Whether nothing may be changed.
  package let readOnly: Bool
  /// The keys that encrypt objects.
  let keys: BlobKeySource
  let random: @Sendable () -> UInt64
  /// Closed while a key rotation waits for writers that use the old keys.
  let keyRotationGate = Gate()
  /// The inode of the directory of packs, created once and never replaced; nil for a read-only tier.
  private let packsInode: UInt64?

  private init(
    _ files: BlobFiles, _ packs: PackSet, packsInode: UInt64?, keys: BlobKeySource,
    environment: BlobEnvironment
  ) {
    self.packsInode = packsInode
    (self.files, self.packs, self.readOnly, self.keys) = (files, packs, packs.readOnly, keys)
    (clock, random) = (environment.now, environment.randomWord)
    catalogue = BlobCatalogue(files, readOnly: packs.readOnly, clock: environment.now)
  }

  /// Opens the blob tier in `directory`, and creates it if it is missing; its parent must exist.
  ///
  /// - Parameters:
  ///   - access: With `.readOnly` nothing is created or changed, and a missing directory is an empty tier.
  ///   - keys: Encrypt new objects.
  ///   - onFailedSync: Called for each failed sync of packs, and when the tier's directories were replaced.
  package static func open(
    directory: String, storage: any Storage, access: BlobAccess = .shared,
    packing: PackSettings = PackSettings(), keys: BlobKeySource = .none,
    environment: BlobEnvironment = BlobEnvironment(),
    onFailedSync: @escaping @Sendable (StoreError) -> Void = { _ in }
  ) throws(StoreError) -> BlobStore {
    let files = BlobFiles(storage: storage, directory: directory)
    if access != .readOnly {
      try files.prepare()
    } else if try storage.status(directory) != nil {
      try files.check()
    }
    let packs = PackSet(
      files, settings: packing, access: access, environment: environment, onFailedSync: onFailedSync)
    let inode = try access == .readOnly ? nil : files.packsInode
    return BlobStore(files, packs, packsInode: inode, keys: keys, environment: environment)
  }

  /// Records pending reads, and syncs the catalogue. The store can still be used afterwards.
  package func close() {
    memory.withLock { $0.transfers = [:] }
    packs.close()
    checkpoint()
    catalogue.close()
  }

  /// Records pending reads, and bounds SQLite's write-ahead log of the catalogue.
  ///
  /// For a background thread: on the path of a put it happens only once the log has grown to
  /// `BlobCatalogue.logPages`.
  package func checkpoint() {
    guard !readOnly else { return }
    flushReads()
    ignoringCatalogueErrors { (catalogue) throws(StoreError) in try catalogue.checkpoint() }
  }

  /// The last error of the catalogue, which made no operation fail; nil if there was none.
  package var catalogueError: StoreError? { memory.withLock { $0.lastCatalogueError } }

  /// Copies the content of packs that an earlier process could not make durable, so that `sync` covers all
  /// objects.
  ///
  /// - Throws: `.diskFull` if there is no room for the copies, `.busy` if another process makes them.
  ///   Everything can still be read, and the call can be retried.
  func salvageFailedPacks() throws(StoreError) { try packs.salvageFailedPacks() }

  /// Makes non-durable puts of all processes durable. Calls during a running sync share the next one.
  package func sync() throws(StoreError) {
    guard !readOnly else { return }
    try packs.sync()
  }

  // MARK: Put

  /// Stores `bytes`, once. When it returns with `durable`, the object survives a power failure.
  package func put(bytes: [UInt8], metadata: [UInt8] = [], durable: Bool) throws(StoreError)
    -> BlobReference
  {
    try requireWritable()
    let reference = BlobReference(
      hash: BlobHash(sha256: SHA256.hash(bytes)), size: UInt64(bytes.count), metadata: metadata)
    return try put(bytes, reference, durable: durable)
  }

  /// Stores `bytes`, whose reference is known.
  func put(_ bytes: [UInt8], _ reference: BlobReference, durable: Bool) throws(StoreError) -> BlobReference {
    try withKeysHeld { () throws(StoreError) in
      let form = descriptor(reference)
      if packs.settings.takes(bytes.count) {
        try putPacked(bytes, form, durable: durable)
        return reference
      }
      if try retainExisting(form, durable: durable) { return reference }
      try requireSpace(form.size)
      return try store(durable: durable) { (sink) throws(StoreError) in
        try sink.append(bytes)
        return reference
      }
    }
  }

  /// Stores the content of the regular file at `path`, once, holding `pieceBytes` of it in memory at a time.
  ///
  /// A file that changes during the put is stored as it was read, under the hash of those bytes.
  package func put(fileAt path: String, metadata: [UInt8] = [], durable: Bool) throws(StoreError)
    -> BlobReference
  {
    try requireWritable()
    let source = try files.storage.unanchored.open(path, .readOnly)
    let size = try source.status().size
    guard UInt64(size) <= Limits.blobBytes else {
      throw StoreError(
        .outOfBounds, "is larger than a blob can be (\(Limits.blobBytes) bytes): split it", path: path)
    }
    let inMemory = max(Self.pieceBytes, packs.settings.objectBytes)
    if size <= inMemory {
      // Asks for more than `size`: a growing file returns more bytes.
      let bytes = try source.read(inMemory, at: 0)
      if bytes.count == size { return try put(bytes: bytes, metadata: metadata, durable: durable) }
    }
    return try withKeysHeld { () throws(StoreError) in
      // If no object has this size, none has this content: it is then hashed while it is copied, in one pass.
      let stored = writingKeys == nil ? UInt64(size) : EncryptedBlobLayout.encryptedSize(UInt64(size))
      let mayBeHere =
        ignoringCatalogueErrors { (catalogue) throws(StoreError) in try catalogue.knowsSize(stored) } ?? true
      if mayBeHere {
        let (hash, count) = try Self.hash(of: source)
        let reference = BlobReference(hash: hash, size: count, metadata: metadata)
        if try retainExisting(descriptor(reference), durable: durable) { return reference }
      }
      try requireSpace(stored)
      return try store(durable: durable) { (sink) throws(StoreError) in
        let (hash, count) = try Self.hash(of: source) { (piece, _) throws(StoreError) in
          try sink.append(piece)
        }
        return BlobReference(hash: hash, size: count, metadata: metadata)
      }
    }
  }

  // MARK: Shared helpers

  /// The hash and the size of a file's content; `each` is called with each piece.
  static func hash(
    of file: any StorageFile, _ each: ([UInt8], Int) throws(StoreError) -> Void = { _, _ in }
  ) throws(StoreError) -> (BlobHash, UInt64) {
    let hasher = SHA256Hasher()
    var offset = 0
    while true {
      let piece = try file.read(pieceBytes, at: offset)
      if piece.isEmpty { return (BlobHash(sha256: hasher.finish()), UInt64(offset)) }
      guard UInt64(offset + piece.count) <= Limits.blobBytes else {
        throw StoreError(
          .outOfBounds, "is larger than a blob can be (\(Limits.blobBytes) bytes): split it", path: file.path)
      }
      hasher.update(piece)
      try each(piece, offset)
      offset += piece.count
    }
  }

  static func unavailable(_ hash: BlobHash) -> StoreError {
    StoreError(.blobUnavailable, "the content of blob \(hash) is not here: sync with a member that has it")
  }

  static func damaged(_ hash: BlobHash, _ path: String) -> StoreError {
    StoreError(
      .damaged, "the content of blob \(hash) is not what was stored: sync with a member that has it",
      path: path)
  }

  /// Runs an access to the catalogue. Failures are remembered and otherwise ignored: the catalogue is
  /// derived.
  @discardableResult
  func ignoringCatalogueErrors<Result>(_ body: (BlobCatalogue) throws(StoreError) -> Result) -> Result? {
    do throws(StoreError) {
      return try body(catalogue)
    } catch {
      memory.withLock { $0.lastCatalogueError = error }
      return nil
    }
  }

  /// Retains an object in a file against removal by any process, and returns its row.
  ///
  /// Throws if the row exists but cannot be updated, for want of room (`.diskFull`) or because another
  /// process holds the catalogue (`.busy`): a sweep by that process might remove the object. Other failures,
  /// such as an unreadable catalogue, are ignored.
  func retainRow(_ name: BlobHash) throws(StoreError) -> BlobCatalogue.Row? {
    do throws(StoreError) {
      return try catalogue.retain(name)
    } catch {
      memory.withLock { $0.lastCatalogueError = error }
      // The grace period of an object without a row begins with the first sweep that sees it.
      let isKnown = ignoringCatalogueErrors { (catalogue) throws(StoreError) in try catalogue.row(name) != nil
      }
      guard isKnown ?? (error.code == .diskFull || error.code == .busy) else { return nil }
      throw error
    }
  }

  func requireWritable() throws(StoreError) {
    guard !readOnly else {
      throw StoreError(
        .readOnly, "the store was opened for reading: open it for writing", path: files.directory)
    }
    // Without this check, objects would go to a directory that replaced this one while their records stay
    // here (F39).
    guard try files.packsInode == packsInode else {
      let error = files.replaced
      packs.onFailedSync(error)
      throw StoreError(.poisoned, "\(error.message), then open the store again", path: error.path)
    }
  }

  /// Throws `.diskFull` unless `count` bytes fit and leave the reserve free (F92).
  func requireSpace(_ count: UInt64) throws(StoreError) {
    let free = try files.storage.freeBytes(files.directory)
    guard free >= count, free - count >= Self.reserveBytes else {
      throw StoreError(
        .diskFull,
        "\(CountText.of(count, noun: "byte")): more than fits into \(free) free ones, of which \(Self.reserveBytes) stay reserved: make room",
        path: files.directory, errno: ENOSPC)
    }
  }

  /// Quarantines a corrupt object, if it is still the file that was read; returns the error to throw. `name`
  /// is its stored name.
  func quarantine(_ hash: BlobHash, name: BlobHash, file: any StorageFile) -> StoreError {
    let error = Self.damaged(hash, file.path)
    guard !readOnly else { return error }
    do throws(StoreError) {
      let path = BlobFiles.object(name)
      guard try files.storage.status(files.path(path))?.inode == file.status().inode else { return error }
      try files.quarantine(path)
    } catch {
      return error
    }
    memory.withLock { _ = $0.verified.remove(name) }
    ignoringCatalogueErrors { (catalogue) throws(StoreError) in
      try catalogue.record(name, size: 0, .wanted, durable: false)
    }
    return error
  }

  func recordRead(_ name: BlobHash) {
    guard !readOnly else { return }
    let now = clock()
    let full = memory.withLock { memory in
      memory.reads[name] = now
      return memory.reads.count >= Self.touchesKept
    }
    if full { flushReads() }
  }

  private func flushReads() {
    let reads = memory.withLock { memory in
      defer { memory.reads = [:] }
      return memory.reads
    }
    guard !reads.isEmpty else { return }
    ignoringCatalogueErrors { (catalogue) throws(StoreError) in try catalogue.touch(reads) }
  }
}
