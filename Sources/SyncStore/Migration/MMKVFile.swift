/// A file of MMKV, read: keys with the bytes that MMKV keeps for them. Nothing of it is changed.
///
/// The layout, as MMKV documents and writes it: 4 bytes (little-endian) that count the bytes behind them; a varint that is
/// passed over; then pairs of a key and a value, each with its length before it as a varint. Of a key that comes more than
/// once the last pair counts, an empty value removes it. The file `NAME.crc` beside it has the CRC-32 (zlib's) of those
/// bytes, and, from its version 2 on, the initialization vector of AES-128 in CFB mode, should they be encrypted.
///
/// MMKV does not say what type a value has: who asks must know.
public struct MMKVFile: Sendable {
  /// Where it lies.
  public let path: String
  private var values: [String: [UInt8]] = [:]
  /// Has each value a time of expiry behind it?
  private let hasExpiry: Bool

  /// Bytes of the largest file that is read.
  static let limit = 2 << 30

  /// Reads a file.
  ///
  /// - Parameter cryptKey: of an encrypted one, its key: at most 16 bytes count.
  /// - Throws: `.damaged` if it does not match its CRC; `.wrongKey` or `.keyRequired` if what it holds makes no sense with
  ///   the key, or without one; `.foreignFile` if it is none of MMKV; `.inputOutput`.
  public init(path: String, cryptKey: [UInt8]? = nil) throws(StoreError) {
    try self.init(path: path, cryptKey: cryptKey, Environment.real().storage)
  }

  /// The same with the storage given, for tests.
  package init(path: String, cryptKey: [UInt8]?, _ storage: any Storage) throws(StoreError) {
    self.path = path
    let path = try storage.fileToRead(path, "a file of MMKV").path
    guard let bytes = try storage.contents(of: path, limit: Self.limit) else {
      throw StoreError(.inputOutput, "there is no such file: name a file of MMKV", path: path)
    }
    guard bytes.count >= 4 else { throw Self.foreign(path) }
    let meta = try storage.contents(of: path + ".crc", limit: 1 << 20).flatMap { MMKVMeta($0) }
    hasExpiry = meta?.hasExpiry ?? false
    guard var content = try Self.content(bytes, meta, path) else { return }
    if let cryptKey {
      content = AES128CFB.decrypt(content, key: cryptKey, vector: meta?.vector)
    }
    guard let values = Self.pairs(content) else {
      throw cryptKey == nil
        ? StoreError(
          .keyRequired, "its pairs make no sense: it is encrypted, give its key; or it is no file of MMKV",
          path: path)
        : StoreError(.wrongKey, "its pairs make no sense with this key: give the right one", path: path)
    }
    self.values = values
  }

  private static func foreign(_ path: String) -> StoreError {
    StoreError(.foreignFile, "is no file of MMKV: its size is not that of its content", path: path)
  }

  /// The bytes that count, those that the CRC is of; nil if there are none.
  private static func content(
    _ bytes: [UInt8], _ meta: MMKVMeta?, _ path: String
  ) throws(StoreError) -> [UInt8]? {
    let own = bytes[..<4].reversed().reduce(0) { $0 << 8 | Int($1) }
    guard let meta else {
      guard own <= bytes.count - 4 else { throw foreign(path) }
      return own > 0 ? Array(bytes[4..<(4 + own)]) : nil
    }
    // A writer that was killed may have changed one place and not the other.
    for (size, crc) in [(own, meta.crc), (meta.size, meta.crc), (meta.lastSize, meta.lastCRC)]
    where size <= bytes.count - 4 && (size > 0 || own == 0) {
      let content = Array(bytes[4..<(4 + size)])
      if CRC32.checksum(content) == crc { return size > 0 ? content : nil }
    }
    throw StoreError(
      .damaged, "does not match the checksum in \(path).crc: remove that file to read what can be read",
      path: path)
  }

  private static func pairs(_ content: [UInt8]) -> [String: [UInt8]]? {
    var reader = VarintReader(content)
    var values: [String: [UInt8]] = [:]
    guard reader.varint() != nil else { return nil }
    while !reader.isAtEnd {
      guard let name = reader.counted(), let key = String(validating: name, as: UTF8.self) else { return nil }
      // MMKV passes over a pair whose key is empty, without a value behind it.
      if key.isEmpty { continue }
      guard let value = reader.counted() else { return nil }
      values[key] = value.isEmpty ? nil : Array(value)
    }
    return values
  }

  // MARK: Values

  /// All keys, sorted.
  public var keys: [String] { values.keys.sorted() }

  /// The bytes that MMKV keeps for a key, as they are; nil if it is not there.
  public func raw(_ key: String) -> [UInt8]? { values[key].map { hasExpiry ? Array($0.dropLast(4)) : $0 } }

  /// When a key expires, in milliseconds since 1970; nil if it does not.
  public func deadline(_ key: String) -> UInt64? {
    guard hasExpiry, let value = values[key], value.count >= 4 else { return nil }
    let seconds = value.suffix(4).reversed().reduce(0) { $0 << 8 | UInt64($1) }
    return seconds > 0 ? seconds * 1000 : nil
  }

  /// What `encode(bool)`, `set(bool)` put there.
  public func bool(_ key: String) -> Bool? { integer(key).map { $0 != 0 } }

  /// What any of the integer types put there. Unsigned 64-bit numbers above `Int64.max` come out negative.
  public func integer(_ key: String) -> Int64? {
    guard let raw = raw(key) else { return nil }
    var reader = VarintReader(raw)
    guard let value = reader.varint(), reader.isAtEnd else { return nil }
    return Int64(bitPattern: value)
  }

  /// What a `float` put there.
  public func float(_ key: String) -> Float? {
    guard let raw = raw(key), raw.count == 4 else { return nil }
    return Float(bitPattern: raw.reversed().reduce(0) { $0 << 8 | UInt32($1) })
  }

  /// What a `double` put there.
  public func double(_ key: String) -> Double? {
    guard let raw = raw(key), raw.count == 8 else { return nil }
    return Double(bitPattern: raw.reversed().reduce(0) { $0 << 8 | UInt64($1) })
  }

  /// What a buffer of bytes put there.
  public func data(_ key: String) -> [UInt8]? {
    guard let raw = raw(key) else { return nil }
    var reader = VarintReader(raw)
    guard let bytes = reader.counted(), reader.isAtEnd else { return nil }
    return Array(bytes)
  }

  /// What a text put there.
  public func string(_ key: String) -> String? { data(key).flatMap { String(validating: $0, as: UTF8.self) } }
}

/// What the file beside it says.
private struct MMKVMeta {
  var crc: UInt32
  var vector: [UInt8]?
  var size: Int
  var lastSize: Int
  var lastCRC: UInt32
  var hasExpiry: Bool

  /// Nil if there is not even a CRC.
  init?(_ bytes: [UInt8]) {
    func word(_ offset: Int) -> UInt32 {
      offset + 4 <= bytes.count
        ? bytes[offset..<(offset + 4)].reversed().reduce(0) { $0 << 8 | UInt32($1) } : 0
    }
    guard bytes.count >= 4 else { return nil }
    // crc, version, sequence, 16 bytes of vector, size, size and CRC confirmed last, 64 bytes, flags.
    let version = word(4)
    crc = word(0)
    vector = version >= 2 && bytes.count >= 28 ? Array(bytes[12..<28]) : nil
    size = version >= 3 ? Int(word(28)) : 0
    (lastSize, lastCRC) = version >= 3 ? (Int(word(32)), word(36)) : (0, 1)
    hasExpiry = version >= 4 && word(104) & 1 != 0
  }
}

/// Takes varints and what they count off bytes that nobody vouches for.
private struct VarintReader {
  private let bytes: [UInt8]
  private var index = 0

  init(_ bytes: [UInt8]) { self.bytes = bytes }

  var isAtEnd: Bool { index == bytes.count }

  /// Of at most 64 bits, in any form.
  mutating func varint() -> UInt64? {
    var value: UInt64 = 0
    for shift in stride(from: UInt64(0), to: 70, by: 7) {
      guard index < bytes.count else { return nil }
      let byte = bytes[index]
      index += 1
      value |= UInt64(byte & 0x7F) << shift
      if byte & 0x80 == 0 { return value }
    }
    return nil
  }

  mutating func counted() -> ArraySlice<UInt8>? {
    guard let count = varint(), count <= UInt64(bytes.count - index) else { return nil }
    defer { index += Int(count) }
    return bytes[index..<(index + Int(count))]
  }
}

/// CRC-32 (IEEE 802.3, reflected), as zlib computes it.
enum CRC32 {
  private static let table: [UInt32] = (0..<256).map { byte in
    (0..<8).reduce(UInt32(byte)) { value, _ in value & 1 != 0 ? value >> 1 ^ 0xEDB8_8320 : value >> 1 }
  }

  static func checksum(_ bytes: [UInt8]) -> UInt32 {
    let table = table
    return ~bytes.reduce(~0) { $0 >> 8 ^ table[Int(($0 ^ UInt32($1)) & 0xFF)] }
  }
}
