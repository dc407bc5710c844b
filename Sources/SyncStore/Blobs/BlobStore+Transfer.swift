/// A transfer that goes on: its open file, and the hash of what has come so far.
final class PartialTransfer: Sendable {
  struct State {
    var file: (any StorageFile)?
    var hasher: SHA256Hasher?
    var hashed: UInt64 = 0
  }

  private let state = Locked(State())

  func withState<Result: Sendable>(_ body: (inout State) throws(StoreError) -> Result) throws(StoreError)
    -> Result
  {
    try state.withLock { state throws(StoreError) in try body(&state) }
  }
}

// Objects that arrive in ranges, from a peer. A transfer that broke goes on where it ended, also after a restart.
extension BlobStore {
  /// Transfers that are kept open.
  static let transfersKept = 64

  /// How many bytes of an unfinished transfer are here: the offset of the next `append`.
  package func partialSize(_ hash: BlobHash) throws(StoreError) -> UInt64 { try files.partialSize(hash) }

  /// Adds the next bytes of a transfer. `.outOfBounds` unless `offset` is where it ended; `.diskFull` leaves it as it
  /// was. Nothing is synced.
  package func append(_ bytes: [UInt8], to hash: BlobHash, at offset: UInt64) throws(StoreError) {
    try requireWritable()
    guard offset <= Limits.blobBytes, UInt64(bytes.count) <= Limits.blobBytes - offset else {
      throw StoreError(.outOfBounds, "blob \(hash) would be larger than a blob can be", path: files.directory)
    }
    try requireSpace(UInt64(bytes.count))
    let done = try withTransfer(hash, creating: offset == 0) { (file, state) throws(StoreError) in
      try append(bytes, to: hash, at: offset, file, &state)
      return true
    }
    guard done != nil else {
      throw StoreError(
        .outOfBounds, "bytes at \(offset) do not continue blob \(hash), of which none are here: begin at 0",
        path: files.directory)
    }
  }

  private func append(
    _ bytes: [UInt8], to hash: BlobHash, at offset: UInt64, _ file: any StorageFile,
    _ state: inout PartialTransfer.State
  ) throws(StoreError) {
    let size = try UInt64(file.status().size)
    guard size == offset else {
      throw StoreError(
        .outOfBounds,
        "bytes at \(offset) do not continue the \(size) of blob \(hash) that are here: go on from there",
        path: file.path)
    }
    do throws(StoreError) {
      try file.write(bytes, at: Int(offset))
    } catch {
      // What did not fit must not stay as part of the transfer.
      if offset == 0 {
        _ = try? files.remove(BlobFiles.partial(hash))
      } else {
        _ = try? file.resize(to: Int(offset))
      }
      throw error
    }
    if offset == 0 { (state.hasher, state.hashed) = (SHA256Hasher(), 0) }
    if state.hashed == offset, let hasher = state.hasher {
      hasher.update(bytes)
      state.hashed += UInt64(bytes.count)
    }
  }

  /// Verifies a transfer that is complete and makes it an object. Bytes that are not the object's are discarded and are
  /// `.damaged` (F85); a transfer that is too short stays, and is `.outOfBounds`.
  package func complete(_ reference: BlobReference, durable: Bool) throws(StoreError) {
    try requireWritable()
    let hash = reference.hash
    if reference.size == 0, try files.partialSize(hash) == 0, hash.bytes == SHA256.hash([]) {
      _ = try put(bytes: [], durable: durable)
      return try discardPartial(hash)
    }
    while true {
      if try adopt(reference, durable: durable) { return try discardPartial(hash) }
      let placed = try withTransfer(hash, creating: false) { (file, state) throws(StoreError) in
        try finish(reference, file, &state, durable: durable)
      }
      forgetTransfer(hash)
      guard let placed else { throw Self.unavailable(hash) }
      if placed { return }
    }
  }

  /// Throws an unfinished transfer away.
  package func discardPartial(_ hash: BlobHash) throws(StoreError) {
    try requireWritable()
    forgetTransfer(hash)
    try files.remove(BlobFiles.partial(hash))
  }

  private func finish(
    _ reference: BlobReference, _ file: any StorageFile, _ state: inout PartialTransfer.State, durable: Bool
  ) throws(StoreError) -> Bool {
    let name = BlobFiles.partial(reference.hash)
    let size = try UInt64(file.status().size)
    guard size >= reference.size else {
      throw StoreError(
        .outOfBounds, "blob \(reference.hash) has \(size) of \(reference.size) bytes here: go on from there",
        path: file.path)
    }
    let hash: BlobHash
    if state.hashed == size, let hasher = state.hasher {
      hash = Self.hash(hasher.finish())
      state.hasher = nil
    } else {
      hash = try Self.hash(of: file).0
    }
    guard hash == reference.hash, size == reference.size else {
      try files.remove(name)
      throw StoreError(
        .damaged, "the bytes received for blob \(reference.hash) are not its content: fetch it again",
        path: file.path)
    }
    if packs.settings.takes(Int(reference.size)) {
      try putPacked(try file.read(Int(reference.size), at: 0), reference, durable: durable)
      try files.remove(name)
      return true
    }
    do throws(StoreError) {
      if durable { try file.sync() }
    } catch {
      // Pages whose sync failed must not be counted on, nor synced again (rule R4).
      _ = try? files.remove(name)
      throw error
    }
    return try place(name, as: reference, durable: durable)
  }

  /// Runs `body` on the file of a transfer, alone among all threads and processes; nil if there is none.
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
        // Between opening and locking, another may have made it an object, or thrown it away.
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
      // A link or a directory in place of a transfer: put away, so that it does not stop the blob for ever.
      try files.setAside(name)
      return creating ? try files.open(name, .create) : nil
    }
  }

  private func forgetTransfer(_ hash: BlobHash) {
    memory.withLock { _ = $0.transfers.removeValue(forKey: hash) }
  }
}
