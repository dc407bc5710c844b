/// An unfinished transfer: its open file, and the hash of the bytes received so far.
final class PartialTransfer: Sendable {
  struct State {
    var file: (any StorageFile)?
    var hasher: BackgroundHasher?
    var hashed: UInt64 = 0
    /// Encrypts it.
    var cipher: BlobCipher?
    /// Bytes written since writeback was last started.
    var waiting = 0
  }

  private let state = LockedField(State(), rank: .blobTransfer)

  func withState<Result: Sendable>(_ body: (inout State) throws(StoreError) -> Result) throws(StoreError)
    -> Result
  {
    try state.withLock { state throws(StoreError) in try body(&state) }
  }
}

// Objects that arrive in ranges from a peer. An interrupted transfer resumes where it ended, also after a
// restart.
extension BlobStore {
  /// Maximum number of transfers kept open.
  static let transfersKept = 64
  /// Bytes of a transfer after which writeback is started.
  ///
  /// Otherwise the disk would idle until all bytes have arrived, and the final sync would wait for all of
  /// them.
  static let writebackBytes = 16 << 20

  /// Bytes of an unfinished transfer that are here: the offset of the next `append`.
  package func partialSize(_ hash: BlobHash) throws(StoreError) -> UInt64 {
    let (name, isEncrypted) = partialName(hash)
    return Self.contentSize(try files.partialSize(name), isEncrypted: isEncrypted)
  }

  /// `partialSize` of many objects: one listing of the directory finds the few that have begun.
  package func partialSizes(_ hashes: [BlobHash]) throws(StoreError) -> [UInt64] {
    let begun = hashes.count > 1 ? Set(try files.partials()) : nil
    return try hashes.map { hash throws(StoreError) in
      guard let begun else { return try partialSize(hash) }
      return begun.contains(partialName(hash).name) ? try partialSize(hash) : 0
    }
  }

  /// Stored name of an unfinished transfer.
  private func partialName(_ hash: BlobHash) -> (name: BlobHash, isEncrypted: Bool) {
    let keys = writingKeys
    return (keys?.name(of: hash) ?? hash, keys != nil)
  }

  /// Appends the next bytes of a transfer. Nothing is synced.
  ///
  /// - Throws: `.outOfBounds` unless `offset` is where the transfer ended; `.diskFull` leaves it unchanged
  ///   or, if it is encrypted, cut after its last complete piece.
  package func append(_ bytes: [UInt8], to hash: BlobHash, at offset: UInt64) throws(StoreError) {
    try requireWritable()
    guard offset <= Limits.blobBytes, UInt64(bytes.count) <= Limits.blobBytes - offset else {
      throw StoreError(
        .outOfBounds, "blob \(hash) would be larger than a blob can be: split it", path: files.directory)
    }
    try requireSpace(UInt64(bytes.count))
    // With the keys held they cannot change between choosing the file and writing to it.
    try withKeysHeld { () throws(StoreError) in try appendWithKeysHeld(bytes, to: hash, at: offset) }
  }

  private func appendWithKeysHeld(_ bytes: [UInt8], to hash: BlobHash, at offset: UInt64) throws(StoreError) {
    let (name, isEncrypted) = partialName(hash)
    let done = try withTransfer(name, creating: offset == 0) { (file, state) throws(StoreError) in
      let held = Self.contentSize(UInt64(try file.status().size), isEncrypted: isEncrypted)
      guard held == offset else {
        throw StoreError(
          .outOfBounds,
          "bytes at \(offset) do not continue the \(held) of blob \(hash) that are here: go on from there",
          path: file.path)
      }
      if isEncrypted {
        try appendEncrypted(bytes, at: offset, file, &state)
      } else {
        try append(bytes, to: name, at: offset, file)
      }
      if offset == 0 { (state.hasher, state.hashed) = (BackgroundHasher(), 0) }
      if state.hashed == offset, let hasher = state.hasher {
        hasher.update(bytes)
        state.hashed += UInt64(bytes.count)
      }
      state.waiting += bytes.count
      if state.waiting >= Self.writebackBytes {
        file.startWriteback()
        state.waiting = 0
      }
      return true
    }
    guard done != nil else {
      throw StoreError(
        .outOfBounds, "bytes at \(offset) do not continue blob \(hash), of which none are here: begin at 0",
        path: files.directory)
    }
  }

  private func append(
    _ bytes: [UInt8], to name: BlobHash, at offset: UInt64, _ file: any StorageFile
  ) throws(StoreError) {
    do throws(StoreError) {
      try file.write(bytes, at: Int(offset))
    } catch {
      // A partial write must not remain part of the transfer.
      if offset == 0 {
        _ = try? files.remove(BlobFiles.partial(name))
      } else {
        _ = try? file.resize(to: Int(offset))
      }
      throw error
    }
  }

  /// Appends encrypted bytes. An incomplete last piece is rewritten together with its continuation: a nonce
  /// depends on all that it encrypts.
  private func appendEncrypted(
    _ bytes: [UInt8], at offset: UInt64, _ file: any StorageFile, _ state: inout PartialTransfer.State
  ) throws(StoreError) {
    if offset == 0 {
      guard let cipher = newCipher() else { return }
      state.cipher = cipher
      try file.resize(to: 0)
      try file.write(EncryptedBlobHeader(unfinished: cipher).encoded, at: 0)
    }
    guard let cipher = try cipher(ofPartial: file, state) else {
      try file.resize(to: 0)
      throw StoreError(
        .outOfBounds, "what is here of the blob cannot be opened under the present keys: begin at 0",
        path: file.path)
    }
    state.cipher = cipher
    let (number, rest) = offset.quotientAndRemainder(dividingBy: UInt64(EncryptedBlobLayout.pieceBytes))
    let start = Int(EncryptedBlobLayout.offset(ofPiece: number))
    do throws(StoreError) {
      var tail: [UInt8] = []
      if rest > 0 {
        let encrypted = try file.read(Int(rest) + BlobCipher.overhead, at: start)
        guard let opened = cipher.decrypt(encrypted, number: UInt32(number)) else {
          throw StoreError(
            .outOfBounds, "the last bytes of what is here of the blob were changed: go on before them",
            path: file.path)
        }
        tail = opened
      }
      var encryptor = BlobEncryptor(cipher, piece: number, tail: tail)
      var output = encryptor.encrypt(bytes)
      output += encryptor.finish()
      try file.write(output, at: start)
    } catch {
      _ = try? file.resize(to: start)
      throw error
    }
  }

  private func cipher(
    ofPartial file: any StorageFile, _ state: PartialTransfer.State
  ) throws(StoreError) -> BlobCipher? {
    if let cipher = state.cipher { return cipher }
    guard let keys = writingKeys,
      let header = EncryptedBlobHeader(try file.read(EncryptedBlobLayout.headerBytes, at: 0))
    else { return nil }
    return keys.master(header.generation)?.cipher(salt: header.salt)
  }

  /// Verifies a complete transfer and publishes it as an object.
  ///
  /// - Throws: `.damaged` if the bytes are not those of the object: they are discarded (F85). `.outOfBounds`
  ///   if the transfer is too short: it stays.
  package func complete(_ reference: BlobReference, durable: Bool) throws(StoreError) {
    try requireWritable()
    let hash = reference.hash
    if reference.size == 0, try partialSize(hash) == 0, hash.bytes == SHA256.hash([]) {
      _ = try put(bytes: [], durable: durable)
      return try discardPartial(hash)
    }
    try withKeysHeld { () throws(StoreError) in
      let form = descriptor(reference)
      while true {
        if try retainExisting(form, durable: durable) { return try discardPartial(hash) }
        let placed = try withTransfer(form.name, creating: false) { (file, state) throws(StoreError) in
          try finish(form, file: file, &state, durable: durable)
        }
        forgetTransfer(form.name)
        guard let placed else { throw Self.unavailable(hash) }
        if placed { return }
      }
    }
  }

  /// Stores an object received in one message. False if the bytes do not match the reference. Nothing is
  /// synced: use `makeDurable`.
  package func put(_ bytes: [UInt8], arrivedAs reference: BlobReference) throws(StoreError) -> Bool {
    try requireWritable()
    guard UInt64(bytes.count) == reference.size, BlobHash(sha256: SHA256.hash(bytes)) == reference.hash else {
      return false
    }
    _ = try put(bytes, reference, durable: false)
    return true
  }

  /// Discards an unfinished transfer.
  package func discardPartial(_ hash: BlobHash) throws(StoreError) {
    try requireWritable()
    for (name, _) in names(of: hash) { try discard(partial: name) }
  }

  /// Discards the unfinished transfer of that stored name.
  func discard(partial name: BlobHash) throws(StoreError) {
    forgetTransfer(name)
    try files.remove(BlobFiles.partial(name))
  }

  private func finish(
    _ form: StoredBlobDescriptor, file: any StorageFile, _ state: inout PartialTransfer.State, durable: Bool
  ) throws(StoreError) -> Bool {
    let (name, reference) = (BlobFiles.partial(form.name), form.reference)
    let size = Self.contentSize(UInt64(try file.status().size), isEncrypted: form.isEncrypted)
    guard size >= reference.size else {
      throw StoreError(
        .outOfBounds, "blob \(reference.hash) has \(size) of \(reference.size) bytes here: go on from there",
        path: file.path)
    }
    let cipher = form.isEncrypted ? try cipher(ofPartial: file, state) : nil
    guard !form.isEncrypted || cipher != nil else {
      try files.remove(name)
      throw Self.unmatched(reference, file)
    }
    if let cipher { try file.write(EncryptedBlobHeader(reference, cipher).encoded, at: 0) }
    let isRight: Bool
    if state.hashed == size, let hasher = state.hasher {
      isRight = size == reference.size && BlobHash(sha256: hasher.finish()) == reference.hash
      state.hasher = nil
    } else {
      isRight = size == reference.size ? try isContent(file, form) : false
    }
    guard isRight else {
      try files.remove(name)
      throw Self.unmatched(reference, file)
    }
    if packs.settings.takes(Int(reference.size)) {
      let source = try reader(of: form.name, .file(file), isEncrypted: form.isEncrypted, reference.hash)
      try putPacked(try source.read(Int(reference.size), at: 0), form, durable: durable)
      try files.remove(name)
      return true
    }
    do throws(StoreError) {
      if durable { try file.sync() }
    } catch {
      // Pages whose sync failed must be neither trusted nor synced again (rule R4).
      _ = try? files.remove(name)
      throw error
    }
    return try publish(name, as: form, durable: durable)
  }

  private static func unmatched(_ reference: BlobReference, _ file: any StorageFile) -> StoreError {
    StoreError(
      .damaged, "the bytes received for blob \(reference.hash) are not its content: fetch it again",
      path: file.path)
  }

  /// Runs `body` on the file of a transfer, exclusive among all threads and processes; nil if there is none.
  private func withTransfer<Result: Sendable>(
    _ hash: BlobHash, creating: Bool,
    _ body: (any StorageFile, inout PartialTransfer.State) throws(StoreError) -> Result
  ) throws(StoreError) -> Result? {
    let name = BlobFiles.partial(hash)
    let transfer = memory.withLock { memory in
      if let transfer = memory.transfers[hash] { return transfer }
      if memory.transfers.count >= Self.transfersKept { memory.transfers = [:] }
      let transfer = PartialTransfer()
      memory.transfers[hash] = transfer
      return transfer
    }
    return try transfer.withState { (state) throws(StoreError) -> Result? in
      while true {
        if state.file == nil {
          state = PartialTransfer.State()
          state.file = try openPartial(name, creating: creating)
        }
        guard let file = state.file else { return nil }
        _ = try file.lock(byte: 0, .exclusive, wait: true)
        // Between opening and locking, another process may have published or discarded it.
        if try files.storage.status(files.path(name))?.inode == file.status().inode {
          defer { _ = try? file.lock(byte: 0, .none, wait: false) }
          return try body(file, &state)
        }
        state.file = nil
      }
    }
  }

  private func openPartial(_ name: String, creating: Bool) throws(StoreError) -> (any StorageFile)? {
    do throws(StoreError) {
      return try files.open(name, creating ? .openOrCreate : .readWrite)
    } catch  where error.code == .foreignFile {
      // A link or a directory in place of a transfer: quarantine it, otherwise it would block the blob for
      // ever.
      try files.quarantine(name)
      return creating ? try files.open(name, .create) : nil
    }
  }

  private func forgetTransfer(_ hash: BlobHash) {
    memory.withLock { _ = $0.transfers.removeValue(forKey: hash) }
  }
}
