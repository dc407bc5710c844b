import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// Files written by MMKV 2.4.2, compared with the results of its own getters: those of
/// `schemas/vectors/mmkv-files.json`, and all in the directory `MMKV_FILES`, if set, in the same format.
@Suite("A file written by MMKV itself", .timeLimit(.minutes(Patience.minutes(2))))
struct MMKVWrittenTests {
  struct Stored: Codable, Sendable, CustomTestStringConvertible {
    var name: String
    var key: String
    var keys: Int
    var file: VectorFile
    var crc: VectorFile
    var expect: VectorFile

    var testDescription: String { name }
  }

  static let stored: [Stored] = (try? Checkout.vector("mmkv-files.json")) ?? []

  /// One line of getter results.
  struct Expected {
    let key: [UInt8]
    let size: Int
    let text: [UInt8]?

    /// `KEY size=… b=… i64=… i32=… s=x… D=…`, key and text in hex.
    init?(_ line: Substring) {
      let words = line.split(separator: " ")
      func value(_ name: String) -> Substring? {
        words.first { $0.hasPrefix(name + "=") }?.dropFirst(name.count + 1)
      }
      guard let first = words.first, let key = Hex.bytes(of: first),
        let size = value("size").flatMap({ Int($0) })
      else { return nil }
      (self.key, self.size) = (key, size)
      text = value("s").flatMap { $0.first == "x" ? Hex.bytes(of: $0.dropFirst()) : nil }
    }
  }

  private static func check(_ file: MMKVFile, _ count: Int, _ expect: [UInt8], now: UInt64) throws {
    let lines = String(decoding: expect, as: UTF8.self).split(separator: "\n")
    let expected = try lines.map { try #require(Expected($0), "\($0.prefix(60))") }
    // A value that had expired when MMKV was queried was listed, and removed by that.
    let left = expected.filter { $0.size > 0 }
    #expect(expected.count == count && file.keyBytes.count == left.count)
    for expected in left {
      let raw = try #require(file.raw(expected.key), "\(Hex.string(of: expected.key))")
      #expect((file.deadline(expected.key) ?? .max) > now)
      #expect(raw.count == expected.size, "\(Hex.string(of: expected.key))")
      // MMKV reads a text whatever the type is, and skips what follows it.
      if let data = file.data(expected.key), !data.isEmpty { #expect(data == expected.text) }
      if String(validating: expected.key, as: UTF8.self) == nil {
        #expect(!file.keys.contains { Array($0.utf8) == expected.key })
      }
    }
  }

  /// When the files were written, in milliseconds since 1970.
  private static let written: UInt64 = 1_795_741_380_000

  @Test("is read completely, and every key is imported", arguments: stored)
  func whole(_ stored: Stored) throws {
    let host = SimulatedHost(encrypted: false)
    try host.storage.replace("/mmkv", with: try #require(stored.file.contents))
    try host.storage.replace("/mmkv.crc", with: try #require(stored.crc.contents))
    let key = stored.key.isEmpty ? nil : Array(stored.key.utf8)
    let file = try MMKVFile(path: "/mmkv", cryptKey: key, host.storage)
    try Self.check(file, stored.keys, try #require(stored.expect.contents), now: Self.written)
    let store = try Store.create(on: host)
    let report = try store.importAll(from: file, prefix: "m/") { _ in .raw }
    // A key of 1,500 bytes is invalid here; it is counted.
    let keys = file.keyBytes.filter { $0.count + 2 <= Limits.keyBytes }
    #expect(report == ImportReport(imported: keys.count, skipped: file.keyBytes.count - keys.count))
    for key in keys where file.deadline(key) == nil {
      #expect(try store.get(Key(bytes: Array("m/".utf8) + key))?.bytes == file.raw(key))
    }
    guard let key, stored.keys > 0 else { return }
    // With another key, or none, nothing is read.
    for wrong in [nil, Array("not this key".utf8)] {
      let error = #expect(throws: StoreError.self) {
        try MMKVFile(path: "/mmkv", cryptKey: wrong, host.storage)
      }
      #expect(error?.code == (wrong == nil ? .keyRequired : .wrongKey))
    }
    let cipher = stored.name.contains("256") ? MMKVFile.Cipher.aes256 : .aes128
    #expect(
      try MMKVFile(path: "/mmkv", cryptKey: key, cipher: cipher, host.storage).keyBytes == file.keyBytes)
  }

  @Test(
    "is refused, with the reason, if the accompanying file is missing, empty or zeroed", arguments: stored)
  func alone(_ stored: Stored) throws {
    let storage = SimulatedStorage()
    let bytes = try #require(stored.file.contents)
    try storage.replace("/mmkv", with: bytes)
    let key = stored.key.isEmpty ? nil : Array(stored.key.utf8)
    for meta in [nil, [], [UInt8](repeating: 0, count: 4096), [UInt8](repeating: 0, count: 20)] {
      if let meta { try storage.replace("/mmkv.crc", with: meta) }
      guard bytes.contains(where: { $0 != 0 }) else {
        #expect(try MMKVFile(path: "/mmkv", cryptKey: key, storage).keyBytes.isEmpty)
        continue
      }
      let error = #expect(throws: StoreError.self) { try MMKVFile(path: "/mmkv", cryptKey: key, storage) }
      #expect(error?.code == .damaged)
      #expect(error?.message.contains("/mmkv.crc") == true && error?.message.contains("copy both") == true)
    }
  }

  @Test("keeps keys apart that are equal as text, and keeps invalid text as bytes")
  func keys() throws {
    for (name, keys) in [
      ("nfc", [Array("cafe\u{301}".utf8), Array("café".utf8)]), ("nfcdel", [Array("café".utf8)]),
      ("binkey", [Array("a\0b".utf8), Array("ok".utf8), [0xFF, 0xFE]]),
    ] {
      let storage = SimulatedStorage()
      let stored = try #require(Self.stored.first { $0.name == name })
      try storage.replace("/mmkv", with: try #require(stored.file.contents))
      try storage.replace("/mmkv.crc", with: try #require(stored.crc.contents))
      #expect(try MMKVFile(path: "/mmkv", cryptKey: nil, storage).keyBytes == keys)
    }
  }

  @Test("each of a directory that MMKV_FILES names")
  func directory() throws {
    guard let top = ProcessInfo.processInfo.environment["MMKV_FILES"] else { return }
    var count = 0
    for line in try String(contentsOfFile: top + "/manifest", encoding: .utf8).split(separator: "\n") {
      let fields = line.split(separator: "\t", omittingEmptySubsequences: false)
      let special = "specialCharacter/edac259a4f5b9cb86e1b5102a0cf042d"
      let path = top + "/" + (fields[0] == "special" ? special : String(fields[0]))
      guard FileManager.default.fileExists(atPath: path) else { continue }
      let file = try MMKVFile(path: path, cryptKey: fields[1].isEmpty ? nil : Array(fields[1].utf8))
      let expect = [UInt8](try Data(contentsOf: URL(filePath: "\(top)/\(fields[0]).expect")))
      try Self.check(file, try #require(Int(fields[2])), expect, now: Self.written)
      count += 1
    }
    #expect(count > 0)
  }

  @Test("with a stale size left by an earlier MMKV is read by the accompanying file")
  func stale() throws {
    let storage = SimulatedStorage()
    var writer = MigrationTests.MMKVWriter.sample
    let early = UInt32(writer.pairs.count)
    writer.add("later", MigrationTests.MMKVWriter.varint(1))
    try writer.write(to: "/mmkv", storage)
    var bytes = try #require(try storage.contents(of: "/mmkv", limit: 1 << 20))
    bytes.replaceSubrange(0..<4, with: MigrationTests.MMKVWriter.word(early))
    try storage.replace("/mmkv", with: bytes)
    #expect(try MMKVFile(path: "/mmkv", cryptKey: nil, storage).integer("later") == 1)
    _ = try storage.remove("/mmkv.crc")
    #expect(
      #expect(throws: StoreError.self) { try MMKVFile(path: "/mmkv", cryptKey: nil, storage) }?.code
        == .damaged)
  }
}
