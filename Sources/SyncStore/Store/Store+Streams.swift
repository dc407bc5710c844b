/// Values that are larger than the memory one wants to give them.
extension Store {
  /// Sets a key to bytes that come piece by piece. No more than a few MiB of them are in memory at a time; nothing is
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

  /// Sets a key to what a writer has taken in.
  func put(
    _ key: Key, writtenBy writer: ValueWriter, _ type: ValueType, expiration: Expiration?,
    _ durability: Durability?
  ) throws(StoreError) {
    try write(
      key, content: try writer.finish(), type: type, deadline: self.deadline(for: expiration),
      durability: durability
    )
  }

  /// A reader of the value of a key, which stays what it is, whatever is written meanwhile; nil if it has none.
  ///
  /// - Throws: as `get`.
  public func reader(of key: Key) throws(StoreError) -> ValueReader? {
    if let found = lockFreeBlob(key) { return try reader(of: found.blob, found.type) }
    guard let record = try currentRecord(key.bytes), record.isLive(at: environment.now()) else { return nil }
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

  /// Works on a blob in place, verified.
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

/// Takes in a value piece by piece. For the time of the closure that got it, and one thread at a time.
public final class ValueWriter {
  private let store: Store
  private var buffer: [UInt8] = []
  private var writer: BlobWriter?

  init(_ store: Store) { self.store = store }

  /// Bytes that have come.
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

  fileprivate func finish() throws(StoreError) -> Record.Content {
    guard let writer else { return .inline(buffer) }
    let blob = try writer.finish(durable: false)
    store.control.recordBlobPut()
    return .blob(blob)
  }

  func discard() { writer?.discard() }
}

/// Reads a value in ranges, without holding it in memory. Thread safe; the value stays readable while this lives.
public struct ValueReader: Sendable {
  enum Source: Sendable {
    case bytes([UInt8])
    case blob(BlobReader)
  }

  private let source: Source
  /// As it was put.
  public let type: ValueType

  init(_ source: Source, type: ValueType) { (self.source, self.type) = (source, type) }

  /// Bytes of the value.
  public var size: UInt64 {
    switch source {
    case .bytes(let bytes): UInt64(bytes.count)
    case .blob(let reader): reader.size
    }
  }

  /// Up to `count` bytes from `offset`; fewer only at the end. Ranges are not hashed: damage is found by `Store.get`,
  /// `withBytes` and `Store.verify`.
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

  /// Works on all of it in place, mapped, as it lies on the disk: nothing is read but what `body` reads. Large values are not verified,
  /// unless they are encrypted: damage is found by `Store.get`, `withBytes` and `Store.verify`.
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

  /// Works on all of it in place, mapped, after it was verified.
  ///
  /// - Throws: `.damaged` if it is not what was put.
  public func withBytes<Result>(_ body: (RawSpan) throws(StoreError) -> Result) throws(StoreError) -> Result {
    switch source {
    case .bytes(let bytes): return try bytes.withRawSpan { span throws(StoreError) in try body(span) }
    case .blob(let reader): return try reader.withVerifiedBytes(body)
    }
  }
}
