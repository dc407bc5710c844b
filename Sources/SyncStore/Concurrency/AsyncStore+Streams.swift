/// Streaming of large values for asynchronous code.
extension AsyncStore {
  /// Sets a key to the bytes of a sequence of pieces, as `Store.put(…, writing:)`. Nothing is written if
  /// `pieces` throws, or if the task is cancelled before the last piece.
  ///
  /// - Throws: as `put`; what `pieces` throws.
  public func put<Pieces: AsyncSequence>(
    _ key: Key, type: ValueType = .bytes, expiration: Expiration? = nil, durability: Durability? = nil,
    from pieces: Pieces
  ) async throws where Pieces.Element == [UInt8] {
    let store = store
    try await Self.perform { () throws(StoreError) in try store.checkWritable() }
    let writer = Locked<ValueWriter?>(ValueWriter(store))
    do {
      for try await piece in pieces {
        try await Self.perform { () throws(StoreError) in
          try writer.withLock { writer throws(StoreError) in try writer?.append(piece) }
        }
      }
      try Task.checkCancellation()
      try await Self.perform { () throws(StoreError) in
        try writer.withLock { writer throws(StoreError) in
          guard let complete = writer else { return }
          try store.put(key, writtenBy: complete, type, expiration: expiration, durability)
          writer = nil
        }
      }
    } catch {
      writer.withLock { writer in
        writer?.discard()
        writer = nil
      }
      throw error
    }
  }

  /// `Store.reader`.
  public func reader(of key: Key) async throws(StoreError) -> AsyncValueReader? {
    let store = store
    return try await Self.perform { () throws(StoreError) in
      try store.reader(of: key).map { AsyncValueReader($0) }
    }
  }
}

/// Reads a value in ranges, or piece by piece as an asynchronous sequence. Later writes do not affect it.
///
/// ```swift
/// if let reader = try await store.reader(of: "film") {
///   for try await piece in reader { socket.send(piece) }
/// }
/// ```
public struct AsyncValueReader: AsyncSequence, Sendable {
  /// Size of each piece in bytes; the last one may be shorter.
  public static let pieceBytes = 1 << 20

  /// The synchronous reader that does the work.
  public let reader: ValueReader

  init(_ reader: ValueReader) { self.reader = reader }

  /// Size of the value in bytes.
  public var size: UInt64 { reader.size }
  /// The type stored with the value.
  public var type: ValueType { reader.type }

  /// Up to `count` bytes from `offset`; fewer only at the end.
  ///
  /// - Throws: as `ValueReader.read`; `.cancelled`.
  public func read(_ count: Int, at offset: UInt64) async throws(StoreError) -> [UInt8] {
    let reader = reader
    return try await AsyncStore.perform { () throws(StoreError) in try reader.read(count, at: offset) }
  }

  /// Calls `body` with the mapped bytes of the value, after verifying them. `body` runs on one thread.
  ///
  /// - Throws: as `ValueReader.withBytes`; `.cancelled`.
  public func withBytes<Result: Sendable>(
    _ body: @escaping @Sendable (RawSpan) throws(StoreError) -> Result
  ) async throws(StoreError) -> Result {
    let reader = reader
    return try await AsyncStore.perform { () throws(StoreError) in try reader.withBytes(body) }
  }

  /// Calls `body` with the mapped bytes of the value without verifying them. `body` runs on one thread.
  ///
  /// - Throws: as `ValueReader.withUnverifiedBytes`; `.cancelled`.
  public func withUnverifiedBytes<Result: Sendable>(
    _ body: @escaping @Sendable (RawSpan) throws(StoreError) -> Result
  ) async throws(StoreError) -> Result {
    let reader = reader
    return try await AsyncStore.perform { () throws(StoreError) in try reader.withUnverifiedBytes(body) }
  }

  /// Iterates over the pieces in order.
  public struct AsyncIterator: AsyncIteratorProtocol {
    private let reader: AsyncValueReader
    private var offset: UInt64 = 0

    init(_ reader: AsyncValueReader) { self.reader = reader }

    /// The next piece; nil at the end.
    ///
    /// - Throws: as `ValueReader.read`; `.cancelled`.
    public mutating func next() async throws(StoreError) -> [UInt8]? {
      guard offset < reader.size else { return nil }
      let piece = try await reader.read(AsyncValueReader.pieceBytes, at: offset)
      offset += UInt64(piece.count)
      return piece.isEmpty ? nil : piece
    }
  }

  /// An iterator from the start of the value.
  public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(self) }
}
