// What is here, and reading it.
extension BlobStore {
  // MARK: Presence

  /// Is the object here? Its content is not looked at.
  package func has(_ hash: BlobHash) throws(StoreError) -> Bool {
    if try packs.find(hash, following: false) != nil { return true }
    if try files.size(of: hash) != nil { return true }
    return try packs.find(hash, following: true) != nil
  }

  /// Is the object here, in its full size? Its content is not looked at.
  package func has(_ reference: BlobReference) throws(StoreError) -> Bool {
    try size(of: reference.hash) == reference.size
  }

  private func size(of hash: BlobHash) throws(StoreError) -> UInt64? {
    if let (pack, slot) = try packs.find(hash, following: false) { return UInt64(pack.size(slot)) }
    if let size = try files.size(of: hash) { return size }
    return try packs.find(hash, following: true).map { UInt64($0.pack.size($0.slot)) }
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
    var all: [BlobHash: UInt64] = [:]
    guard try files.storage.status(files.directory) != nil else { return [] }
    try files.eachObject { hash, size in all[hash] = size }
    try packs.eachObject { (pack, slot, _) throws(StoreError) in
      if let entry = pack.entry(slot) { all[entry.name] = UInt64(entry.size) }
    }
    return all.map { BlobReference(hash: $0.key, size: $0.value) }.sorted { $0.hash < $1.hash }
  }

  /// Bytes of all objects here.
  package func totalBytes() throws(StoreError) -> UInt64 {
    guard try files.storage.status(files.directory) != nil else { return 0 }
    var total: UInt64 = 0
    try files.eachObject { _, size in total += size }
    return total + UInt64(try packs.totals().bytes)
  }

  // MARK: Reading

  /// A reader of an object that is here.
  ///
  /// - Throws: `.blobUnavailable` if it is not here; `.damaged`, and set aside, if it has not the size it must have.
  package func reader(_ reference: BlobReference) throws(StoreError) -> BlobReader {
    if let reader = try packedReader(reference.hash, following: false) {
      return try checked(reader, reference)
    }
    if let file = try files.open(reference.hash) {
      noteRead(reference.hash)
      return try checked(
        BlobReader(self, reference.hash, .file(file), size: UInt64(try file.status().size)), reference)
    }
    if let reader = try packedReader(reference.hash, following: true) {
      return try checked(reader, reference)
    }
    throw Self.unavailable(reference.hash)
  }

  private func checked(_ reader: BlobReader, _ reference: BlobReference) throws(StoreError) -> BlobReader {
    guard reader.size == reference.size else { throw reader.setAside() }
    return reader
  }

  private func packedReader(_ hash: BlobHash, following: Bool) throws(StoreError) -> BlobReader? {
    guard let (pack, slot) = try packs.find(hash, following: following) else { return nil }
    guard let entry = pack.entry(slot) else { return nil }
    if !readOnly { packs.noteUse(pack, slot) }
    return BlobReader(self, hash, .packed(pack, entry), size: UInt64(entry.size))
  }

  /// The content of an object, verified. `.blobUnavailable` if it is not here. Content that is not what it was is
  /// moved to `quarantine/`, to be fetched again, and is `.damaged` (F44).
  package func read(_ reference: BlobReference) throws(StoreError) -> [UInt8] {
    try reader(reference).contents()
  }

  /// Works on the content of an object in place, where it is mapped. It is not hashed: what has rotted is found by
  /// `read` and `verify`.
  package func withBytes<Result>(
    _ reference: BlobReference, _ body: (RawSpan) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    try reader(reference).withBytes(body)
  }

  /// Up to `count` bytes of an object from `offset`, not verified: for a receiver that verifies the whole.
  package func read(_ hash: BlobHash, offset: UInt64, count: Int) throws(StoreError) -> [UInt8] {
    guard let size = try size(of: hash) else {
      // What lies there and is no object has an error of its own.
      _ = try files.open(hash)
      throw Self.unavailable(hash)
    }
    return try reader(BlobReference(hash: hash, size: size)).read(count, at: offset)
  }

  /// Writes the content of an object to `path`, in place of what is there, once it is complete and verified. With
  /// `durable` the file and its name are synced.
  package func export(_ reference: BlobReference, toFileAt path: String, durable: Bool = false)
    throws(StoreError)
  {
    let source = try reader(reference)
    let temporary = "\(path).\(SystemCall.processID)-\(BlobFiles.nextNumber()).part"
    let file = try files.storage.open(temporary, .create)
    do throws(StoreError) {
      try source.verify { (piece, offset) throws(StoreError) in try file.write(piece, at: Int(offset)) }
      if durable { try file.sync() }
      try files.storage.rename(temporary, to: path)
    } catch {
      _ = try? files.storage.remove(temporary)
      throw error
    }
    if durable { try files.storage.syncDirectory(BlobFiles.parent(of: path)) }
  }

  /// Reads one object and compares it with its reference, holding `pieceBytes` of it in memory at a time.
  /// `.blobUnavailable` if it is not here; `.damaged`, and set aside, if it is not what was stored.
  package func verify(_ reference: BlobReference) throws(StoreError) {
    try reader(reference).verify { _, _ in }
  }
}

extension PackSet {
  /// Reads lift the stamp of an object once a minute: more would make each read a write.
  static let noticedAfter: UInt64 = 60_000 << 16

  func noteUse(_ pack: Pack, _ slot: Int) {
    let now = clock() << 16
    if now > pack.word(slot).stamp &+ Self.noticedAfter { pack.claim(slot, stamp: stamp()) }
  }
}
