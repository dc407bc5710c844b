import SyncTestSupport
import Testing

@testable import SyncStore

/// Batches go into the journal as they came, where that can be. The general way tells what is to come of them.
@Suite("A batch that is taken in as it came")
struct PlainBatchTests {
  /// Two copies of one machine, and one that sends to both.
  struct Setting {
    let hosts = [SimulatedHost(seed: 5, machine: "copy"), SimulatedHost(seed: 5, machine: "copy")]
    let sender = SimulatedHost(seed: 9, machine: "sender")
    let source: Store
    var copies: [Store] = []

    init(sealed: Bool = SimulatedHost.sealsByDefault) throws {
      source = try Store.create(on: sender)
      for host in hosts { copies.append(try Store.create(on: host, id: source.id)) }
    }

    /// What one copy makes of the records as they come, and another one of them one by one, is the same.
    func expectSame(_ records: [PositionedRecord], _ mark: UInt64 = 1) throws {
      let end = records.last?.position ?? 1
      for (copy, records) in zip(copies, [BatchRecords(packing: records), .list(records)]) {
        let batch = IncomingBatch(
          sender: try source.actor, mark: RoundMark(high: 0, low: mark), position: end, records: records,
          present: [], scope: nil, widening: nil)
        _ = try copy.apply(batch)
      }
      try expectEqual()
    }

    func expectEqual() throws {
      let contents = try copies.map { copy in
        try copy.reading { engine throws(StoreError) in
          var records: [PositionedRecord] = []
          try engine.visit(from: engine.start(of: 1)) { view throws(StoreError) in
            if view.isWrite, let record = view.decoded() {
              records.append(PositionedRecord(position: view.position, record: record))
            }
            return true
          }
          return (records, engine.position, engine.state.author.clock.last, engine.losers.count)
        }
      }
      // The own actors differ in nothing but their names: both machines drew the same numbers.
      #expect(contents[0].0 == contents[1].0)
      #expect(contents[0].1 == contents[1].1 && contents[0].2 == contents[1].2)
      #expect(contents[0].3 == contents[1].3)
      #expect(try copies[0].digest() == copies[1].digest())
      #expect(try copies[0].versionVector() == copies[1].versionVector())
      #expect(try copies[0].cursor(for: source.actor) == copies[1].cursor(for: source.actor))
    }

    /// A record of the sender.
    func record(
      _ key: String, _ sequence: UInt64, at milliseconds: UInt64 = 1_699_999_999_000, base: Dot? = nil,
      value: [UInt8]? = [1, 2, 3], continues: Bool = false
    ) throws -> PositionedRecord {
      PositionedRecord(
        position: sequence,
        record: Record(
          dot: Dot(actor: try source.actor, sequence: sequence), stamp: Stamp(milliseconds: milliseconds),
          base: base, key: Array(key.utf8), content: value.map { .inline($0) } ?? .tombstone,
          continues: continues))
    }

    /// Does the first copy take the records as they come?
    func takesPlainly(_ records: [PositionedRecord]) throws -> Bool {
      guard case .plain(let batch) = BatchRecords(packing: records) else { return false }
      let limit = Stamp(milliseconds: hosts[0].time + Limits.clockDriftMilliseconds)
      return copies[0].engine.withLock { $0.takesPlainly(batch, limit: limit) }
    }
  }

  @Test("is what the general way makes of it: values, tombstones, types, bases, transactions")
  func ordinary() throws {
    let setting = try Setting()
    let other = Dot(actor: ActorID(high: 7, low: 7), sequence: 40)
    var typed = try setting.record("c", 3, value: Array("text".utf8))
    typed.record.type = .string
    let records = [
      try setting.record("a", 1, continues: true), try setting.record("b", 2, base: other, value: nil),
      typed, try setting.record("d", 4, base: other, value: []),
    ]
    #expect(try setting.takesPlainly(records))
    try setting.expectSame(records)
    #expect(try setting.copies[0].get("b") == nil)
    #expect(try setting.copies[0].get("a")?.bytes == [1, 2, 3])
  }

  @Test(
    "goes the general way where the rules have something to decide",
    arguments: [
      "a key that is held", "a key twice", "a write that is covered", "a stamp ahead of the clock",
      "a reserved key",
      "an own write",
    ])
  func decisions(what: String) throws {
    let setting = try Setting()
    for copy in setting.copies { try copy.put("held", "here") }
    var records = [try setting.record("new", 1), try setting.record("newer", 2)]
    #expect(try setting.takesPlainly(records))
    switch what {
    case "a key that is held": records.append(try setting.record("held", 3))
    case "a key twice": records.append(try setting.record("new", 3, at: 1_699_999_999_500))
    case "a write that is covered":
      try setting.expectSame([try setting.record("before", 1)])
      for copy in setting.copies {
        try copy.finish(
          RoundClose(
            sender: try setting.source.actor, mark: RoundMark(high: 0, low: 1), position: 1,
            vector: VersionVector([try setting.source.actor: 1]), floor: VersionVector(), horizon: .zero,
            isFull: false))
      }
    case "a stamp ahead of the clock":
      records.append(try setting.record("ahead", 3, at: setting.hosts[0].time + 3_600_000))
    case "a reserved key": records.append(try setting.record("\0member/x", 3))
    default:
      records[1].record.dot = Dot(actor: try setting.copies[0].actor, sequence: 1)
    }
    #expect(try !setting.takesPlainly(records))
    try setting.expectSame(records, 2)
  }

  @Test("is the same as the general way's whatever comes", arguments: 1...20 as ClosedRange<UInt64>)
  func random(seed: UInt64) throws {
    var random = SplitMix64(seed: seed)
    let setting = try Setting()
    var sequence: UInt64 = 0
    for round in 0..<6 {
      var records: [PositionedRecord] = []
      for _ in 0..<(1 + random.next() % 60) {
        sequence += 1
        // Mostly keys that nobody has had yet.
        let key = random.chance(3) ? "k \(random.next() % 20)" : "new \(sequence)"
        let base = random.chance(20) ? Dot(actor: ActorID(high: 3, low: random.next() % 3), sequence: 5) : nil
        records.append(
          try setting.record(
            key, sequence, at: 1_699_999_990_000 + random.next() % 9000, base: base,
            value: random.chance(10) ? nil : random.bytes(Int(random.next() % 200)),
            continues: random.chance(30)))
      }
      records[records.count - 1].record.continues = false
      try setting.expectSame(records, UInt64(round + 1))
    }
  }

  @Test("says which positions hold nothing but what it brought, unless something was written with it")
  func echo() throws {
    let setting = try Setting()
    let copy = setting.copies[0]
    let before = copy.journalPosition
    func take(_ records: [PositionedRecord]) throws -> Store.TakenBatch {
      try copy.take(
        IncomingBatch(
          sender: try setting.source.actor, mark: RoundMark(high: 0, low: 1), position: 10,
          records: BatchRecords(packing: records), present: [], scope: nil, widening: nil))
    }
    let plain = try #require(try take([setting.record("a", 1), setting.record("b", 2)]).echo)
    #expect(plain.behind == before && plain.upTo == before + 2)
    // The general way: one beats what is held, one is ignored.
    let general = try #require(
      try take([setting.record("a", 3, at: 1_699_999_999_999), setting.record("b", 2)]).echo)
    #expect(general.behind == before + 2 && general.upTo == before + 3)
    #expect(copy.journalPosition == before + 3)
  }
}
