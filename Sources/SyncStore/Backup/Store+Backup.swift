/// Result of a backup.
public struct BackupReport: Hashable, Sendable {
  /// Whether the whole store was written; otherwise only the changes since the last backup into the file.
  public var isFull = true
  /// Number of the section in the file, from 1.
  public var section = 1
  /// The store's last position that it contains.
  public var position: UInt64 = 0
  /// Number of records written.
  public var records = 0
  /// Number of blobs written.
  public var blobs = 0
  /// Bytes of the blobs written.
  public var blobBytes: UInt64 = 0
  /// Blobs that records refer to but that are missing here: they have not arrived from a peer yet, or are
  /// damaged.
  ///
  /// The next backup into the file includes those that have arrived. In an encrypted store each is identified
  /// by its stored name, which is not the hash of its content.
  public var missingBlobs: [BlobReference] = []
  /// Bytes written.
  public var writtenBytes: UInt64 = 0
  /// Size of the file.
  public var fileBytes: UInt64 = 0
}

extension Store {
  /// Backs up the store into one file, as of now, while this and other processes use it.
  ///
  /// The first backup into a file is full: records, blobs, keys and the device's identity. Each later one
  /// appends the changes since, determined by positions; it replaces the file by a full backup once the
  /// increments are larger than the full backup, and after the keys were changed. The backup of an encrypted
  /// store is encrypted like its journal, under the same passphrase. The file is as secret as the store's
  /// directory; `schemas/backup.md` has its layout.
  ///
  /// The backup is durable on return. If it fails, or the process or the machine crashes, the file still has
  /// its previous states. Writers wait only while the snapshot is taken.
  ///
  /// - Parameters:
  ///   - file: Created if it is missing.
  ///   - replacing: Makes a full backup also in place of a backup of another copy of this store, or of a
  ///     damaged one.
  ///   - progress: Gets the number of bytes written so far.
  /// - Throws: `.alreadyExists` if the file is a backup of another copy, or of a state that this copy does
  ///   not know any more; `.foreignFile` if it is no backup of this store, `.damaged` if it or the store is;
  ///   `.busy` if another process is writing it; `.readOnly`, `.poisoned`, `.diskFull` …
  @discardableResult
  public func backUp(
    to file: String, replacing: Bool = false, progress: @escaping (UInt64) -> Void = { _ in }
  ) throws(StoreError) -> BackupReport {
    try checkWritable()
    let storage = environment.storage.unanchored
    let file = try storage.followingLink(file)
    guard try storage.status(file) != nil else { return try backUpWhole(to: file, progress) }
    let target = try storage.open(file, .readWrite)
    // A file replaced since is not the one that is locked.
    guard try target.lock(byte: 0, .exclusive, wait: false),
      try storage.status(file)?.inode == target.status().inode
    else { throw Self.backupIsBusy(file) }
    defer { _ = try? target.lock(byte: 0, .none, wait: false) }
    let found: BackupFile
    do throws(StoreError) { found = try BackupFile(file, storage: storage, mode: .readWrite) } catch {
      guard error.code == .damaged, replacing,
        try BackupFileHeader(try target.read(BackupFormat.headerBytes, at: 0), path: file).store == id
      else { throw error }
      return try backUpWhole(to: file, progress)
    }
    guard found.header.store == id, let last = found.last else {
      throw StoreError(
        .foreignFile, "is a backup of store \(found.header.store), this one is \(id): name another file",
        path: file)
    }
    guard try continues(last.closing) else {
      if replacing { return try backUpWhole(to: file, progress) }
      throw StoreError(
        .alreadyExists,
        "is a backup of another copy of this store, or of a time that it was put back from: name another file, or have it "
          + "replaced", path: file)
    }
    let full = found.sections[0].range.count
    let keys = try keyFiles().map { SHA256.hash($0) }
    let held = last.entries.filter { $0.header.kind == .keyFile }.map(\.header.hash)
    // Data encrypted under old keys must not outlive them, and increments must cost less than a full backup.
    guard keys == held, found.end - found.sections[0].range.upperBound <= full else {
      return try backUpWhole(to: file, progress)
    }
    let snapshot = try backupSnapshot(after: last.closing.position, token: last.closing.token)
    return try increment(found, last: last, snapshot: snapshot, progress: progress)
  }

  private static func backupIsBusy(_ file: String) -> StoreError {
    StoreError(.busy, "another process is writing this backup: wait for it", path: file)
  }

  // MARK: Full and incremental backup

  private func backUpWhole(
    to path: String, _ progress: @escaping (UInt64) -> Void
  ) throws(StoreError) -> BackupReport {
    let storage = environment.storage.unanchored
    let temporary = path + ".new"
    let file = try storage.open(temporary, .openOrCreate)
    guard try file.lock(byte: 0, .exclusive, wait: false),
      try storage.status(temporary)?.inode == file.status().inode
    else { throw Self.backupIsBusy(path) }
    do throws(StoreError) {
      try file.resize(to: 0)
      let header = BackupFileHeader(store: id, created: environment.now())
      try file.write(header.encoded(), at: 0)
      var closing = BackupFooter()
      closing.token = environment.random(BackupFooter.tokenBytes)
      (closing.firstSalt, closing.chainLength) = (environment.randomWord(), UInt32(SegmentHeader.length))
      closing.chainSalt = closing.firstSalt
      let snapshot = try backupSnapshot(after: 0, token: closing.token)
      var section = BackupSection(
        store: self, closing: closing, writer: BackupWriter(file, at: BackupFormat.headerBytes),
        progress: progress)
      var report = try section.write(snapshot, wanted: [], held: [])
      report.fileBytes = UInt64(section.writer.offset)
      try storage.rename(temporary, to: path)
      try storage.syncDirectory(type(of: storage).directory(of: path))
      return report
    } catch {
      _ = try? storage.remove(temporary)
      guard error.path == temporary else { throw error }
      throw StoreError(error.code, error.message, path: path, errno: error.errno)
    }
  }

  private func increment(
    _ found: BackupFile, last: BackupFile.Section, snapshot: BackupSnapshot,
    progress: @escaping (UInt64) -> Void
  ) throws(StoreError) -> BackupReport {
    var closing = last.closing
    (closing.section, closing.after, closing.previous) = (
      last.closing.section + 1, last.closing.position, last.hash
    )
    closing.missing = []
    try found.file.resize(to: found.end)
    do throws(StoreError) {
      var section = BackupSection(
        store: self, closing: closing, writer: BackupWriter(found.file, at: found.end), progress: progress)
      var report = try section.write(
        snapshot, wanted: last.closing.missing, held: try found.blobs(of: found.sections))
      (report.isFull, report.fileBytes) = (false, UInt64(section.writer.offset))
      return report
    } catch {
      try? found.file.resize(to: found.end)
      throw error
    }
  }

  // MARK: Snapshot

  /// Whether this copy recognizes the backup as its own: at this position, or at a later one that did not get
  /// into the file.
  private func continues(_ closing: BackupFooter) throws(StoreError) -> Bool {
    guard let value = try local(StateKey.backup(closing.token)), value.count == 32 else { return false }
    return try value.starts(with: actor.bytes) && Self.position(ofToken: value) >= closing.position
  }

  private static func position(ofToken value: [UInt8]) -> UInt64 { number(value.dropFirst(16).prefix(8)) }

  private static func number(_ bytes: some BidirectionalCollection<UInt8>) -> UInt64 {
    bytes.reversed().reduce(0) { $0 << 8 | UInt64($1) }
  }

  /// The local record of a backup file that was written up to `position`, and is known to contain everything
  /// up to `after`.
  private static func tokenValue(_ actor: ActorID, _ position: UInt64, after: UInt64) -> [UInt8] {
    var writer = ByteWriter()
    writer.write(raw: actor.bytes)
    writer.write(position)
    writer.write(after)
    return writer.bytes
  }

  /// The position up to which every continuable backup file of this copy is complete: purges after it must
  /// still be reported.
  static func oldestBackupPosition(_ locals: LocalMetadata) -> UInt64 {
    locals.all(beginning: StateKey.backupPrefix).map { number($0.value.suffix(8)) }.min() ?? .max
  }

  /// Takes the snapshot, records it under the token, and makes it durable.
  ///
  /// Like a round, a backup carries writes elsewhere: a mark tells, if this copy is ever reset to an earlier
  /// state, which writes are known elsewhere (rule R9).
  private func backupSnapshot(after position: UInt64, token: [UInt8]) throws(StoreError) -> BackupSnapshot {
    try checkWritable()
    writes.compaction.throttleWriter()
    try writes.lockWriters()
    let snapshot: BackupSnapshot
    do {
      defer { control.unlock() }
      snapshot = try core.engine.withLock { engine throws(StoreError) in
        guard let actor = engine.state.actor else { throw missingActorError }
        var builder = engine.transactionBuilder(wall: environment.now(), limit: Limits.transactionBytes)
        _ = try deltas.mark(&builder, position: engine.position, digest: engine.runningDigest)
        let vector = ReplicaState.encode(builder.state.vector)
        if engine.localMetadata[StateKey.vector] != vector { try builder.setLocal(StateKey.vector, vector) }
        for key in Self.tokensToForget(engine.localMetadata, keeping: token) {
          try builder.setLocal(key, nil)
        }
        try builder.setLocal(
          StateKey.backup(token), Self.tokenValue(actor, engine.position, after: position))
        try writes.commit(builder, &engine)
        return try BackupSnapshot(after: position, in: engine)
      }
    }
    try sync(upTo: snapshot.tail)
    return snapshot
  }

  /// Maximum number of backup files that a copy can continue.
  private static let keptTokens = 64

  /// The tokens of the oldest backups, to be removed so that one more fits.
  private static func tokensToForget(_ locals: LocalMetadata, keeping token: [UInt8]) -> [[UInt8]] {
    let tokens = locals.all(beginning: StateKey.backupPrefix).filter { $0.key != StateKey.backup(token) }
    let oldest = tokens.sorted {
      (position(ofToken: $0.value), Hex.string(of: $0.key)) < (
        position(ofToken: $1.value), Hex.string(of: $1.key)
      )
    }
    return oldest.prefix(max(0, oldest.count - Self.keptTokens + 1)).map(\.key)
  }

  /// The files of the directory `keys`, each in the form of an entry.
  func keyFiles() throws(StoreError) -> [[UInt8]] {
    let storage = environment.storage
    let directory = path + "/" + JournalKeys.directory
    guard try storage.status(directory) != nil else { return [] }
    var files: [[UInt8]] = []
    for name in try storage.list(directory) where !name.hasSuffix(".new") && StoreIdentity.isName(name) {
      guard let bytes = try storage.contents(of: directory + "/" + name, limit: BackupFormat.keyFileBytes)
      else {
        continue
      }
      files.append([UInt8(name.utf8.count)] + Array(name.utf8) + bytes)
    }
    return files
  }
}

extension StateKey {
  /// Prefix of the local keys of this copy's backups.
  static let backupPrefix = Array("backup/".utf8)
  static func backup(_ token: [UInt8]) -> [UInt8] { backupPrefix + token }
}
