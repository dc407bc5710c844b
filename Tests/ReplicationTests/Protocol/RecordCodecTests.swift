import Replication
import SyncStore
import SyncTestSupport
import Testing

@Suite struct RecordCodecTests {
  private static func record(
    key: [UInt8] = [1], stamp: Stamp = Stamp(milliseconds: 5), content: Record.Content = .inline([]),
    continues: Bool = false
  ) -> Record {
    Record(
      version: Version(stamp: stamp, dot: Dot(actor: Samples.left, sequence: 1)), key: key, content: content,
      continues: continues)
  }

  private static func payload(_ records: Record...) -> [UInt8] { payload(records) }

  private static func payload(_ records: [Record]) -> [UInt8] {
    let positioned = records.enumerated().map { PositionedRecord(position: UInt64($0 + 1), record: $1) }
    return RecordCodec.encode(.init(position: UInt64(records.count), records: positioned))
  }

  @Test("A record of an unknown kind, or with an unknown flag, is refused with its batch (F103)")
  func unknownKind() throws {
    let (value, deleted) = (Self.record(key: [2]), Self.record(key: [2], content: .tombstone))
    for before in [[], [Self.record()]] {
      let bytes = Self.payload(before + [value])
      #expect(try RecordCodec.decode(bytes).records.count == before.count + 1)
      // An empty write and a deletion differ first in their flags.
      let pairs = zip(bytes, Self.payload(before + [deleted])).enumerated()
      let place = try #require(pairs.first { $0.element.0 != $0.element.1 }?.offset)
      try #require(bytes[place] == 1)
      for (bits, message) in [(UInt8(3), "record of unknown kind"), (0x81, "unknown flag in a record")] {
        var unknown = bytes
        unknown[place] = bits
        let error = #expect(throws: DecodingFailure.self) { try RecordCodec.decode(unknown) }
        #expect(error?.description == message)
      }
    }
  }

  @Test("Records of every kind round-trip, including unknown value types (F103)")
  func roundTrip() throws {
    #expect(try RecordCodec.decode(RecordCodec.encode(Samples.records)) == Samples.records)
    let empty = RecordCodec.Payload(position: 9, records: [])
    #expect(try RecordCodec.decode(RecordCodec.encode(empty)) == empty)
  }

  @Test(
    "Random records round-trip, in any order of sequences and stamps",
    arguments: 1...20 as ClosedRange<UInt64>
  )
  func randomRoundTrip(seed: UInt64) throws {
    var random = SplitMix64(seed: seed)
    let actors = (0..<9).map { _ in ActorID(bytes: random.bytes(16))! }
    func dot() -> Dot {
      Dot(actor: actors.randomElement(using: &random)!, sequence: random.bits() >> (random.bits() % 64) | 1)
    }
    var records: [PositionedRecord] = []
    var position: UInt64 = 0
    for _ in 0..<300 {
      position += 1 + random.bits() % 1000
      let content: Record.Content =
        switch random.bits() % 3 {
        case 0: .tombstone
        case 1: .inline(random.bytes(Int(random.bits() % 300)))
        default: .blob(BlobReference(hash: BlobHash(bytes: random.bytes(32))!, size: random.bits() >> 22))
        }
      records.append(
        PositionedRecord(
          position: position,
          record: Record(
            version: Version(stamp: Stamp(rawValue: random.bits()), dot: dot()),
            context: CausalContext(
              base: random.chance(50) ? dot() : nil, open: (0..<(random.bits() % 3)).map { _ in dot() }),
            deadline: random.chance(20) ? random.bits() | 1 : nil,
            type: ValueType(rawValue: UInt8(random.bits() % 256)),
            key: random.bytes(1 + Int(random.bits() % 1024)), content: content)))
    }
    let payload = RecordCodec.Payload(position: position + 3, records: records)
    #expect(try RecordCodec.decode(RecordCodec.encode(payload)) == payload, "seed \(seed)")
  }

  @Test("A run of small records by one author adds few bytes to key and value")
  func compact() {
    let records = (1...100).map { number in
      PositionedRecord(
        position: UInt64(number),
        record: Record(
          version: Version(
            stamp: Stamp(milliseconds: Samples.wall, counter: UInt16(number)),
            dot: Dot(actor: Samples.left, sequence: UInt64(number))), key: [1, 2, 3, 4],
          content: .inline([5, 6])))
    }
    #expect(RecordCodec.encode(.init(position: 100, records: records)).count < 100 * (6 + 8) + 64)
  }

  @Test("F78 records truncated at any byte are refused")
  func truncation() {
    let bytes = RecordCodec.encode(Samples.records)
    for count in 0..<bytes.count {
      #expect(throws: DecodingFailure.self, "\(count) bytes") {
        try RecordCodec.decode(Array(bytes.prefix(count)))
      }
    }
    #expect(throws: DecodingFailure.self) { try RecordCodec.decode(bytes + [0]) }
  }

  @Test(
    "F46 any mutation of the bytes reads as some records or is refused",
    arguments: 1...20 as ClosedRange<UInt64>)
  func mutation(seed: UInt64) {
    var random = SplitMix64(seed: seed)
    let bytes = RecordCodec.encode(Samples.records)
    for _ in 0..<300 {
      var changed = bytes
      for _ in 0...random.bits() % 3 {
        changed[Int(random.bits() % UInt64(changed.count))] =
          random.chance(50) ? 0xFF : UInt8(random.bits() % 256)
      }
      if let read = try? RecordCodec.decode(changed) {
        #expect((try? RecordCodec.decode(RecordCodec.encode(read))) == read, "seed \(seed)")
      }
    }
  }

  @Test("F46 F51 records that no journal can hold are refused")
  func bounds() {
    let huge = [UInt8](repeating: 0, count: Limits.inlineValueBytes + 1)
    let fits = [UInt8](repeating: 7, count: Limits.keyBytes)
    #expect(throws: Never.self) { try RecordCodec.decode(Self.payload(Self.record(key: fits))) }
    #expect(throws: DecodingFailure.self) {
      try RecordCodec.decode(Self.payload(Self.record(key: fits + [7])))
    }
    #expect(throws: DecodingFailure.self) { try RecordCodec.decode(Self.payload(Self.record(key: []))) }
    #expect(throws: DecodingFailure.self) {
      try RecordCodec.decode(Self.payload(Self.record(content: .inline(huge))))
    }
    #expect(throws: DecodingFailure.self) {
      try RecordCodec.decode(Self.payload(Self.record(stamp: .maximum)))
    }
  }

  @Test("A batch that ends inside a transaction is refused")
  func cutTransaction() {
    #expect(throws: Never.self) {
      try RecordCodec.decode(Self.payload(Self.record(continues: true), Self.record()))
    }
    #expect(throws: DecodingFailure.self) {
      try RecordCodec.decode(Self.payload(Self.record(), Self.record(continues: true)))
    }
  }

  @Test("F67 positions that do not increase, or pass the end, are refused")
  func positions() {
    let record = Self.record()
    func decode(_ positions: [UInt64], end: UInt64) throws -> RecordCodec.Payload {
      try RecordCodec.decode(
        RecordCodec.encode(
          .init(position: end, records: positions.map { PositionedRecord(position: $0, record: record) })))
    }
    #expect(throws: Never.self) { try decode([1, 2], end: 2) }
    #expect(throws: DecodingFailure.self) { try decode([2, 2], end: 2) }
    #expect(throws: DecodingFailure.self) { try decode([2, 1], end: 2) }
    #expect(throws: DecodingFailure.self) { try decode([0], end: 2) }
    #expect(throws: DecodingFailure.self) { try decode([1, 3], end: 2) }
  }
}

extension SplitMix64 {
  /// The next 64 bits; `next` alone would be ambiguous here.
  fileprivate mutating func bits() -> UInt64 {
    let word: UInt64 = next()
    return word
  }
}
