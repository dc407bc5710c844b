/// Where things lie in a pack: a file that holds many objects, a table of them first (`schemas/packs.md`).
enum PackLayout {
  /// "SYNCPACK" as its first eight bytes.
  static let magic: UInt64 = 0x4B43_4150_434E_5953
  /// What new packs have. Those of version 1 are read, and added to, as they are.
  static let version: UInt32 = 2
  /// The first version whose words are guarded (`PackWord`).
  static let guardedVersion: UInt32 = 2
  /// The page before the entries.
  static let headerBytes = 4096
  /// Where the header is once more: one bad byte must not cost all objects.
  static let headerCopies = [0, 2048]
  static let headerLength = 48
  static let entryBytes = 64
  /// Objects begin at multiples of it.
  static let alignment = 64
  /// No file is longer: the greatest object, with its table, is not. Who adds to a pack left over allocates what it says.
  static let mostBytes: UInt64 = 1 << 29
  /// So many entries at most: a place is named in 12 bits.
  static let mostSlots = 4096
  /// No pack comes to have a greater number; a file that bears one is none of ours.
  static let greatestNumber: UInt64 = 1 << 62
  /// No clock gives a greater stamp before the year 2109, and a guarded word can hold none.
  static let greatestStamp: UInt64 = (1 << 58) - 1

  // Words of the header page that change while the pack is in use.
  /// Entries that are there.
  static let count = 1024
  /// Entries that are known durable, with their objects.
  static let durable = 1032
  /// Bit 0: nothing is added any more, all is durable. Bit 1: a sync failed.
  static let state = 1040
  /// The boot in which it was last written to.
  static let boot = 1048

  static let closedState: UInt64 = 1
  static let failedState: UInt64 = 2

  /// Bytes of the table of a pack of `size` bytes: an entry for each 16 KiB.
  static func tableBytes(for size: Int) -> Int {
    let entries = min(max(size / 256, 4096), mostSlots * entryBytes)
    return headerBytes + (entries + 4095) & ~4095
  }

  /// Bytes of the table of a pack of `size` bytes for objects of `mean` bytes, with an eighth more of them than fit.
  static func tableBytes(for size: Int, mean: Int) -> Int {
    let count = size / (max(mean, alignment) + entryBytes)
    let entries = min(max(count + count / 8, 64), mostSlots) * entryBytes
    return headerBytes + (entries + 4095) & ~4095
  }

  /// Bytes of the smallest file whose table leaves room for so many bytes of objects.
  static func fileBytes(for count: Int) -> Int {
    var size = (count + tableBytes(for: count) + 4095) & ~4095
    // A larger file has a larger table.
    while size - tableBytes(for: size) < count { size += 4096 }
    return size
  }

  static func aligned(_ count: Int) -> Int { (count + alignment - 1) & ~(alignment - 1) }

  /// Where the entry of a slot is.
  static func offset(_ slot: Int) -> Int { headerBytes + slot * entryBytes }
}

/// What a pack says of itself, and never changes.
struct PackHeader: Equatable, Sendable {
  /// From 1 to `PackLayout.version`.
  let version: UInt32
  let number: UInt64
  /// Bytes of the header page and the entries.
  let tableBytes: Int
  /// Bytes of the file while it is written to.
  let size: Int
  /// Random: entries of another pack, or of an earlier file in the same blocks, are no entries of this one.
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

  /// - Parameter table: bytes of the header page and the entries; nil for as many entries as are usual.
  init(number: UInt64, size: Int, salt: UInt64, version: UInt32 = PackLayout.version, table: Int? = nil) {
    (self.number, self.size, self.salt, self.version) = (number, size, salt, version)
    tableBytes = table ?? PackLayout.tableBytes(for: size)
  }

  /// The header in `bytes`; nil if it is none.
  ///
  /// - Throws: `.newerFormat` if it is one of a later version.
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
    // Absurd lengths are bounded before anything is mapped (F46).
    guard version > 0, size <= PackLayout.mostBytes, tableBytes >= 8192, tableBytes.isMultiple(of: 4096),
      UInt64(tableBytes) < size,
      Int(tableBytes) <= PackLayout.headerBytes + PackLayout.mostSlots * PackLayout.entryBytes
    else { return nil }
    (self.tableBytes, self.size) = (Int(tableBytes), Int(size))
  }
}

/// One object of a pack, as its table has it.
struct PackEntry: Equatable, Sendable {
  /// The name: the SHA-256 of the content, or what stands for it.
  let name: BlobHash
  /// Where its bytes begin in the file.
  let offset: Int
  /// How many they are, at most 2^28 − 1.
  let size: Int
  /// Are they sealed?
  let isEncrypted: Bool
  /// XXH3-64 of the bytes, seed 0.
  let checksum: UInt64

  /// The first 48 bytes of an entry; behind them the word and the checksum.
  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.write(raw: name.bytes)
    writer.write(UInt32(offset / PackLayout.alignment))
    writer.write(UInt32(size) | (isEncrypted ? 1 << 28 : 0))
    writer.write(checksum)
    return writer.bytes
  }
}
