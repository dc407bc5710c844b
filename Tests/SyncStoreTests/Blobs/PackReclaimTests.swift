import Glibc
import Synchronization
import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Reclaiming packs whose live objects are moved")
struct PackReclaimTests {
  /// Packs of 64 KiB, whatever their content.
  static let tiny: PackSettings = {
    var settings = PackSettings.small
    settings.packBytes = settings.smallestBytes
    return settings
  }()

  /// Objects of which most are removed, and the remaining ones, with their seeds.
  static func mostlyDead(_ blobs: BlobStore, _ groups: Int) throws -> [(BlobReference, seed: UInt64)] {
    var kept: [(BlobReference, seed: UInt64)] = []
    var leaving: [BlobReference] = []
    for group in 0..<UInt64(groups) {
      for member in 0..<3 as Range<UInt64> {
        let seed = group * 4 + member
        kept.append((try blobs.put(bytes: pattern(4000, seed: seed), durable: false), seed))
      }
      leaving.append(try blobs.put(bytes: pattern(32_000, seed: group * 4 + 3), durable: false))
    }
    try blobs.sync()
    for reference in leaving { #expect(try blobs.remove(reference.hash)) }
    return kept
  }

  static func expectAll(_ kept: [(BlobReference, seed: UInt64)], in blobs: BlobStore) throws {
    for (reference, seed) in kept { #expect(try blobs.read(reference) == pattern(4000, seed: seed)) }
  }

  @Test("loses nothing when two threads do it concurrently")
  func twoThreads() throws {
    let test = try BlobsUnderTest(.simulated)
    let plan = FaultPlan()
    let blobs = try test.open(FaultingStorage(test.base.storage, plan: plan), packing: Self.tiny)
    let kept = try Self.mostlyDead(blobs, 4)
    let isDone = Signal()
    let other = Threaded {
      try? blobs.packs.reclaim()
      isDone.signal()
    }
    // The copies of the first pack are about to be made durable: the other process can then process it, too.
    plan.before(.sync, of: ".pack") {
      other.start()
      isDone.wait(milliseconds: 200)
    }
    try blobs.packs.reclaim()
    other.join()
    try Self.expectAll(kept, in: blobs)
    blobs.close()
    try Self.expectAll(kept, in: test.open(packing: Self.tiny))
  }

  @Test("loses nothing with more packs than may be open at once")
  func closedPacks() throws {
    let test = try BlobsUnderTest(.simulated)
    let blobs = try test.open(packing: Self.tiny)
    let kept = try Self.mostlyDead(blobs, PackSet.maxOpenPacks + 40)
    #expect(try test.packs().count > PackSet.maxOpenPacks)
    try blobs.packs.reclaim()
    #expect(try test.packs().count < PackSet.maxOpenPacks)
    try Self.expectAll(kept, in: blobs)
    #expect(try blobs.verify() == [])
  }

  @Test("creates one pack, also if another thread finds the file before its creator is done")
  func foundEarly() throws {
    let test = try BlobsUnderTest(.simulated)
    let plan = FaultPlan()
    let blobs = try test.open(FaultingStorage(test.base.storage, plan: plan), packing: Self.tiny)
    let packs = blobs.packs
    _ = try packs.totals()
    // Between the two copies of the header, the first of which makes it a pack.
    plan.before(.write, of: ".pack") {
      plan.before(.write, of: ".pack") { try? packs.refresh() }
    }
    var references: [BlobReference] = []
    for seed in 0..<3 as Range<UInt64> {
      references.append(try blobs.put(bytes: pattern(15_000, seed: seed), durable: false))
    }
    #expect(packs.state.withLock { $0.packs.count } == 1)
    try packs.retireWriter()
    try packs.refresh()
    try packs.reclaim()
    for (seed, reference) in references.enumerated() {
      #expect(try blobs.read(reference) == pattern(15_000, seed: UInt64(seed)))
    }
  }

  @Test("never reuses a number that another process knows as that of a removed pack")
  func numbers() throws {
    let test = try BlobsUnderTest(.disk)
    let watcher = try test.open(packing: Self.tiny)
    let first = try test.open(packing: Self.tiny)
    let gone = try first.put(bytes: pattern(40_000), durable: true)
    #expect(try watcher.retain(gone.hash))
    #expect(try first.remove(gone.hash))
    try first.packs.retireWriter()
    try first.packs.reclaim()
    #expect(try test.packs().isEmpty)
    first.close()
    test.clock.advance(1)
    let second = try test.open(packing: Self.tiny)
    let reference = try second.put(bytes: pattern(40_000, seed: 2), durable: true)
    #expect(try watcher.read(reference) == pattern(40_000, seed: 2))
  }
}

/// Waits for another thread, up to a limit.
final class Signal: Sendable {
  private let isSignalled = Atomic(false)

  func signal() { isSignalled.store(true, ordering: .releasing) }

  func wait(milliseconds: Int) {
    for _ in 0..<milliseconds where !isSignalled.load(ordering: .acquiring) { usleep(1000) }
  }
}
