/// A value of a disk cache as stored in a pack: a header of 20 bytes, the key, the extended data, the value.
///
/// | bytes | what |
/// | --- | --- |
/// | 0 … 3 | bytes of the key |
/// | 4 … 7 | bytes of the extended data |
/// | 8 … 15 | when it was set, in milliseconds since 1970 |
/// | 16 … 19 | the number of the value's type |
enum CacheEntry {
  static let headerBytes = 20

  /// The stored name of a key.
  static func name(_ key: String) -> BlobHash { BlobHash(sha256: SHA256.hash(Array(key.utf8))) }

  static func encode(
    key: String, value: [UInt8], extended: [UInt8], type: ValueType, modified: UInt64, path: String
  ) throws(StoreError) -> [UInt8] {
    let key = Array(key.utf8)
    guard (1...DiskCache.keyBytes).contains(key.count) else {
      throw StoreError(
        .invalidKey,
        "a key of a cache has 1 to \(DiskCache.keyBytes) bytes, not \(key.count): choose another", path: path)
    }
    guard value.count <= DiskCache.entryBytes, extended.count <= DiskCache.entryBytes,
      headerBytes + key.count + extended.count + value.count <= DiskCache.entryBytes
    else {
      throw StoreError(
        .outOfBounds,
        "a value of a cache has at most \(DiskCache.entryBytes) bytes: keep larger ones in a store",
        path: path)
    }
    var writer = ByteWriter(capacity: headerBytes + key.count + extended.count + value.count)
    writer.write(UInt32(key.count))
    writer.write(UInt32(extended.count))
    writer.write(modified)
    writer.write(UInt32(type.rawValue))
    writer.write(raw: key)
    writer.write(raw: extended)
    writer.write(raw: value)
    return writer.bytes
  }

  /// The header and the resulting offsets.
  struct Header {
    let modified: UInt64
    let type: ValueType
    /// Offset of the extended data.
    let extended: Int
    /// Offset of the value.
    let value: Int

    /// Nil if the bytes are inconsistent.
    init?(_ bytes: RawSpan) {
      guard bytes.byteCount >= CacheEntry.headerBytes,
        let number = UInt8(exactly: bytes.load(16, as: UInt32.self))
      else { return nil }
      type = ValueType(rawValue: number)
      modified = bytes.load(8)
      extended = CacheEntry.headerBytes + Int(bytes.load(0, as: UInt32.self))
      value = extended + Int(bytes.load(4, as: UInt32.self))
      guard value <= bytes.byteCount else { return nil }
    }

    func key(in bytes: RawSpan) -> String? {
      String(validating: [UInt8](copying: bytes.extracting(CacheEntry.headerBytes..<extended)), as: UTF8.self)
    }
  }
}
