/// The metadata file `NAME.crc` of an MMKV file: MMKV's `MMKVMetaInfo`.
///
/// | bytes | content |
/// | --- | --- |
/// | 0 … 3 | CRC-32 of the content |
/// | 4 … 7 | version: 1 counts full writes, 2 has a vector, 3 the size, 4 flags |
/// | 8 … 11 | number of full rewrites of the content |
/// | 12 … 27 | initialization vector, from version 2 on |
/// | 28 … 31 | size of the content, from version 3 on |
/// | 32 … 39 | size and CRC-32 of the content last known to be on the disk |
/// | 104 … 111 | flags, from version 4 on; bit 0: each value is followed by an expiry time |
struct MMKVMeta {
  let crc: UInt32
  let version: UInt32
  let vector: [UInt8]?
  /// Bytes of the content; nil before version 3, where the file itself has it.
  let size: Int?
  /// State last known to be on the disk; nil before version 3.
  let confirmed: (size: Int, crc: UInt32)?
  let hasExpiry: Bool

  /// The newest version that this program reads.
  static let newestVersion: UInt32 = 4

  /// Nil if the file is empty, holds only zeros, or is too short for its version: then none of it is valid.
  init?(_ bytes: [UInt8]) {
    func word(_ offset: Int) -> UInt32 {
      offset + 4 <= bytes.count
        ? bytes[offset..<(offset + 4)].reversed().reduce(0) { $0 << 8 | UInt32($1) } : 0
    }
    let version = word(4)
    let needed = version >= 4 ? 112 : version == 3 ? 40 : version == 2 ? 28 : 8
    guard bytes.count >= needed, bytes.contains(where: { $0 != 0 }) else { return nil }
    (crc, self.version) = (word(0), version)
    vector = version >= 2 ? Array(bytes[12..<28]) : nil
    size = version >= 3 ? Int(word(28)) : nil
    confirmed = version >= 3 ? (Int(word(32)), word(36)) : nil
    hasExpiry = version >= 4 && word(104) & 1 != 0
  }
}

/// The pairs of an MMKV file, parsed from untrusted bytes.
struct MMKVPairs {
  private(set) var values: [[UInt8]: [UInt8]] = [:]
  /// Whether the content begins with a varint of four bytes, as MMKV writes it. Content deciphered with a
  /// wrong key rarely does.
  let beginsAsWritten: Bool

  /// Nil if the bytes are not a sequence of pairs up to their end.
  init?(_ content: [UInt8]) {
    var reader = VarintReader(content)
    guard reader.varint() != nil else { return nil }
    beginsAsWritten = reader.index == 4
    while !reader.isAtEnd {
      guard let (key, value) = reader.pair() else { return nil }
      guard let value else { continue }
      // An empty value removes the key.
      values[key] = value.isEmpty ? nil : Array(value)
    }
  }

  /// Plausibility of the pairs: of two keys that both yield pairs, the one with more plausible pairs is the
  /// right one.
  var plausibility: Int {
    let texts = values.keys.count { String(validating: $0, as: UTF8.self) != nil }
    return (beginsAsWritten ? 2 : 0) + (texts == values.count ? 1 : 0)
  }

  /// Whether the values look as if each were followed by an expiry time: all end in four bytes that are zero
  /// or a time from 2023, when MMKV introduced it, to 2100, and none is text or data that ends where its own
  /// length says.
  var seemToExpire: Bool {
    !values.isEmpty
      && values.values.allSatisfy { value in
        guard value.count >= 4 else { return false }
        let last = value.suffix(4).reversed().reduce(0) { $0 << 8 | UInt32($1) }
        var reader = VarintReader(value)
        let isCounted = reader.counted() != nil && reader.isAtEnd
        return !isCounted && (last == 0 || (1_672_531_200...4_102_444_800).contains(last))
      }
  }
}

/// Parses varints and counted bytes from untrusted bytes.
struct VarintReader {
  private let bytes: [UInt8]
  private(set) var index = 0

  init(_ bytes: [UInt8], from index: Int = 0) { (self.bytes, self.index) = (bytes, index) }

  var isAtEnd: Bool { index == bytes.count }

  /// A varint of at most 64 bits, in any form.
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

  /// A key and its value. An empty key has none: MMKV skips it, and no value follows.
  mutating func pair() -> (key: [UInt8], value: ArraySlice<UInt8>?)? {
    guard let key = counted() else { return nil }
    if key.isEmpty { return ([], nil) }
    guard let value = counted() else { return nil }
    return (Array(key), value)
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
