private import Glibc

/// Large values, each stored once under the SHA-256 of its content. Thread safe, and safe between processes that use
/// one directory at once. All calls block.
///
/// Invariants:
/// - A small object lies in a pack (`Packs/`), whose table says that it is here; a large one in a file of its own, which
///   says so by being there. The catalogue only remembers what was learnt about files. A catalogue that fails, or is
///   deleted under way, never fails a read or a put.
/// - An object takes its name in the order: content complete → synced → renamed → directory synced → row. It is thus
///   whole or absent at any moment (F10), and durable when a durable put returns.
/// - What is served as a value was hashed on the way out (F44); what comes in is hashed before it gets its name (F85).
/// - An object that may not be durable is not taken for one: it is read and synced before a durable put counts on it.
package final class BlobStore: Sendable {
  /// Bytes that pass through memory at a time.
  package static let pieceBytes = 1 << 20
  /// Bytes of the file system that blobs leave free for the journal.
  package static let reserveBytes: UInt64 = 4 << 20
  /// Objects whose content this process remembers to have seen whole.
  static let maxRemembered = 65_536
  /// Reads noted in the catalogue at once.
  static let touchesKept = 256

  /// By the names of objects on the disk.
  struct Memory {
    /// Objects seen whole since this process began: only a loss of power could have torn them, and it would end us.
    var verified: Set<BlobHash> = []
    /// Objects whose sync failed: their pages must not be synced again, but written anew (rule R4).
    var syncFailed: Set<BlobHash> = []
    /// Directories of objects that are known to be durable themselves.
    var durableShards: Set<UInt8> = []
    /// Files under `partial/` that this process is writing in the clear.
    var plainTemporaries: StringSet = []
    var reads: [BlobHash: UInt64] = [:]
    var transfers: [BlobHash: PartialTransfer] = [:]
    var lastCatalogueError: StoreError?
    /// The first eight bytes of the names of objects in files, as they were when this process first looked.
    var filePrefixes: Set<UInt64>?
  }

  let files: BlobFiles
  /// Objects that share files.
  let packs: PackSet
  let memory = LockedField(Memory())
  let clock: @Sendable () -> UInt64
  /// What is known of each object.
  package let catalogue: BlobCatalogue
  /// May nothing be changed?
  package let readOnly: Bool
  /// What objects are sealed with.
  let keys: BlobKeySource
  let random: @Sendable () -> UInt64
  /// Shut while a renewal of keys waits for those who seal under the old ones.
  let keyRotationGate = Gate()
  /// The inode of the directory of packs, made once and never replaced; nil for a tier that is only read.
  private let packsInode: UInt64?

  private init(
    _ files: BlobFiles, _ packs: PackSet, packsInode: UInt64?, readOnly: Bool, keys: BlobKeySource,
    clock: @escaping @Sendable () -> UInt64, random: @escaping @Sendable () -> UInt64
  ) {
    self.packsInode = packsInode
    (self.files, self.packs, self.readOnly, self.clock) = (files, packs, readOnly, clock)
    (self.keys, self.random) = (keys, random)
    catalogue = BlobCatalogue(files, readOnly: readOnly, clock: clock)
  }

  /// Opens the blob tier in `directory`, and makes it if it is missing; its parent must exist. With `readOnly` nothing
  /// is made or changed, and a missing directory is an empty tier. `isShared`: other processes may use it. `boot` names
  /// this boot of the machine, 0 if it does not tell. `keys` seal what is written. `clock` gives milliseconds since 1970.
  /// `onFailedSync` is told of each sync of packs that failed, and when the tier's directories were replaced.
  package static func open(
    directory: String, storage: any Storage, readOnly: Bool = false, isShared: Bool = true,
    packing: PackSettings = PackSettings(), boot: UInt64 = 0, keys: BlobKeySource = .none,
    clock: @escaping @Sendable () -> UInt64 = { SystemCall.wallMilliseconds() },
    random: @escaping @Sendable () -> UInt64 = { SystemCall.randomWord() },
    onFailedSync: @escaping @Sendable (StoreError) -> Void = { _ in }
  ) throws(StoreError) -> BlobStore {
    let files = BlobFiles(storage: storage, directory: directory)
    if !readOnly {
      try files.prepare()
    } else if try storage.status(directory) != nil {
      try files.check()
    }
    let packs = PackSet(
      files, settings: packing, readOnly: readOnly, isShared: isShared, boot: boot, clock: clock,
      random: random, onFailedSync: onFailedSync)
    let inode = try readOnly ? nil : files.packsInode
    return BlobStore(
      files, packs, packsInode: inode, readOnly: readOnly, keys: keys, clock: clock, random: random)
  }

  /// Notes what is still to be noted, and syncs the catalogue. The store can be used again after.
  package func close() {
    memory.withLock { $0.transfers = [:] }
    packs.close()
    checkpoint()
    catalogue.close()
  }

  /// Notes the reads, and bounds the write-ahead log of the catalogue. For a thread in the background: on the path of a
  /// put it happens only once the log has grown to `BlobCatalogue.logPages`.
  package func checkpoint() {
    guard !readOnly else { return }
    flushReads()
    ignoringCatalogueErrors { (catalogue) throws(StoreError) in try catalogue.checkpoint() }
  }

  /// The last error of the catalogue, which failed nothing; nil if there was none.
  package var catalogueError: StoreError? { memory.withLock { $0.lastCatalogueError } }

  /// Copies what a pack holds that an earlier life could not make durable, so that `sync` stands for all there is.
  ///
  /// - Throws: `.diskFull` if there is no room for the copies, `.busy` if another process makes them: all there is can be read, and it can
  ///   be tried again.
  func salvageFailedPacks() throws(StoreError) { try packs.salvageFailedPacks() }

  /// Makes durable what was put without it, by whatever process. Who comes while a sync runs shares the next one.
  package func sync() throws(StoreError) {
    guard !readOnly else { return }
    try packs.sync()
  }

  // MARK: Putting

  /// Stores `bytes`, once. When it returns with `durable`, no loss of power takes the object away.
  package func put(bytes: [UInt8], metadata: [UInt8] = [], durable: Bool) throws(StoreError)
    -> BlobReference
  {
    try requireWritable()
    let reference = BlobReference(
      hash: Self.hash(SHA256.hash(bytes)), size: UInt64(bytes.count), metadata: metadata)
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

  /// Stores the content of the regular file at `path`, once, holding `pieceBytes` of it in memory at a time. A file
  /// that changes meanwhile is stored as it was read, under the hash of that.
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
      // One byte more than there was shows a file that grows.
      let bytes = try source.read(inMemory, at: 0)
      if bytes.count == size { return try put(bytes: bytes, metadata: metadata, durable: durable) }
    }
    return try withKeysHeld { () throws(StoreError) in
      // Where no object has this size, none has this content: it is then hashed while it is copied, in one pass.
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

  // MARK: Shared with the other parts

  static func hash(_ bytes: [UInt8]) -> BlobHash {
    guard let hash = BlobHash(bytes: bytes) else { preconditionFailure("a SHA-256 has 32 bytes") }
    return hash
  }

  /// The hash and the size of a file's content; `each` sees the pieces on the way.
  static func hash(
    of file: any StorageFile, _ each: ([UInt8], Int) throws(StoreError) -> Void = { _, _ in }
  ) throws(StoreError) -> (BlobHash, UInt64) {
    let hasher = SHA256Hasher()
    var offset = 0
    while true {
      let piece = try file.read(pieceBytes, at: offset)
      if piece.isEmpty { return (hash(hasher.finish()), UInt64(offset)) }
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

  /// Asks the catalogue, or tells it something. Its failures are remembered and change nothing: it is derived.
  @discardableResult
  func ignoringCatalogueErrors<Result>(_ body: (BlobCatalogue) throws(StoreError) -> Result) -> Result? {
    do throws(StoreError) {
      return try body(catalogue)
    } catch {
      memory.withLock { $0.lastCatalogueError = error }
      return nil
    }
  }

  /// Tells all others that somebody counts on an object in a file, and gives its row. Where there is one that cannot be told, as for
  /// want of room (`.diskFull`) or because another process holds the catalogue (`.busy`), a sweep of that one might take the object.
  /// Other failures, as those of a catalogue that cannot even be read, change nothing.
  func retainRow(_ name: BlobHash) throws(StoreError) -> BlobCatalogue.Row? {
    do throws(StoreError) {
      return try catalogue.retain(name)
    } catch {
      memory.withLock { $0.lastCatalogueError = error }
      // The grace of what has no row begins with the sweep that first sees it.
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
    // Without this check a directory that took this one's place gets the objects, and their records stay here (F39).
    guard try files.packsInode == packsInode else {
      let error = files.replaced
      packs.onFailedSync(error)
      throw StoreError(.poisoned, "\(error.message), then open the store again", path: error.path)
    }
  }

  /// `.diskFull` unless `count` bytes fit and the reserve is left (F92).
  func requireSpace(_ count: UInt64) throws(StoreError) {
    let free = try files.storage.freeBytes(files.directory)
    guard free >= count, free - count >= Self.reserveBytes else {
      throw StoreError(
        .diskFull,
        "\(CountText.of(count, noun: "byte")): more than fits into \(free) free ones, of which \(Self.reserveBytes) stay reserved: make room",
        path: files.directory, errno: ENOSPC)
    }
  }

  /// Sets a rotten object aside, if it is still the one that was read; the error to throw. On the disk it is called `name`.
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
