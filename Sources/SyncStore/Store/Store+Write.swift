private import Synchronization

/// The write path of a put: writers' mutex, rules (`TransactionBuilder`), one append, then durability as
/// configured.
extension Store {
  /// Sets a key. Values above the configured threshold go to the blob tier.
  ///
  /// - Parameters:
  ///   - type: stored with the value.
  ///   - expiration: when it expires; nil is the default of the configuration.
  ///   - durability: for this write; by default the store's.
  /// - Throws: `.diskFull`: nothing was changed; `.readOnly`; `.poisoned` once a sync has failed;
  ///   `.outOfBounds` above `Limits.blobBytes`, and for a key that is not in the scope of this copy; `.busy`
  ///   within a transaction of this thread: write through that; `.clock` where no stamp can follow;
  ///   `.closed`, `.forked`.
  public func put(
    _ key: Key, _ value: [UInt8], type: ValueType = .bytes, expiration: Expiration? = nil,
    durability: Durability? = nil
  ) throws(StoreError) {
    try put(key, value.span, type: type, expiration: expiration, durability: durability)
  }

  /// Sets a key to bytes without copying them first.
  ///
  /// - Parameters:
  ///   - type: stored with the value.
  ///   - expiration: when it expires; nil is the default of the configuration.
  ///   - durability: for this write; by default the store's.
  /// - Throws: as the put of an array.
  public func put(
    _ key: Key, _ value: Span<UInt8>, type: ValueType = .bytes, expiration: Expiration? = nil,
    durability: Durability? = nil
  ) throws(StoreError) {
    try checkWritable()
    guard value.count <= configuration.blobThreshold else {
      return try write(
        key, content: try content(of: Array(copying: value)), type: type,
        deadline: self.deadline(for: expiration),
        durability: durability)
    }
    if let tail = try writes.putInline(
      key.bytes, value: value, type: type, deadline: self.deadline(for: expiration))
    {
      try awaitDurability(tail, durability: durability)
    }
  }

  /// Sets a key to the content of a file, which is streamed if it is larger than the threshold. Follows a
  /// symbolic link.
  ///
  /// - Throws: as the put of bytes; `.foreignFile` if it is no file; `.inputOutput` if it cannot be read.
  public func put(
    _ key: Key, fileAt file: String, type: ValueType = .bytes, expiration: Expiration? = nil,
    durability: Durability? = nil
  ) throws(StoreError) {
    try checkWritable()
    try write(
      key, content: try content(ofFile: file), type: type, deadline: self.deadline(for: expiration),
      durability: durability)
  }

  /// Performs several writes atomically: after a crash all of them are found, or none. An error thrown by
  /// `body` rolls them back. No other thread or process can write until it returns, so what `body` reads
  /// stays current until it returns. **Only the transaction may be used to write within `body`.**
  ///
  /// - Throws: what `body` throws; as `put`; `.outOfBounds` above `Limits.transactionBytes`. Nothing was
  ///   written then, unless it is `.poisoned`.
  public func transaction<Result>(
    durability: Durability? = nil, _ body: (inout Transaction) throws -> Result
  ) throws -> Result {
    try checkWritable()
    writes.compaction.throttleWriter()
    try writes.lockWriters()
    var result: Result
    do {
      writes.transactionThread.store(SystemCall.thread, ordering: .relaxed)
      defer {
        writes.transactionThread.store(0, ordering: .relaxed)
        control.unlock()
      }
      var transaction = Transaction(
        store: self, builder: writes.newTransactionBuilder(limit: Limits.transactionBytes))
      result = try body(&transaction)
      try commit(&transaction)
    }
    try awaitDurability(control.tail, durability: durability)
    return result
  }

  /// Sets a key with the store's default expiry.
  ///
  /// Returns false, with nothing written, if the value is too large to be inline, if `unlessKnown` and
  /// something is known of the key, or if the store holds the local key `note`.
  func putInline(
    _ key: Key, _ value: Span<UInt8>, type: ValueType, unlessKnown: Bool, unlessNoted note: [UInt8],
    durability: Durability?
  ) throws(StoreError) -> Bool {
    try checkWritable()
    guard value.count <= configuration.blobThreshold,
      let tail = try writes.putInline(
        key.bytes, value: value, type: type, deadline: deadline(for: nil), unlessKnown: unlessKnown,
        unlessNoted: note)
    else { return false }
    try awaitDurability(tail, durability: durability)
    return true
  }

  func write(
    _ key: Key, content: Record.Content, type: ValueType, deadline: UInt64?, durability: Durability?
  ) throws(StoreError) {
    let (_, tail) = try writes.append { builder throws(StoreError) in
      try self.retainBlob(of: content)
      let held = try self.writes.heldForWriting(key.bytes, in: builder)
      try builder.issue(key: key.bytes, content: content, type: type, deadline: deadline, held: held)
    }
    try awaitDurability(tail, durability: durability)
  }

  /// Stores a value inline or as a blob. A packed blob becomes durable with others just before the journal
  /// does (`syncBlobs`); a large one before its record is appended, in every mode. A transaction puts
  /// `deferring` blobs and makes them durable together.
  func content(of value: [UInt8], deferring: Bool = false) throws(StoreError) -> Record.Content {
    if value.count <= configuration.blobThreshold { return .inline(value) }
    try checkMayWrite()
    let isPacked = try blobs.packs.settings.takes(value.count)
    let reference = try blobs.put(bytes: value, durable: !deferring && !isPacked)
    if isPacked { control.recordBlobPut() }
    return .blob(reference)
  }

  func content(ofFile file: String, deferring: Bool = false) throws(StoreError) -> Record.Content {
    try checkMayWrite()
    let storage = environment.storage.unanchored
    let (file, status) = try storage.fileToRead(file, "a file that can be read")
    if status.size <= configuration.blobThreshold {
      // Read one byte more than its size, to notice a file that grows concurrently.
      let bytes = try storage.open(file, .readOnly).read(status.size + 1, at: 0)
      if bytes.count <= configuration.blobThreshold { return .inline(bytes) }
    }
    // The size of the file may have changed since it was opened.
    let blobs = try blobs
    let isPacked = blobs.packs.settings.takes(status.size)
    let reference = try blobs.put(fileAt: file, durable: !deferring && !isPacked)
    if isPacked, !blobs.packs.settings.takes(Int(reference.size)) { try blobs.makeDurable([reference]) }
    control.recordBlobPut()
    return .blob(reference)
  }
}

extension Record {
  /// Whether it has a value at this time, in milliseconds since 1970.
  func isLive(at time: UInt64) -> Bool { !isTombstone && (deadline.map { $0 > time } ?? true) }
}
