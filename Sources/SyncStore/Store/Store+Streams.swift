/// Streaming reads and writes of large values.
extension Store {
  /// Sets a key to bytes written piece by piece. At most a few MiB are in memory at a time; nothing is
  /// written if `body` throws.
  ///
  /// - Throws: as `put`; `.outOfBounds` above `Limits.blobBytes`; what `body` throws.
  public func put(
    _ key: Key, type: ValueType = .bytes, expiration: Expiration? = nil, durability: Durability? = nil,
    writing body: (ValueWriter) throws -> Void
  ) throws {
    try checkWritable()
    try checkMayWrite()
    let writer = ValueWriter(self)
    defer { writer.discard() }
    try body(writer)
    try put(key, writtenBy: writer, type, expiration: expiration, durability)
  }

  /// Sets a key to the bytes that a writer has received.
  func put(
    _ key: Key, writtenBy writer: ValueWriter, _ type: ValueType, expiration: Expiration?,
    _ durability: Durability?
  ) throws(StoreError) {
    try write(
      key, content: try writer.finish(), type: type, deadline: self.deadline(for: expiration),
      durability: durability
    )
  }

  /// A reader of the present value of a key, unaffected by later writes; nil if the key has no value.
  ///
  /// - Throws: as `get`.
  public func reader(of key: Key) throws(StoreError) -> ValueReader? {
    if let found = lockFreeBlob(key) { return try reader(of: found.blob, found.type) }
    guard let record = try liveRecord(key.bytes) else { return nil }
    switch record.content {
    case .tombstone: return nil
    case .inline(let bytes): return ValueReader(.bytes(bytes), type: record.type)
    case .blob(let blob): return try reader(of: blob, record.type)
    }
  }

  private func reader(of blob: BlobReference, _ type: ValueType) throws(StoreError) -> ValueReader {
    let reader = try fetching(blob) { blobs throws(StoreError) in try blobs.reader(blob) }
    return ValueReader(.blob(reader), type: type)
  }

  /// Calls `body` with the verified bytes of a blob, in place.
  func readBlob(
    _ blob: BlobReference, type: ValueType, _ body: (RawSpan, ValueType) throws -> Void
  ) throws {
    let refusal = try fetching(blob) { blobs throws(StoreError) -> (any Error)? in
      try blobs.reader(blob).withVerifiedBytes { bytes throws(StoreError) -> (any Error)? in
        do {
          try body(bytes, type)
          return nil
        } catch {
          return error
        }
      }
    }
    if let refusal { throw refusal }
  }
}

/// Receives a value piece by piece. Valid only within the closure that got it, on one thread at a time.
public final class ValueWriter {
  private let store: Store
  private var buffer: [UInt8] = []
  private var writer: BlobWriter?

  init(_ store: Store) { self.store = store }

  /// Number of bytes received.
  public var count: UInt64 { writer?.count ?? UInt64(buffer.count) }

  /// Adds the next bytes.
  ///
  /// - Throws: `.diskFull`; `.outOfBounds` above `Limits.blobBytes`.
  public func append(_ bytes: [UInt8]) throws(StoreError) {
    if let writer { return try writer.append(bytes) }
    buffer.append(contentsOf: bytes)
    guard buffer.count > store.configuration.blobThreshold else { return }
    let writer = try store.blobs.writer()
    try writer.append(buffer)
    (self.writer, buffer) = (writer, [])
  }

  func finish() throws(StoreError) -> Record.Content {
    guard let writer else { return .inline(buffer) }
    let blob = try writer.finish(durable: false)
    store.control.recordBlobPut()
    return .blob(blob)
  }

  func discard() { writer?.discard() }
}

/// Reads a value in ranges without loading it. Thread safe; keeps the value readable while it exists.
public struct ValueReader: Sendable {
  enum Source: Sendable {
    case bytes([UInt8])
    case blob(BlobReader)
  }

  private let source: Source
  /// The type stored with the value.
  public let type: ValueType

  init(_ source: Source, type: ValueType) { (self.source, self.type) = (source, type) }

  /// Size of the value in bytes.
  public var size: UInt64 {
    switch source {
    case .bytes(let bytes): UInt64(bytes.count)
    case .blob(let reader): reader.size
    }
  }

  /// Up to `count` bytes from `offset`; fewer only at the end. **Ranges are not verified:** damage is found
  /// by `Store.get`, `withBytes` and `Store.verify`.
  ///
  /// - Throws: `.damaged`, `.inputOutput` if they cannot be read.
  public func read(_ count: Int, at offset: UInt64) throws(StoreError) -> [UInt8] {
    switch source {
    case .bytes(let bytes):
      guard offset < UInt64(bytes.count), count > 0 else { return [] }
      return Array(bytes[Int(offset)...].prefix(count))
    case .blob(let reader): return try reader.read(count, at: offset)
    }
  }

  /// Calls `body` with the mapped bytes of the value, unread until `body` reads them. **Large values are not
  /// verified** unless they are encrypted: damage is found by `Store.get`, `withBytes` and `Store.verify`.
  ///
  /// - Throws: `.damaged`, `.inputOutput` if they cannot be read.
  public func withUnverifiedBytes<Result>(
    _ body: (RawSpan) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    switch source {
    case .bytes: return try withBytes(body)
    case .blob(let reader): return try reader.withBytes(body)
    }
  }

  /// Calls `body` with the mapped bytes of the value, after verifying them.
  ///
  /// - Throws: `.damaged` if the bytes are not those that were put.
  public func withBytes<Result>(_ body: (RawSpan) throws(StoreError) -> Result) throws(StoreError) -> Result {
    switch source {
    case .bytes(let bytes): return try bytes.withRawSpan { span throws(StoreError) in try body(span) }
    case .blob(let reader): return try reader.withVerifiedBytes(body)
    }
  }
}
