import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// `schemas/vectors/store.json`: the files of a small unencrypted store that no process has open, with a
/// pack, an index and its checkpoint. Another implementation of the schemas has read them, and found the
/// locations listed in the vector.
@Suite("The golden store") struct GoldenStoreTests {
  struct Vector: Decodable {
    struct File: Decodable {
      struct Run: Decodable {
        var offset: Int
        var bytes: [UInt8]

        init(from decoder: any Decoder) throws {
          var values = try decoder.unkeyedContainer()
          offset = try values.decode(Int.self)
          bytes = Hex.bytes(of: try values.decode(String.self)) ?? []
        }
      }
      var size: Int
      var runs: [Run]

      var bytes: [UInt8] {
        var bytes = [UInt8](repeating: 0, count: size)
        for run in runs { bytes.replaceSubrange(run.offset..<run.offset + run.bytes.count, with: run.bytes) }
        return bytes
      }
    }
    struct Ledger: Decodable {
      var position, sequence, clock: UInt64
      var notes, segments: Int
    }
    var store: String
    var files: [String: File]
    /// The small values, in hex, by their keys.
    var values: [String: String]
    /// The SHA-256 of the large ones, which lie in the pack.
    var large: [String: String]
    /// Offset of each key's current record in the only segment, including the store's reserved keys and
    /// tombstones.
    var places: [String: UInt64]
    var ledger: Ledger
  }

  let vector: Vector
  let host = SimulatedHost(seed: 9, compacting: .onRequest, encrypted: false)

  init() throws {
    vector = try Checkout.vector("store.json")
    _ = try host.storage.createDirectory("/store")
    for (name, content) in vector.files {
      var directory = "/store"
      for part in name.split(separator: "/").dropLast() {
        directory += "/" + part
        _ = try host.storage.createDirectory(directory)
      }
      let file = try host.storage.open("/store/" + name, .create)
      try file.write(content.bytes, at: 0)
      try file.sync()
    }
  }

  @Test("is read completely, packs included")
  func values() throws {
    let store = try Store.open(on: host)
    var read: [String: String] = [:]
    for key in vector.values.keys {
      read[key] = try store.get(Key(key)).map { Hex.string(of: $0.bytes) }
    }
    #expect(read == vector.values)
    for (key, hash) in vector.large {
      let value = try #require(try store.get(Key(key)))
      #expect(Hex.string(of: SHA256.hash(value.bytes)) == hash)
    }
    #expect(try store.verify().isClean)
    var keys: [String] = []
    for entry in try store.list(prefix: []) { keys.append(entry.key.description) }
    #expect(Set(keys) == Set(vector.values.keys).union(vector.large.keys) && keys == keys.sorted())
    try store.close()
  }

  /// The index trusts only its own file: the header of a copy gets the values of the copied file.
  private func index() throws -> HashIndex {
    let file = try host.storage.open("/store/index", .readWrite)
    let status = try file.status()
    var header = try file.read(128, at: 0)
    func set(_ value: UInt64, at offset: Int) {
      for byte in 0..<8 { header[offset + byte] = UInt8(truncatingIfNeeded: value >> UInt64(8 * byte)) }
    }
    set(status.inode, at: 48)
    set(status.fileSystem, at: 56)
    set(status.birth, at: 64)
    set(XXH3.hash64(Array(header[..<120]), seed: 0), at: 120)
    try file.write(header, at: 0)
    var closed = ByteWriter()
    closed.write(IndexLayout.clean)
    try file.write(closed.bytes, at: IndexLayout.Header.clean)
    let store = try #require(StoreID(vector.store))
    return try #require(
      HashIndex.open(at: "/store/index", host.storage, store: store, boot: 0, writable: false).trusted)
  }

  @Test("has an index that finds each key's record, and no other")
  func places() throws {
    let index = try index()
    try index.verify()
    #expect(try index.count == vector.places.count)
    var all: Set<UInt64> = []
    try index.forEachRef { all.insert($0) }
    // One segment, so slot 0: a record ref is its offset in units of eight bytes.
    #expect(all == Set(vector.places.values.map { $0 / 8 }))
    for (key, offset) in vector.places {
      let bytes = try #require(Hex.bytes(of: key))
      let found = try index.find(index.hash(bytes.span)) { $0 == offset / 8 }
      #expect(found == offset / 8, "\(key)")
    }
  }

  @Test("has an index checkpoint that matches the index")
  func indexCheckpoint() throws {
    let identity = try index().secret[8..<16].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
    let ledger = try #require(
      try IndexCheckpoint.open(at: "/store/ledger", host.storage, identity: identity, writable: false))
    #expect(try ledger.position == vector.ledger.position && ledger.sequence == vector.ledger.sequence)
    #expect(try ledger.clock == Stamp(rawValue: vector.ledger.clock))
    #expect(
      try ledger.specialRecordCount == vector.ledger.notes && ledger.segmentCount == vector.ledger.segments)
    #expect(
      try IndexCheckpoint.open(at: "/store/ledger", host.storage, identity: identity + 1, writable: false)
        == nil)
  }
}
