/// Layout of a pack: a file that holds many objects, preceded by their table (`schemas/packs.md`).
enum PackLayout {
  /// "SYNCPACK" as its first eight bytes.
  static let magic: UInt64 = 0x4B43_4150_434E_5953
  /// Version of new packs. Packs of version 1 are read, and appended to, in their own format.
  static let version: UInt32 = 2
  /// The first version whose words are guarded (`PackWord`).
  static let guardedVersion: UInt32 = 2
  /// The page before the entries.
  static let headerBytes = 4096
  /// Offsets of the two header copies: one bad byte must not cost all objects.
  static let headerCopies = [0, 2048]
  static let headerLength = 48
  static let entryBytes = 64
  /// Objects are aligned to this.
  static let alignment = 64
  /// Maximum file size, above that of the largest object with its table. It bounds what recovery of an
  /// abandoned pack allocates.
  static let mostBytes: UInt64 = 1 << 29
  /// Maximum number of entries: a slot reference has 12 bits for the slot.
  static let mostSlots = 4096
  /// Maximum number of a pack; a file with a greater one is not ours.
  static let greatestNumber: UInt64 = 1 << 62
  /// Maximum stamp: no clock reaches it before the year 2109, and a guarded word cannot hold more.
  static let greatestStamp: UInt64 = (1 << 58) - 1

  // Words of the header page that change while the pack is in use.
  /// Number of entries.
  static let count = 1024
  /// Number of entries known to be durable, with their objects.
  static let durable = 1032
  /// Bit 0: closed, nothing is added any more and everything is durable. Bit 1: a sync failed.
  static let state = 1040
  /// The boot in which it was last written.
  static let boot = 1048

  static let closedState: UInt64 = 1
  static let failedState: UInt64 = 2

  /// Bytes of the table of a pack of `size` bytes: an entry for each 16 KiB.
  static func tableBytes(for size: Int) -> Int {
    let entries = min(max(size / 256, 4096), mostSlots * entryBytes)
    return headerBytes + (entries + 4095) & ~4095
  }

  /// Bytes of the table of a pack of `size` bytes for objects of `mean` bytes, with room for an eighth more
  /// of them than fit.
  static func tableBytes(for size: Int, mean: Int) -> Int {
    let count = size / (max(mean, alignment) + entryBytes)
    let entries = min(max(count + count / 8, 64), mostSlots) * entryBytes
    return headerBytes + (entries + 4095) & ~4095
  }

  /// Size of the smallest file whose table leaves room for `count` bytes of objects.
  static func fileBytes(for count: Int) -> Int {
    var size = (count + tableBytes(for: count) + 4095) & ~4095
    // A larger file has a larger table.
    while size - tableBytes(for: size) < count { size += 4096 }
    return size
  }

  static func aligned(_ count: Int) -> Int { (count + alignment - 1) & ~(alignment - 1) }

  /// Offset of the entry of a slot.
  static func offset(_ slot: Int) -> Int { headerBytes + slot * entryBytes }
}

/// The immutable header of a pack.
struct PackHeader: Equatable, Sendable {
  /// From 1 to `PackLayout.version`.
  let version: UInt32
  let number: UInt64
  /// Bytes of the header page and the entries.
  let tableBytes: Int
  /// Bytes of the file while it is written to.
  let size: Int
  /// Random salt: entries of another pack, or of an earlier file in the same blocks, are invalid in this one.
  let salt: UInt64

  var slots: Int { (tableBytes - PackLayout.headerBytes) / PackLayout.entryBytes }

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.write(PackLayout.magic)
    writer.write(version)
    writer.write(UInt32(tableBytes))
    writer.write(number)
    writer.write(UInt64(size))
    writer.write(salt)
    writer.write(XXH3.hash64(writer.bytes, seed: PackLayout.magic))
    return writer.bytes
  }

  /// - Parameter table: Bytes of the header page and the entries; nil for the default number of entries.
  init(number: UInt64, size: Int, salt: UInt64, version: UInt32 = PackLayout.version, table: Int? = nil) {
    (self.number, self.size, self.salt, self.version) = (number, size, salt, version)
    tableBytes = table ?? PackLayout.tableBytes(for: size)
  }

  /// The header in `bytes`; nil if invalid.
  ///
  /// - Throws: `.newerFormat` if it has a later version.
  init?(_ bytes: [UInt8], path: String) throws(StoreError) {
    guard bytes.count == PackLayout.headerLength else { return nil }
    var reader = ByteReader(bytes)
    guard let magic = try? reader.read(UInt64.self), magic == PackLayout.magic,
      let version = try? reader.read(UInt32.self), let tableBytes = try? reader.read(UInt32.self),
      let number = try? reader.read(UInt64.self), let size = try? reader.read(UInt64.self),
      let salt = try? reader.read(UInt64.self), let checksum = try? reader.read(UInt64.self),
      checksum == XXH3.hash64(Array(bytes[..<40]), seed: PackLayout.magic)
    else { return nil }
    guard version <= PackLayout.version else {
      throw StoreError(
        .newerFormat, "the pack has version \(version), this program knows \(PackLayout.version): update it",
        path: path)
    }
    (self.number, self.salt, self.version) = (number, salt, version)
    // Bound the lengths before anything is mapped (F46).
    guard version > 0, size <= PackLayout.mostBytes, tableBytes >= 8192, tableBytes.isMultiple(of: 4096),
      UInt64(tableBytes) < size,
      Int(tableBytes) <= PackLayout.headerBytes + PackLayout.mostSlots * PackLayout.entryBytes
    else { return nil }
    (self.tableBytes, self.size) = (Int(tableBytes), Int(size))
  }
}

/// One object of a pack, as recorded in its table.
struct PackEntry: Equatable, Sendable {
  /// The stored name: the SHA-256 of the content, or its keyed hash.
  let name: BlobHash
  /// Offset of its bytes in the file.
  let offset: Int
  /// Number of its bytes, at most 2^28 − 1.
  let size: Int
  /// Whether they are encrypted.
  let isEncrypted: Bool
  /// XXH3-64 of the bytes, seed 0.
  let checksum: UInt64

  /// The first 48 bytes of an entry; the word and the checksum follow.
  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.write(raw: name.bytes)
    writer.write(UInt32(offset / PackLayout.alignment))
    writer.write(UInt32(size) | (isEncrypted ? 1 << 28 : 0))
    writer.write(checksum)
    return writer.bytes
  }
}
