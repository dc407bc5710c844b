/// Writes one section of a backup: the records after a position, as segments of a journal.
struct BackupSection {
  private let store: Store
  private var closing: BackupFooter
  private(set) var writer: BackupWriter
  private let start: Int
  private var report = BackupReport()
  /// Blobs that its records refer to, in order of first occurrence.
  private var references: [BlobReference] = []
  private var seen: Set<BlobHash> = []
  private let progress: (UInt64) -> Void

  /// `closing` is the state to continue from.
  init(
    store: Store, closing: BackupFooter, writer: BackupWriter, progress: @escaping (UInt64) -> Void
  ) {
    (self.store, self.closing, self.writer, self.progress) = (store, closing, writer, progress)
    start = writer.offset
  }

  /// Writes the whole section, durably.
  ///
  /// Blobs `held` by earlier sections are left out; `wanted` are those that were missing there.
  mutating func write(
    _ snapshot: BackupSnapshot, wanted: [BlobReference], held: Set<[UInt8]>
  ) throws(StoreError) -> BackupReport {
    let keyFiles = try store.keyFiles()
    for file in keyFiles { try writer.append(.keyFile, file) }
    try writeRecords(snapshot)
    try writeState(snapshot)
    let keys = try store.blobs.writingKeys
    let missed = keys == nil ? wanted : try store.references(toNamed: Set(wanted.map(\.hash)), keys)
    for blob in missed where seen.insert(blob.hash).inserted {
      references.append(blob)
    }
    for blob in references {
      let name = keys?.name(of: blob.hash) ?? blob.hash
      if !held.contains(name.bytes) { try write(blob, as: name, keys) }
    }
    // Read before the key files are compared: if they are unchanged then, they include the keys of this
    // generation.
    closing.generation = store.journalKeys.ring?.current ?? 0
    guard try store.keyFiles() == keyFiles else {
      throw StoreError(.busy, "the keys were changed meanwhile: back up again", path: store.path)
    }
    (closing.time, closing.name) = (store.environment.now(), store.name)
    closing.position = snapshot.position
    closing.missing = report.missingBlobs
    try writer.close(closing)
    (report.section, report.position) = (Int(closing.section), snapshot.position)
    report.writtenBytes = UInt64(writer.offset - start)
    return report
  }

  // MARK: Segments

  private mutating func writeRecords(_ snapshot: BackupSnapshot) throws(StoreError) {
    var walk = BackupCursor(snapshot, after: closing.after)
    // Reserve address space in proportion to the records to copy: it may be limited.
    let capacity = min(BackupFormat.segmentCapacity, snapshot.recordBytes + BackupFormat.definitionBytes)
    var copier: CompactedSegmentBuilder?
    // Records of the current transaction.
    var open: [RecordView] = []
    // The last position passed: the next segment begins after it.
    var position = closing.after
    while let steps = try walk.next(in: store) {
      for step in steps {
        switch step {
        case .keep(let view):
          if copier == nil { copier = try begin(recordsHeader(after: position), capacity: capacity) }
          open.append(view)
          report.records += 1
          if view.kind == .blob { try collectReferences(view) }
        case .end(let end):
          if var current = copier.take() {
            let views = open
            open = []
            guard store.core.engine.withLock({ _ in current.copy(transaction: views) }) else {
              throw StoreError(
                .damaged, "a record lost its author or position: run `Store.verify`, then back up again",
                path: store.path)
            }
            copier = current
          }
          position = max(position, end)
          if let current = copier,
            current.count >= BackupFormat.segmentTarget
              || position - current.header.basePosition > UInt64(UInt32.max / 2)
          {
            try finish(current, .records)
            copier = nil
          }
        }
      }
      try store.checkUsable()
    }
    if let copier { try finish(copier, .records) }
  }

  private mutating func collectReferences(_ view: RecordView) throws(StoreError) {
    guard let shape = view.shape, let blob = view.blob(shape) else {
      throw BackupSnapshot.damaged(view.segment, view.offset)
    }
    if seen.insert(blob.hash).inserted { references.append(blob) }
  }

  private mutating func writeState(_ snapshot: BackupSnapshot) throws(StoreError) {
    var header = try newHeader(base: 0)
    header.covered = 1...1
    header.chainSalt = closing.firstSalt
    let copier = try snapshot.state(
      { header throws(StoreError) in
        try begin(
          header, capacity: snapshot.stateBytes + BackupFormat.definitionBytes, givesPositions: false)
      }, header, in: store)
    try write(copier, .state)
  }

  private mutating func recordsHeader(after position: UInt64) throws(StoreError) -> SegmentHeader {
    var header = try newHeader(base: position)
    header.covered = closing.nextNumber...closing.nextNumber
    return header
  }

  /// The header of a segment as compaction would have written it.
  private mutating func newHeader(base: UInt64) throws(StoreError) -> SegmentHeader {
    guard closing.nextCount < SegmentHeader.compacted - 1 else {
      throw StoreError(.outOfBounds, "the backup has as many segments as it can: begin another file")
    }
    var header = SegmentHeader(
      store: store.id, number: SegmentHeader.compacted | closing.nextCount,
      salt: store.environment.randomWord(), basePosition: base, size: 0, predecessor: closing.predecessor,
      created: store.environment.now())
    header.generation = try store.journalKeys.generationToBegin()
    closing.nextCount += 1
    return header
  }

  private func begin(
    _ header: SegmentHeader, capacity: Int, givesPositions: Bool = true
  ) throws(StoreError) -> CompactedSegmentBuilder {
    try CompactedSegmentBuilder(
      header, capacity: capacity,
      cipher: try store.journalKeys.cipher(for: header, path: writer.file.path),
      givesPositions: givesPositions)
  }

  private mutating func finish(_ copier: CompactedSegmentBuilder, _ kind: BackupEntryHeader.Kind)
    throws(StoreError)
  {
    try write(copier, kind)
    (closing.chainSalt, closing.chainLength) = (copier.header.chainSalt, UInt32(copier.end))
    closing.nextNumber += 1
  }

  private mutating func write(_ copier: CompactedSegmentBuilder, _ kind: BackupEntryHeader.Kind)
    throws(StoreError)
  {
    var header = copier.header
    header.closedLength = UInt32(copier.end)
    header.size = UInt32((copier.end + 4095) & ~4095)
    try writer.append(kind, header.encoded() + copier.bytes)
    progress(UInt64(writer.offset - start))
  }

  // MARK: Blobs

  private mutating func write(_ blob: BlobReference, as name: BlobHash, _ keys: BlobKeys?) throws(StoreError)
  {
    let blobs = try store.blobs
    // The footer is not encrypted: it identifies blobs by stored name.
    let missing = BlobReference(hash: name, size: blob.size)
    let source: BlobReader
    do throws(StoreError) { source = try blobs.reader(blob) } catch {
      guard error.code == .blobUnavailable || error.code == .damaged else { throw error }
      return report.missingBlobs.append(missing)
    }
    let isWhole =
      if let cipher = keys?.cipher(salt: blobs.newSalt()) {
        try writer.append(blob, from: source, as: name, encryptedWith: cipher)
      } else {
        try writer.append(blob, from: source)
      }
    guard isWhole else {
      try store.want(blob)
      return report.missingBlobs.append(missing)
    }
    (report.blobs, report.blobBytes) = (report.blobs + 1, report.blobBytes + blob.size)
    progress(UInt64(writer.offset - start))
  }
}
