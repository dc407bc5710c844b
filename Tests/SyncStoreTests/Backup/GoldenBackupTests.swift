import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// The golden file of `schemas/vectors/backup.json`: this program must write it byte for byte, and any
/// program that follows `schemas/backup.md` must restore it.
@Suite("The golden backup")
struct GoldenBackupTests {
  struct Vector: Codable, Equatable {
    struct Piece: Codable, Equatable {
      var offset: Int
      var bytes: String
    }
    struct State: Codable, Equatable {
      var time: UInt64
      var position: UInt64
    }
    var store: String
    var name: String
    var size: Int
    var pieces: [Piece]
    var states: [State]
    var keys: [[String: String]]
  }

  static let path = Checkout.url("schemas/vectors/backup.json")

  static func golden() throws -> Vector {
    try JSONDecoder().decode(Vector.self, from: Data(contentsOf: path))
  }

  /// Runs of bytes, separated by 64 zeros or more.
  static func pieces(_ bytes: [UInt8]) -> [Vector.Piece] {
    var pieces: [Vector.Piece] = []
    var offset = 0
    while let start = bytes[offset...].firstIndex(where: { $0 != 0 }) {
      var (end, next) = (start + 1, start + 1)
      while next < bytes.count, next - end < 64 {
        next += 1
        if bytes[next - 1] != 0 { end = next }
      }
      pieces.append(Vector.Piece(offset: start, bytes: Hex.string(of: bytes[start..<end])))
      offset = end
    }
    return pieces
  }

  static func written() throws -> Vector {
    let host = SimulatedHost(seed: 1, encrypted: false)
    let id = try #require(StoreID("000102030405060708090a0b0c0d0e0f"))
    let store = try Store.create(on: host, id: id, configuration: Configuration(blobThreshold: 64))
    try store.writeKeyFile("group", Array("keys\n".utf8))
    try store.put("first", "one")
    try store.put("gone", "two")
    try store.put("large", [UInt8](repeating: 0x61, count: 100))
    _ = try store.backUp(to: BackupTests.file)
    let one = try BackupTests.contents(store)
    host.time += 60_000
    try store.delete("gone")
    try store.put("second", "three")
    _ = try store.backUp(to: BackupTests.file)
    let bytes = try host.storage.open(BackupTests.file, .readOnly).read(1 << 20, at: 0)
    let summary = try Store.backupSummary(of: BackupTests.file, host.storage)
    return Vector(
      store: id.description, name: store.name, size: bytes.count, pieces: pieces(bytes),
      states: summary.states.map { Vector.State(time: $0.time, position: $0.position) },
      keys: [one, try BackupTests.contents(store)])
  }

  @Test("is what this program writes")
  func writing() throws {
    let written = try Self.written()
    #expect(try written == Self.golden())
  }

  @Test("is restored to the same keys, in each of its states")
  func reading() throws {
    let golden = try Self.golden()
    var bytes = [UInt8](repeating: 0, count: golden.size)
    for piece in golden.pieces {
      let run = try #require(Hex.bytes(of: piece.bytes))
      bytes.replaceSubrange(piece.offset..<(piece.offset + run.count), with: run)
    }
    let host = SimulatedHost(seed: 2, encrypted: false)
    try host.storage.open(BackupTests.file, .create).write(bytes, at: 0)
    for (index, state) in golden.states.enumerated() {
      let path = "/restored\(index)"
      let report = try BackupTests.restore(host, to: path, state: index + 1)
      #expect(report.id.description == golden.store && report.name == golden.name)
      #expect(report.position == state.position && report.time == state.time)
      let store = try Store.open(path, on: host)
      #expect(try BackupTests.contents(store) == golden.keys[index])
      #expect(try store.readKeyFile("group", limit: 100) == Array("keys\n".utf8))
      #expect(try store.verify().isClean)
    }
    #expect(golden.keys.map(\.count) == [3, 3])
  }
}
