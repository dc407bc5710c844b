/// The binary format of a backup file; `schemas/backup.md` describes it. Values, without input or output.
enum BackupFormat {
  /// The version that this program writes.
  static let version: UInt16 = 1
  /// Bytes of the file's header, and of each entry's.
  static let headerBytes = 64
  /// Alignment of entries.
  static let alignment = 8
  /// Maximum bytes of a footer: bounds the number of missing blobs in one section.
  static let maxFooterBytes = 64 << 20
  /// Maximum bytes of a key file.
  static let keyFileBytes = 1 << 20
  /// Maximum bytes of a segment: records of about `segmentTarget`, plus one transaction.
  static let segmentBytes = 1 << 30
  /// A segment of records ends with the transaction that reaches this size.
  static let segmentTarget = 32 << 20
  /// Maximum bytes of the records of a segment: the target plus the largest append.
  static let segmentCapacity = segmentTarget + 4 * Limits.transactionBytes
  /// Bytes for definitions that a segment may need in addition to its records, because they may precede those
  /// in the journal: more than enough for the maximum number of actors.
  static let definitionBytes = 1 << 20

  fileprivate static let fileMagic = Array("SYNCBKUP".utf8)
  fileprivate static let entryMagic = Array("SYNCBENT".utf8)

  static func aligned(_ count: Int) -> Int { (count + alignment - 1) & ~(alignment - 1) }
}

/// The first 64 bytes of the file.
struct BackupFileHeader: Equatable {
  /// The store that the backup is of.
  var store: StoreID
  /// When the file was created, milliseconds since 1970.
  var created: UInt64

  func encoded() -> [UInt8] {
    var writer = ByteWriter(capacity: BackupFormat.headerBytes)
    writer.write(raw: BackupFormat.fileMagic)
    writer.write(BackupFormat.version)
    writer.write(UInt16(0))
    // Features that a reader must know.
    writer.write(UInt32(0))
    writer.write(raw: store.bytes)
    writer.write(created)
    writer.write(raw: [UInt8](repeating: 0, count: 16))
    writer.write(XXH3.hash64(writer.bytes, seed: 0))
    return writer.bytes
  }

  /// - Throws: `.foreignFile` if the bytes name no store, `.newerFormat` for a newer format, `.damaged` if
  ///   they are corrupt.
  init(_ bytes: [UInt8], path: String) throws(StoreError) {
    guard bytes.starts(with: BackupFormat.fileMagic), let fields = try? Self.fields(bytes) else {
      throw StoreError(.foreignFile, "is not a backup of a store: name another file", path: path)
    }
    guard fields.isWhole else {
      throw StoreError(.damaged, "the header of the backup is damaged: use another backup", path: path)
    }
    guard fields.version == BackupFormat.version, fields.features == 0 else {
      throw StoreError(
        .newerFormat,
        "is a backup in format \(fields.version), this program knows \(BackupFormat.version): update it",
        path: path)
    }
    self = fields.header
  }

  private struct Fields {
    var version: UInt16
    var features: UInt32
    var header: BackupFileHeader
    var isWhole: Bool
  }

  private static func fields(_ bytes: [UInt8]) throws(DecodingFailure) -> Fields {
    var reader = ByteReader(bytes)
    _ = try reader.read(raw: BackupFormat.fileMagic.count)
    let version = try reader.read(UInt16.self)
    _ = try reader.read(UInt16.self)
    let features = try reader.read(UInt32.self)
    guard let store = StoreID(bytes: try reader.read(raw: 16)) else { throw DecodingFailure("store") }
    let created = try reader.read(UInt64.self)
    _ = try reader.read(raw: 16)
    let sum = try reader.read(UInt64.self)
    return Fields(
      version: version, features: features, header: BackupFileHeader(store: store, created: created),
      isWhole: sum == XXH3.hash64(Array(bytes.prefix(BackupFormat.headerBytes - 8)), seed: 0))
  }

  init(store: StoreID, created: UInt64) { (self.store, self.created) = (store, created) }
}

/// The header before the content of each entry.
struct BackupEntryHeader: Equatable {
  /// Type of an entry's content.
  enum Kind: UInt8 {
    /// A file of the directory `keys`: the length of its name in one byte, the name, its bytes.
    case keyFile = 1
    /// A segment of the journal that holds records.
    case records = 2
    /// The segment with the local records of the copy; only the one of the last section counts.
    case state = 3
    /// The content of a blob; the hash is its name.
    case blob = 4
    /// The stored name of an encrypted blob, and the object as stored in an encrypted store.
    case encryptedBlob = 6
    /// Ends a section.
    case footer = 5
  }

  var kind: Kind
  /// Size of the content.
  var length: Int
  /// SHA-256 of the content.
  var hash: [UInt8]

  func encoded() -> [UInt8] {
    var writer = ByteWriter(capacity: BackupFormat.headerBytes)
    writer.write(raw: BackupFormat.entryMagic)
    writer.write(kind.rawValue)
    writer.write(raw: [UInt8](repeating: 0, count: 7))
    writer.write(UInt64(length))
    writer.write(raw: hash)
    writer.write(XXH3.hash64(writer.bytes, seed: 0))
    return writer.bytes
  }

  init(_ kind: Kind, length: Int, hash: [UInt8]) {
    (self.kind, self.length, self.hash) = (kind, length, hash)
  }

  /// Nil unless the bytes are a valid header.
  init?(_ bytes: [UInt8]) {
    do throws(DecodingFailure) {
      var reader = ByteReader(bytes)
      guard try reader.read(raw: 8).elementsEqual(BackupFormat.entryMagic),
        let kind = Kind(rawValue: try reader.read())
      else { return nil }
      _ = try reader.read(raw: 7)
      let length = try reader.read(UInt64.self)
      hash = Array(try reader.read(raw: SHA256.byteCount))
      guard
        try reader.read(UInt64.self)
          == XXH3.hash64(Array(bytes.prefix(BackupFormat.headerBytes - 8)), seed: 0),
        length <= Self.limit(kind)
      else { return nil }
      (self.kind, self.length) = (kind, Int(length))
    } catch {
      return nil
    }
  }

  private static func limit(_ kind: Kind) -> UInt64 {
    switch kind {
    case .keyFile: UInt64(BackupFormat.keyFileBytes) + 256
    case .records, .state: UInt64(BackupFormat.segmentBytes)
    case .blob: Limits.blobBytes
    case .encryptedBlob: UInt64(SHA256.byteCount) + EncryptedBlobLayout.encryptedSize(Limits.blobBytes)
    case .footer: UInt64(BackupFormat.maxFooterBytes)
    }
  }
}

/// The content of the entry that ends a section and makes it a state of the store (the *closing* of
/// `schemas/backup.md`).
struct BackupFooter: Equatable {
  /// Number of the section in the file, from 1.
  var section: UInt32 = 1
  /// When it was made, milliseconds since 1970.
  var time: UInt64 = 0
  /// The store's name.
  var name = ""
  /// Its records are those after this position …
  var after: UInt64 = 0
  /// … up to this one.
  var position: UInt64 = 0
  /// The token by which the backed-up copy recognizes the file.
  var token: [UInt8] = []
  /// The generation of the master key under which a restored store begins its next segment; 0 for an
  /// unencrypted store.
  var generation: UInt32 = 0
  /// Number of the next segment of records, and its count: one more than the number of segments of either
  /// kind so far.
  var nextNumber: UInt32 = 2
  var nextCount: UInt32 = 1
  /// The salt that the first segment of records names; the state segments of all sections use it.
  var firstSalt: UInt64 = 0
  /// The salt that the next segment of records must name, and the length of the previous one.
  var chainSalt: UInt64 = 0
  var chainLength: UInt32 = 0
  /// The predecessor that the next segment of records names: segments of a backup are durable as a whole.
  var predecessor: SegmentHeader.Predecessor {
    SegmentHeader.Predecessor(salt: chainSalt, length: chainLength, durable: chainLength)
  }
  /// SHA-256 of the previous footer; zeros in the first.
  var previous = [UInt8](repeating: 0, count: SHA256.byteCount)
  /// SHA-256 of the headers of the section's other entries, in order.
  var entries: [UInt8] = []
  /// Blobs that records refer to but that were missing when the section was written.
  var missing: [BlobReference] = []

  static let tokenBytes = 16

  func encoded() -> [UInt8] {
    var writer = ByteWriter()
    writer.write(section)
    writer.write(generation)
    writer.write(time)
    writer.write(after)
    writer.write(position)
    writer.write(raw: token)
    writer.write(nextNumber)
    writer.write(nextCount)
    writer.write(firstSalt)
    writer.write(chainSalt)
    writer.write(chainLength)
    writer.write(raw: previous)
    writer.write(raw: entries)
    writer.write(text: name)
    writer.writeVariable(UInt64(missing.count))
    for blob in missing {
      writer.write(raw: blob.hash.bytes)
      writer.write(blob.size)
    }
    return writer.bytes
  }

  init() {}

  init(_ bytes: [UInt8]) throws(DecodingFailure) {
    var reader = ByteReader(bytes)
    section = try reader.read()
    generation = try reader.read()
    time = try reader.read()
    after = try reader.read()
    position = try reader.read()
    token = Array(try reader.read(raw: Self.tokenBytes))
    nextNumber = try reader.read()
    nextCount = try reader.read()
    firstSalt = try reader.read()
    chainSalt = try reader.read()
    chainLength = try reader.read()
    previous = Array(try reader.read(raw: SHA256.byteCount))
    entries = Array(try reader.read(raw: SHA256.byteCount))
    name = try reader.readText(limit: Limits.nameBytes)
    guard StoreIdentity.isName(name), nextNumber >= 2, nextCount >= 1, position >= after else {
      throw DecodingFailure("a field out of bounds")
    }
    for _ in 0..<(try reader.readCount(limit: reader.remaining / (SHA256.byteCount + 8))) {
      guard let hash = BlobHash(bytes: try reader.read(raw: SHA256.byteCount)) else {
        throw DecodingFailure("hash")
      }
      missing.append(BlobReference(hash: hash, size: try reader.read()))
    }
    try reader.end()
  }
}
