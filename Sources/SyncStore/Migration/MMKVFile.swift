/// An MMKV file, opened read-only: keys with the bytes that MMKV keeps for them.
///
/// The layout, as MMKV documents and writes it: 4 bytes (little-endian) with the number of bytes after them,
/// up to MMKV 2.3; a varint that is ignored; then pairs of a key and a value, each with its length before it
/// as a varint. The last pair of a key counts; an empty value removes the key.
///
/// The file `NAME.crc` next to it has the CRC-32 (zlib's) of those bytes; from its version 2 on the
/// initialization vector of AES-128 or AES-256 in CFB mode, if they are encrypted; and from version 3 on
/// their size, which MMKV 2.4 and later store nowhere else. Copy both files.
///
/// Keys are bytes: one need not be UTF-8, and two that are equal as `String` are two keys if their bytes
/// differ. MMKV does not store the types of values: the caller must know them.
public struct MMKVFile: Sendable {
  /// The cipher of an encrypted file.
  public enum Cipher: Hashable, Sendable, CaseIterable {
    /// AES-128: at most 16 bytes of the key are used.
    case aes128
    /// AES-256, available since MMKV 2.3: at most 32 bytes of the key are used.
    case aes256
  }

  /// The path of the file.
  public let path: String
  private var values: [[UInt8]: [UInt8]] = [:]
  /// Whether each value is followed by an expiry time.
  private let hasExpiry: Bool

  /// Bytes of the largest file accepted.
  static let limit = 2 << 30

  /// Reads a file and its metadata file, `path` with ".crc" added.
  ///
  /// - Parameters:
  ///   - cryptKey: the key of an encrypted file: at most 16 bytes are used, or 32 for AES-256.
  ///   - cipher: its cipher, which MMKV does not record. Nil tries both.
  /// - Throws: `.damaged` if it does not match its CRC, or if `NAME.crc` is missing and holds what is needed
  ///   to read all of it; `.wrongKey` or `.keyRequired` if the content makes no sense with the key, or
  ///   without one; `.newerFormat` if `NAME.crc` is of a later version; `.foreignFile` if it is no MMKV file;
  ///   `.inputOutput`.
  public init(path: String, cryptKey: [UInt8]? = nil, cipher: Cipher? = nil) throws(StoreError) {
    try self.init(path: path, cryptKey: cryptKey, cipher: cipher, Environment.real().storage)
  }

  /// Reads with a given storage, for tests.
  package init(
    path: String, cryptKey: [UInt8]?, cipher: Cipher? = nil, _ storage: any Storage
  ) throws(StoreError) {
    self.path = path
    let path = try storage.fileToRead(path, "a file of MMKV").path
    guard let bytes = try storage.contents(of: path, limit: Self.limit) else {
      throw StoreError(.inputOutput, "there is no such file: name a file of MMKV", path: path)
    }
    guard bytes.count >= 4 else { throw Self.foreign(path) }
    let meta = try storage.contents(of: path + ".crc", limit: 1 << 20).flatMap { MMKVMeta($0) }
    if let meta, meta.version > MMKVMeta.newestVersion {
      throw StoreError(
        .newerFormat,
        "\(path).crc is of version \(meta.version), this program reads up to \(MMKVMeta.newestVersion): update it, or have "
          + "MMKV itself read the file", path: path)
    }
    hasExpiry = meta?.hasExpiry ?? false
    guard let content = try Self.content(of: bytes, meta: meta, path: path) else { return }
    if let cryptKey {
      guard let meta else { throw Self.lacksMeta(path, "its initialization vector") }
      values = try Self.deciphered(content, key: cryptKey, cipher: cipher, vector: meta.vector, path: path)
      return
    }
    guard let pairs = MMKVPairs(content) else {
      guard meta != nil else { throw Self.lacksMeta(path, "its size, and its vector if it is encrypted") }
      throw StoreError(
        .keyRequired, "its pairs make no sense: it is encrypted, give its key; or it is no file of MMKV",
        path: path)
    }
    if meta == nil, pairs.seemToExpire { throw Self.lacksMeta(path, "whether its values expire") }
    values = pairs.values
  }

  // MARK: Content

  private static func foreign(_ path: String) -> StoreError {
    StoreError(.foreignFile, "is no file of MMKV: its size is not that of its content", path: path)
  }

  private static func lacksMeta(_ path: String, _ what: String) -> StoreError {
    StoreError(
      .damaged,
      "cannot be read as a whole: \(path).crc, which has \(what), is missing, empty or cut short: copy both files",
      path: path)
  }

  /// The valid bytes, which the CRC covers; nil if there are none.
  private static func content(
    of bytes: [UInt8], meta: MMKVMeta?, path: String
  ) throws(StoreError) -> [UInt8]? {
    let own = bytes[..<4].reversed().reduce(0) { $0 << 8 | Int($1) }
    guard let meta else { return try contentAlone(of: bytes, size: own, path: path) }
    // Nothing was ever written, or everything was removed.
    if (meta.size ?? own) == 0, meta.crc == 0 {
      // A damaged metadata file may look like that, too.
      guard meta.size == nil, bytes[4...].contains(where: { $0 != 0 }) else { return nil }
      throw lacksMeta(path, "its size")
    }
    var candidates = [(size: meta.size ?? own, crc: meta.crc)]
    // A killed writer may have changed only one of the two places; MMKV then returns to the state it had
    // confirmed.
    if let confirmed = meta.confirmed { candidates += [confirmed, (own, meta.crc)] }
    for (size, crc) in candidates where size > 0 && size <= bytes.count - 4 {
      let content = Array(bytes[4..<(4 + size)])
      if CRC32.checksum(content) == crc { return content }
    }
    throw StoreError(
      .damaged,
      "does not match the checksum in \(path).crc: copy both files again, at a moment when no program writes them",
      path: path)
  }

  /// The valid bytes without the metadata file. From MMKV 2.4 on the size at the beginning is zero, or that
  /// of the last write by an earlier MMKV: then pairs follow after it, and reading only up to it would lose
  /// those.
  private static func contentAlone(
    of bytes: [UInt8], size own: Int, path: String
  ) throws(StoreError) -> [UInt8]? {
    guard own > 0 else {
      guard bytes[4...].contains(where: { $0 != 0 }) else { return nil }
      throw lacksMeta(path, "its size")
    }
    guard own <= bytes.count - 4 else { throw foreign(path) }
    var following = VarintReader(bytes, from: 4 + own)
    if let next = following.pair(), !next.key.isEmpty { throw lacksMeta(path, "its size") }
    return Array(bytes[4..<(4 + own)])
  }

  private static func deciphered(
    _ content: [UInt8], key: [UInt8], cipher: Cipher?, vector: [UInt8]?, path: String
  ) throws(StoreError) -> [[UInt8]: [UInt8]] {
    let found = (cipher.map { [$0] } ?? Cipher.allCases).compactMap { cipher in
      MMKVPairs(AESCFB.decrypt(content, key: key, vector: vector, keyBytes: cipher == .aes256 ? 32 : 16))
    }
    let best = found.map(\.plausibility).max()
    let likely = found.filter { $0.plausibility == best }
    guard let first = likely.first else {
      throw StoreError(.wrongKey, "its pairs make no sense with this key: give the right one", path: path)
    }
    guard likely.count == 1 else {
      throw StoreError(
        .wrongKey, "its pairs make sense by AES-128 and by AES-256: say which of them it is encrypted with",
        path: path)
    }
    return first.values
  }

  // MARK: Values

  /// All keys as bytes, sorted. A key need not be UTF-8.
  public var keyBytes: [[UInt8]] { values.keys.sorted { $0.lexicographicallyPrecedes($1) } }

  /// The keys that are UTF-8, sorted by their bytes; `keyBytes` includes the others.
  public var keys: [String] { keyBytes.compactMap { String(validating: $0, as: UTF8.self) } }

  /// The unchanged bytes that MMKV keeps for a key; nil if there is no such key.
  public func raw(_ key: [UInt8]) -> [UInt8]? { values[key].map { hasExpiry ? Array($0.dropLast(4)) : $0 } }

  /// Expiry of a key in milliseconds since 1970; nil if it has none.
  public func deadline(_ key: [UInt8]) -> UInt64? {
    guard hasExpiry, let value = values[key], value.count >= 4 else { return nil }
    let seconds = value.suffix(4).reversed().reduce(0) { $0 << 8 | UInt64($1) }
    return seconds > 0 ? seconds * 1000 : nil
  }

  /// A value of type `bool`.
  public func bool(_ key: [UInt8]) -> Bool? { integer(key).map { $0 != 0 } }

  /// A value of any integer type. Unsigned 64-bit numbers above `Int64.max` come out negative.
  public func integer(_ key: [UInt8]) -> Int64? {
    guard let raw = raw(key) else { return nil }
    var reader = VarintReader(raw)
    guard let value = reader.varint(), reader.isAtEnd else { return nil }
    return Int64(bitPattern: value)
  }

  /// A value of type `float`.
  public func float(_ key: [UInt8]) -> Float? {
    guard let raw = raw(key), raw.count == 4 else { return nil }
    return Float(bitPattern: raw.reversed().reduce(0) { $0 << 8 | UInt32($1) })
  }

  /// A value of type `double`.
  public func double(_ key: [UInt8]) -> Double? {
    guard let raw = raw(key), raw.count == 8 else { return nil }
    return Double(bitPattern: raw.reversed().reduce(0) { $0 << 8 | UInt64($1) })
  }

  /// A value stored as a byte buffer.
  public func data(_ key: [UInt8]) -> [UInt8]? {
    guard let raw = raw(key) else { return nil }
    var reader = VarintReader(raw)
    guard let bytes = reader.counted(), reader.isAtEnd else { return nil }
    return Array(bytes)
  }

  /// A value stored as text.
  public func string(_ key: [UInt8]) -> String? {
    data(key).flatMap { String(validating: $0, as: UTF8.self) }
  }
}

/// Access by keys that are UTF-8.
extension MMKVFile {
  /// The unchanged bytes that MMKV keeps for a key; nil if there is no such key.
  public func raw(_ key: String) -> [UInt8]? { raw(Array(key.utf8)) }

  /// Expiry of a key in milliseconds since 1970; nil if it has none.
  public func deadline(_ key: String) -> UInt64? { deadline(Array(key.utf8)) }

  /// A value of type `bool`.
  public func bool(_ key: String) -> Bool? { bool(Array(key.utf8)) }

  /// A value of any integer type. Unsigned 64-bit numbers above `Int64.max` come out negative.
  public func integer(_ key: String) -> Int64? { integer(Array(key.utf8)) }

  /// A value of type `float`.
  public func float(_ key: String) -> Float? { float(Array(key.utf8)) }

  /// A value of type `double`.
  public func double(_ key: String) -> Double? { double(Array(key.utf8)) }

  /// A value stored as a byte buffer.
  public func data(_ key: String) -> [UInt8]? { data(Array(key.utf8)) }

  /// A value stored as text.
  public func string(_ key: String) -> String? { string(Array(key.utf8)) }
}

extension MMKVFile: BlockingCalls {}
