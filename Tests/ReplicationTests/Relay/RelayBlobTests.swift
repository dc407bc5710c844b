import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// Large values of members that exchange what they write through a directory.
@Suite(.timeLimit(.minutes(Patience.minutes(2)))) struct RelayBlobTests {
  private static func bytes(_ count: Int, seed: UInt64) -> [UInt8] {
    var random = SplitMix64(seed: seed)
    return (0..<count).map { _ in UInt8(truncatingIfNeeded: random.next()) }
  }

  private static func put(_ copy: TestCopy, _ key: String, _ bytes: [UInt8]) throws {
    try copy.store.put(Key(key), bytes)
  }

  @Test func `large values come with the records that refer to them, each once`() async throws {
    let fleet = try await RelayFleet()
    let (small, large) = (Self.bytes(30_000, seed: 1), Self.bytes(9 << 20, seed: 2))
    try Self.put(fleet.first, "small", small)
    try Self.put(fleet.first, "same", small)
    try Self.put(fleet.first, "large", large)
    let sent = try await fleet.client(fleet.first).push()
    #expect(sent.sentBlobs == 2)
    let read = try await fleet.client(fleet.second).pull()
    #expect(read.receivedBlobs == 2 && read.missingBlobs == 0 && read.setAside.isEmpty)
    #expect(try fleet.second.store.get("small")?.bytes == small)
    #expect(try fleet.second.store.get("same")?.bytes == small)
    #expect(try fleet.second.store.get("large")?.bytes == large)
    #expect(try fleet.second.store.blobsToFetch().blobs.isEmpty)
  }

  @Test func `a change in the middle of a large value moves little more than the change`() async throws {
    let fleet = try await RelayFleet()
    var large = Self.bytes(32 << 20, seed: 3)
    try Self.put(fleet.first, "large", large)
    _ = try await fleet.carry(fleet.first, fleet.second)
    large.replaceSubrange(16 << 20..<17 << 20, with: Self.bytes(1 << 20, seed: 4))
    try Self.put(fleet.first, "large", large)
    let sent = try await fleet.client(fleet.first).push()
    #expect(sent.figures.sentBytes < 3 << 20)
    let read = try await fleet.client(fleet.second).pull()
    #expect(read.figures.receivedBytes < 4 << 20)
    #expect(try fleet.second.store.get("large")?.bytes == large)
  }

  @Test func `a value that the publisher does not hold is asked for, and added by one that holds it`()
    async throws
  {
    let fleet = try await RelayFleet()
    let value = Self.bytes(40_000, seed: 5)
    try Self.put(fleet.first, "large", value)
    _ = try await fleet.client(fleet.first).push()
    let objects = try DirectoryStore(at: fleet.place.path)
    try await objects.delete(try await fleet.objects("b/"))
    let read = try await fleet.client(fleet.second).sync()
    #expect(read.missingBlobs == 1 && read.receivedRecords == 1)
    let added = try await fleet.client(fleet.first).sync()
    #expect(added.sentBlobs == 1)
    let again = try await fleet.client(fleet.second).pull()
    #expect(again.receivedBlobs == 1)
    #expect(try fleet.second.store.get("large")?.bytes == value)
  }

  @Test
  func `a group alone that is lost, and a value that only a beaten write refers to, are asked for, too`()
    async throws
  {
    let fleet = try await RelayFleet()
    let client = try fleet.client(fleet.first)
    let (large, beaten) = (Self.bytes(6 << 20, seed: 8), Self.bytes(30_000, seed: 9))
    try Self.put(fleet.first, "large", large)
    try Self.put(fleet.first, "both", beaten)
    _ = try await client.sync()
    // The later write of the other wins: it keeps the first one's as a conflict.
    try Self.put(fleet.second, "both", Self.bytes(30_000, seed: 10))
    let objects = try DirectoryStore(at: fleet.place.path)
    try await objects.delete(try await fleet.objects("b/"))
    _ = try await fleet.client(fleet.second).sync()
    _ = try await client.sync()
    let read = try await fleet.client(fleet.second).sync()
    #expect(read.missingBlobs == 0)
    #expect(try fleet.second.store.blobsToFetch().blobs.isEmpty)
    #expect(try fleet.second.store.get("large")?.bytes == large)
    let third = try await RelayFleet()
    try Self.put(third.first, "large", large)
    let publisher = try third.client(third.first)
    _ = try await publisher.sync()
    let group = try #require(try await third.objects("b/").last)
    try await DirectoryStore(at: third.place.path).delete([group])
    _ = try await third.client(third.second).sync()
    _ = try await publisher.sync()
    #expect(try await third.client(third.second).sync().missingBlobs == 0)
    #expect(try third.second.store.get("large")?.bytes == large)
  }

  @Test(arguments: ["missing", "cut", "changed", "swapped"])
  func `a group of a large value that cannot be used is named, and the value comes later`(fault: String)
    async throws
  {
    let fleet = try await RelayFleet()
    let value = Self.bytes(6 << 20, seed: 6)
    try Self.put(fleet.first, "large", value)
    _ = try await fleet.client(fleet.first).push()
    let objects = try DirectoryStore(at: fleet.place.path)
    let names = try await fleet.objects("b/")
    for name in names {
      guard case .found(let content) = try await objects.get(name) else { continue }
      try await fleet.damage(name, content.bytes, by: fault)
      let read = try await fleet.client(fleet.second).pull()
      #expect(read.missingBlobs == 1)
      #expect(fault == "missing" || read.setAside.contains { $0.object == name })
      // What has arrived of it would not be read again.
      let needed = try #require(try fleet.second.store.blobsToFetch().blobs.first)
      try fleet.second.store.blobs.discardPartial(needed.hash)
      _ = try await objects.put(name, content.bytes, if: .always)
    }
    #expect(try await fleet.client(fleet.second).pull().receivedBlobs == 1)
    #expect(try fleet.second.store.get("large")?.bytes == value)
  }

  @Test func `groups are cut by content, hold all chunks in order, and are bounded`() {
    var random = SplitMix64(seed: 7)
    let chunks = (0..<5000).map { _ in
      BlobChunk(
        count: Int(random.next() % 120_000) + 1,
        name: (0..<16).map { _ in UInt8(truncatingIfNeeded: random.next()) })
    }
    let groups = RelayBlobTable.cut(chunks)
    #expect(groups.flatMap { Array($0) } == chunks)
    #expect(groups.allSatisfy { $0.reduce(0) { $0 + $1.count } <= RelayLimits.maximumGroupBytes })
    let later = RelayBlobTable.cut(Array(chunks[1...]))
    let common = Set(groups.map { Array($0) }).intersection(later.map { Array($0) })
    #expect(common.count > groups.count * 9 / 10)
  }

  @Test func `a table is read as it was written, and refused for a value of another size`() throws {
    let chunks = (1..<4000).map { BlobChunk(count: $0, name: Array(repeating: UInt8($0 % 251), count: 16)) }
    let groups = chunks.map {
      RelayBlobTable.Group(hash: BlobHash(sha256: SHA256.hash($0.name)), chunks: [$0])
    }
    let table = RelayBlobTable(groups: groups)
    let size = table.recipe.end
    #expect(table.payloads.count == 4)
    #expect(try RelayBlobTable(payloads: table.payloads, size: size) == table)
    #expect(throws: DecodingFailure.self) { try RelayBlobTable(payloads: table.payloads, size: size - 1) }
    #expect(throws: DecodingFailure.self) { try RelayBlobTable(payloads: table.payloads, size: size + 1) }
    for payload in table.payloads.prefix(1) {
      for cut in 0..<payload.count where cut % 97 == 0 {
        #expect(throws: DecodingFailure.self) {
          try RelayBlobTable(payloads: [Array(payload.prefix(cut))], size: size)
        }
      }
    }
  }
}
