import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// Migration: from another store, from MMKV, from property lists.
@Suite("A migration")
struct MigrationTests {
  let host = SimulatedHost(encrypted: false)

  // MARK: Another store

  @Test("imports keys, values, types, deadlines and blobs from another store, as local writes")
  func fromStore() throws {
    let configuration = Configuration(blobThreshold: 2000)
    let other = try Store.create("/other", on: host, configuration: configuration)
    let store = try Store.create(on: host, configuration: configuration)
    for number in 0..<2500 { try other.put(Key("a\(number)"), "\(number)") }
    try other.put("b", [UInt8](repeating: 7, count: 5000), expiration: .at(host.time + 1000))
    try other.put("gone", "x")
    try other.delete("gone")
    try store.put("a1", "mine")
    try store.put("a2", "2")
    let before = try store.status().position
    let kept = try store.importAll(from: other, KeyRange(prefix: "a"), conflict: .keep)
    #expect(kept == ImportReport(imported: 2498, kept: 2))
    #expect(try store.text("a1") == "mine" && store.text("a2499") == "2499" && !store.contains("b"))
    let all = try store.importAll(from: other.snapshot())
    #expect(all.imported == 2501 && all.kept == 0)
    // Equal values were not written again.
    #expect(try store.status().position == before + 2498 + 2)
    #expect(try store.text("a1") == "1" && store.get("b")?.bytes.count == 5000)
    #expect(try store.entry("b")?.deadline == host.time + 1000 && store.entry("b")?.blob != nil)
    #expect(try store.entry("a1")?.type == .string)
    host.losePower(seed: 3)
    #expect(try Store.open(on: host, configuration: configuration).status().keys == 2501)
  }

  @Test("an unreadable value ends an import, unless the caller wants to skip it")
  func unreadable() throws {
    let configuration = Configuration(blobThreshold: 100)
    let other = try Store.create("/other", on: host, configuration: configuration)
    let store = try Store.create(on: host)
    try other.put("a", "1")
    try other.put("b", [UInt8](repeating: 7, count: 500))
    try other.put("c", "3")
    try other.blobs.remove(try #require(try other.entry("b")?.blob).hash)
    #expect(
      #expect(throws: StoreError.self) { try store.importAll(from: other) }?.code == .blobUnavailable)
    var lost: [Key] = []
    let report = try store.importAll(from: other) { key, _ in lost.append(key) }
    #expect(lost == ["b"] && report == ImportReport(imported: 2, kept: 0, skipped: 1))
    #expect(try store.list().map(\.key) == ["a", "c"])
  }

  // MARK: MMKV

  /// Writes files in the layout of MMKV's documentation and sources.
  struct MMKVWriter {
    var pairs: [UInt8] = [0xFF, 0xFF, 0xFF, 0x07]

    static func varint(_ value: UInt64) -> [UInt8] {
      var (rest, bytes): (UInt64, [UInt8]) = (value, [])
      while rest >= 0x80 {
        bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
        rest >>= 7
      }
      return bytes + [UInt8(rest)]
    }

    static func word(_ value: UInt32) -> [UInt8] {
      (0..<4).map { UInt8(truncatingIfNeeded: value >> UInt32($0 * 8)) }
    }

    static func counted(_ bytes: [UInt8]) -> [UInt8] { varint(UInt64(bytes.count)) + bytes }

    mutating func add(_ key: String, _ value: [UInt8]) {
      pairs += Self.counted(Array(key.utf8)) + Self.counted(value)
    }

    mutating func addExpiring(_ key: String, _ value: [UInt8], _ seconds: UInt32) {
      add(key, value + Self.word(seconds))
    }

    func write(
      to path: String, _ storage: any Storage, key: [UInt8]? = nil, vector: [UInt8]? = nil,
      version: UInt32 = 3,
      flags: UInt32 = 0, spoilsCRC: Bool = false, lastSize: Int? = nil
    ) throws {
      let content = key.map { AESCFB.encrypt(pairs, key: $0, vector: vector) } ?? pairs
      let page = [UInt8](repeating: 0, count: max(0, 4096 - content.count - 4))
      try storage.replace(path, with: Self.word(UInt32(content.count)) + content + page)
      var meta = Self.word(CRC32.checksum(content) ^ (spoilsCRC ? 1 : 0)) + Self.word(version) + Self.word(1)
      meta += vector ?? [UInt8](repeating: 0, count: 16)
      meta += Self.word(UInt32(content.count))
      let last = lastSize.map { Array(content.prefix($0)) }
      meta += Self.word(UInt32(last?.count ?? 0)) + Self.word(last.map { CRC32.checksum($0) } ?? 0)
      meta += [UInt8](repeating: 0, count: 64) + Self.word(flags)
      try storage.replace(path + ".crc", with: meta + [UInt8](repeating: 0, count: 4096 - meta.count))
    }

    static var sample: MMKVWriter {
      var writer = MMKVWriter()
      writer.add("text", counted(Array("first".utf8)))
      writer.add("flag", varint(1))
      writer.add("small", varint(300))
      // Negative numbers are sign-extended to 64 bits.
      writer.add("negative", varint(UInt64(bitPattern: -5)))
      writer.add("half", word(Float(0.5).bitPattern))
      writer.add("pi", (0..<8).map { UInt8(truncatingIfNeeded: Double.pi.bitPattern >> UInt64($0 * 8)) })
      writer.add("bytes", counted([0, 255, 7]))
      writer.add("gone", counted([1]))
      writer.add("text", counted(Array("latest: ä".utf8)))
      writer.add("gone", [])
      return writer
    }
  }

  @Test("the checksum is zlib's")
  func checksum() {
    #expect(CRC32.checksum(Array("123456789".utf8)) == 0xCBF4_3926)
    #expect(CRC32.checksum([]) == 0)
  }

  @Test("the cipher of MMKV's files matches the NIST vectors (SP 800-38A, F.3.13)")
  func cipher() throws {
    let key = try #require(Hex.bytes(of: "2b7e151628aed2a6abf7158809cf4f3c"))
    let vector = try #require(Hex.bytes(of: "000102030405060708090a0b0c0d0e0f"))
    let plain = try #require(
      Hex.bytes(of: "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"))
    let sealed = "3b3fd92eb72dad20333449f8e83cfb4ac8a64537a0b3a93fcde3cdad9f1ce58b"
    #expect(Hex.string(of: AESCFB.encrypt(plain, key: key, vector: vector)) == sealed)
    #expect(AESCFB.decrypt(try #require(Hex.bytes(of: sealed)), key: key, vector: vector) == plain)
  }

  @Test(
    "an MMKV file is read as written: later pairs win, empty values remove, each type as requested")
  func mmkv() throws {
    try MMKVWriter.sample.write(to: "/mmkv", host.storage)
    let file = try MMKVFile(path: "/mmkv", cryptKey: nil, host.storage)
    #expect(file.keys == ["bytes", "flag", "half", "negative", "pi", "small", "text"])
    #expect(file.string("text") == "latest: ä" && file.bool("flag") == true && file.integer("small") == 300)
    #expect(file.integer("negative") == -5 && file.float("half") == 0.5 && file.double("pi") == .pi)
    #expect(file.data("bytes") == [0, 255, 7] && file.raw("bytes") == [3, 0, 255, 7])
    #expect(file.string("gone") == nil && file.double("text") == nil && file.deadline("text") == nil)
    let store = try Store.create(on: host)
    let kinds: [String: MMKVKind] = [
      "text": .string, "flag": .bool, "small": .integer, "negative": .integer, "half": .float, "pi": .double,
      "bytes": .skip,
    ]
    let report = try store.importAll(from: file, prefix: "old/") { kinds[$0] ?? .raw }
    #expect(report == ImportReport(imported: 6))
    #expect(try store.text("old/text") == "latest: ä" && store.entry("old/text")?.type == .string)
    #expect(try store.get("old/negative")?.bytes == [0xFB] + [UInt8](repeating: 0xFF, count: 7))
    #expect(try store.entry("old/half")?.type == .double && store.get("old/flag")?.bytes == [1])
    // Read as another type.
    #expect(try store.importAll(from: file) { _ in .double }.skipped == 6)
  }

  @Test("an encrypted file is read with its key, and with no other", arguments: [true, false])
  func encrypted(hasVector: Bool) throws {
    let key = Array("a key".utf8)
    let vector = hasVector ? (0..<16).map { UInt8($0 * 7) } : nil
    try MMKVWriter.sample.write(
      to: "/mmkv", host.storage, key: key, vector: vector, version: hasVector ? 3 : 1)
    let file = try MMKVFile(path: "/mmkv", cryptKey: key, host.storage)
    #expect(file.string("text") == "latest: ä" && file.keys.count == 7)
    let wrong = Array("another".utf8)
    #expect(
      #expect(throws: StoreError.self) { try MMKVFile(path: "/mmkv", cryptKey: wrong, host.storage) }?.code
        == .wrongKey)
    #expect(
      #expect(throws: StoreError.self) { try MMKVFile(path: "/mmkv", cryptKey: nil, host.storage) }?.code
        == .keyRequired)
  }

  @Test("expiry times are imported; the last confirmed part is read where the rest does not match")
  func expiring() throws {
    var writer = MMKVWriter()
    writer.addExpiring("soon", MMKVWriter.varint(7), 1_800_000_000)
    let size = writer.pairs.count
    writer.addExpiring("never", MMKVWriter.varint(8), 0)
    try writer.write(to: "/mmkv", host.storage, version: 4, flags: 1)
    var file = try MMKVFile(path: "/mmkv", cryptKey: nil, host.storage)
    #expect(file.integer("soon") == 7 && file.deadline("soon") == 1_800_000_000_000)
    #expect(file.integer("never") == 8 && file.deadline("never") == nil)
    let store = try Store.create(on: host)
    try store.importAll(from: file) { _ in .integer }
    #expect(try store.entry("soon")?.deadline == 1_800_000_000_000 && store.entry("never")?.deadline == nil)
    try writer.write(to: "/mmkv", host.storage, version: 4, flags: 1, spoilsCRC: true)
    #expect(
      #expect(throws: StoreError.self) { try MMKVFile(path: "/mmkv", cryptKey: nil, host.storage) }?.code
        == .damaged)
    try writer.write(to: "/mmkv", host.storage, version: 4, flags: 1, spoilsCRC: true, lastSize: size)
    file = try MMKVFile(path: "/mmkv", cryptKey: nil, host.storage)
    #expect(file.keys == ["soon"])
    // Without the companion file nothing says that the last four bytes of each value are a time.
    _ = try host.storage.remove("/mmkv.crc")
    let error = #expect(throws: StoreError.self) { try MMKVFile(path: "/mmkv", cryptKey: nil, host.storage) }
    #expect(error?.code == .damaged && error?.message.contains("whether its values expire") == true)
  }

  @Test(
    "arbitrary bytes in place of an MMKV file are an error, never a crash",
    arguments: 0..<50 as Range<UInt64>)
  func foreign(seed: UInt64) throws {
    var random = SplitMix64(seed: seed)
    var writer = MMKVWriter.sample
    for _ in 0..<Int(random.next() % 8 + 1) {
      writer.pairs[Int(random.next() % UInt64(writer.pairs.count))] = UInt8(truncatingIfNeeded: random.next())
    }
    try writer.write(to: "/mmkv", host.storage)
    do throws(StoreError) {
      let file = try MMKVFile(path: "/mmkv", cryptKey: nil, host.storage)
      #expect(file.keys.count <= 40)
    } catch { #expect(error.code == .keyRequired) }
    for size in [0, 3, 4, 100] {
      try host.storage.replace("/short", with: [UInt8](repeating: 0xEE, count: size))
      #expect(throws: StoreError.self) { try MMKVFile(path: "/short", cryptKey: nil, host.storage) }
    }
  }
}
