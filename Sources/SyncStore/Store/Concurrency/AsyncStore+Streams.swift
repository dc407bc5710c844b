extension AsyncStore {
  /// Sets a key to the bytes of a sequence of pieces, as `Store.put(…, writing:)`. Nothing is written if
  /// `pieces` throws, or if the task is cancelled before the last piece.
  ///
  /// - Throws: as `put`; what `pieces` throws.
  public func put<Pieces: AsyncSequence>(
    _ key: Key, type: ValueType = .bytes, expiration: Expiration? = nil, durability: Durability? = nil,
    from pieces: Pieces
  ) async throws where Pieces.Element == [UInt8] {
    try await store.run { try $0.checkWritable() }
    let writer = Locked<ValueWriter?>(ValueWriter(store))
    do {
      for try await piece in pieces {
        try await store.run { _ in
          try writer.withLock { writer throws(StoreError) in try writer?.append(piece) }
        }
      }
      try Task.checkCancellation()
      try await store.run { store in
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
}

/// The pieces of a value as an asynchronous sequence.
///
/// ```swift
/// if let reader = try await store.run({ try $0.reader(of: "film") }) {
///   for try await piece in reader { socket.send(piece) }
/// }
/// ```
extension ValueReader: AsyncSequence {
  /// Size of each piece in bytes; the last one may be shorter.
  public static let pieceBytes = 1 << 20

  /// Iterates over the pieces in order.
  public struct AsyncIterator: AsyncIteratorProtocol {
    private let reader: ValueReader
    private var offset: UInt64 = 0

    init(_ reader: ValueReader) { self.reader = reader }

    /// The next piece, read on a thread that may block; nil at the end.
    ///
    /// - Throws: as `ValueReader.read`; `.cancelled`.
    public mutating func next() async throws(StoreError) -> [UInt8]? {
      guard offset < reader.size else { return nil }
      let piece = try await reader.run { [offset] reader throws(StoreError) in
        try reader.read(ValueReader.pieceBytes, at: offset)
      }
      offset += UInt64(piece.count)
      return piece.isEmpty ? nil : piece
    }
  }

  /// An iterator from the start of the value.
  public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(self) }
}
