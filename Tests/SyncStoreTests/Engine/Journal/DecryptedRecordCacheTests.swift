import SyncTestSupport
import Testing

@testable import SyncStore

/// `Configuration.openedRecordBytes`: cached decrypted records are never stale, and are evicted when
/// required.
@Suite("The cache of decrypted records", .serialized)
struct DecryptedRecordCacheTests {
  let host = SimulatedHost(encrypted: true)

  static func configuration(_ bytes: Int = 1 << 20) -> Configuration {
    var configuration = Configuration(mode: .shared, durability: .relaxed, segmentBytes: 64 << 10)
    configuration.openedRecordBytes = bytes
    return configuration
  }

  func stores() throws -> (Store, Store) {
    let first = try Store.create(on: host, configuration: Self.configuration())
    let second = try Store.openSecond(on: host, configuration: Self.configuration())
    return (first, second)
  }

  private func count(_ store: Store) -> Int { store.journalKeys.decryptedRecords?.count ?? -1 }

  /// More keys than a thread caches for itself.
  private func fill(_ store: Store, _ round: Int) throws {
    for number in 0..<40 { try store.put(Key("\(number)"), "value \(round) of \(number)") }
  }

  private func check(_ store: Store, _ round: Int, sourceLocation: SourceLocation = #_sourceLocation) throws {
    for number in 0..<40 {
      #expect(
        try store.text(Key("\(number)")) == "value \(round) of \(number)", sourceLocation: sourceLocation)
    }
  }

  @Test("is empty unless enabled")
  func optIn() throws {
    let store = try Store.create(on: host, configuration: Self.configuration(0))
    try fill(store, 1)
    try check(store, 1)
    #expect(store.journalKeys.decryptedRecords == nil)
    #expect(throws: StoreError.self) { _ = try Self.configuration(-1).checked() }
  }

  @Test("keeps records that were read, and serves the next reader")
  func kept() throws {
    let (first, second) = try stores()
    try fill(first, 1)
    #expect(count(first) == 0 && count(second) == 0)
    // Another test may announce memory pressure concurrently.
    for _ in 0..<100 where count(second) < 40 { try check(second, 1) }
    #expect(count(second) == 40)
  }

  @Test("never serves a value that another process, or this one, has overwritten")
  func neverOld() throws {
    let (first, second) = try stores()
    for round in 1...6 {
      try fill(round.isMultiple(of: 2) ? first : second, round)
      try check(first, round)
      try check(second, round)
      if round == 3 { try first.compact() }
      if round == 4 { try first.renewKeys() }
    }
    try first.delete("7")
    #expect(try second.get("7") == nil)
    try first.transaction { transaction in
      try transaction.put("8", [1])
      try transaction.delete("9")
    }
    #expect(try second.get("8")?.bytes == [1] && second.get("9") == nil)
  }

  @Test("stays within its byte limit")
  func bounded() throws {
    let store = try Store.create(on: host, configuration: Self.configuration(4096))
    try fill(store, 1)
    for _ in 0..<3 { try check(store, 1) }
    #expect(count(store) <= 8)
  }

  @Test("is emptied under memory pressure, on purge, and when the store is closed")
  func purged() throws {
    let (first, second) = try stores()
    try fill(first, 1)
    try check(second, 1)
    MemoryPressure.announce(.critical)
    #expect(count(second) == 0)
    for _ in 0..<100 where count(second) == 0 { try check(second, 1) }
    #expect(count(second) > 0)
    second.purgeMemory()
    #expect(count(second) == 0)
    try check(second, 1)
    try second.close()
    #expect(count(second) == 0)
    try check(first, 1)
  }

  @Test("does not hide that a record is damaged (F37)")
  func damage() throws {
    let store = try Store.create(on: host, configuration: Self.configuration())
    try fill(store, 1)
    try check(store, 1)
    let path = try #require(host.storage.files(below: "/store/journal").keys.sorted().first)
    let bytes = try host.storage.open(path, .readOnly).read(Int.max >> 1, at: 0)
    let file = try host.storage.open(path, .readWrite)
    let tail = Location(packed: store.control.tail).offset
    try file.write(bytes[4200..<tail].map { $0 ^ 1 }, at: 4200)
    #expect(throws: StoreError.self) { try check(store, 1) }
  }
}
