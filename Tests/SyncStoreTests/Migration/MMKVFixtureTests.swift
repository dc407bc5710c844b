import SyncTestSupport
import Testing

@testable import SyncStore

/// MMKV files assembled byte by byte from its public description (`MiniPBCoder`, `MMKVMetaInfo`), with
/// checksums computed by zlib and a ciphertext by OpenSSL's command: independent of this program.
@Suite("A file of MMKV, byte by byte")
struct MMKVFixtureTests {
  let host = SimulatedHost(encrypted: false)

  /// Hex digits; brackets contain explanations.
  private static func bytes(_ lines: String...) throws -> [UInt8] {
    var digits = lines.joined()
    while let open = digits.firstIndex(of: "["), let close = digits.firstIndex(of: "]") {
      digits.removeSubrange(open...close)
    }
    return try #require(Hex.bytes(of: String(digits.filter { $0 != " " })))
  }

  private static func content() throws -> [UInt8] {
    try bytes(
      "ffffff07 [a varint of 0x00ffffff that holds the place of a size, and is passed over]",
      "02 6f6b 01 01 [ok: a Bool, the varint 1]",
      "01 6e 02 ac02 [n: Int32 300, the varint AC 02]",
      "03 6e6567 0a ffffffffffffffffff01 [neg: Int32 -1, extended to 64 bits: a varint of ten bytes]",
      "03 753634 0a ffffffffffffffffff01 [u64: UInt64.max, the same bytes: MMKV keeps no types]",
      "01 66 04 0000c03f [f: Float 1.5, little-endian]",
      "01 64 08 00000000000000c0 [d: Double -2, little-endian]",
      "01 73 04 03 68c3a9 [s: the text hé: its length stands once more within the value]",
      "01 65 01 00 [e: the empty text: one byte, its length]",
      "01 62 03 02 00ff [b: two bytes of data]",
      "01 78 04 03 6f6c64 [x: the text old]",
      "01 78 04 03 6e6577 [x again: the text new, which counts]",
      "04 676f6e65 01 01 [gone: a Bool]",
      "04 676f6e65 00 [gone again, with an empty value: removed]")
  }

  /// 106 bytes; the rest of the file is ignored.
  private static func file(_ content: [UInt8]) throws -> [UInt8] {
    try bytes("6a000000 [106, little-endian]") + content + [UInt8](repeating: 0xEE, count: 500)
  }

  private func put(_ file: [UInt8], _ meta: [UInt8]?) throws {
    try host.storage.replace("/mmkv", with: file)
    if let meta { try host.storage.replace("/mmkv.crc", with: meta) }
  }

  private func check(_ file: MMKVFile) {
    #expect(file.keys == ["b", "d", "e", "f", "n", "neg", "ok", "s", "u64", "x"])
    #expect(file.bool("ok") == true && file.integer("n") == 300 && file.integer("neg") == -1)
    #expect(file.integer("u64").map { UInt64(bitPattern: $0) } == .max)
    #expect(file.float("f") == 1.5 && file.double("d") == -2)
    #expect(file.string("s") == "hé" && file.string("e") == "" && file.data("b") == [0, 255])
    #expect(file.string("x") == "new" && file.raw("gone") == nil)
  }

  @Test("is read without an accompanying file")
  func bare() throws {
    try put(try Self.file(try Self.content()), nil)
    check(try MMKVFile(path: "/mmkv", cryptKey: nil, host.storage))
  }

  @Test(
    "is read with the file of checksums of each version", arguments: ["01000000", "02000000", "03000000"])
  func checked(version: String) throws {
    try put(
      try Self.file(try Self.content()),
      try Self.bytes(
        "1de9611a [CRC-32 of the 106 bytes, 0x1a61e91d]", version, "01000000 [how often it was written anew]",
        "00000000000000000000000000000000 [vector, from version 2 on]",
        version == "03000000" ? "6a000000 [size, from version 3 on]" : "00000000", "00000000 00000000")
        + [UInt8](repeating: 0, count: 64))
    check(try MMKVFile(path: "/mmkv", cryptKey: nil, host.storage))
  }

  @Test("is damaged if its bytes do not match its checksum")
  func damaged() throws {
    var content = try Self.content()
    content[8] = 0
    try put(
      try Self.file(content), try Self.bytes("1de9611a 03000000 01000000") + [UInt8](repeating: 0, count: 96))
    let error = #expect(throws: StoreError.self) {
      try MMKVFile(path: "/mmkv", cryptKey: nil, host.storage)
    }
    #expect(error?.code == .damaged)
  }

  @Test("has expiry times after its values if the flags of version 4 say so")
  func expiring() throws {
    try put(
      try Self.bytes(
        "15000000 [21]", "ffffff07",
        "01 74 05 07 00d2496b [t: Int32 7, and 1,800,000,000 seconds since 1970]",
        "01 6b 06 01 76 00000000 [k: the text v, and 0: never]"),
      try Self.bytes(
        "6c2b7725 [CRC-32, 0x25772b6c]", "04000000", "01000000", "00000000000000000000000000000000",
        "15000000 00000000 00000000") + [UInt8](repeating: 0, count: 64) + [1, 0, 0, 0, 0, 0, 0, 0])
    let file = try MMKVFile(path: "/mmkv", cryptKey: nil, host.storage)
    #expect(file.integer("t") == 7 && file.deadline("t") == 1_800_000_000_000)
    #expect(file.string("k") == "v" && file.deadline("k") == nil)
  }

  @Test("is decrypted with its key and the vector in the accompanying file")
  func encrypted() throws {
    try put(
      try Self.bytes(
        "09000000 [9]",
        "873a7594412abf3e9b [ffffff07 02 6f6b 01 01 in AES-128-CFB, as `openssl enc -aes-128-cfb` has it]"),
      try Self.bytes(
        "7b4b918a [CRC-32 of the ciphertext, 0x8a914b7b]", "03000000", "01000000",
        "101112131415161718191a1b1c1d1e1f [the vector]", "09000000 00000000 00000000")
        + [UInt8](repeating: 0, count: 64))
    // Shorter keys are padded with zeros.
    #expect(try MMKVFile(path: "/mmkv", cryptKey: Array("a key".utf8), host.storage).bool("ok") == true)
  }
}
