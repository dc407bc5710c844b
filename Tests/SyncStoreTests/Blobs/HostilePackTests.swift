import Synchronization
import SyncTestSupport
import Testing

@testable import SyncStore

/// Packs with valid checksums that the product would never have written.
@Suite struct HostilePackTests {
  @Test("Packs can be created in spite of a file with the greatest number")
  func greatestNumber() throws {
    let test = try BlobsUnderTest(.disk)
    var blobs = try test.open(packing: .small)
    let first = try blobs.put(bytes: pattern(300), durable: true)
    blobs.close()
    let header = PackHeader(number: .max, size: 64 << 10, salt: 7)
    let file = try DiskStorage().open(test.directory + "/" + Pack.name(.max), .create)
    try file.resize(to: header.size)
    for offset in PackLayout.headerCopies { try file.write(header.encoded, at: offset) }
    blobs = try test.open(packing: .small)
    #expect(try blobs.read(first) == pattern(300))
    // More than one pack holds.
    let references = try (0..<6).map { try blobs.put(bytes: pattern(90_000, seed: $0), durable: true) }
    for reference in references { #expect(try blobs.read(reference).count == 90_000) }
    blobs.close()
    let again = try test.open(packing: .small)
    for reference in references { #expect(try again.read(reference).count == 90_000) }
  }

  @Test("An object with the greatest last-use time does not make new ones count as old")
  func greatestStamp() throws {
    let test = try BlobsUnderTest(.disk)
    var blobs = try test.open(packing: .small)
    let first = try blobs.put(bytes: pattern(300), durable: true)
    let (pack, slot) = try #require(try blobs.packs.lookUp(first.hash, refreshing: false))
    pack.setWord(pack.newWord(stamp: .max, .live), slot)
    blobs.close()
    blobs = try test.open(packing: .small)
    #expect(try blobs.read(first) == pattern(300))
    let new = try blobs.put(bytes: pattern(301), durable: true)
    let now = test.clock.now.load(ordering: .relaxed)
    _ = try blobs.sweepOrphans(referenced: [], graceSeconds: 100, now: now)
    #expect(try blobs.has(new))
  }

  @Test("A file whose declared length exceeds any pack is quarantined without allocating space")
  func greatestSize() throws {
    let test = try BlobsUnderTest(.simulated)
    var blobs = try test.open(packing: .small)
    let first = try blobs.put(bytes: pattern(300), durable: true)
    blobs.close()
    let header = PackHeader(number: 9, size: 1 << 40, salt: 7)
    let file = try test.base.storage.open(test.directory + "/" + Pack.name(9), .create)
    try file.resize(to: header.tableBytes)
    for offset in PackLayout.headerCopies { try file.write(header.encoded, at: offset) }
    blobs = try test.open(packing: .small)
    #expect(try blobs.read(first) == pattern(300))
    #expect(try test.packs().count == 1 && file.status().size == header.tableBytes)
  }

  @Test("A truncated pack is not appended to on a full disk")
  func cutOnFullDisk() throws {
    let test = try BlobsUnderTest(.simulated)
    let storage = try #require(test.base.storage as? SimulatedStorage)
    let first = try test.open(packing: .small).put(bytes: pattern(300), durable: true)
    storage.killProcesses()
    try storage.open(test.directory + "/" + test.packs()[0], .readWrite).resize(to: 12 << 10)
    storage.free = 0
    let blobs = try test.open(packing: .small)
    #expect(try blobs.read(first) == pattern(300))
    storage.free = nil
    let second = try blobs.put(bytes: pattern(5000), durable: true)
    #expect(try blobs.read(second) == pattern(5000))
  }
}
