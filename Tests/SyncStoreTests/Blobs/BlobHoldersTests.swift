import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Holders and retention of blobs")
struct BlobHoldersTests {
  @Test(
    "The holders of an object are remembered, the latest first",
    arguments: StorageUnderTest.Kind.allCases)
  func holders(_ kind: StorageUnderTest.Kind) throws {
    let test = try BlobsUnderTest(kind)
    let blobs = try test.open(packing: .small)
    let reference = try blobs.put(bytes: pattern(5000), durable: true)
    #expect(blobs.holders(of: reference.hash) == [])
    for (member, time) in [([1], 100), ([2], 200), ([1], 50)] as [([UInt8], UInt64)] {
      try blobs.catalogue.recordHolders([(reference.hash, member)], at: time)
    }
    #expect(blobs.holders(of: reference.hash) == [[2], [1]])
    blobs.recordHolder(reference.hash, member: [2], holds: false)
    blobs.recordHolder(reference.hash, member: [3], holds: true)
    #expect(blobs.holders(of: reference.hash) == [[3], [1]])
  }

  @Test("A catalogue of the first version is migrated with all its rows")
  func migrates() throws {
    let test = try BlobsUnderTest(.disk)
    var blobs = try test.open()
    let reference = try blobs.put(bytes: [1, 2], durable: true)
    blobs.close()
    let path = test.directory + "/catalogue.sqlite"
    do {
      let database = try SQLiteConnection(path: path)
      try database.execute(
        "DROP TABLE holder; DROP TABLE chunk; DROP TABLE cut; PRAGMA user_version = 1; UPDATE object SET accessed = 7"
      )
    }
    blobs = try test.open()
    #expect(try blobs.catalogue.row(reference.hash)?.accessed == 7)
    try blobs.catalogue.recordHolders([(reference.hash, [1])], at: 1)
    blobs.close()
    #expect(
      try SQLiteConnection(path: path).run("PRAGMA user_version") == [[.integer(BlobCatalogue.version)]])
    #expect(blobs.catalogueError == nil)
  }

  @Test("Blobs that are pinned, awaited or referenced by a losing value are not swept (F10)")
  func pins() throws {
    let host = SimulatedHost(encrypted: false)
    let store = try Store.create(on: host, configuration: Configuration(blobThreshold: 1000))
    for (key, byte) in [("a", 1), ("b", 2), ("c", 3)] as [(Key, UInt8)] {
      try store.put(key, [UInt8](repeating: byte, count: 5000))
    }
    let (a, b) = (try #require(try store.entry("a")?.blob), try #require(try store.entry("b")?.blob))
    try store.pin(a.hash, for: "a session")
    try store.pin(a.hash, for: "another")
    for key in ["a", "b"] as [Key] { try store.delete(key) }
    host.time += 7_200_000
    try store.trim()
    #expect(try store.blobs.has(a) && !store.blobs.has(b) && store.get("c")?.bytes.count == 5000)
    #expect(#expect(throws: StoreError.self) { try store.pin(b.hash, for: "x") }?.code == .blobUnavailable)
    try store.unpin(a.hash, for: "another")
    host.killProcesses()
    let again = try Store.open(on: host)
    host.time += 7_200_000
    try again.trim()
    #expect(try again.blobs.has(a) && again.pinnedBlobs() == [a.hash])
    try again.unpin(a.hash, for: "a session")
    host.time += 7_200_000
    try again.trim()
    #expect(try !again.blobs.has(a))
  }

  @Test("A value is streamed in and out through the store, and an abandoned stream leaves nothing")
  func streams() throws {
    let directory = TemporaryDirectory()
    let store = try Store.create(at: directory.path + "/store")
    for count in [10, 30_000, 6_000_000] {
      let bytes = pattern(count, seed: UInt64(count))
      let key = try Key("\(count)")
      try store.put(key, type: .json) { writer in
        for start in stride(from: 0, to: count, by: 1_000_000) {
          try writer.append(Array(bytes[start..<min(start + 1_000_000, count)]))
        }
        #expect(writer.count == UInt64(count))
      }
      let reader = try #require(try store.reader(of: key))
      #expect(reader.size == UInt64(count) && reader.type == .json)
      #expect(try reader.read(7, at: UInt64(count - 5)) == Array(bytes.suffix(5)))
      #expect(try reader.withBytes { [UInt8](copying: $0) } == bytes)
      #expect(try store.withValue(key) { $0.byteCount } == count && store.get(key)?.bytes == bytes)
      try store.put(key, "short")
      // A reader keeps what it reads.
      #expect(try reader.read(5, at: 0) == Array(bytes.prefix(5)))
    }
    struct GivenUp: Error {}
    #expect(throws: GivenUp.self) {
      try store.put("x") { writer in
        try writer.append(pattern(6_000_000))
        throw GivenUp()
      }
    }
    #expect(try store.get("x") == nil && store.reader(of: "x") == nil)
    #expect(try DiskStorage().list(directory.path + "/store/blobs/partial") == [])
    try store.close()
  }
}
