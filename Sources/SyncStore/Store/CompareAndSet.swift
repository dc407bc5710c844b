/// Condition of a write on the present state of its key; if it does not hold, nothing is written.
public enum Expected: Hashable, Sendable {
  /// The key has no value.
  case absent
  /// The key has the value that this write made: `Entry.dot`, `VersionedValue.version`, or the version that
  /// the write returned.
  case version(Dot)
  /// The key has a value of these bytes, whatever its type and deadline.
  case value([UInt8])
  /// The key has a value of these bytes and this type, whatever its deadline; `equal(to:)` creates it.
  case typed(EncodedValue)
}

/// A value and the write that made it.
public struct VersionedValue: Hashable, Sendable {
  /// The value.
  public let value: Value
  /// The write that made it, for `Expected.version`.
  public let version: Dot
}

/// Compare and set: the comparison and the write are one atomic step among all threads and processes of this
/// copy.
///
/// It does not arbitrate between copies: what another copy wrote concurrently arrives with the next sync, and
/// last-writer-wins decides.
extension Store {
  /// The value of a key together with its version; nil if it has none.
  ///
  /// - Throws: as `get`.
  public func versioned(_ key: Key) throws(StoreError) -> VersionedValue? {
    guard let record = try currentRecord(key.bytes), let value = try value(of: record) else { return nil }
    return VersionedValue(value: value, version: record.dot)
  }

  /// Sets a key if its present state is the expected one.
  ///
  /// ```swift
  /// var held = try store.versioned("count")
  /// func expected() -> Expected { held.map { .version($0.version) } ?? .absent }
  /// while try store.put("count", next(held?.value), expecting: expected()) == nil {
  ///   held = try store.versioned("count")       // another writer was faster
  /// }
  /// ```
  ///
  /// - Returns: the version of the new value; nil if the key was in another state and nothing was written.
  /// - Throws: as `put`; `.damaged` if what the key holds cannot be read.
  public func put(
    _ key: Key, _ value: [UInt8], expecting expectation: Expected, type: ValueType = .bytes,
    expiration: Expiration? = nil, durability: Durability? = nil
  ) throws(StoreError) -> Dot? {
    try checkWritable()
    // Write the blob before taking the mutex: it takes long. The sweep removes it if it turns out not to be
    // needed.
    let content = try content(of: value)
    let (version, tail) = try writes.append { builder throws(StoreError) in
      try self.put(
        key, content: content, type: type, deadline: self.deadline(for: expiration), expecting: expectation,
        &builder)
    }
    if version != nil { try awaitDurability(tail, durability: durability) }
    return version
  }

  /// Sets a key to bytes written piece by piece if its state, once all are written, is the expected one;
  /// with nil in any state.
  ///
  /// At most a few MiB are in memory at a time; nothing is written if `body` throws.
  ///
  /// - Returns: the version of the new value; nil if the key was in another state and nothing was written.
  /// - Throws: as `put`; `.outOfBounds` above `Limits.blobBytes`; `.damaged` if what the key holds cannot be
  ///   read; what `body` throws.
  public func put(
    _ key: Key, expecting expectation: Expected?, type: ValueType = .bytes, expiration: Expiration? = nil,
    durability: Durability? = nil, writing body: (ValueWriter) throws -> Void
  ) throws -> Dot? {
    try checkWritable()
    try checkMayWrite()
    let writer = ValueWriter(self)
    defer { writer.discard() }
    try body(writer)
    let content = try writer.finish()
    let deadline = self.deadline(for: expiration)
    let (version, tail) = try writes.append { builder throws(StoreError) in
      try self.put(
        key, content: content, type: type, deadline: deadline, expecting: expectation, &builder)
    }
    if version != nil { try awaitDurability(tail, durability: durability) }
    return version
  }

  /// Deletes a key if its present state is the expected one and it has a value. False otherwise.
  ///
  /// - Throws: as `delete`; `.damaged` if what the key holds cannot be read.
  public func delete(
    _ key: Key, expecting expectation: Expected, durability: Durability? = nil
  ) throws(StoreError) -> Bool {
    let (deleted, tail) = try writes.append { builder throws(StoreError) in
      try self.delete(key, expecting: expectation, &builder)
    }
    if deleted { try awaitDurability(tail, durability: durability) }
    return deleted
  }

  /// Sets a key unless it already has this value, type and deadline. In that case returns false: nothing is
  /// written or replicated, and the present value is as durable as the mode promises.
  ///
  /// - Throws: as `put`. A damaged record is replaced.
  public func putIfChanged(
    _ key: Key, _ value: [UInt8], type: ValueType = .bytes, expiration: Expiration? = nil,
    durability: Durability? = nil
  ) throws(StoreError) -> Bool {
    try checkWritable()
    let deadline = self.deadline(for: expiration)
    // The unchanged case needs no writers' mutex and no blob.
    if let held = try? liveRecord(key.bytes),
      Self.matches(held, value: value, type: type, deadline: deadline)
    {
      try awaitDurability(control.tail, durability: durability)
      return false
    }
    let content = try content(of: value)
    let (changed, tail) = try writes.append { builder throws(StoreError) in
      try self.putIfChanged(key, value: value, content: content, type: type, deadline: deadline, &builder)
    }
    try awaitDurability(tail, durability: durability)
    return changed
  }

  // MARK: Conditional append

  func put(
    _ key: Key, content: Record.Content, type: ValueType, deadline: UInt64?,
    expecting expectation: Expected?, _ builder: inout TransactionBuilder
  ) throws(StoreError) -> Dot? {
    try writes.issuePending(&builder)
    if let expectation {
      guard try meetsExpectation(key, expected: expectation, in: builder) else { return nil }
    }
    return try issue(key, content: content, type: type, deadline: deadline, &builder)
  }

  func delete(
    _ key: Key, expecting expectation: Expected, _ builder: inout TransactionBuilder
  ) throws(StoreError) -> Bool {
    try writes.issuePending(&builder)
    guard try meetsExpectation(key, expected: expectation, in: builder) else { return false }
    return try delete(key, &builder)
  }

  /// False if the key already had this value.
  func putIfChanged(
    _ key: Key, value: [UInt8], content: Record.Content, type: ValueType, deadline: UInt64?,
    _ builder: inout TransactionBuilder
  ) throws(StoreError) -> Bool {
    try writes.issuePending(&builder)
    // An unreadable record is replaced.
    if let held = try? liveRecord(key, in: builder),
      Self.matches(held, value: value, type: type, deadline: deadline)
    {
      return false
    }
    _ = try issue(key, content: content, type: type, deadline: deadline, &builder)
    return true
  }

  private static func matches(
    _ record: Record, value: [UInt8], type: ValueType, deadline: UInt64?
  ) -> Bool {
    record.type == type && record.deadline == deadline && isValue(of: record, value)
  }

  private func issue(
    _ key: Key, content: Record.Content, type: ValueType, deadline: UInt64?,
    _ builder: inout TransactionBuilder
  ) throws(StoreError) -> Dot? {
    try retainBlob(of: content)
    let held = try writes.heldForWriting(key.bytes, in: builder)
    try builder.issue(key: key.bytes, content: content, type: type, deadline: deadline, held: held)
    return builder.record(of: key.bytes)?.dot
  }

  private func meetsExpectation(
    _ key: Key, expected expectation: Expected, in builder: borrowing TransactionBuilder
  ) throws(StoreError) -> Bool {
    let held = try liveRecord(key, in: builder)
    switch expectation {
    case .absent: return held == nil
    case .version(let dot): return held?.dot == dot
    case .value(let bytes): return held.map { Self.isValue(of: $0, bytes) } ?? false
    case .typed(let form):
      return held.map { $0.type == form.type && Self.isValue(of: $0, form.bytes) } ?? false
    }
  }

  /// The record of a key including earlier writes of this append; nil unless it has a value that has not
  /// expired.
  func liveRecord(_ key: Key, in builder: borrowing TransactionBuilder) throws(StoreError) -> Record? {
    let wall = builder.wall
    if let record = builder.record(of: key.bytes) { return record.isLive(at: wall) ? record : nil }
    let held = try core.engine.withLock { engine throws(StoreError) -> Record? in
      if let shown = engine.effectiveRecord(key.bytes) { return shown.record }
      return try engine.held(key.bytes)
    }
    return held.flatMap { $0.isLive(at: wall) ? $0 : nil }
  }

  /// Whether the record has these bytes as its value. A blob is compared by hash, so it need not be on this
  /// copy.
  private static func isValue(of record: Record, _ bytes: [UInt8]) -> Bool {
    switch record.content {
    case .tombstone: false
    case .inline(let held): held == bytes
    case .blob(let blob): blob.size == UInt64(bytes.count) && blob.hash.bytes == SHA256.hash(bytes)
    }
  }
}

extension Transaction {
  /// Sets a key if its state, including earlier writes of this transaction, is the expected one; see
  /// `Store.put`.
  ///
  /// - Throws: as `Store.put`; `.outOfBounds` if it does not fit into the transaction any more: nothing of it
  ///   was written then; `.damaged` if what the key holds cannot be read.
  public mutating func put(
    _ key: Key, _ value: [UInt8], expecting expectation: Expected, type: ValueType = .bytes,
    expiration: Expiration? = nil
  ) throws(StoreError) -> Dot? {
    let content = try store.content(of: value, deferring: true)
    let version = try store.put(
      key, content: content, type: type, deadline: store.deadline(for: expiration), expecting: expectation,
      &builder)
    if version != nil { trackBlob(of: content) }
    return version
  }

  /// Deletes a key if its present state is the expected one and it has a value. False otherwise.
  ///
  /// - Throws: as `Store.delete`; `.outOfBounds` if it does not fit into the transaction any more: nothing of
  ///   it was written then; `.damaged` if what the key holds cannot be read.
  public mutating func delete(_ key: Key, expecting expectation: Expected) throws(StoreError) -> Bool {
    try store.delete(key, expecting: expectation, &builder)
  }

  /// Sets a key unless it already has this value, type and deadline; false in that case.
  ///
  /// - Throws: as `Store.put`; `.outOfBounds` if it does not fit into the transaction any more: nothing of it
  ///   was written then.
  public mutating func putIfChanged(
    _ key: Key, _ value: [UInt8], type: ValueType = .bytes, expiration: Expiration? = nil
  ) throws(StoreError) -> Bool {
    let content = try store.content(of: value, deferring: true)
    let changed = try store.putIfChanged(
      key, value: value, content: content, type: type, deadline: store.deadline(for: expiration), &builder)
    if changed { trackBlob(of: content) }
    return changed
  }

  /// The value and version of a key, including earlier writes of this transaction.
  ///
  /// - Throws: as `Store.get`.
  public func versioned(_ key: Key) throws(StoreError) -> VersionedValue? {
    switch builder.earlierWrite(of: key.bytes) {
    case .nothing: return try store.versioned(key)
    case .deleted: return nil
    case .pending(let write, let number):
      return VersionedValue(value: value(of: write), version: try version(ofPending: number).dot)
    case .issued(let record):
      return try store.value(of: record).map { VersionedValue(value: $0, version: record.dot) }
    }
  }

  /// Whether the key has a value, including earlier writes of this transaction.
  ///
  /// - Throws: as `Store.contains`.
  public func contains(_ key: Key) throws(StoreError) -> Bool {
    switch builder.earlierWrite(of: key.bytes) {
    case .nothing: try store.contains(key)
    case .deleted: false
    case .pending: true
    case .issued(let record): record.isLive(at: builder.wall)
    }
  }

  /// Size, type, version and deadline of a key's value, including earlier writes of this transaction.
  ///
  /// - Throws: as `Store.entry`.
  public func entry(_ key: Key) throws(StoreError) -> Entry? {
    switch builder.earlierWrite(of: key.bytes) {
    case .nothing: return try store.entry(key)
    case .deleted: return nil
    case .pending(let write, let number):
      let version = try version(ofPending: number)
      return Entry(
        key: key, type: write.type, size: UInt64(write.value.count), stamp: version.stamp, dot: version.dot,
        deadline: nil, blob: nil)
    case .issued(let record): return record.isLive(at: builder.wall) ? Entry(record) : nil
    }
  }

  /// The version that a pending write will get.
  private func version(ofPending number: Int) throws(StoreError) -> Version {
    guard let version = builder.version(ofPending: number) else {
      throw StoreError(.clock, "the clock stands at its end: set the system's time and restore from a peer")
    }
    return version
  }
}
