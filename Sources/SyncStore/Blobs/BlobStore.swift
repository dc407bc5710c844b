private import Glibc

/// Large values, each stored once under the SHA-256 of its content. Thread safe, and safe between processes that use
/// one directory at once. All calls block.
///
/// Invariants:
/// - The file decides whether an object is here; the catalogue only remembers what was learnt about it. A catalogue
///   that fails, or is deleted under way, never fails a read or a put.
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
  static let remembered = 65_536
  /// Reads noted in the catalogue at once.
  static let touchesKept = 256

  struct Memory {
    /// Objects seen whole since this process began: only a loss of power could have torn them, and it would end us.
    var whole: Set<BlobHash> = []
    /// Objects whose sync failed: their pages must not be synced again, but written anew (rule R4).
    var suspect: Set<BlobHash> = []
    /// Directories of objects that are known to be durable themselves.
    var durableShards: Set<UInt8> = []
    var reads: [BlobHash: UInt64] = [:]
    var transfers: [BlobHash: PartialTransfer] = [:]
    var lastCatalogueError: StoreError?
  }

  let files: BlobFiles
  let memory = Locked(Memory())
  let clock: @Sendable () -> UInt64
  /// What is known of each object.
  package let catalogue: BlobCatalogue
  /// May nothing be changed?
  package let readOnly: Bool

  private init(_ files: BlobFiles, readOnly: Bool, clock: @escaping @Sendable () -> UInt64) {
    self.files = files
    self.readOnly = readOnly
    self.clock = clock
    catalogue = BlobCatalogue(files, clock: clock)
  }

  /// Opens the blob tier in `directory`, and makes it if it is missing; its parent must exist. With `readOnly` nothing
  /// is made or changed, and a missing directory is an empty tier. `clock` gives milliseconds since 1970.
  package static func open(
    directory: String, storage: any Storage, readOnly: Bool = false,
    clock: @escaping @Sendable () -> UInt64 = { SystemCall.wallMilliseconds() }
  ) throws(StoreError) -> BlobStore {
    let files = BlobFiles(storage: storage, directory: directory)
    if !readOnly {
      try files.prepare()
    } else if try storage.status(directory) != nil {
      try files.check()
    }
    return BlobStore(files, readOnly: readOnly, clock: clock)
  }

  /// Notes what is still to be noted, and syncs the catalogue. The store can be used again after.
  package func close() {
    memory.withLock { $0.transfers = [:] }
    checkpoint()
    catalogue.close()
  }

  /// Notes the reads, and bounds the write-ahead log of the catalogue. For a thread in the background: on the path of a
  /// put it happens only once the log has grown to `BlobCatalogue.logPages`.
  package func checkpoint() {
    guard !readOnly else { return }
    flushReads()
    noting { (catalogue) throws(StoreError) in try catalogue.checkpoint() }
  }

  /// The last error of the catalogue, which failed nothing; nil if there was none.
  package var catalogueError: StoreError? { memory.withLock { $0.lastCatalogueError } }

  // MARK: Presence

  /// Is the object here? Its content is not looked at.
  package func has(_ hash: BlobHash) throws(StoreError) -> Bool { try files.size(of: hash) != nil }

  /// Is the object here, in its full size? Its content is not looked at.
  package func has(_ reference: BlobReference) throws(StoreError) -> Bool {
    try files.size(of: reference.hash) == reference.size
  }

  /// Those of `references` that are not here in their full size, each hash once, in their order.
  package func missing(of references: some Sequence<BlobReference>) throws(StoreError) -> [BlobReference] {
    var seen: Set<BlobHash> = []
    var missing: [BlobReference] = []
    for reference in references where seen.insert(reference.hash).inserted {
      if try !has(reference) { missing.append(reference) }
    }
    return missing
  }

  /// All objects here, in the order of their names.
  package func all() throws(StoreError) -> [BlobReference] {
    var all: [BlobReference] = []
    guard try files.storage.status(files.directory) != nil else { return all }
    try files.eachObject { hash, size in all.append(BlobReference(hash: hash, size: size)) }
    return all
  }

  // MARK: Putting

  /// Stores `bytes`, once. When it returns with `durable`, no loss of power takes the object away.
  package func put(bytes: [UInt8], metadata: [UInt8] = [], durable: Bool) throws(StoreError)
    -> BlobReference
  {
    try requireWritable()
    let reference = BlobReference(
      hash: Self.hash(SHA256.hash(bytes)), size: UInt64(bytes.count), metadata: metadata)
    if try adopt(reference, durable: durable) { return reference }
    try requireSpace(reference.size)
    return try store(durable: durable) { (file) throws(StoreError) in
      try file.write(bytes, at: 0)
      return reference
    }
  }

  /// Stores the content of the regular file at `path`, once, holding `pieceBytes` of it in memory at a time. A file
  /// that changes meanwhile is stored as it was read, under the hash of that.
  package func put(fileAt path: String, metadata: [UInt8] = [], durable: Bool) throws(StoreError)
    -> BlobReference
  {
    try requireWritable()
    let source = try files.storage.open(path, .readOnly)
    let size = try source.status().size
    guard UInt64(size) <= Limits.blobBytes else {
      throw StoreError(.outOfBounds, "is larger than a blob can be (\(Limits.blobBytes) bytes)", path: path)
    }
    if size <= Self.pieceBytes {
      // One byte more than there was shows a file that grows.
      let bytes = try source.read(Self.pieceBytes, at: 0)
      if bytes.count == size { return try put(bytes: bytes, metadata: metadata, durable: durable) }
    }
    // Where no object has this size, none has this content: it is then hashed while it is copied, in one pass.
    let mayBeHere = noting { (catalogue) throws(StoreError) in try catalogue.knowsSize(UInt64(size)) } ?? true
    if mayBeHere {
      let (hash, count) = try Self.hash(of: source)
      let reference = BlobReference(hash: hash, size: count, metadata: metadata)
      if try adopt(reference, durable: durable) { return reference }
    }
    try requireSpace(UInt64(size))
    return try store(durable: durable) { (file) throws(StoreError) in
      let (hash, count) = try Self.hash(of: source) { (piece, offset) throws(StoreError) in
        try file.write(piece, at: offset)
      }
      return BlobReference(hash: hash, size: count, metadata: metadata)
    }
  }

  // MARK: Reading

  /// The content of an object, verified. `.blobUnavailable` if it is not here. Content that is not what it was is
  /// moved to `quarantine/`, to be fetched again, and is `.damaged` (F44).
  package func read(_ reference: BlobReference) throws(StoreError) -> [UInt8] {
    let file = try open(reference)
    guard let size = Int(exactly: reference.size) else { throw Self.damaged(reference.hash, file.path) }
    let bytes = try file.read(size, at: 0)
    guard bytes.count == size, SHA256.hash(bytes) == reference.hash.bytes else {
      throw quarantine(reference.hash, file)
    }
    noteRead(reference.hash)
    return bytes
  }

  /// Up to `count` bytes of an object from `offset`, not verified: for a receiver that verifies the whole.
  package func read(_ hash: BlobHash, offset: UInt64, count: Int) throws(StoreError) -> [UInt8] {
    guard let file = try files.open(hash) else { throw Self.unavailable(hash) }
    guard let start = Int(exactly: offset) else { return [] }
    noteRead(hash)
    return try file.read(count, at: start)
  }

  /// Writes the content of an object to `path`, in place of what is there, once it is complete and verified. With
  /// `durable` the file and its name are synced.
  package func export(_ reference: BlobReference, toFileAt path: String, durable: Bool = false)
    throws(StoreError)
  {
    let source = try open(reference)
    let temporary = "\(path).\(SystemCall.processID)-\(BlobFiles.nextNumber()).part"
    let file = try files.storage.open(temporary, .create)
    do throws(StoreError) {
      let (hash, count) = try Self.hash(of: source) { (piece, offset) throws(StoreError) in
        try file.write(piece, at: offset)
      }
      guard hash == reference.hash, count == reference.size else { throw quarantine(reference.hash, source) }
      if durable { try file.sync() }
      try files.storage.rename(temporary, to: path)
    } catch {
      _ = try? files.storage.remove(temporary)
      throw error
    }
    if durable { try files.storage.syncDirectory(BlobFiles.parent(of: path)) }
    noteRead(reference.hash)
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
          .outOfBounds, "is larger than a blob can be (\(Limits.blobBytes) bytes)", path: file.path)
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
  func noting<Result>(_ body: (BlobCatalogue) throws(StoreError) -> Result) -> Result? {
    do throws(StoreError) {
      return try body(catalogue)
    } catch {
      memory.withLock { $0.lastCatalogueError = error }
      return nil
    }
  }

  func requireWritable() throws(StoreError) {
    guard !readOnly else {
      throw StoreError(
        .readOnly, "the store was opened for reading: open it for writing", path: files.directory)
    }
  }

  /// `.diskFull` unless `count` bytes fit and the reserve is left (F92).
  func requireSpace(_ count: UInt64) throws(StoreError) {
    let free = try files.storage.freeBytes(files.directory)
    guard free >= count, free - count >= Self.reserveBytes else {
      throw StoreError(
        .diskFull,
        "\(count) bytes do not fit into \(free) free ones, of which \(Self.reserveBytes) stay reserved: make room",
        path: files.directory, errno: ENOSPC)
    }
  }

  /// The file of an object in its full size.
  func open(_ reference: BlobReference) throws(StoreError) -> any StorageFile {
    guard let file = try files.open(reference.hash) else { throw Self.unavailable(reference.hash) }
    guard try UInt64(file.status().size) == reference.size else { throw quarantine(reference.hash, file) }
    return file
  }

  /// Sets a rotten object aside, if it is still the one that was read; the error to throw.
  func quarantine(_ hash: BlobHash, _ file: any StorageFile) -> StoreError {
    let error = Self.damaged(hash, file.path)
    guard !readOnly else { return error }
    do throws(StoreError) {
      let name = BlobFiles.object(hash)
      guard try files.storage.status(files.path(name))?.inode == file.status().inode else { return error }
      try files.setAside(name)
    } catch {
      return error
    }
    memory.withLock { _ = $0.whole.remove(hash) }
    noting { (catalogue) throws(StoreError) in
      try catalogue.record(hash, size: 0, .wanted, durable: false)
    }
    return error
  }

  private func noteRead(_ hash: BlobHash) {
    guard !readOnly else { return }
    let now = clock()
    let full = memory.withLock { memory in
      memory.reads[hash] = now
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
    noting { (catalogue) throws(StoreError) in try catalogue.touch(reads) }
  }
}
