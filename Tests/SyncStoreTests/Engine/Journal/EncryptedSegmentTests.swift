import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// The encrypted segment of `schemas/vectors/sealed-segment.json`, and properties of encrypted records,
/// whatever their content.
@Suite("The encrypted segment")
struct EncryptedSegmentTests {
  struct Vector: Codable, Equatable {
    var master: String
    var epoch: String
    var header: String
    var records: String
    var plain: [String]
  }

  static let path = GoldenSegmentTests.path.deletingLastPathComponent().appending(path: "sealed-segment.json")
  static let master: [UInt8] = Array(0..<32)
  static let epoch: [UInt8] = Array(100..<132)

  static func segment(epoch: [UInt8] = epoch, salt: UInt64 = 0x0123_4567_89AB_CDEF) throws -> Segment {
    let store = try #require(StoreID("000102030405060708090a0b0c0d0e0f"))
    var header = SegmentHeader(
      store: store, number: 1, salt: salt, basePosition: 0, size: 64 << 10, predecessor: .none,
      created: 1_700_000_000_000)
    header.generation = 1
    let file = try SimulatedStorage().open("/segment", .create)
    try file.allocate(to: 64 << 10)
    let seal = SegmentCipher(header: header, master: Secret(copying: master.span), epoch: epoch)
    return try Segment(
      header: header, file: file, mapping: try file.map(64 << 10, writable: true), cipher: seal)
  }

  static func entries(_ value: String = "value") -> [JournalEntry] {
    let actor = ActorID(high: 1, low: 2)
    let record = Record(
      version: Version(stamp: Stamp(milliseconds: 1_700_000_000_001), dot: Dot(actor: actor, sequence: 1)),
      context: CausalContext(base: Dot(actor: ActorID(high: 3, low: 4), sequence: 9)),
      deadline: 1_800_000_000_000, type: .string, key: Array("key".utf8), content: .inline(Array(value.utf8)))
    return [
      .write(record, position: nil), .loser(record), .local(key: Array("local".utf8), value: [1]),
      .local(key: Array("ended".utf8), value: nil), .checkpoint,
    ]
  }

  static func written() throws -> (Segment, RecordEncoder) {
    let segment = try segment()
    var encoder = RecordEncoder(segment: segment, start: SegmentHeader.length, durable: 0, position: 0)
    encoder.encode(entries())
    return (segment, encoder)
  }

  /// All records, decrypted.
  static func opened(_ segment: Segment, limit: Int) throws -> [[UInt8]] {
    var walker = ResyncingRecordIterator(segment, limit: limit)
    var plain: [[UInt8]] = []
    while let step = walker.next() {
      guard case .record(let view) = step else {
        Issue.record("a gap")
        return plain
      }
      guard view.kind != .epoch else { continue }
      var bytes = view.bytes.bytes(view.start..<(view.start + view.length))
      // The checksum covers the stored (encrypted) bytes.
      bytes.replaceSubrange(0..<4, with: [0, 0, 0, 0])
      plain.append(bytes)
    }
    return plain
  }

  static func vector() throws -> Vector {
    let (segment, encoder) = try written()
    return Vector(
      master: Hex.string(of: master), epoch: Hex.string(of: epoch),
      header: Hex.string(of: segment.header.encoded().prefix(SegmentHeader.encodedLength)),
      records: Hex.string(of: encoder.bytes),
      plain: try opened(segment, limit: encoder.end).map { Hex.string(of: $0) })
  }

  @Test("is what this program writes")
  func writing() throws {
    let golden = try JSONDecoder().decode(Vector.self, from: Data(contentsOf: Self.path))
    #expect(try Self.vector() == golden)
  }

  @Test("is read back, also by a thread that did not write it")
  func reading() throws {
    let golden = try JSONDecoder().decode(Vector.self, from: Data(contentsOf: Self.path))
    let header = try #require(Hex.bytes(of: golden.header))
    let page = header + [UInt8](repeating: 0, count: SegmentHeader.length - header.count)
    guard case .whole(let read, damaged: true) = SegmentHeader.read(page) else {
      Issue.record("one copy of the header is enough")
      return
    }
    #expect(read.generation == 1)
    let records = try #require(Hex.bytes(of: golden.records))
    // Records of another segment object are not known from writing it.
    let segment = try Self.segment(epoch: [])
    segment.mapping.store(records, at: SegmentHeader.length)
    let limit = SegmentHeader.length + records.count
    #expect(try Self.opened(segment, limit: limit).map { Hex.string(of: $0) } == golden.plain)
  }

  @Test("has no plaintext but lengths, stamps, sequences and positions")
  func plaintext() throws {
    let (_, encoder) = try Self.written()
    let actors = [ActorID(high: 1, low: 2), ActorID(high: 3, low: 4)]
    for secret in ["key", "value", "local", "ended"].map({ Array($0.utf8) }) + actors.map(\.bytes) {
      #expect(!encoder.bytes.contains(secret))
    }
  }

  @Test("returns a record or nothing, whichever bit is flipped, and one flip loses one record (F37)")
  func everyBit() throws {
    let (written, encoder) = try Self.written()
    let whole = try Self.opened(written, limit: encoder.end)
    let bytes = encoder.bytes
    for index in bytes.indices {
      for bit in 0..<8 {
        let segment = try Self.segment(epoch: [])
        var changed = bytes
        changed[index] ^= 1 << UInt8(bit)
        segment.mapping.store(changed, at: SegmentHeader.length)
        var walker = ResyncingRecordIterator(segment, limit: encoder.end)
        var found: [[UInt8]] = []
        var gaps = 0
        while let step = walker.next() {
          switch step {
          case .gap: gaps += 1
          case .record(let view) where view.kind != .epoch:
            var bytes = view.bytes.bytes(view.start..<(view.start + view.length))
            bytes.replaceSubrange(0..<4, with: [0, 0, 0, 0])
            found.append(bytes)
          case .record: break
          }
        }
        // Zeros between records belong to no record.
        #expect(gaps <= 1 && found.count >= whole.count - 1, "byte \(index), bit \(bit)")
        #expect(found.allSatisfy(whole.contains), "byte \(index), bit \(bit)")
      }
    }
  }

  @Test("rejects a record whose checksum was forged")
  func forgery() throws {
    let (written, encoder) = try Self.written()
    let bytes = encoder.bytes
    let first = SegmentHeader.length + EncryptedRecordLayout.definitions
    let view = try #require(written.record(at: first, limit: encoder.end))
    for index in RecordLayout.durable..<(view.end - first) {
      let segment = try Self.segment(epoch: [])
      segment.mapping.store(bytes, at: SegmentHeader.length)
      let length = Int(segment.mapping.load(first + RecordLayout.length, as: UInt32.self))
      guard index < length else { continue }
      segment.mapping.store(segment.mapping.load(first + index, as: UInt8.self) ^ 1, at: first + index)
      let body = (first + RecordLayout.length)..<(first + length)
      let checksum = segment.mapping.withBytes(body) { XXH3.hash64($0, seed: segment.seed(at: first)) }
      segment.mapping.store(UInt32(truncatingIfNeeded: checksum), at: first)
      #expect(segment.record(at: first, limit: encoder.end) == nil, "byte \(index)")
      #expect(segment.record(at: first, limit: encoder.end, leavesEncrypted: true) != nil, "byte \(index)")
    }
    // Nor can a record be hidden by an epoch definition placed elsewhere.
    let segment = try Self.segment(epoch: [])
    segment.mapping.store(bytes, at: SegmentHeader.length)
    segment.mapping.store(
      SegmentHeader.length..<(SegmentHeader.length + EncryptedRecordLayout.definitionLength),
      of: segment.mapping,
      at: first)
    let end = first + EncryptedRecordLayout.definitionLength
    let checksum = segment.mapping.withBytes((first + RecordLayout.length)..<end) {
      XXH3.hash64($0, seed: segment.seed(at: first))
    }
    segment.mapping.store(UInt32(truncatingIfNeeded: checksum), at: first)
    #expect(segment.record(at: first, limit: encoder.end) == nil)
  }

  @Test("rejects records from another location, segment, epoch or store")
  func places() throws {
    let (written, encoder) = try Self.written()
    let first = SegmentHeader.length + EncryptedRecordLayout.definitions
    let end = try #require(written.record(at: first, limit: encoder.end)).end
    let record = written.mapping.bytes(first..<end)
    let definitions = written.mapping.bytes(SegmentHeader.length..<first)
    func opens(_ segment: Segment, _ place: Int) -> Bool {
      segment.mapping.store(record, at: place)
      return segment.cipher?.decrypt(segment.mapping, at: place) != nil
    }
    func copy(_ segment: Segment) -> Segment {
      segment.mapping.store(definitions, at: SegmentHeader.length)
      return segment
    }
    #expect(opens(copy(try Self.segment()), first))
    #expect(!opens(copy(try Self.segment()), first + 8))
    #expect(!opens(copy(try Self.segment(salt: 5)), first))
    let other = try Self.segment(epoch: [UInt8](repeating: 1, count: 32))
    _ = other.beginEncryption(at: SegmentHeader.length, durable: 0, position: 0)
    #expect(!opens(other, first))
  }

  @Test(
    "never reuses a nonce for another record, even on a cloned machine at one location in one epoch (F58)"
  )
  func clones() throws {
    var tweaks: Set<UInt64> = []
    for number in 0..<2000 {
      let segment = try Self.segment()
      var encoder = RecordEncoder(segment: segment, start: SegmentHeader.length, durable: 0, position: 0)
      encoder.encode([.local(key: [1], value: Array("\(number / 2)".utf8))])
      let place = SegmentHeader.length + EncryptedRecordLayout.definitions
      tweaks.insert(segment.mapping.load(place + RecordLayout.fixedLength))
      // The identical record may be encrypted twice: that reveals nothing.
      #expect(tweaks.count == number / 2 + 1)
    }
  }
}
