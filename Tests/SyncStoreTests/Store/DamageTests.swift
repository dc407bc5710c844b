import SyncStore
import SyncTestSupport
import Testing

@Suite("A damaged store")
struct DamageTests {
  /// A small store with overwrites, deletes, transactions and two segments, as files.
  static func sample(sealed: Bool = false) throws -> (
    host: SimulatedHost, files: [String: [UInt8]], values: [Key: [UInt8]]
  ) {
    let host = SimulatedHost(encrypted: sealed)
    let store = try Store.create(
      on: host, configuration: Configuration(durability: .relaxed, segmentBytes: 1 << 20))
    var values: [Key: [UInt8]] = [:]
    for number in 0..<12 {
      let key = try Key("key \(number)")
      values[key] = Array("value \(number) of the first round".utf8)
      try store.put(key, values[key] ?? [])
    }
    try overwriteSome(of: &values, in: store)
    try store.close()
    return (host, try host.storage.files(below: "/store"), values)
  }

  /// Puts some of twelve keys again, and deletes the last one.
  static func overwriteSome(of values: inout [Key: [UInt8]], in store: Store) throws {
    for number in 0..<4 {
      let key = try Key("key \(number)")
      values[key] = Array("value \(number) again".utf8)
      try store.put(key, values[key] ?? [])
    }
    try store.delete("key 11")
    values["key 11"] = nil
  }

  @Test(
    "never gives a wrong value, and detects or survives any flipped bit (F37)",
    arguments: (0..<8).map { ($0, false) } + [(1, true), (6, true)])
  func everyBit(bit: Int, sealed: Bool) throws {
    let (host, files, values) = try Self.sample(sealed: sealed)
    let path = "/store/journal/0000000000000001.segment"
    let bytes = try #require(files[path])
    let used = (bytes.lastIndex { $0 != 0 } ?? 0) + 64
    var (tried, noticed) = (0, 0)
    // Two bits of each byte with every test run, every bit with `make damage`.
    for offset in Array(0..<112) + Array(2048..<2160) + Array(4096..<used)
    where EveryFileDamageTests.all || (offset + bit).isMultiple(of: 4) {
      tried += 1
      try host.storage.flipBit(of: path, at: offset, bit: bit)
      host.killProcesses()
      if try !Self.isHonest(host, values, "byte \(offset), bit \(bit)") { noticed += 1 }
      try host.storage.flipBit(of: path, at: offset, bit: bit)
    }
    #expect(tried > 200 && noticed > tried * 3 / 4, "\(noticed) of \(tried)")
  }

  /// True if every read is unaffected; false if the damage was reported. A wrong value is an issue.
  private static func isHonest(_ host: SimulatedHost, _ values: [Key: [UInt8]], _ place: String) throws
    -> Bool
  {
    let store: Store
    do {
      store = try Store.open(on: host, configuration: Configuration(mode: .readOnly))
    } catch {
      #expect([.damaged, .foreignFile, .newerFormat].contains(error.code), "\(place): \(error)")
      return false
    }
    let isClean = try store.verify().isClean
    for number in 0..<13 {
      let key = try Key("key \(number)")
      do throws(StoreError) {
        let found = try store.get(key)?.bytes
        #expect(found == values[key], "\(place): \(key) is wrong")
      } catch {
        #expect(error.code == .damaged && !isClean, "\(place): \(error)")
      }
    }
    return isClean
  }

  @Test("is refused or serves true values when a segment is truncated anywhere (F19, F45)")
  func truncation() throws {
    let (host, files, values) = try Self.sample()
    let path = "/store/journal/0000000000000001.segment"
    let bytes = try #require(files[path])
    for size in stride(from: 0, to: 6000, by: 97) {
      try host.storage.open(path, .readWrite).resize(to: size)
      host.killProcesses()
      #expect(try !Self.isHonest(host, values, "cut to \(size)"))
      try host.storage.restore([path: bytes])
    }
  }

  @Test(
    "with one damaged copy of a header reports it until a writer opens the store and repairs it",
    arguments: [0, 2048])
  func headerCopy(offset: Int) throws {
    let (host, files, values) = try Self.sample()
    let path = "/store/journal/0000000000000001.segment"
    let header = try #require(files[path]).prefix(4096)
    try host.storage.flipBit(of: path, at: offset + 50, bit: 3)
    let reader = try Store.open(on: host, configuration: Configuration(mode: .readOnly))
    #expect(try reader.verify().damage.count == 1)
    try reader.close()
    let writer = try Store.open(on: host)
    #expect(try writer.verify().isClean)
    for (key, value) in values { #expect(try writer.get(key)?.bytes == value) }
    try writer.close()
    #expect(try host.storage.files(below: "/store")[path]?.prefix(4096) == header)
  }

  @Test("refuses segments that are swapped, from another store, or missing (F22, F40)")
  func foreignSegments() throws {
    let host = SimulatedHost()
    let store = try Store.create(
      on: host, configuration: Configuration(durability: .relaxed, segmentBytes: 1 << 20))
    for number in 0..<400 { try store.put(Key("\(number)"), [UInt8](repeating: 1, count: 9000)) }
    try store.close()
    let journal = "/store/journal/000000000000000"
    func expectRefusal(_ code: StoreError.Code) {
      host.killProcesses()
      #expect(#expect(throws: StoreError.self) { try Store.open(on: host) }?.code == code)
    }
    try host.storage.rename(journal + "2.segment", to: "/aside")
    expectRefusal(.damaged)
    try host.storage.rename(journal + "3.segment", to: journal + "2.segment")
    expectRefusal(.foreignFile)
    try host.storage.rename(journal + "2.segment", to: journal + "3.segment")
    try host.storage.rename("/aside", to: journal + "2.segment")
    host.killProcesses()
    #expect(try Store.open(on: host).status().keys == 400)
    host.killProcesses()
    let other = try Store.create("/other", on: host)
    try other.close()
    try host.storage.rename("/other/journal/0000000000000001.segment", to: journal + "1.segment")
    expectRefusal(.foreignFile)
  }

  @Test(
    "names foreign files at its paths, and does not hang on them (F45)", arguments: ["STORE", "control"])
  func strangeFiles(name: String) throws {
    let host = SimulatedHost()
    try Store.create(on: host).close()
    _ = try host.storage.remove("/store/" + name)
    try host.storage.plant(.other, at: "/store/" + name)
    host.killProcesses()
    let error = #expect(throws: StoreError.self) { try Store.open(on: host) }
    #expect(error?.code == .foreignFile)
  }

  @Test("of a newer format is refused unchanged, and the version named (F100)")
  func newerFormat() throws {
    let host = SimulatedHost()
    try Store.create(on: host).close()
    var bytes = try host.storage.open("/store/STORE", .readOnly).read(4096, at: 0)
    bytes.replaceSubrange(0..<11, with: Array("syncstore 9".utf8))
    try host.storage.restore(["/store/STORE": bytes])
    host.killProcesses()
    let error = #expect(throws: StoreError.self) { try Store.open(on: host) }
    #expect(error?.code == .newerFormat)
    #expect(error?.message.contains("syncstore 9") == true)
  }

  @Test(
    "can be written, and names the damage, when one sector held the actor of 130,000 writes (F37)")
  func authorlessWrites() throws {
    let host = SimulatedHost(encrypted: false)
    let store = try Store.create(
      on: host, configuration: Configuration(durability: .relaxed, segmentBytes: 16 << 20))
    let actor = try store.actor
    for part in 0..<13 {
      try store.transaction { transaction in
        for number in 0..<10_000 { try transaction.put(Key("\(part) \(number)"), [1]) }
      }
    }
    try store.close()
    let segments = try host.storage.list("/store/journal").filter { $0.hasSuffix(".segment") }.sorted()
    // The part of a segment that defines its authors.
    for segment in segments {
      let file = try host.storage.open("/store/journal/" + segment, .readWrite)
      try file.write([UInt8](repeating: 0, count: 512), at: 4096)
    }
    for name in ["index", "ledger"] { _ = try host.storage.remove("/store/" + name) }
    host.killProcesses()
    let again = try Store.open(on: host)
    #expect(try again.actor != actor)
    #expect(code { _ = try again.get("0 0") } == .damaged)
    try again.put("0 0", [2])
    #expect(try again.get("0 0")?.bytes == [2])
    #expect(try again.status().damagedPlaces > 100_000)
  }
}
