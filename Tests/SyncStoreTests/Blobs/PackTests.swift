import Glibc
import Synchronization
import SyncTestSupport
import Testing

@testable import SyncStore

extension PackSettings {
  /// Small packs, so that a test has many.
  static var small: PackSettings {
    var settings = PackSettings()
    (settings.objectBytes, settings.smallestBytes, settings.packBytes) = (100_000, 64 << 10, 256 << 10)
    return settings
  }
}

extension BlobsUnderTest {
  func packs() throws -> [String] { try names().filter { $0.hasPrefix("packs/") } }
}

@Suite("Packs: small objects share files")
struct PackTests {
  @Test("A stored object is read whole, by range and in place", arguments: StorageUnderTest.Kind.allCases)
  func roundTrip(_ kind: StorageUnderTest.Kind) throws {
    let test = try BlobsUnderTest(kind)
    let blobs = try test.open(packing: .small)
    var references: [BlobReference] = []
    for count in [0, 1, 63, 64, 65, 20_480, 100_000] {
      let bytes = pattern(count, seed: UInt64(count))
      let reference = try blobs.put(bytes: bytes, metadata: [7], durable: count % 2 == 0)
      #expect(reference.hash.bytes == SHA256.hash(bytes) && reference.size == UInt64(count))
      #expect(try blobs.read(reference) == bytes)
      #expect(
        try blobs.read(reference.hash, offset: UInt64(count / 2), count: 100).elementsEqual(
          bytes[(count / 2)...].prefix(100)))
      #expect(try blobs.withBytes(reference) { [UInt8](copying: $0) } == bytes)
      #expect(try blobs.has(reference) && blobs.has(reference.hash))
      references.append(reference)
    }
    #expect(try blobs.all().map(\.hash) == references.map(\.hash).sorted())
    #expect(try blobs.verify() == [])
    #expect(try test.names().allSatisfy { $0.hasPrefix("packs/") })
    blobs.close()
    let again = try test.open(packing: .small)
    for reference in references { #expect(try again.read(reference).count == Int(reference.size)) }
    #expect(try again.put(bytes: [9], durable: true).size == 1)
    // The next process continues with the pack that the last one left.
    #expect(try test.packs().count <= 4)
  }

  @Test("A pack has space for the object for which it is created, whatever its size")
  func sizes() throws {
    for count in stride(from: 1, to: 5 << 20, by: 997).map({ PackLayout.aligned($0) }) + [1 << 20, 255 << 20]
    {
      let header = PackHeader(number: 1, size: PackLayout.fileBytes(for: count), salt: 1)
      #expect(header.size - header.tableBytes >= count && header.slots >= 1, "\(count) bytes")
      #expect(try PackHeader(header.encoded, path: "") == header)
    }
    let test = try BlobsUnderTest(.disk)
    let blobs = try test.open(packing: PackSettings())
    var references: [(BlobReference, [UInt8])] = []
    for count in [(1 << 20) - 100, 1 << 20, 4 << 20, (1 << 20) - 8192] {
      let bytes = [UInt8](repeating: UInt8(count & 0xFF) ^ 1, count: count)
      references.append((try blobs.put(bytes: bytes, durable: false), bytes))
    }
    for (reference, bytes) in references { #expect(try blobs.read(reference) == bytes) }
  }

  @Test("Equal content is stored once, in a pack or in a file", arguments: StorageUnderTest.Kind.allCases)
  func dedupe(_ kind: StorageUnderTest.Kind) throws {
    let test = try BlobsUnderTest(kind)
    let old = try test.open()
    let inFile = try old.put(bytes: pattern(500), durable: true)
    old.close()
    let blobs = try test.open(packing: .small)
    let source = test.base.root + "/source"
    try test.base.storage.open(source, .create).write(pattern(700), at: 0)
    let packed = try blobs.put(bytes: pattern(700), durable: false)
    #expect(try blobs.put(fileAt: source, durable: true) == packed)
    #expect(try blobs.put(bytes: pattern(500), durable: true) == inFile)
    let writer = try blobs.writer()
    try writer.append(Array(pattern(700).prefix(300)))
    try writer.append(Array(pattern(700).dropFirst(300)))
    #expect(try writer.finish(durable: false) == packed)
    #expect(try blobs.all().map(\.hash).sorted() == [inFile.hash, packed.hash].sorted())
    #expect(try test.packs().count == 1)
  }

  @Test("A large value is streamed in and out in pieces, and an abandoned stream leaves nothing")
  func streams() throws {
    let test = try BlobsUnderTest(.disk)
    let blobs = try test.open(packing: .small)
    let piece = pattern(70_000)
    let hasher = SHA256Hasher()
    var writer = try blobs.writer()
    for _ in 0..<40 {
      try writer.append(piece)
      hasher.update(piece)
    }
    #expect(try test.names().contains { $0.hasPrefix("partial/new-") })
    let reference = try writer.finish(metadata: [1], durable: true)
    #expect(reference.hash.bytes == hasher.finish() && reference.size == 2_800_000)
    #expect(try test.names() == [BlobFiles.object(reference.hash)])
    let reader = try blobs.reader(reference)
    #expect(try reader.read(10, at: 70_000) == Array(piece.prefix(10)))
    #expect(try reader.read(10, at: 2_799_995).count == 5 && reader.read(1, at: 2_800_000) == [])
    #expect(try reader.withBytes { $0.byteCount } == 2_800_000)
    writer = try blobs.writer()
    try writer.append(pattern(300_000, seed: 4))
    writer.discard()
    do {
      let abandoned = try blobs.writer()
      try abandoned.append(pattern(300_000, seed: 5))
    }
    #expect(try test.names() == [BlobFiles.object(reference.hash)])
  }

  @Test(
    "A rotten object of a pack is quarantined, never served, and can be put again (F44)",
    arguments: StorageUnderTest.Kind.allCases)
  func rotted(_ kind: StorageUnderTest.Kind) throws {
    for action in ["read", "export", "verify", "complete"] {
      let test = try BlobsUnderTest(kind)
      var blobs = try test.open(packing: .small)
      let (bytes, other) = (pattern(9000), pattern(8000, seed: 2))
      let reference = try blobs.put(bytes: bytes, durable: true)
      let beside = try blobs.put(bytes: other, durable: true)
      blobs.close()
      let pack = try #require(try test.packs().first)
      try test.flip(test.directory + "/" + pack, at: PackLayout.tableBytes(for: 64 << 10) + 8000)
      blobs = try test.open(packing: .small)
      if action == "verify" {
        #expect(try blobs.verify().map(\.hash) == [reference.hash])
      } else {
        let error = #expect(throws: StoreError.self) {
          if action == "export" { return try blobs.export(reference, toFileAt: test.base.root + "/out") }
          if action == "complete" { return try blobs.verify(reference) }
          _ = try blobs.read(reference)
        }
        #expect(error?.code == .damaged && error?.message.contains(reference.hash.description) == true)
      }
      #expect(try blobs.missing(of: [reference, beside]) == [reference])
      #expect(try test.names().filter { $0.hasPrefix("quarantine/") } == ["quarantine/\(reference.hash)"])
      #expect(try blobs.put(bytes: bytes, durable: true) == reference)
      #expect(try blobs.read(reference) == bytes && blobs.read(beside) == other)
      #expect(try blobs.verify() == [])
    }
  }

  @Test(
    "One damaged byte in a header or table costs one object at most (F37)",
    arguments: [3, 30, 2050, 4096 + 70, 1025, 1040])
  func damagedTable(_ offset: Int) throws {
    let test = try BlobsUnderTest(.disk)
    var blobs = try test.open(packing: .small)
    let references = try (0..<5).map { try blobs.put(bytes: pattern(3000, seed: $0), durable: true) }
    blobs.close()
    try test.flip(test.directory + "/" + (try test.packs()[0]), at: offset)
    blobs = try test.open(packing: .small)
    var lost = 0
    for (seed, reference) in references.enumerated() {
      guard try blobs.has(reference) else {
        lost += 1
        continue
      }
      #expect(try blobs.read(reference) == pattern(3000, seed: UInt64(seed)))
    }
    #expect(lost <= (offset > 4096 ? 1 : 0))
    #expect(try blobs.verify().count == lost)
  }

  @Test(
    "Garbage, an empty file or a link in place of a pack is quarantined (F45, F84)",
    arguments: ["garbage", "empty", "zeros", "link", "hard link", "directory", "foreign", "newer"])
  func planted(_ what: String) throws {
    let test = try BlobsUnderTest(.disk)
    let disk = DiskStorage()
    let first = try test.open(packing: .small)
    let reference = try first.put(bytes: [1, 2, 3], durable: true)
    first.close()
    let path = test.directory + "/" + Pack.name(7)
    let real = test.directory + "/" + (try test.packs()[0])
    switch what {
    case "garbage": try disk.open(path, .create).write(pattern(100_000), at: 0)
    case "empty": _ = try disk.open(path, .create)
    case "zeros": try disk.open(path, .create).resize(to: 100_000)
    case "link": #expect(unsafe symlink(real, path) == 0)
    case "hard link": #expect(unsafe link(real, path) == 0)
    case "directory": _ = try disk.createDirectory(path)
    case "newer":
      try disk.open(path, .create).write(try #require(try disk.contents(of: real, limit: 1 << 20)), at: 0)
      let header = PackHeader(number: 7, size: 64 << 10, salt: 1).encoded
      var bytes = Array(header[..<40])
      bytes[8] = 9
      var writer = ByteWriter()
      writer.write(raw: bytes)
      writer.write(XXH3.hash64(bytes, seed: PackLayout.magic))
      bytes = writer.bytes
      try disk.open(path, .readWrite).write(bytes, at: 0)
    default:
      try disk.open(path, .create).write(try #require(try disk.contents(of: real, limit: 1 << 20)), at: 0)
    }
    let blobs = try test.open(packing: .small)
    if what == "newer" {
      let error = #expect(throws: StoreError.self) { try blobs.read(reference) }
      #expect(error?.code == .newerFormat)
      return
    }
    if what == "hard link" {
      // Both names are the same file, which others could change.
      #expect(throws: StoreError.self) { try blobs.read(reference) }
      return
    }
    #expect(try blobs.read(reference) == [1, 2, 3])
    #expect(try blobs.put(bytes: [4], durable: true).size == 1)
    #expect(try blobs.all().count == 2)
  }

  @Test("Objects put by two processes are found by both, and stored once as far as each knows the other's")
  func shared() throws {
    let test = try BlobsUnderTest(.disk)
    let (one, two) = (try test.open(packing: .small), try test.open(packing: .small))
    for number in 0..<40 as Range<UInt64> {
      let putter = number % 2 == 0 ? one : two
      let reference = try putter.put(bytes: pattern(9000, seed: number), durable: number % 3 == 0)
      #expect(try (number % 2 == 0 ? two : one).read(reference) == pattern(9000, seed: number))
    }
    #expect(try one.all() == two.all() && one.all().count == 40)
    let victim = try #require(try one.all().first)
    #expect(try one.remove(victim.hash))
    #expect(try !two.has(victim))
    // A sync by one makes the other's put durable.
    _ = try one.put(bytes: [1], durable: false)
    try two.sync()
    for (pack, _) in try two.packs.openForTests() { #expect(pack.durable == pack.count) }
  }

  @Test("Space is reclaimed: files without live objects are removed, half-empty ones merged")
  func reclaims() throws {
    let test = try BlobsUnderTest(.disk)
    let blobs = try test.open(packing: .small)
    let references = try (0..<100).map { try blobs.put(bytes: pattern(9000, seed: $0), durable: false) }
    try blobs.sync()
    let before = try test.packs()
    #expect(before.count > 3)
    let keep = Set(references.enumerated().filter { $0.offset % 5 == 0 }.map(\.element.hash))
    let reader = try blobs.reader(references[1])
    test.clock.advance(10)
    let now = test.clock.now.load(ordering: .relaxed)
    let sweep = try blobs.sweepOrphans(referenced: keep, graceSeconds: 0, now: now)
    #expect(sweep.objects == 80)
    #expect(try blobs.all().map(\.hash) == keep.sorted())
    #expect(try test.packs().count <= 2)
    for (seed, reference) in references.enumerated() where keep.contains(reference.hash) {
      #expect(try blobs.read(reference) == pattern(9000, seed: UInt64(seed)))
    }
    // Concurrent readers continue.
    #expect(try reader.read(9000, at: 0) == pattern(9000, seed: 1))
    #expect(try blobs.verify() == [])
    blobs.close()
    #expect(try test.open(packing: .small).all().count == 20)
  }

  @Test("A sweep never removes an object in a pack that a put has just referenced", arguments: [1, 2])
  func race(_ processes: Int) async throws {
    let test = try BlobsUnderTest(.disk)
    let putter = try test.open(packing: .small)
    let sweeper = processes == 1 ? putter : try test.open(packing: .small)
    let finished = BlobsUnderTest.Clock()
    let begun = finished.now.load(ordering: .relaxed)
    let failures = Failures()
    await withTaskGroup(of: Void.self) { group in
      group.addTask {
        for number in 0..<300 as Range<UInt64> {
          failures.collect {
            let reference = try putter.put(bytes: pattern(100, seed: number % 3), durable: false)
            if try putter.read(reference).count != 100 { throw StoreError(.damaged, "\(number) was swept") }
            test.clock.advance(3)
          }
        }
        finished.advance(1)
      }
      group.addTask {
        while finished.now.load(ordering: .relaxed) == begun {
          failures.collect {
            let now = test.clock.now.load(ordering: .relaxed)
            _ = try sweeper.sweepOrphans(referenced: [], graceSeconds: 0, now: now)
          }
        }
      }
    }
    #expect(failures.all == [])
  }

  @Test("A full disk is a typed error, and keeps existing objects (F92)")
  func full() throws {
    let test = try BlobsUnderTest(.simulated)
    let storage = try #require(test.base.storage as? SimulatedStorage)
    let blobs = try test.open(packing: .small)
    let first = try blobs.put(bytes: pattern(30_000), durable: true)
    storage.free = Int(PackSettings.small.reserveBytes) + 60_000
    var failure: StoreError?
    for seed in 0..<10 as Range<UInt64> where failure == nil {
      do { _ = try blobs.put(bytes: pattern(20_000, seed: 10 + seed), durable: true) } catch {
        failure = error
      }
    }
    #expect(failure?.code == .diskFull)
    #expect(try blobs.read(first) == pattern(30_000))
    #expect(try blobs.verify() == [])
  }
}

extension BlobStore {
  /// Location of a packed object's bytes.
  func place(of hash: BlobHash) throws -> (path: String, offset: Int)? {
    guard let (pack, slot) = try packs.lookUp(hash, refreshing: true), let entry = pack.entry(slot) else {
      return nil
    }
    return (pack.file.path, entry.offset)
  }
}

extension PackSet {
  /// The open packs, for tests.
  func openForTests() throws -> [(Pack, Int)] {
    try load()
    try refresh()
    return state.withLock { state in
      state.packs.enumerated().compactMap { offset, known in known.pack.map { ($0, offset) } }
    }
  }
}
