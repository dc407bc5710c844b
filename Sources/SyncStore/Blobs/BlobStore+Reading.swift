// Presence of objects, and reading them.
extension BlobStore {
  // MARK: Presence

  /// Whether the object is here. Its content is not checked.
  package func has(_ hash: BlobHash) throws(StoreError) -> Bool { try size(of: hash) != nil }

  /// Whether the object is here, in its full size. Its content is not checked.
  package func has(_ reference: BlobReference) throws(StoreError) -> Bool {
    try size(of: reference.hash) == reference.size
  }

  /// Size of the content of an object; nil if it is missing.
  private func size(of hash: BlobHash) throws(StoreError) -> UInt64? {
    let names = names(of: hash)
    for following in [false, true] {
      for (name, isEncrypted) in names {
        if let (pack, slot) = try packs.lookUp(name, refreshing: following) {
          return Self.contentSize(UInt64(pack.size(slot)), isEncrypted: isEncrypted)
        }
        if !following, let size = try files.size(of: name) {
          return Self.contentSize(size, isEncrypted: isEncrypted)
        }
      }
    }
    return nil
  }

  /// Those of `references` whose objects are missing or incomplete, each hash once, in their order.
  package func missing(of references: some Sequence<BlobReference>) throws(StoreError) -> [BlobReference] {
    var seen: Set<BlobHash> = []
    var missing: [BlobReference] = []
    for reference in references where seen.insert(reference.hash).inserted {
      if try !has(reference) { missing.append(reference) }
    }
    return missing
  }

  /// All objects here, in the order of their stored names.
  ///
  /// In an encrypted store these are stored names and stored sizes, not those of the contents.
  package func all() throws(StoreError) -> [BlobReference] {
    var all: [BlobHash: UInt64] = [:]
    guard try files.storage.status(files.directory) != nil else { return [] }
    try files.eachObject { hash, size in all[hash] = size }
    try packs.eachObject { (pack, slot, _) throws(StoreError) in
      if let entry = pack.entry(slot) { all[entry.name] = UInt64(entry.size) }
    }
    return all.map { BlobReference(hash: $0.key, size: $0.value) }.sorted { $0.hash < $1.hash }
  }

  /// Bytes stored for all objects.
  package func totalBytes() throws(StoreError) -> UInt64 { try totals().bytes }

  /// The number of objects here, and the bytes stored for them.
  package func totals() throws(StoreError) -> (count: UInt64, bytes: UInt64) {
    guard try files.storage.status(files.directory) != nil else { return (0, 0) }
    var (count, bytes): (UInt64, UInt64) = (0, 0)
    try files.eachObject { (count, bytes) = (count + 1, bytes + $1) }
    let packed = try packs.totals()
    return (count + UInt64(packed.count), bytes + UInt64(packed.bytes))
  }

  // MARK: Reading

  /// A reader of an object.
  ///
  /// - Throws: `.blobUnavailable` if it is missing; `.damaged`, after quarantining it, if its size is wrong.
  package func reader(_ reference: BlobReference) throws(StoreError) -> BlobReader {
    for following in [false, true] {
      for (name, isEncrypted) in names(of: reference.hash) {
        if let (pack, slot) = try packs.lookUp(name, refreshing: following), let entry = pack.entry(slot) {
          if !readOnly { packs.recordUse(pack, slot) }
          return try reader(reference, name: name, source: .packed(pack, entry), isEncrypted: isEncrypted)
        }
        if !following, let file = try files.open(name) {
          recordRead(name)
          return try reader(reference, name: name, source: .file(file), isEncrypted: isEncrypted)
        }
      }
    }
    throw Self.unavailable(reference.hash)
  }

  private func reader(
    _ reference: BlobReference, name: BlobHash, source: BlobReader.Source, isEncrypted: Bool
  ) throws(StoreError) -> BlobReader {
    let reader = try reader(of: name, source, isEncrypted: isEncrypted, reference.hash)
    guard reader.size == reference.size, reader.hash == reference.hash else { throw reader.quarantine() }
    // An unencrypted object in an encrypted store may have been planted by an attacker with access to the
    // disk: verify its hash, since a pack checksum is no proof.
    if !isEncrypted, keys.present() != nil, !memory.withLock({ $0.verified.contains(name) }) {
      try reader.verify { _, _ in }
      rememberVerified(name)
    }
    return reader
  }

  /// A reader of a stored object. `expected` is its hash unless its own header tells.
  func reader(
    of name: BlobHash, _ source: BlobReader.Source, isEncrypted: Bool, _ expected: BlobHash
  ) throws(StoreError) -> BlobReader {
    let size: UInt64
    switch source {
    case .packed(_, let entry): size = UInt64(entry.size)
    case .file(let file): size = UInt64(try file.status().size)
    }
    let plain = BlobReader(store: self, hash: expected, name: name, source: source, size: size)
    guard isEncrypted else { return plain }
    guard
      let object = try encryptedBlob(
        header: try plain.read(EncryptedBlobLayout.headerBytes, at: 0), path: source.path),
      object.encryptedSize == size
    else { throw plain.quarantine() }
    return BlobReader(
      store: self, hash: object.hash, name: name, source: source, size: object.size, encrypted: object)
  }

  /// The content of an object, verified.
  ///
  /// - Throws: `.blobUnavailable` if it is missing; `.damaged` if its content was changed: it is then moved
  ///   to `quarantine/`, to be fetched again (F44).
  package func read(_ reference: BlobReference) throws(StoreError) -> [UInt8] {
    try reader(reference).contents()
  }

  /// Calls `body` with the content of an object, mapped in place. It is not hashed: corruption is found by
  /// `read` and `verify`.
  package func withBytes<Result>(
    _ reference: BlobReference, _ body: (RawSpan) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    try reader(reference).withBytes(body)
  }

  /// Up to `count` bytes of an object from `offset`, not verified: for a receiver that verifies the whole.
  package func read(_ hash: BlobHash, offset: UInt64, count: Int) throws(StoreError) -> [UInt8] {
    guard let size = try size(of: hash) else {
      // An entry that is no object has an error of its own.
      for (name, _) in names(of: hash) { _ = try files.open(name) }
      throw Self.unavailable(hash)
    }
    return try reader(BlobReference(hash: hash, size: size)).read(count, at: offset)
  }

  /// Writes the content of an object to `path`, replacing an existing file once the new one is complete and
  /// verified.
  ///
  /// With `durable` the file and its name are synced.
  package func export(_ reference: BlobReference, toFileAt path: String, durable: Bool = false)
    throws(StoreError)
  {
    let source = try reader(reference)
    let temporary = BlobFiles.temporary(nextTo: path)
    let storage = files.storage.unanchored
    let file = try storage.open(temporary, .create)
    do throws(StoreError) {
      try source.verify { (piece, offset) throws(StoreError) in try file.write(piece, at: Int(offset)) }
      if durable { try file.sync() }
      try storage.rename(temporary, to: path)
    } catch {
      _ = try? storage.remove(temporary)
      throw error
    }
    if durable { try storage.syncDirectory(DiskStorage.directory(of: path)) }
  }

  /// Reads one object and compares it with its reference, holding `pieceBytes` of it in memory at a time.
  ///
  /// - Throws: `.blobUnavailable` if it is missing; `.damaged`, after quarantining it, if its content was
  ///   changed.
  package func verify(_ reference: BlobReference) throws(StoreError) {
    try reader(reference).verify { _, _ in }
  }
}
