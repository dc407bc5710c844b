import Synchronization
import Glibc
import SyncTestSupport
import Testing

@testable import SyncStore

@Suite struct BlobSweepTests {
  @Test(
    "An object without a row is an orphan, swept after its grace period (F10)",
    arguments: StorageUnderTest.Kind.allCases)
  func orphan(_ kind: StorageUnderTest.Kind) throws {
    let test = try BlobsUnderTest(kind)
    let blobs = try test.open()
    let kept = try blobs.put(bytes: [1], durable: true)
    // Killed between the rename and the row.
    let orphan = try blobs.put(bytes: [2], durable: true)
    try blobs.catalogue.forget(orphan.hash)
    func sweep() throws -> BlobSweep {
      try blobs.sweepOrphans(
        referenced: [kept.hash], graceSeconds: 60, now: test.clock.now.load(ordering: .relaxed))
    }
    #expect(try sweep() == BlobSweep())
    test.clock.advance(59_000)
    #expect(try sweep() == BlobSweep())
    #expect(try blobs.has(orphan))
    test.clock.advance(2_000)
    #expect(try sweep() == BlobSweep(objects: 1))
    #expect(try !blobs.has(orphan))
    #expect(try blobs.read(kept) == [1])
    #expect(try blobs.catalogue.rows().map(\.hash) == [kept.hash])
    #expect(try sweep() == BlobSweep())
  }

  @Test(
    "A removal interrupted between row and file is completed, or undone by a put (F11)",
    arguments: StorageUnderTest.Kind.allCases)
  func halfRemoved(_ kind: StorageUnderTest.Kind) throws {
    let test = try BlobsUnderTest(kind)
    let blobs = try test.open()
    let references = try [[1], [2], [3]].map { try blobs.put(bytes: $0, durable: true) }
    for reference in references[...1] {
      try blobs.catalogue.record(reference.hash, size: 1, .deleting, durable: false)
    }
    // Row gone, file present.
    try blobs.catalogue.forget(references[2].hash)
    #expect(try blobs.put(bytes: [2], durable: true) == references[1])
    _ = try blobs.sweepOrphans(referenced: [], graceSeconds: 60, now: 1_000_000)
    #expect(try blobs.all().map(\.hash) == [references[1].hash, references[2].hash].sorted())
    #expect(try blobs.read(references[1]) == [2])
    test.clock.advance(100_000)
    #expect(try blobs.sweepOrphans(referenced: [], graceSeconds: 60, now: 1_100_000).objects == 2)
    #expect(try test.names() == [])
  }

  @Test("A repeated put renews the object, whatever its age (F10)", arguments: StorageUnderTest.Kind.allCases)
  func claimed(_ kind: StorageUnderTest.Kind) throws {
    let test = try BlobsUnderTest(kind)
    let blobs = try test.open()
    let reference = try blobs.put(bytes: [1], durable: true)
    test.clock.advance(3_600_000)
    _ = try blobs.put(bytes: [1], durable: true)
    let now = test.clock.now.load(ordering: .relaxed)
    #expect(try blobs.sweepOrphans(referenced: [], graceSeconds: 60, now: now).objects == 0)
    #expect(try blobs.has(reference))
    #expect(try blobs.sweepOrphans(referenced: [], graceSeconds: .max, now: now).objects == 0)
  }

  @Test(
    "Temporary files of killed writers are swept, those of live writers are not",
    arguments: StorageUnderTest.Kind.allCases)
  func temporaries(_ kind: StorageUnderTest.Kind) throws {
    let test = try BlobsUnderTest(kind)
    let blobs = try test.open()
    let hash = BlobHash(sha256: SHA256.hash([1, 2]))
    let writing = try blobs.files.begin()
    _ = try test.base.storage.open(test.directory + "/partial/new-1-1", .create)
    try blobs.append([1], to: hash, at: 0)
    #expect(
      try blobs.sweepOrphans(referenced: [], graceSeconds: 60, now: 1_000_000) == BlobSweep(temporaries: 1))
    #expect(try blobs.partialSize(hash) == 1)
    test.clock.advance(100_000)
    #expect(try blobs.sweepOrphans(referenced: [hash], graceSeconds: 60, now: 1_100_000) == BlobSweep())
    #expect(
      try blobs.sweepOrphans(referenced: [], graceSeconds: 60, now: 1_100_000) == BlobSweep(partials: 1))
    #expect(try test.names() == [writing.name])
    withExtendedLifetime(writing.file) {}
  }

  @Test("A sweep never removes an object that a put has just referenced", arguments: [1, 2])
  func race(_ processes: Int) async throws {
    let test = try BlobsUnderTest(.disk)
    let putter = try test.open()
    let sweeper = processes == 1 ? putter : try test.open()
    let finished = BlobsUnderTest.Clock()
    let begun = finished.now.load(ordering: .relaxed)
    let failures = Failures()
    await withTaskGroup(of: Void.self) { group in
      group.addTask {
        for number in 0..<300 as Range<UInt64> {
          failures.collect {
            // Old enough to be swept, until it is put again.
            let reference = try putter.put(bytes: pattern(100, seed: number % 3), durable: false)
            let claimed = test.clock.now.load(ordering: .relaxed)
            if try !putter.has(reference) { throw StoreError(.damaged, "\(number) was swept at \(claimed)") }
            test.clock.advance(3)
          }
        }
        finished.advance(1)
      }
      group.addTask {
        while finished.now.load(ordering: .relaxed) == begun {
          failures.collect {
            // No grace period except the millisecond of the claim itself.
            let now = test.clock.now.load(ordering: .relaxed)
            _ = try sweeper.sweepOrphans(referenced: [], graceSeconds: 0, now: now)
          }
        }
      }
    }
    #expect(failures.all == [])
  }

  @Test(
    "Links and FIFOs planted in the blob directory are refused, and never followed (F45, F84)",
    arguments: ["link", "hard link", "fifo", "shard", "objects", "partial", "partial link"])
  func planted(_ what: String) throws {
    let test = try BlobsUnderTest(.disk)
    let disk = DiskStorage()
    var blobs = try test.open()
    let bytes: [UInt8] = [1, 2, 3]
    let reference = try blobs.put(bytes: bytes, durable: true)
    let object = test.objectPath(reference)
    let outside = test.base.root + "/outside"
    _ = try disk.createDirectory(outside)
    let victim = outside + "/" + reference.hash.description
    try disk.open(victim, .create).write(bytes, at: 0)
    let shard = test.directory + "/" + BlobFiles.shard(reference.hash)
    switch what {
    case "link":
      _ = try disk.remove(object)
      #expect(unsafe symlink(victim, object) == 0)
    case "hard link":
      _ = try disk.remove(object)
      #expect(unsafe link(victim, object) == 0)
    case "fifo":
      _ = try disk.remove(object)
      #expect(unsafe mkfifo(object, 0o600) == 0)
    case "shard":
      _ = try disk.remove(object)
      #expect(unsafe rmdir(shard) == 0)
      #expect(unsafe symlink(outside, shard) == 0)
    case "objects":
      try disk.rename(test.directory + "/objects", to: test.base.root + "/moved")
      #expect(unsafe symlink("../moved", test.directory + "/objects") == 0)
    case "partial":
      #expect(unsafe rmdir(test.directory + "/partial") == 0)
      #expect(unsafe symlink(outside, test.directory + "/partial") == 0)
    default:
      _ = try disk.remove(object)
      #expect(unsafe symlink(victim, test.directory + "/" + BlobFiles.partial(reference.hash)) == 0)
    }
    if what == "partial link" {
      #expect(try blobs.partialSize(reference.hash) == 0)
      try blobs.append([1], to: reference.hash, at: 0)
      #expect(try blobs.partialSize(reference.hash) == 1)
    } else if what != "partial" {
      let error = #expect(throws: StoreError.self) { try blobs.read(reference) }
      #expect(error?.code == .foreignFile)
      let range = #expect(throws: StoreError.self) { try blobs.read(reference.hash, offset: 0, count: 3) }
      #expect(range?.code == .foreignFile)
      #expect(try what == "objects" || !blobs.verify().isEmpty)
    }
    switch what {
    case "link", "hard link", "fifo":
      #expect(try blobs.missing(of: [reference]) == [reference])
      #expect(try blobs.put(bytes: bytes, durable: true) == reference)
      #expect(try blobs.read(reference) == bytes)
    case "partial link": break
    default:
      // A directory that should not exist is left for an operator to inspect.
      let error = #expect(throws: StoreError.self) {
        blobs = try test.open()
        _ = try blobs.put(bytes: [4], durable: true)
        _ = try blobs.remove(reference.hash)
      }
      #expect(error?.code == .foreignFile)
    }
    #expect(try disk.contents(of: victim, limit: 9) == bytes)
    #expect(try disk.list(outside) == [reference.hash.description])
  }
}
