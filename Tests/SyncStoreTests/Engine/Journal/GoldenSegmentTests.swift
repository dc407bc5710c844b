import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// The golden segment of `schemas/vectors/segment.json`: this program must write it byte for byte, and any
/// program that follows `schemas/journal.md` must read it.
@Suite("The golden segment")
struct GoldenSegmentTests {
  struct Vector: Codable, Equatable {
    var store: String
    var number: UInt32
    var salt: String
    var size: UInt32
    var created: UInt64
    var actors: [String]
    var header: String
    var records: String
    var keys: [String]
  }

  static let path = Checkout.url("schemas/vectors/segment.json")

  static func written() throws -> Vector {
    let store = try #require(StoreID("000102030405060708090a0b0c0d0e0f"))
    let actors = [ActorID(high: 1, low: 2), ActorID(high: 3, low: 4)]
    let header = SegmentHeader(
      store: store, number: 1, salt: 0x0123_4567_89AB_CDEF, basePosition: 0, size: 1 << 20,
      predecessor: .none, created: 1_700_000_000_000)
    let storage = SimulatedStorage()
    let file = try storage.open("/segment", .create)
    try file.allocate(to: 1 << 20)
    let segment = try Segment(header: header, file: file, mapping: try file.map(1 << 20, writable: true))
    var encoder = RecordEncoder(segment: segment, start: SegmentHeader.length, durable: 0, position: 0)
    let blob = BlobReference(hash: try #require(BlobHash(bytes: 0..<32)), size: 70_000, metadata: [9])
    func record(_ sequence: UInt64, _ key: String, _ content: Record.Content) -> Record {
      Record(
        version: Version(
          stamp: Stamp(milliseconds: 1_700_000_000_000 + sequence),
          dot: Dot(actor: actors[0], sequence: sequence)),
        type: .string, key: Array(key.utf8), content: content)
    }
    var full = record(3, "full", .inline(Array("value".utf8)))
    full.base = Dot(actor: actors[1], sequence: 9)
    full.open = [Dot(actor: actors[1], sequence: 9)]
    full.deadline = 1_800_000_000_000
    encoder.encode([
      .local(key: StateKey.actor, value: actors[0].bytes),
      .write(record(1, "gone", .tombstone), position: nil),
      .write(record(2, "large", .blob(blob)), position: nil), .write(full, position: nil), .loser(full),
      .local(key: Array("ended".utf8), value: nil), .checkpoint,
      .purge(Purge(key: Array("gone".utf8), version: record(1, "gone", .tombstone).version)),
      .purge(Purge(key: Array("full".utf8), version: full.version, isParked: true, hadValue: true)),
    ])
    return Vector(
      store: store.description, number: 1, salt: "0123456789abcdef", size: 1 << 20, created: header.created,
      actors: actors.map(\.description),
      header: Hex.string(of: header.encoded().prefix(SegmentHeader.encodedLength)),
      records: Hex.string(of: encoder.bytes), keys: ["gone", "large", "full"])
  }

  @Test("is what this program writes")
  func writing() throws {
    let golden = try JSONDecoder().decode(Vector.self, from: Data(contentsOf: Self.path))
    #expect(try Self.written() == golden)
  }

  @Test("is read back to the same keys")
  func reading() throws {
    let golden = try JSONDecoder().decode(Vector.self, from: Data(contentsOf: Self.path))
    let header = try #require(Hex.bytes(of: golden.header))
    var page = [UInt8](repeating: 0, count: SegmentHeader.length)
    page.replaceSubrange(0..<header.count, with: header)
    guard case .whole(let read, damaged: true) = SegmentHeader.read(page) else {
      Issue.record("one copy of the header is enough")
      return
    }
    #expect(read.store.description == golden.store)
    #expect(read.size == golden.size)
    let storage = SimulatedStorage()
    let file = try storage.open("/segment", .create)
    try file.allocate(to: Int(read.size))
    let segment = try Segment(header: read, file: file, mapping: try file.map(Int(read.size), writable: true))
    segment.mapping.store(try #require(Hex.bytes(of: golden.records)), at: SegmentHeader.length)
    var walker = ResyncingRecordIterator(segment, limit: SegmentHeader.length + golden.records.utf8.count / 2)
    var keys: [String] = []
    var kinds: [RecordLayout.Kind?] = []
    while let step = walker.next() {
      guard case .record(let view) = step, let shape = view.shape else {
        Issue.record("a gap in the golden segment")
        return
      }
      if view.kind == .actor, let actor = ActorID(bytes: view.key(shape)) {
        segment.actors.define(actor, as: view.actorNumber, at: view.offset)
      }
      kinds.append(view.kind)
      if view.isWrite { keys.append(String(decoding: view.key(shape), as: UTF8.self)) }
    }
    #expect(keys == golden.keys)
    #expect(
      kinds == [
        .actor, .actor, .actor, .actor, .local, .tombstone, .blob, .value, .value, .localRemoval, .checkpoint,
        .purge, .purge,
      ])
  }
}
