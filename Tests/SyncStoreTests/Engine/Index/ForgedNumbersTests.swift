import SyncTestSupport
import Testing

@testable import SyncStore

/// An index and an index checkpoint whose words pass the checks but are wrong.
@Suite("Forged numbers")
struct ForgedNumbersTests {
  let host = SimulatedHost(encrypted: false)

  init() throws {
    let store = try Store.create(on: host)
    for number in 0..<8 { try store.put("key", "value \(number)") }
    try store.close()
    host.killProcesses()
  }

  private func forge(_ name: String, at offset: Int, _ change: (UInt64) -> UInt64) throws {
    let file = try host.storage.open("/store/" + name, .readWrite)
    var reader = ByteReader(try file.read(8, at: offset))
    var writer = ByteWriter()
    writer.write(change(try reader.read(UInt64.self)))
    try file.write(writer.bytes, at: offset)
  }

  private func expectUsable(wasRestored: Bool) throws {
    let store = try Store.open(on: host)
    #expect(store.core.engine.withLock { $0.status.isRestored } == wasRestored)
    #expect(try store.text("key") == "value 7")
    try store.put("key", "new")
    #expect(try store.text("key") == "new")
    #expect(try store.verify().isClean)
    try store.close()
    #expect(try Store.open(on: host).text("key") == "new")
  }

  @Test(
    "A segment whose name has an impossible number is reported as foreign (F45)",
    arguments: [
      "0000000000000001-0000004294967295-1", "0000000000000002-0000000000000002-4294967295",
      "0000004294967295",
    ])
  func segmentName(_ name: String) throws {
    _ = try host.storage.open("/store/journal/\(name).segment", .create)
    for mode in [Configuration.Mode.readOnly, .shared] {
      let found = code { _ = try Store.open(on: host, configuration: Configuration(mode: mode)) }
      #expect(found == .foreignFile)
    }
  }

  @Test("A location past the end of its segment triggers an index rebuild")
  func place() throws {
    let buckets = 2 * MappedPages.pageBytes + IndexLayout.Page.buckets
    for slot in 0..<IndexLayout.slots {
      try forge("index", at: buckets + 8 * slot) { word in
        guard Slot.isTaken(word) else { return word }
        return Slot.make(tag: Slot.tag(word), ref: Slot.ref(word) | 1 << 28)
      }
    }
    try expectUsable(wasRestored: true)
  }

  @Test("A last position below that of the last record is not continued")
  func position() throws {
    try forge("ledger", at: IndexCheckpoint.Field.position) { _ in CheckedWord.encode(0) }
    try expectUsable(wasRestored: false)
  }

  @Test("An impossible count of live bytes does not overflow", arguments: [Int64.min, .max])
  func liveBytes(_ count: Int64) throws {
    try forge("ledger", at: MappedPages.pageBytes + 8) { _ in UInt64(bitPattern: count) }
    try expectUsable(wasRestored: true)
  }

  @Test("No write follows one with the greatest sequence number")
  func sequence() throws {
    var author = Author(actor: ActorID(high: 1, low: 2), sequence: .max)
    #expect(#expect(throws: StoreError.self) { try author.nextVersion(wall: 1) }?.code == .damaged)
  }
}
