import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// Real disks that fail, turn read-only or run out of blocks for written data.
@Suite("A failing disk", .enabled(if: LoopImage.isAvailable, "needs the right to mount"))
struct FailingDiskTests {
  static let small = Configuration(durability: .relaxed, segmentBytes: 1 << 20)

  /// A store with 100 values in two segments, the first of them durable.
  func filled(_ image: LoopImage) throws -> Store {
    let store = try Store.create(at: image.path + "/store", configuration: Self.small)
    try store.put("blob", [UInt8](repeating: 5, count: 40_000))
    try RotationTests.fill(store, 100)
    try store.sync()
    return store
  }

  func expectReadable(_ store: Store) throws {
    for number in 0..<100 { #expect(try store.get(Key("\(number)"))?.bytes.count == 15_000) }
  }

  /// Writes until one fails; returns the error.
  func firstRefusal(_ store: Store, _ durability: Durability) throws -> StoreError {
    try #require(
      #expect(throws: StoreError.self) {
        for number in 0..<2000 {
          try store.put(Key("new\(number)"), [UInt8](repeating: 1, count: 5000), durability: durability)
        }
      })
  }

  @Test("F34 mounted read-only is read, and writes say why they fail")
  func mountedReadOnly() throws {
    let image = try LoopImage(megabytes: 24)
    try filled(image).close()
    try #require(image.remount("ro"))
    for mode in [Configuration.Mode.exclusive, .shared] {
      let error = #expect(throws: StoreError.self) {
        try Store.open(at: image.path + "/store", configuration: Configuration(mode: mode))
      }
      #expect(error?.code == .readOnly)
      #expect(error?.message.contains("mount the file system for writing") == true)
    }
    let store = try Store.open(at: image.path + "/store", configuration: Configuration(mode: .readOnly))
    try expectReadable(store)
    #expect(try store.get("blob")?.bytes.count == 40_000)
    #expect(try store.verify().isClean)
    #expect(#expect(throws: StoreError.self) { try store.put("k", "v") }?.code == .readOnly)
    #expect(throws: StoreError.self) { try Store.create(at: image.path + "/other") }
    try store.close()
    try #require(image.remount("rw"))
    let again = try Store.open(at: image.path + "/store", configuration: Self.small)
    try again.put("k", "v")
    try again.close()
  }

  @Test(
    "F34 that turns read-only in use is still read, and writes fail", arguments: [Durability.full, .relaxed])
  func turnsReadOnly(durability: Durability) throws {
    let image = try LoopImage(megabytes: 24, options: "loop,errors=remount-ro")
    let store = try filled(image)
    let device = try #require(image.device)
    try Data("1".utf8).write(to: URL(fileURLWithPath: "/sys/fs/ext4/\(device)/trigger_fs_error"))
    let error = try firstRefusal(store, durability)
    #expect([.poisoned, .readOnly].contains(error.code), "\(error)")
    #expect(throws: StoreError.self) { try store.sync() }
    #expect(
      #expect(throws: StoreError.self) { try store.put("k", "v", durability: .full) }?.code == .poisoned)
    try expectReadable(store)
    #expect(try store.get("blob")?.bytes.count == 40_000)
    try store.close()
    let again = try Store.open(at: image.path + "/store", configuration: Configuration(mode: .readOnly))
    try expectReadable(again)
    try again.close()
  }

  @Test(
    "F29 that accepts no more writes fails them, and is still read",
    arguments: [Durability.full, .relaxed])
  func takesNoWrites(durability: Durability) throws {
    let image = try LoopImage(megabytes: 24)
    let store = try filled(image)
    try image.shutDown()
    let error = try firstRefusal(store, durability)
    #expect([.poisoned, .inputOutput].contains(error.code), "\(error)")
    #expect(
      #expect(throws: StoreError.self) { try store.put("k", "v", durability: .full) }?.code == .poisoned)
    try expectReadable(store)
    try store.close()
  }

  @Test("F28 with an unreadable page loses the keys on it, and no others")
  func givesNothingBack() throws {
    let image = try LoopImage(megabytes: 24)
    let store = try filled(image)
    let lost = 0..<(256 << 10)
    let first = store.core.engine.withLock { $0.journal.segments[0] }
    try #require(image.forget(lost, of: first.file.path, first.mapping))
    try image.shrink(to: 64 << 10)
    var failed: Set<Int> = []
    for number in 0..<100 {
      do throws(StoreError) {
        #expect(try store.get(Key("\(number)"))?.bytes.count == 15_000)
      } catch {
        #expect(error.code == .inputOutput)
        #expect(error.path == first.file.path)
        failed.insert(number)
      }
    }
    // 17 values of 15,000 bytes lie there; memory may be cached in larger units than pages.
    #expect(failed.count >= 10 && failed.count <= 20)
    #expect(failed.contains(5))
    #expect(throws: StoreError.self) { try store.list() }
    try? store.close()
    // Unreadable data is not cut off as if it had never been written.
    #expect(throws: StoreError.self) {
      try Store.open(at: image.path + "/store", configuration: Self.small)
    }
  }

  @Test("F26 without space for a page never allocated marks the mapping, and does not crash")
  func holeWithoutSpace() throws {
    let image = try LoopImage(megabytes: 8)
    let file = try DiskStorage().open(image.path + "/file", .create)
    try file.resize(to: 1 << 20)
    try image.fill()
    let mapping = try file.map(1 << 20, writable: true)
    #expect(mapping.fault == nil)
    for page in 0..<256 { mapping.store(UInt64(7), at: page * 4096) }
    #expect(mapping.fault == .refused)
    // Only this process sees it.
    #expect(mapping.load(255 * 4096, as: UInt64.self) == 7)
    #expect(try file.read(8, at: 255 * 4096) == [UInt8](repeating: 0, count: 8))
  }

  @Test("F26 a pack without space for its table fails the put, and is not reported durable")
  func packTableWithoutSpace() throws {
    let image = try LoopImage(megabytes: 8)
    let blobs = try BlobStore.open(
      directory: image.path + "/blobs", storage: DiskStorage(), packing: PackReclaimTests.tiny,
      environment: BlobEnvironment(now: { 1_000_000 }))
    _ = try blobs.put(bytes: pattern(1000), durable: true)
    let pack = try #require(try blobs.packs.openForTests().first?.0)
    // As on a copy-on-write file system: each store to a page needs a new block.
    try #require(LoopImage.run(["fallocate", "-p", "-o", "4096", "-l", "4096", pack.file.path]))
    try image.fill()
    #expect(throws: StoreError.self) { try blobs.put(bytes: pattern(1000, seed: 2), durable: true) }
    // The pack gets no more objects, and blocks no sync: it held nothing that was not durable.
    try blobs.sync()
    image.drain()
    let other = try blobs.put(bytes: pattern(1000, seed: 3), durable: false)
    #expect(try blobs.read(other) == pattern(1000, seed: 3))
    #expect(try blobs.packs.openForTests().count == 2)
  }
}
