import SyncTestSupport
import Testing

@testable import SyncStore

/// Content of a backup, and state of a restored store.
@Suite("A backup")
struct BackupTests {
  static let file = "/store.backup"
  let host = SimulatedHost()

  static func restore(
    _ host: SimulatedHost, to path: String = "/restored", state: Int? = nil, replacing: Bool = false
  ) throws(StoreError) -> RestoreReport {
    try Store.restore(
      from: file, to: path, state: state, replacing: replacing, environment: host.environment)
  }

  /// Every key with its value, as text.
  static func contents(_ store: Store) throws -> [String: String] {
    var all: [String: String] = [:]
    for entry in try store.list() { all["\(entry.key)"] = try store.text(entry.key) }
    return all
  }

  @Test("restores every key, under a new actor (F58, F104)")
  func whole() throws {
    let store = try Store.create(on: host, configuration: Configuration(blobThreshold: 4096))
    for number in 0..<300 { try store.put(Key("\(number)"), "value \(number)") }
    for number in 0..<100 { try store.delete(Key("\(number)")) }
    try store.put("expires", [1], expiration: .at(host.time + 1000))
    try store.put("large", [UInt8](repeating: 7, count: 50_000))
    let report = try store.backUp(to: Self.file)
    #expect(report.isFull && report.section == 1)
    #expect(try report.position == store.status().position)
    let digest = try store.digest()
    try store.put("later", "not in it")
    let restored = try Self.restore(host)
    #expect(restored.id == store.id && restored.name == store.name && restored.position == report.position)
    let copy = try Store.open("/restored", on: host, configuration: Configuration(blobThreshold: 4096))
    #expect(try copy.digest() == digest)
    #expect(try copy.status().tombstones == 100)
    #expect(try copy.text("0") == nil && copy.text("299") == "value 299" && copy.text("later") == nil)
    #expect(try copy.get("large")?.bytes == [UInt8](repeating: 7, count: 50_000) || host.isEncrypted)
    #expect(try copy.entry("expires")?.deadline == host.time + 1000)
    let actors = (try copy.actor, try store.actor)
    #expect(actors.0 != actors.1)
    #expect(try copy.verify().isClean)
    try copy.put("mine", "1")
    #expect(try copy.status().position > report.position)
    host.killProcesses()
    #expect(try Store.open("/restored", on: host).text("mine") == "1")
  }

  @Test("an increment holds only what is new, also after a compaction")
  func increments() throws {
    let store = try Store.create(on: host, configuration: Configuration(segmentBytes: 1 << 20))
    for number in 0..<150 { try store.put(Key("\(number)"), [UInt8](repeating: 1, count: 10_000)) }
    let first = try store.backUp(to: Self.file)
    #expect(first.records == 150 && first.writtenBytes > 1_500_000)
    for number in 0..<150 { try store.put(Key("\(number)"), [UInt8](repeating: 2, count: 1000)) }
    for number in 0..<50 { try store.delete(Key("\(number)")) }
    #expect(try store.purge() == 50)
    try store.compact()
    #expect(try store.status().journalBytes < 2_000_000)
    let second = try store.backUp(to: Self.file)
    #expect(!second.isFull && second.section == 2)
    // The changes, the deletes, and the purge of these deletes.
    #expect((200...250).contains(second.records))
    #expect(second.writtenBytes < 250_000)
    try store.put("one", "more")
    try store.compact()
    let third = try store.backUp(to: Self.file)
    #expect(!third.isFull && third.section == 3 && third.records == 1 && third.writtenBytes < 20_000)
    let expected = try store.digest()
    _ = try Self.restore(host)
    let copy = try Store.open("/restored", on: host)
    #expect(try copy.digest() == expected)
    #expect(try copy.verify().isClean)
    #expect(try copy.list().map(\.key) == store.list().map(\.key))
    // Dead records in the pieces of a backup can be compacted like any others.
    try copy.compact()
    #expect(try copy.digest() == expected)
    #expect(try copy.status().journalBytes < 700_000)
  }

  @Test("each state that the file has had can be restored")
  func states() throws {
    let store = try Store.create(on: host)
    try store.put("pad", [UInt8](repeating: 1, count: 15_000))
    var expected: [[String: String]] = []
    for number in 0..<4 {
      try store.put("shared", "\(number)")
      try store.put(Key("own \(number)"), "\(number)")
      if number > 0 { try store.delete(Key("own \(number - 1)")) }
      _ = try store.backUp(to: Self.file)
      expected.append(try Self.contents(store))
    }
    let summary = try Store.backupSummary(of: Self.file, host.storage)
    #expect(summary.store == store.id && summary.states.count == 4)
    #expect(summary.isEncrypted == host.isEncrypted)
    for state in 1...4 {
      _ = try Self.restore(host, to: "/restored\(state)", state: state)
      let copy = try Store.open("/restored\(state)", on: host)
      #expect(try Self.contents(copy) == expected[state - 1])
      try copy.put("writable", "yes")
      try copy.close()
    }
    #expect(
      #expect(throws: StoreError.self) { try Self.restore(host, to: "/fifth", state: 5) }?.code
        == .outOfBounds)
  }

  @Test("is written anew once its increments are larger than their base")
  func bounded() throws {
    let store = try Store.create(on: host, configuration: Configuration(segmentBytes: 1 << 20))
    try store.put("key", [UInt8](repeating: 0, count: 15_000))
    var sizes: [UInt64] = []
    var wholes = 0
    for number in 0..<12 {
      try store.put("key", [UInt8](repeating: UInt8(number), count: 15_000))
      let report = try store.backUp(to: Self.file)
      sizes.append(report.fileBytes)
      wholes += report.isFull ? 1 : 0
    }
    #expect(wholes >= 3 && wholes <= 6)
    #expect(sizes.allSatisfy { $0 < 4 * sizes[0] })
    _ = try Self.restore(host)
    #expect(try Store.open("/restored", on: host).get("key")?.bytes.first == 11)
  }

  @Test("a restored store and its original converge, whatever either wrote since (F58, F60)")
  func converges() throws {
    let store = try Store.create(on: host)
    try store.put("both", "before")
    try store.put("gone", "before")
    _ = try store.backUp(to: Self.file)
    _ = try Self.restore(host)
    let copy = try Store.open("/restored", on: host)
    for number in 0..<20 { try store.put(Key("old \(number)"), "o") }
    for number in 0..<20 { try copy.put(Key("new \(number)"), "n") }
    try store.delete("gone")
    try copy.put("both", "after")
    try store.synchronize(with: copy)
    #expect(try store.digest() == copy.digest())
    #expect(try store.text("both") == "after" && store.text("gone") == nil && store.text("new 7") == "n")
    #expect(try copy.text("old 7") == "o")
    #expect(try store.conflicts().isEmpty)
  }

  @Test(
    "holds whole transactions of other processes while they continue to write (F104)")
  func inUse() throws {
    let shared = SharedModeTests.shared
    let first = try Store.create(on: host, configuration: shared)
    let second = try Store.openSecond(on: host, configuration: shared)
    for number in 0..<400 {
      try second.transaction { transaction in
        try transaction.put(Key("a\(number)"), Array("\(number)".utf8))
        try transaction.put(Key("b\(number)"), Array("\(number)".utf8))
        try transaction.put("last", Array("\(number)".utf8))
      }
    }
    // Between two steps of the backup: while it makes its snapshot durable, and while it writes.
    let plan = FaultPlan()
    let writing = host.environment(over: FaultingStorage(host.storage, plan: plan))
    try first.close()
    let reader = try Store.open(at: "/store", configuration: host.configured(shared), environment: writing)
    for path in ["/store.backup.new", "journal/0000000000000001.segment"] {
      for call in [StorageCall.write, .sync] {
        plan.before(call, of: path) {
          for number in 0..<50 {
            try? second.transaction { transaction in
              try transaction.put(Key("a\(number)"), [0])
              try transaction.put(Key("b\(number)"), [0])
              try transaction.put("last", [0])
            }
          }
          _ = try? second.compact()
        }
      }
    }
    let report = try reader.backUp(to: Self.file)
    #expect(try second.get("last")?.bytes == [0])
    _ = try Self.restore(host)
    let copy = try Store.open("/restored", on: host)
    #expect(try copy.status().keys == 801)
    let last = try copy.text("last")
    for number in 0..<400 {
      let pair = (try copy.get(Key("a\(number)"))?.bytes, try copy.get(Key("b\(number)"))?.bytes)
      #expect(pair.0 == pair.1 && pair.0 != nil)
      if last == "399" { #expect(pair.0 == Array("\(number)".utf8)) }
    }
    #expect(try report.position <= second.status().position)
    #expect(try copy.verify().isClean)
  }

  @Test("blobs are in it once; those that were missing are added by a later one")
  func blobs() throws {
    let host = SimulatedHost(encrypted: false)
    let configuration = Configuration(blobThreshold: 1000)
    let store = try Store.create(on: host, configuration: configuration)
    let large = { (byte: UInt8) in [UInt8](repeating: byte, count: 30_000 + Int(byte)) }
    for byte in 0..<10 as Range<UInt8> { try store.put(Key("blob \(byte)"), large(byte)) }
    let gone = try #require(try store.entry("blob 3")?.blob)
    try store.blobs.remove(gone.hash)
    let first = try store.backUp(to: Self.file)
    #expect(first.blobs == 9 && first.missingBlobs.map(\.hash) == [gone.hash])
    try store.put("blob 10", large(10))
    try store.put("same", large(5))
    let second = try store.backUp(to: Self.file)
    #expect(second.blobs == 1 && second.missingBlobs.map(\.hash) == [gone.hash])
    #expect(second.writtenBytes < 60_000)
    #expect(try Self.restore(host, to: "/early").missingBlobs.map(\.hash) == [gone.hash])
    _ = try store.blobs.put(bytes: large(3), durable: true)
    let third = try store.backUp(to: Self.file)
    #expect(third.blobs == 1 && third.missingBlobs.isEmpty)
    #expect(try Self.restore(host).missingBlobs.isEmpty)
    let copy = try Store.open("/restored", on: host, configuration: configuration)
    for byte in 0...10 as ClosedRange<UInt8> {
      #expect(try copy.get(Key("blob \(byte)"))?.bytes == large(byte))
    }
    #expect(try copy.get("same")?.bytes == large(5))
    #expect(try copy.verify().isClean)
  }

  @Test("a rotten blob is left out and reported (F44)")
  func rotten() throws {
    let host = SimulatedHost(encrypted: false)
    let store = try Store.create(on: host, configuration: Configuration(blobThreshold: 1000))
    try store.put("good", [UInt8](repeating: 1, count: 5000))
    try store.put("bad", [UInt8](repeating: 2, count: 5000))
    let bad = try #require(try store.entry("bad")?.blob)
    let place = try #require(try store.blobs.place(of: bad.hash))
    try host.storage.flipBit(of: place.path, at: place.offset + 100, bit: 3)
    let report = try store.backUp(to: Self.file)
    #expect(report.blobs == 1 && report.missingBlobs.map(\.hash) == [bad.hash])
    _ = try Self.restore(host)
    let copy = try Store.open("/restored", on: host)
    #expect(try copy.get("good")?.bytes.count == 5000)
    #expect(#expect(throws: StoreError.self) { try copy.get("bad") }?.code == .blobUnavailable)
  }

  @Test("a full backup revives no key whose tombstone was purged (R8)")
  func purgedBefore() throws {
    let store = try Store.create(on: host, configuration: Configuration(segmentBytes: 64 << 10))
    func fill(_ name: String, _ count: Int) throws {
      for number in 0..<count { try store.put(Key("\(name) \(number)"), [UInt8](repeating: 1, count: 3000)) }
    }
    // In a segment full of live records.
    try store.put("k", "deleted")
    try fill("live", 30)
    // In a segment worth compacting.
    try store.delete("k")
    try fill("changed", 20)
    try fill("changed", 20)
    #expect(try store.purge() == 1)
    try fill("last", 20)
    try store.compact()
    _ = try store.backUp(to: Self.file)
    _ = try Self.restore(host)
    let copy = try Store.open("/restored", on: host)
    #expect(try copy.text("k") == nil && store.text("k") == nil)
    #expect(try copy.digest() == store.digest())
  }

  @Test("an earlier state lacks the large values added by a later one, and says so")
  func missingInState() throws {
    let store = try Store.create(on: host)
    let peer = try Store.create(on: SimulatedHost(seed: 9, machine: "peer"), id: store.id)
    let value = [UInt8](repeating: 5, count: 100_000)
    try peer.put("large", value)
    try store.receive(from: peer)
    _ = try store.backUp(to: Self.file)
    _ = try store.blobs.put(bytes: value, durable: true)
    #expect(try store.backUp(to: Self.file).missingBlobs.isEmpty)
    #expect(try Self.restore(host, to: "/first", state: 1).missingBlobs.count == 1)
    #expect(try Self.restore(host, to: "/second", state: 2).missingBlobs.isEmpty)
  }
}
