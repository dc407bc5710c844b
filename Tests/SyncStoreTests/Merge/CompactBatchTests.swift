import SyncTestSupport
import Testing

@testable import SyncStore

/// Batches are appended to the journal unchanged where possible. The general path defines the expected
/// result.
@Suite("A compact batch")
struct CompactBatchTests {
  /// Two copies of one machine, and one that sends to both.
  struct Setting {
    let hosts = [SimulatedHost(seed: 5, machine: "copy"), SimulatedHost(seed: 5, machine: "copy")]
    let sender = SimulatedHost(seed: 9, machine: "sender")
    let source: Store
    var copies: [Store] = []

    init(sealed: Bool = SimulatedHost.encryptsByDefault) throws {
      source = try Store.create(on: sender)
      for host in hosts { copies.append(try Store.create(on: host, id: source.id)) }
    }

    /// The compact path on one copy and the record-by-record path on the other give the same result.
    func expectSame(_ records: [PositionedRecord], _ mark: UInt64 = 1) throws {
      let end = records.last?.position ?? 1
      for (copy, records) in zip(copies, [BatchRecords(packing: records), .list(records)]) {
        let batch = IncomingBatch(
          sender: try source.actor, mark: RoundMark(high: 0, low: mark), position: end, records: records,
          present: [], scope: nil, expansion: nil)
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
          return (records, engine.position, engine.state.author.clock.last, engine.losers.locations.count)
        }
      }
      // The own actors differ only in their names: both machines drew the same numbers.
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
          version: Version(
            stamp: Stamp(milliseconds: milliseconds), dot: Dot(actor: try source.actor, sequence: sequence)),
          context: CausalContext(base: base), key: Array(key.utf8),
          content: value.map { .inline($0) } ?? .tombstone, continues: continues))
    }

    /// Whether the first copy applies the records in compact form.
    func takesPlainly(_ records: [PositionedRecord]) throws -> Bool {
      guard case .compact(let batch) = BatchRecords(packing: records) else { return false }
      let limit = Stamp(milliseconds: hosts[0].time + Limits.clockDriftMilliseconds)
      return copies[0].core.engine.withLock { $0.prepareBulkInsert(of: batch, limit: limit) != nil }
    }
  }

  @Test("gives the same as the general path: values, tombstones, types, bases, transactions")
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
    "takes the general path where a rule must decide",
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
            vector: VersionVector([try setting.source.actor: 1]), floor: VersionVector(), horizon: .zero))
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

  @Test("gives the same as the general path for random batches", arguments: 1...20 as ClosedRange<UInt64>)
  func random(seed: UInt64) throws {
    var random = SplitMix64(seed: seed)
    let setting = try Setting()
    var sequence: UInt64 = 0
    for round in 0..<6 {
      var records: [PositionedRecord] = []
      for _ in 0..<(1 + random.next() % 60) {
        sequence += 1
        // Mostly new keys.
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

  @Test("knows the positions with nothing but its own records, unless another write was committed with it")
  func echo() throws {
    let setting = try Setting()
    let copy = setting.copies[0]
    let before = copy.journalPosition
    func take(_ records: [PositionedRecord]) throws -> Store.AppliedBatch {
      try copy.applyBatch(
        IncomingBatch(
          sender: try setting.source.actor, mark: RoundMark(high: 0, low: 1), position: 10,
          records: BatchRecords(packing: records), present: [], scope: nil, expansion: nil))
    }
    let plain = try #require(try take([setting.record("a", 1), setting.record("b", 2)]).echo)
    #expect(plain.after == before && plain.upTo == before + 2)
    // The general path: one beats the held record, one is ignored.
    let general = try #require(
      try take([setting.record("a", 3, at: 1_699_999_999_999), setting.record("b", 2)]).echo)
    #expect(general.after == before + 2 && general.upTo == before + 3)
    #expect(copy.journalPosition == before + 3)
  }

  /// Larger than the limit for single stores through the mapping.
  private static func large(_ setting: Setting, from first: UInt64, count: UInt64 = 300) throws
    -> [PositionedRecord]
  {
    let other = Dot(actor: ActorID(high: 7, low: 7), sequence: 40)
    return try (first..<first + count).map { number in
      try setting.record(
        "large \(number)", number, base: number.isMultiple(of: 7) ? other : nil,
        value: number.isMultiple(of: 11)
          ? nil : [UInt8](repeating: UInt8(number % 251), count: Int(300 + number % 900)),
        continues: number % 3 == 1 && number + 1 < first + count)
    }
  }

  @Test(
    "gives the same when written with pwrite, across several segments and a loss of power"
  )
  func bulk() throws {
    let setting = try Setting()
    for copy in setting.copies { try copy.put("held", "here") }
    for round in 0..<8 as Range<UInt64> {
      let records = try Self.large(setting, from: 1 + 300 * round)
      #expect(try setting.takesPlainly(records))
      try setting.expectSame(records, round + 1)
      // Single records continue where the batch ends.
      if round.isMultiple(of: 3) { for copy in setting.copies { try copy.put("own", "\(round)") } }
    }
    #expect(try setting.copies.allSatisfy { try $0.status().segments > 1 && $0.verify().isClean })
    let digests = try setting.copies.map { try $0.digest() }
    for (host, digest) in zip(setting.hosts, digests) {
      host.losePower(seed: 4)
      let again = try Store.open(on: host)
      #expect(try again.digest() == digest && again.verify().isClean)
      #expect(try again.text("held") == "here" && again.text("own") == "6")
      #expect(
        try again.get("large 2399")?.bytes == [UInt8](repeating: UInt8(2399 % 251), count: 300 + 2399 % 900))
      #expect(try again.get("large 11") == nil)
    }
  }

  @Test(
    "F26 leaves nothing behind if it cannot be written, and can be received again",
    arguments: [28, 5] as [Int32])
  func unwritten(errno: Int32) throws {
    let setting = try Setting()
    try setting.copies[0].close()
    let plan = FaultPlan()
    let copy = try Store.open(on: setting.hosts[0], failing: plan)
    try copy.put("before", "x")
    let records = try Self.large(setting, from: 1)
    let batch = IncomingBatch(
      sender: try setting.source.actor, mark: RoundMark(high: 0, low: 1), position: 300,
      records: BatchRecords(packing: records), present: [], scope: nil, expansion: nil)
    plan.fail(.write, on: ".segment", errno: errno)
    let error = #expect(throws: StoreError.self) { try copy.applyBatch(batch) }
    // After any other failure a part of the bytes may be stored.
    #expect(error?.code == (errno == 28 ? .diskFull : .poisoned))
    #expect(try copy.get("large 1") == nil && copy.text("before") == "x")
    var store = copy
    if errno != 28 {
      #expect(#expect(throws: StoreError.self) { try copy.put("k", "v") }?.code == .poisoned)
      setting.hosts[0].killProcesses()
      store = try Store.open(on: setting.hosts[0])
      #expect(try store.get("large 1") == nil)
    }
    _ = try store.apply(batch)
    #expect(try store.status().keys == 1 + records.count { !$0.record.isTombstone } && store.verify().isClean)
  }

  @Test(
    "is complete or absent after a loss of power before it is durable",
    arguments: 1...12 as ClosedRange<UInt64>)
  func tornBulk(seed: UInt64) throws {
    let setting = try Setting()
    let (copy, host) = (setting.copies[0], setting.hosts[0])
    try copy.put("before", "x")
    for round in 0..<4 as Range<UInt64> {
      let batch = IncomingBatch(
        sender: try setting.source.actor, mark: RoundMark(high: 0, low: 1), position: 300 * (round + 1),
        records: BatchRecords(packing: try Self.large(setting, from: 1 + 300 * round)), present: [],
        scope: nil, expansion: nil)
      let taken = try copy.applyBatch(batch)
      if round < 2 { try copy.awaitDurability(of: taken) }
    }
    host.losePower(seed: seed)
    let again = try Store.open(on: host)
    #expect(try again.verify().isClean && again.text("before") == "x")
    for round in 0..<4 as Range<UInt64> {
      let live = try Self.large(setting, from: 1 + 300 * round).filter { !$0.record.isTombstone }
      let held = try live.filter { try again.get(Key(bytes: $0.record.key)) != nil }
      #expect(
        held.count == live.count || round >= 2 && held.isEmpty,
        "batch \(round): \(held.count) of \(live.count)")
    }
  }

  @Test("is found, and later writes are stamped above it, also when the index cannot grow")
  func indexWithoutRoom() throws {
    let setting = try Setting()
    try setting.copies[0].close()
    let refused = Locked(0)
    let plan = FaultPlan { call, path in
      if call == .allocate, path.hasSuffix("index") { refused.withLock { $0 += 1 } }
    }
    let copy = try Store.open(on: setting.hosts[0], failing: plan)
    let ahead = setting.hosts[0].time + 30_000
    let records = try (1...6000).map { number in
      try setting.record("k \(number)", UInt64(number), at: ahead - 6000 + UInt64(number))
    }
    plan.fail(.allocate, on: "index", forever: true, errno: 28)
    refused.withLock { $0 = 0 }
    _ = try copy.apply(
      IncomingBatch(
        sender: try setting.source.actor, mark: RoundMark(high: 0, low: 1), position: 6000,
        records: BatchRecords(packing: records), present: [], scope: nil, expansion: nil))
    #expect(refused.withLock { $0 } > 0)
    for number in [1, 3000, 6000] { #expect(try copy.get(Key("k \(number)"))?.bytes == [1, 2, 3]) }
    try copy.put("own", "x")
    let own = try #require(
      try copy.reading { engine throws(StoreError) in try engine.held(Array("own".utf8)) })
    #expect(own.stamp > Stamp(milliseconds: ahead))
    #expect(try copy.status().keys == 6001)
  }

  @Test("leaves the rest of its segment to single records")
  func singles() throws {
    let directory = TemporaryDirectory()
    let setting = try Setting()
    let path = directory.path + "/store"
    var store = try Store.create(
      at: path, name: nil, id: setting.source.id, configuration: Configuration(), environment: .real())
    for round in 0..<12 as Range<UInt64> {
      _ = try store.apply(
        IncomingBatch(
          sender: try setting.source.actor, mark: RoundMark(high: 0, low: 1), position: 300 * (round + 1),
          records: BatchRecords(packing: try Self.large(setting, from: 1 + 300 * round)), present: [],
          scope: nil,
          expansion: nil))
    }
    #expect(store.core.engine.withLock { $0.batchBuffer != nil })
    for number in 0..<200 { try store.put(Key("single \(number)"), [UInt8](repeating: 3, count: 5000)) }
    #expect(store.core.engine.withLock { $0.batchBuffer == nil })
    let digest = try store.digest()
    try store.close()
    store = try Store.open(at: path)
    #expect(try store.digest() == digest && store.verify().isClean)
    try store.close()
  }
}
