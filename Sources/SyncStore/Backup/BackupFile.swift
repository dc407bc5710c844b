/// A backup file: its complete sections, in order.
///
/// Anything after the last complete section was left by an interrupted backup, and is ignored.
struct BackupFile {
  let file: any StorageFile
  let header: BackupFileHeader
  private(set) var sections: [Section] = []
  /// Offset after the last complete section.
  private(set) var end = BackupFormat.headerBytes
  /// Whether data follows that offset: a backup was interrupted, or the end of the file was damaged.
  private(set) var isUnfinished = false

  /// The contribution of one backup.
  struct Section {
    var closing: BackupFooter
    /// SHA-256 of the footer.
    var hash: [UInt8]
    var entries: [Entry]
    /// Its byte range in the file.
    var range: Range<Int>
  }

  /// An entry and the offset of its content.
  struct Entry {
    var header: BackupEntryHeader
    var offset: Int

    /// Offset after it, where the next entry begins.
    var end: Int { offset + BackupFormat.aligned(header.length) }
  }

  /// Bytes read at a time.
  static let pieceBytes = 1 << 20

  /// Reads the structure of the file, not the contents of its entries.
  ///
  /// - Throws: `.foreignFile`, `.newerFormat`; `.damaged` if anything but the end of the file was changed.
  init(_ path: String, storage: any Storage, mode: OpenMode = .readOnly) throws(StoreError) {
    let path = try storage.followingLink(path)
    file = try storage.open(path, mode)
    header = try BackupFileHeader(try file.read(BackupFormat.headerBytes, at: 0), path: path)
    let size = try file.status().size
    while let section = try section(at: end, size) {
      sections.append(section)
      end = section.range.upperBound
    }
    try checkTornEnd(size)
    isUnfinished = size > end
  }

  var last: Section? { sections.last }

  /// Stored names of the blobs in these sections.
  func blobs(of sections: [Section]) throws(StoreError) -> Set<[UInt8]> {
    var names: Set<[UInt8]> = []
    for entry in sections.flatMap(\.entries) {
      if entry.header.kind == .blob { names.insert(entry.header.hash) }
      if entry.header.kind == .encryptedBlob { names.insert(try blobName(entry).bytes) }
    }
    return names
  }

  /// Stored name of an encrypted blob.
  func blobName(_ entry: Entry) throws(StoreError) -> BlobHash {
    guard entry.header.length > SHA256.byteCount,
      let name = BlobHash(bytes: try file.read(SHA256.byteCount, at: entry.offset))
    else { throw damaged("a blob has no name: use another backup") }
    return name
  }

  /// The section at `start`; nil if there is no complete one.
  private func section(at start: Int, _ size: Int) throws(StoreError) -> Section? {
    var entries: [Entry] = []
    var offset = start
    let hasher = SHA256Hasher()
    while true {
      let bytes = try file.read(BackupFormat.headerBytes, at: offset)
      guard let header = BackupEntryHeader(bytes) else { return nil }
      let entry = Entry(header: header, offset: offset + BackupFormat.headerBytes)
      guard entry.end <= size else { return nil }
      offset = entry.end
      guard header.kind == .footer else {
        entries.append(entry)
        hasher.update(bytes)
        continue
      }
      let content = try file.read(header.length, at: entry.offset)
      guard SHA256.hash(content) == header.hash, let closing = try? BackupFooter(content),
        closing.section == (last?.closing.section ?? 0) + 1,
        closing.previous == last?.hash ?? [UInt8](repeating: 0, count: SHA256.byteCount),
        closing.after == last?.closing.position ?? 0, closing.entries == hasher.finish()
      else { return nil }
      return Section(closing: closing, hash: header.hash, entries: entries, range: start..<offset)
    }
  }

  /// Distinguishes a torn end from damage. An interrupted backup leaves no footer: if one follows, bytes were
  /// changed, and valid sections would be discarded as garbage. Only the very last section may be torn.
  private func checkTornEnd(_ size: Int) throws(StoreError) {
    var offset = end
    while offset + BackupFormat.headerBytes <= size {
      // Pieces overlap by a header.
      let piece = try file.read(Self.pieceBytes + BackupFormat.headerBytes, at: offset)
      var place = 0
      while place + BackupFormat.headerBytes <= piece.count, place < Self.pieceBytes {
        if piece[place] == 0x53, piece[place + 1] == 0x59,
          let header = BackupEntryHeader(Array(piece[place..<(place + BackupFormat.headerBytes)])),
          header.kind == .footer,
          isWhole(Entry(header: header, offset: offset + place + BackupFormat.headerBytes))
        {
          throw damaged("bytes between \(end) and \(offset + place) were changed: use another backup")
        }
        place += BackupFormat.alignment
      }
      offset += Self.pieceBytes
    }
    guard !sections.isEmpty else {
      throw damaged("it has no complete section: it was interrupted: use another backup")
    }
  }

  private func isWhole(_ closing: Entry) -> Bool {
    // A footer that lacks its very end is what a power failure leaves.
    guard let content = try? file.read(closing.end - closing.offset, at: closing.offset),
      content.count == closing.end - closing.offset
    else { return false }
    return SHA256.hash(Array(content.prefix(closing.header.length))) == closing.header.hash
  }

  /// - Throws: `.damaged` if a backup was interrupted after the last state, or the end of the file was
  ///   damaged.
  func checkEnd() throws(StoreError) {
    guard isUnfinished else { return }
    throw damaged(
      "behind state \(sections.count) lie bytes of a backup that was interrupted, or damaged since: back up into it again, or "
        + "name state \(sections.count) to be restored")
  }

  func damaged(_ reason: String) -> StoreError {
    StoreError(.damaged, "the backup is damaged: \(reason)", path: file.path)
  }

  // MARK: Contents

  /// The content of an entry that fits into memory, verified.
  func content(_ entry: Entry) throws(StoreError) -> [UInt8] {
    let bytes = try file.read(entry.header.length, at: entry.offset)
    guard bytes.count == entry.header.length, SHA256.hash(bytes) == entry.header.hash else {
      throw damaged("the entry at byte \(entry.offset) is not what was written: use another backup")
    }
    return bytes
  }

  /// Reads the content of an entry piece by piece; it is verified only when this returns.
  func read(_ entry: Entry, _ each: ([UInt8], Int) throws(StoreError) -> Void) throws(StoreError) {
    let hasher = SHA256Hasher()
    var done = 0
    while done < entry.header.length {
      let piece = try file.read(min(Self.pieceBytes, entry.header.length - done), at: entry.offset + done)
      guard !piece.isEmpty else { throw damaged("it ends in the middle of an entry: use another backup") }
      hasher.update(piece)
      try each(piece, done)
      done += piece.count
    }
    guard hasher.finish() == entry.header.hash else {
      throw damaged("the entry at byte \(entry.offset) is not what was written: use another backup")
    }
  }

  /// Name and bytes of a file of the directory `keys`.
  func keyFile(_ entry: Entry) throws(StoreError) -> (name: String, bytes: [UInt8]) {
    let content = try content(entry)
    let count = Int(content.first ?? 0)
    guard count > 0, content.count > count,
      let name = String(validating: content[1..<(1 + count)], as: UTF8.self), StoreIdentity.isName(name),
      !name.hasPrefix(".")
    else { throw damaged("a file of keys has no name: use another backup") }
    return (name, Array(content[(1 + count)...]))
  }
}

/// Appends entries to a backup file.
struct BackupWriter {
  let file: any StorageFile
  private(set) var offset: Int
  private let headers = SHA256Hasher()

  init(_ file: any StorageFile, at offset: Int) { (self.file, self.offset) = (file, offset) }

  /// Appends an entry whose content is in memory.
  mutating func append(_ kind: BackupEntryHeader.Kind, _ content: [UInt8]) throws(StoreError) {
    let header = BackupEntryHeader(kind, length: content.count, hash: SHA256.hash(content)).encoded()
    try file.write(header, at: offset)
    try file.write(padded(content), at: offset + BackupFormat.headerBytes)
    finish(header, content.count)
  }

  /// Appends a blob. False if its content does not match its name: nothing was appended, and the blob was
  /// quarantined.
  mutating func append(_ blob: BlobReference, from source: BlobReader) throws(StoreError) -> Bool {
    guard let count = Int(exactly: blob.size) else { return false }
    let header = BackupEntryHeader(.blob, length: count, hash: blob.hash.bytes).encoded()
    try file.write(header, at: offset)
    let start = offset + BackupFormat.headerBytes
    let target = file
    do throws(StoreError) {
      try source.verify { (piece, place) throws(StoreError) in
        try target.write(piece, at: start + Int(place))
      }
    } catch {
      guard error.code == .damaged else { throw error }
      return false
    }
    try pad(count)
    finish(header, count)
    return true
  }

  /// Appends a blob in encrypted form. False if its content does not match its name: nothing was appended,
  /// and the blob was quarantined.
  mutating func append(
    _ blob: BlobReference, from source: BlobReader, as name: BlobHash, encryptedWith cipher: BlobCipher
  ) throws(StoreError) -> Bool {
    let count = SHA256.byteCount + Int(EncryptedBlobLayout.encryptedSize(blob.size))
    let (target, hasher) = (file, SHA256Hasher())
    var place = offset + BackupFormat.headerBytes
    func write(_ bytes: [UInt8]) throws(StoreError) {
      guard !bytes.isEmpty else { return }
      hasher.update(bytes)
      try target.write(bytes, at: place)
      place += bytes.count
    }
    do throws(StoreError) {
      try write(name.bytes + EncryptedBlobHeader(blob, cipher).encoded)
      var encryptor = BlobEncryptor(cipher)
      try source.verify { (piece, _) throws(StoreError) in try write(encryptor.encrypt(piece)) }
      try write(encryptor.finish())
    } catch {
      guard error.code == .damaged else { throw error }
      return false
    }
    // Written last: only now the hash is known.
    let header = BackupEntryHeader(.encryptedBlob, length: count, hash: hasher.finish()).encoded()
    try file.write(header, at: offset)
    try pad(count)
    finish(header, count)
    return true
  }

  private func pad(_ count: Int) throws(StoreError) {
    let padding = BackupFormat.aligned(count) - count
    guard padding > 0 else { return }
    try file.write(
      [UInt8](repeating: 0, count: padding), at: offset + BackupFormat.headerBytes + count)
  }

  /// Ends the section, durably: syncs its entries first, then writes and syncs the footer that makes it
  /// count.
  mutating func close(_ closing: BackupFooter) throws(StoreError) {
    var closing = closing
    closing.entries = headers.finish()
    try file.resize(to: offset)
    try file.sync()
    let content = closing.encoded()
    guard content.count <= BackupFormat.maxFooterBytes else {
      throw StoreError(
        .outOfBounds,
        "\(CountText.of(closing.missing.count, noun: "blob")) missing, more than a backup can note: sync first",
        path: file.path)
    }
    let header = BackupEntryHeader(.footer, length: content.count, hash: SHA256.hash(content)).encoded()
    try file.write(header + padded(content), at: offset)
    try file.sync()
    offset += header.count + BackupFormat.aligned(content.count)
  }

  private mutating func finish(_ header: [UInt8], _ count: Int) {
    headers.update(header)
    offset += BackupFormat.headerBytes + BackupFormat.aligned(count)
  }

  private func padded(_ content: [UInt8]) -> [UInt8] {
    content + [UInt8](repeating: 0, count: BackupFormat.aligned(content.count) - content.count)
  }
}
