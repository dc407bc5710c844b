/// One restore: turns the sections of a backup into the directory of a store.
///
/// The result does not count as a store until `STORE` exists, which is written last.
struct Restoration {
  private let backup: BackupFile
  private let sections: [BackupFile.Section]
  private let directory: String
  private let environment: Environment
  private let progress: (UInt64, UInt64) -> Void
  private var storage: any Storage { environment.storage }
  private var done: UInt64 = 0
  private var total: UInt64 = 0
  private var blobs = 0
  private var blobBytes: UInt64 = 0
  private var shards: StringSet = []
  /// Header of the last restored segment of records.
  private var last: SegmentHeader?

  init(
    _ backup: BackupFile, upTo count: Int, in directory: String, _ environment: Environment,
    _ progress: @escaping (UInt64, UInt64) -> Void
  ) {
    (self.backup, self.directory, self.environment, self.progress) = (
      backup, directory, environment, progress
    )
    sections = Array(backup.sections.prefix(count))
    total = UInt64(sections.last?.range.upperBound ?? 0)
  }

  private var journal: String { directory + "/" + StoreLayout.journal }
  private var keys: String { directory + "/" + JournalKeys.directory }
  private var objects: String { directory + "/" + StoreLayout.blobs + "/objects" }

  /// Runs the whole restore, durably.
  mutating func run() throws(StoreError) -> RestoreReport {
    guard let closing = sections.last?.closing else {
      throw backup.damaged("it has no complete section: use another backup")
    }
    _ = try storage.createDirectory(journal)
    for (index, section) in sections.enumerated() {
      for entry in section.entries {
        try restore(entry, ofLast: index == sections.count - 1)
        done = UInt64(entry.end)
        progress(done, total)
      }
    }
    try beginTail(closing)
    try storage.syncDirectory(journal)
    for shard in shards.sorted() { try storage.syncDirectory(shard) }
    if !shards.isEmpty {
      try storage.syncDirectory(objects)
      try storage.syncDirectory(directory + "/" + StoreLayout.blobs)
    }
    if try storage.status(keys) != nil { try storage.syncDirectory(keys) }
    try StoreIdentity.write(
      id: backup.header.store, name: closing.name, asCopy: true, to: directory, environment: environment)
    // Only of this state: later sections are not restored.
    let held = try backup.blobs(of: sections)
    return RestoreReport(
      id: backup.header.store, name: closing.name, time: closing.time, position: closing.position,
      blobs: blobs,
      blobBytes: blobBytes, missingBlobs: closing.missing.filter { !held.contains($0.hash.bytes) })
  }

  private mutating func restore(_ entry: BackupFile.Entry, ofLast isLast: Bool) throws(StoreError) {
    switch entry.header.kind {
    case .keyFile:
      let file = try backup.keyFile(entry)
      guard isLast else { return }
      _ = try storage.createDirectory(keys)
      try write(file.bytes, to: keys + "/" + file.name)
    case .records: try restoreSegment(try backup.content(entry), isState: false)
    case .state:
      let content = try backup.content(entry)
      if isLast { try restoreSegment(content, isState: true) }
    case .blob:
      guard let hash = BlobHash(bytes: entry.header.hash) else {
        throw backup.damaged("a blob has no name: use another backup")
      }
      try restoreBlob(entry, as: hash, from: 0)
    case .encryptedBlob: try restoreBlob(entry, as: try backup.blobName(entry), from: SHA256.byteCount)
    case .footer: break
    }
  }

  // MARK: Journal

  private mutating func restoreSegment(_ content: [UInt8], isState: Bool) throws(StoreError) {
    guard case .whole(let header, damaged: false) = SegmentHeader.read(content),
      header.store == backup.header.store,
      header.compaction > 0, header.closedLength == UInt32(content.count),
      header.size >= header.closedLength, header.size - header.closedLength < 4096,
      header.covered.count == 1, isState == (header.covered.lowerBound == 1)
    else { throw backup.damaged("a segment in it is none: use another backup") }
    if !isState {
      guard header.covered.lowerBound == (last?.covered.upperBound ?? 1) + 1,
        last.map({ header.predecessor.salt == $0.chainSalt && header.basePosition >= $0.basePosition })
          ?? true
      else { throw backup.damaged("its segments do not follow each other: use another backup") }
      last = header
    }
    let padding = [UInt8](repeating: 0, count: Int(header.size) - content.count)
    try write(content + padding, to: journal + "/" + header.name.text)
  }

  /// Creates the empty segment that the restored store appends to.
  private func beginTail(_ closing: BackupFooter) throws(StoreError) {
    let number = closing.nextNumber
    guard number == (last?.covered.upperBound ?? 1) + 1,
      last.map({ $0.chainSalt == closing.chainSalt }) ?? true
    else {
      throw backup.damaged("its segments are not those that it names: use another backup")
    }
    var header = SegmentHeader(
      store: backup.header.store, number: number, salt: environment.randomWord(),
      basePosition: closing.position, size: UInt32(Journal.smallestSegment),
      predecessor: closing.predecessor, created: environment.now())
    header.generation = closing.generation
    let file = try storage.open(journal + "/" + header.name.text, .create)
    try file.allocate(to: Journal.smallestSegment)
    try file.write(header.encoded(), at: 0)
    try file.sync()
  }

  // MARK: Files

  private func write(_ bytes: [UInt8], to path: String) throws(StoreError) {
    let file = try storage.open(path, .create)
    try file.write(bytes, at: 0)
    try file.sync()
  }

  /// Restores a blob. The first `start` bytes of the entry do not belong to the object.
  private mutating func restoreBlob(
    _ entry: BackupFile.Entry, as hash: BlobHash, from start: Int
  ) throws(StoreError) {
    let tier = directory + "/" + StoreLayout.blobs
    let shard = tier + "/" + BlobFiles.shard(hash)
    if shards.isEmpty {
      _ = try storage.createDirectory(tier)
      for name in BlobFiles.subdirectories { _ = try storage.createDirectory(tier + "/" + name) }
    }
    if shards.insert(shard) { _ = try storage.createDirectory(shard) }
    let path = tier + "/" + BlobFiles.object(hash)
    // Recorded as missing in one section, and contained in two later ones.
    if try storage.status(path) != nil { return }
    let file = try storage.open(path, .create)
    try backup.read(entry) { (piece, offset) throws(StoreError) in
      let piece = offset == 0 ? Array(piece.dropFirst(start)) : piece
      try file.write(piece, at: max(0, offset - start))
    }
    try file.sync()
    (blobs, blobBytes) = (blobs + 1, blobBytes + UInt64(entry.header.length - start))
  }
}
