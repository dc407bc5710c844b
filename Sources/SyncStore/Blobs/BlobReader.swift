/// Reads one object, whole or in ranges, without holding it in memory.
///
/// The object stays readable for the lifetime of the reader, even if it is removed.
package final class BlobReader: Sendable {
  enum Source {
    case packed(Pack, PackEntry)
    case file(any StorageFile)

    /// Path of the file that holds it.
    var path: String {
      switch self {
      case .packed(let pack, _): pack.file.path
      case .file(let file): file.path
      }
    }
  }

  private let store: BlobStore
  let source: Source
  /// Its stored name.
  let name: BlobHash
  /// Decrypts it; nil if it is not encrypted.
  private let encrypted: EncryptedBlob?
  /// Whether it is encrypted.
  var isEncrypted: Bool { encrypted != nil }
  /// The object.
  package let hash: BlobHash
  /// Bytes of its content.
  package let size: UInt64

  init(
    store: BlobStore, hash: BlobHash, name: BlobHash, source: Source, size: UInt64,
    encrypted: EncryptedBlob? = nil
  ) {
    (self.store, self.hash, self.name, self.source) = (store, hash, name, source)
    (self.size, self.encrypted) = (size, encrypted)
  }

  /// Up to `count` bytes from `offset`; fewer only at the end.
  ///
  /// Only encrypted objects are verified here; for others use `contents` or `verify`.
  package func read(_ count: Int, at offset: UInt64) throws(StoreError) -> [UInt8] {
    guard offset < size, count > 0 else { return [] }
    let end = min(size, offset + UInt64(count))
    if let encrypted { return try read(offset..<end, encrypted) }
    switch source {
    case .file(let file): return try file.read(Int(end - offset), at: Int(offset))
    case .packed(let pack, let entry):
      return try pack.withBytes(entry) { [UInt8](copying: $0.extracting(Int(offset)..<Int(end))) }
    }
  }

  private func read(_ range: Range<UInt64>, _ object: EncryptedBlob) throws(StoreError) -> [UInt8] {
    let place = object.place(of: range)
    let bytes = Int(place.bytes.lowerBound)..<Int(place.bytes.upperBound)
    let opened: [UInt8]?
    switch source {
    case .file(let file):
      let pieces = try file.read(bytes.count, at: bytes.lowerBound)
      opened =
        pieces.count == bytes.count ? object.decrypt(pieces, from: place.first, range) : nil
    case .packed(let pack, let entry):
      do throws(StoreError) {
        opened = try pack.withBytes(entry) { object.decrypt($0.extracting(bytes), from: place.first, range) }
      } catch {
        guard error.code == .damaged else { throw error }
        throw quarantine()
      }
    }
    guard let opened else { throw quarantine() }
    return opened
  }

  /// Decrypts the whole object into memory for `body`.
  private func withDecrypted<Result>(
    _ object: EncryptedBlob, _ body: (RawSpan) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    guard let count = Int(exactly: size) else { throw quarantine() }
    let memory = Mapping.heap(count)
    var offset = 0
    while offset < count {
      var piece = try read(BlobStore.pieceBytes, at: UInt64(offset))
      memory.store(piece, at: offset)
      offset += piece.count
      Secret.zero(&piece)
    }
    return try memory.withBytes(0..<count) { bytes throws(StoreError) in try body(bytes) }
  }

  /// Calls `body` with the whole object, mapped in place. Not verified.
  ///
  /// An encrypted object is decrypted into memory of its full size.
  package func withBytes<Result>(_ body: (RawSpan) throws(StoreError) -> Result) throws(StoreError) -> Result
  {
    if let encrypted { return try withDecrypted(encrypted, body) }
    switch source {
    case .packed(let pack, let entry): return try pack.withBytes(entry, body)
    case .file(let file):
      guard size > 0 else {
        return try Mapping.heap(0).withBytes(0..<0) { bytes throws(StoreError) in try body(bytes) }
      }
      let mapping = try file.map(0..<Int(size), writable: false)
      let result = try mapping.withBytes(0..<Int(size)) { bytes throws(StoreError) in try body(bytes) }
      guard mapping.fault == nil else {
        throw StoreError(.damaged, "was cut short, or cannot be read: run `Store.verify`", path: file.path)
      }
      return result
    }
  }

  /// Calls `body` with the whole object in place, after verifying it.
  ///
  /// - Throws: `.damaged`, after quarantining the object, if the content differs from what was put.
  package func withVerifiedBytes<Result>(
    _ body: (RawSpan) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    if let encrypted { return try withDecrypted(encrypted, body) }
    var result: Result?
    do throws(StoreError) {
      result = try withBytes { bytes throws(StoreError) -> Result? in
        switch source {
        // The checksum of the pack detects damage; that the name matches the content was checked at the put.
        case .packed(_, let entry):
          guard XXH3.hash64(bytes, seed: 0) == entry.checksum else { return nil }
        case .file: guard SHA256.hash(bytes) == hash.bytes else { return nil }
        }
        return try body(bytes)
      }
    } catch  where error.code == .damaged && error.path != nil {
      throw quarantine()
    }
    guard let result else { throw quarantine() }
    return result
  }

  /// The whole content, verified.
  ///
  /// - Throws: `.damaged`, after quarantining the object, if the content differs from what was put.
  package func contents() throws(StoreError) -> [UInt8] {
    if encrypted != nil {
      guard let count = Int(exactly: size) else { throw quarantine() }
      return try read(count, at: 0)
    }
    switch source {
    case .packed(let pack, let entry):
      var bytes: [UInt8] = []
      do throws(StoreError) {
        try pack.withBytes(entry) { bytes = [UInt8](copying: $0) }
      } catch  where error.code == .damaged {
        throw quarantine()
      }
      // The checksum of the pack detects damage; that the name matches the content was checked at the put.
      guard XXH3.hash64(bytes, seed: 0) == entry.checksum else { throw quarantine() }
      return bytes
    case .file(let file):
      guard let count = Int(exactly: size) else { throw quarantine() }
      let bytes = try file.read(count, at: 0)
      guard bytes.count == count, SHA256.hash(bytes) == hash.bytes else { throw quarantine() }
      return bytes
    }
  }

  /// Reads and hashes the whole object; `each` is called with each piece.
  ///
  /// - Throws: `.damaged`, after quarantining the object, if the content differs from what was put.
  package func verify(_ each: ([UInt8], UInt64) throws(StoreError) -> Void) throws(StoreError) {
    let hasher = SHA256Hasher()
    var offset: UInt64 = 0
    while offset < size {
      let piece = try read(BlobStore.pieceBytes, at: offset)
      guard !piece.isEmpty else { throw quarantine() }
      hasher.update(piece)
      try each(piece, offset)
      offset += UInt64(piece.count)
    }
    guard hasher.finish() == hash.bytes else { throw quarantine() }
  }

  /// Quarantines the object as corrupt; returns the error to throw.
  package func quarantine() -> StoreError {
    switch source {
    case .packed(let pack, let entry): store.quarantine(hash, pack: pack, entry: entry)
    case .file(let file): store.quarantine(hash, name: name, file: file)
    }
  }
}
