/// Writes that are applied atomically. Valid only within `Store.transaction`.
///
/// Reads by key include its own earlier writes. **Scans and snapshots of the store do not:** they show the
/// state before the transaction, which no other writer changes until it ends.
public struct Transaction: ~Copyable {
  let store: Store
  var builder: TransactionBuilder
  /// Blobs that must be durable before the transaction is.
  var pendingBlobs: [BlobReference] = []
  /// Savepoints that can be rolled back to, in order.
  var savepoints: [UInt64] = []

  init(store: Store, builder: TransactionBuilder) { (self.store, self.builder) = (store, builder) }

  /// How full the transaction is. A write that does not fit is `.outOfBounds` and leaves the transaction as
  /// it was: commit it, and put the rest into the next one.
  public var size: TransactionSize {
    TransactionSize(records: builder.entries.count + builder.pending.count, bytes: builder.bytes)
  }

  /// Sets a key, as `Store.put` does.
  ///
  /// - Throws: as `Store.put`; `.outOfBounds` if it does not fit into the transaction any more: nothing of it
  ///   was written then.
  public mutating func put(
    _ key: Key, _ value: [UInt8], type: ValueType = .bytes, expiration: Expiration? = nil
  ) throws(StoreError) {
    try put(key, content: try store.content(of: value, deferring: true), type: type, expiration: expiration)
  }

  /// Sets a key to the content of a file, as `Store.put(_:fileAt:)` does.
  ///
  /// - Throws: as the put of bytes, and as `Store.put(_:fileAt:)`.
  public mutating func put(
    _ key: Key, fileAt file: String, type: ValueType = .bytes, expiration: Expiration? = nil
  ) throws(StoreError) {
    try put(
      key, content: try store.content(ofFile: file, deferring: true), type: type, expiration: expiration)
  }

  private mutating func put(
    _ key: Key, content: Record.Content, type: ValueType, expiration: Expiration?
  ) throws(StoreError) {
    let deadline = store.deadline(for: expiration)
    if case .inline(let value) = content, deadline == nil {
      return try builder.enqueue(key: key.bytes, value: value, type: type)
    }
    trackBlob(of: content)
    try store.writes.issuePending(&builder)
    let held = try store.writes.heldForWriting(key.bytes, in: builder)
    try builder.issue(
      key: key.bytes, content: content, type: type, deadline: deadline, held: held)
  }

  /// Records a blob of the transaction: it must be durable before the transaction is.
  mutating func trackBlob(of content: Record.Content) {
    if case .blob(let blob) = content { pendingBlobs.append(blob) }
  }

  /// Deletes a key, as `Store.delete` does. False if it had no value.
  ///
  /// - Throws: as `Store.delete`; `.outOfBounds` if it does not fit into the transaction any more: nothing of
  ///   it was written then.
  @discardableResult
  public mutating func delete(_ key: Key) throws(StoreError) -> Bool {
    switch builder.earlierWrite(of: key.bytes) {
    case .deleted: return false
    case .pending: break
    case .issued(let record): guard record.isLive(at: builder.wall) else { return false }
    case .nothing: if case .nothing = try store.deleteTarget(key.bytes, in: builder) { return false }
    }
    try builder.enqueue(key: key.bytes, value: nil, type: .bytes)
    return true
  }

  /// The value of a key, including earlier writes of this transaction.
  ///
  /// - Throws: as `Store.get`.
  public func get(_ key: Key) throws(StoreError) -> Value? {
    switch builder.earlierWrite(of: key.bytes) {
    case .nothing: return try store.get(key)
    case .deleted: return nil
    case .pending(let write, _): return value(of: write)
    case .issued(let record): return try store.value(of: record)
    }
  }

  func value(of write: WriteBatch.Write) -> Value {
    Value(bytes: builder.pending.bytes(write.value), type: write.type, deadline: nil)
  }

  /// A local key of this copy, including earlier writes of this transaction.
  func local(_ key: [UInt8]) -> [UInt8]? {
    if let value = builder.locals[key] { return value }
    return store.core.engine.withLock { $0.localMetadata[key] }
  }

  /// Sets a local key of this copy in the same append; nil removes it.
  mutating func setLocal(_ key: [UInt8], _ value: [UInt8]?) throws(StoreError) {
    try store.writes.issuePending(&builder)
    try builder.setLocal(key, value)
  }
}

/// How full a transaction is.
public struct TransactionSize: Hashable, Sendable {
  /// Number of writes and deletes; a key written twice counts twice. Bounded only by their bytes.
  public let records: Int
  /// Bytes that they take in the journal: keys, values, some 60 bytes per record, and 112 bytes for each copy
  /// that wrote a replaced value. Values in the blob tier (above `Configuration.blobThreshold`) count with
  /// their references only.
  public let bytes: Int
  /// Bound of `bytes`: `Limits.transactionBytes`.
  public var limit: Int { Limits.transactionBytes }
}
