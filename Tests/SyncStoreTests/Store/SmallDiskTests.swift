import CLinux
import Foundation
import Glibc
import SyncTestSupport
import Testing

@testable import SyncStore

/// A file system that holds nothing else gets full, and is recovered by means of the store alone.
@Suite("A store that fills its own small disk")
struct SmallDiskTests {
  /// A file system, and the seed of its content.
  struct Disk: Sendable, CustomTestStringConvertible {
    var type: String
    var megabytes: Int
    var seed: UInt64
    var testDescription: String { "\(type), seed \(seed)" }

    /// Nil, with a message, where the machine cannot make one.
    func image() throws -> LoopImage? {
      guard LoopImage.isAvailable(type) else {
        print("skipped: this machine cannot make a file system of type \(type)")
        return nil
      }
      let image = try LoopImage(megabytes: megabytes, type: type)
      // A larger one would only take longer.
      if megabytes > 24 { try image.fill(leaving: 10 << 20) }
      return image
    }
  }

  /// One of each type that frees removed files at once; with `ALL_CALLS=1` (`make calls`) several.
  static let disks = EachCall.seeds(4, usually: 1).flatMap { seed in
    [("tmpfs", 10), ("ext4", 14), ("xfs", 320)].map {
      Disk(type: $0.0, megabytes: $0.1, seed: seed + 1)
    }
  }

  /// Puts values until not even one of a byte fits. Returns the keys.
  private func fill(_ store: Store, from first: Int, sizes: ClosedRange<Int>, random: inout SplitMix64) throws
    -> [Int: Int]
  {
    var (held, next, count) = ([Int: Int](), first, 200)
    while count > 0 {
      let batch = (0..<count).map { (next + $0, Int.random(in: sizes, using: &random)) }
      do {
        try store.transaction(durability: .relaxed) { transaction in
          for (key, size) in batch {
            try transaction.put(
              Key("key-\(key)"), [UInt8](repeating: UInt8(truncatingIfNeeded: key), count: size))
          }
        }
        for (key, size) in batch { held[key] = size }
        next += count
      } catch let error as StoreError where error.code == .diskFull { count /= 2 }
    }
    #expect(
      #expect(throws: StoreError.self) {
        for key in 0..<10_000 { try store.put(Key("last-\(key)"), [UInt8](repeating: 1, count: 1000)) }
      }?.code == .diskFull)
    try store.deleteAll(KeyRange(prefix: Array("last-".utf8)))
    return held
  }

  private static func listing(_ image: LoopImage) -> String {
    let disk = DiskStorage()
    let journal = image.path + "/store/journal"
    let files = (try? disk.list(journal))?.map {
      "\($0) \((try? disk.status(journal + "/" + $0))?.size ?? 0)"
    }
    return "\((try? disk.freeBytes(image.path)) ?? 0) bytes free, \(files ?? [])"
  }

  private func expect(_ store: Store, holds held: [Int: Int]) throws {
    #expect(try store.status().keys == held.count)
    for (key, size) in held {
      #expect(
        try store.get(Key("key-\(key)"))?.bytes
          == [UInt8](repeating: UInt8(truncatingIfNeeded: key), count: size))
    }
  }

  @Test(
    "E accepts deletes of any share of its keys, is compacted and accepts puts again, repeatedly (F25)",
    .enabled(if: LoopImage.isAvailable, "needs the right to mount"), .timeLimit(.minutes(2)), arguments: disks
  )
  func rounds(disk: Disk) throws {
    guard let image = try disk.image() else { return }
    var random = SplitMix64(seed: disk.seed)
    let path = image.path + "/store"
    var store = try Store.create(at: path)
    var (held, next) = ([Int: Int](), 0)
    for round in 0..<3 {
      let sizes = [900...900, 0...3000, 50...5000][(round + Int(disk.seed)) % 3]
      let new = try fill(store, from: next, sizes: sizes, random: &random)
      held.merge(new) { $1 }
      next += 1_000_000
      if Bool.random(using: &random) {
        try store.close()
        store = try Store.open(at: path)
      }
      let share = round == 0 ? 100 : Int.random(in: 30...100, using: &random)
      if share == 100 {
        #expect(try store.deleteAll() == held.count)
        held = [:]
      } else {
        for key in held.keys.sorted() where Int.random(in: 0..<100, using: &random) < share {
          #expect(try store.delete(Key("key-\(key)"), durability: .relaxed))
          held[key] = nil
        }
      }
      if Bool.random(using: &random) {
        try store.close()
        store = try Store.open(at: path)
      }
      let state = { "round \(round), \(share) %: \(Self.listing(image))" }
      #expect(throws: Never.self, "\(state())") {
        try store.compact()
        try store.trim()
        try store.put("after", [UInt8](repeating: 1, count: 10_000))
      }
      #expect(try store.delete("after"))
      try expect(store, holds: held)
    }
    #expect(try store.verify().isClean)
    try store.close()
  }

  @Test(
    "E loses nothing if space is freed late, is never poisoned, and recovers once there is space (F25, F27)",
    .enabled(if: LoopImage.isAvailable("btrfs"), "needs the right to mount, and btrfs"),
    .timeLimit(.minutes(2)), arguments: [1, 2, 3] as [UInt64])
  func copyOnWrite(seed: UInt64) throws {
    guard let image = try Disk(type: "btrfs", megabytes: 120, seed: seed).image() else { return }
    var random = SplitMix64(seed: seed)
    let path = image.path + "/store"
    var store = try Store.create(at: path)
    var held = try fill(store, from: 0, sizes: 50...3000, random: &random)
    var refused = 0
    for key in held.keys.sorted() where Bool.random(using: &random) {
      do {
        try store.delete(Key("key-\(key)"), durability: .relaxed)
        held[key] = nil
      } catch {
        #expect(error.code == .diskFull, "\(error)")
        refused += 1
      }
    }
    do { try store.compact() } catch { #expect(error.code == .diskFull, "\(error)") }
    try expect(store, holds: held)
    try store.close()
    store = try Store.open(at: path)
    try expect(store, holds: held)
    image.drain()
    try store.compact()
    try store.put("after", [UInt8](repeating: 1, count: 100_000))
    #expect(try store.delete("after"))
    try expect(store, holds: held)
    #expect(try store.verify().isClean, "\(refused) deletes were refused")
    try store.close()
  }

  @Test(
    "E allocates the blocks of a mapping, or fails, also where MADV_POPULATE_WRITE is refused (F25)",
    .enabled(if: LoopImage.isAvailable, "needs the right to mount"), .timeLimit(.minutes(1)),
    arguments: [false, true])
  func mapped(isFull: Bool) throws {
    let (pages, bytes) = (8, 8 * 4096)
    let image = try LoopImage(megabytes: 8, make: ["-b", "1024"])
    let file = try DiskStorage().open(image.path + "/mapped", .create)
    // As SQLite extends its shared memory: this allocates a quarter of each page.
    for page in 0..<pages { try file.write([120], at: page * 4096 + 4095) }
    try file.sync()
    if isFull { try image.fill() }
    let descriptor = unsafe open(file.path, O_RDWR)
    guard let start = unsafe mmap(nil, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0) else {
      Issue.record("mmap: \(errno)")
      return
    }
    defer {
      unsafe munmap(start, bytes)
      close(descriptor)
    }
    let result = unsafe sync_touch_for_writing(start, UInt64(bytes))
    let code = errno
    #expect(result == (isFull ? -1 : 0))
    if isFull { #expect(code == EFAULT) } else { unsafe memset(start, 7, 4095) }
    let last = unsafe start.load(fromByteOffset: 4095, as: UInt8.self)
    #expect(last == 120, "nothing was changed")
  }

  @Test(
    "E keeps what a compaction needs, whatever deletes and openings consume (F25)",
    .enabled(if: LoopImage.isAvailable, "needs the right to mount"), .timeLimit(.minutes(2)),
    arguments: [false, true])
  func kept(isEncrypted: Bool) throws {
    let image = try LoopImage(megabytes: 10, type: "tmpfs")
    let path = image.path + "/store"
    var environment = Environment.real(handlesSignals: false)
    // Compaction and trimming only on request.
    environment.compactionMode = .onRequest
    var configuration = Configuration(durability: .relaxed)
    if isEncrypted { configuration.passphrase = Passphrase("a secret of the test") }
    var store = try Store.create(
      at: path, name: nil, id: nil, configuration: configuration, environment: environment)
    var random = SplitMix64(seed: 1)
    let held = try fill(store, from: 0, sizes: 300...300, random: &random)
    try image.fill()
    var deleted = 0
    for _ in 0..<6 {
      // A delete too large to fit: it is refused.
      for key in held.keys.sorted().dropFirst(deleted) {
        guard (try? store.delete(Key("key-\(key)"))) != nil else { break }
        deleted += 1
      }
      try store.close()
      store = try Store.open(at: path, configuration: configuration, environment: environment)
      try image.fill()
    }
    #expect(deleted > 1000, "\(deleted)")
    #expect(#expect(throws: StoreError.self) { try store.put("more", "x") }?.code == .diskFull)
    #expect(code { try store.delete(Key("key-\(held.keys.sorted()[deleted])")) } == .diskFull)
    #expect(try store.compact() > 0)
    try store.close()
    store = try Store.open(at: path, configuration: configuration, environment: environment)
    while try store.status().keys > 0 {
      let before = try store.status().keys
      for key in held.keys.sorted().dropFirst(deleted) {
        guard (try? store.delete(Key("key-\(key)"))) != nil else { break }
        deleted += 1
      }
      try store.compact()
      guard try store.status().keys < before else { break }
    }
    #expect(try store.status().keys == 0)
    try store.put("more", "x")
    #expect(try store.verify().isClean)
    try store.close()
  }

  @Test(
    "E reads large values and crashes no process, however little space the catalogue's files have (F25)",
    .enabled(if: LoopImage.isAvailable, "needs the right to mount"), .timeLimit(.minutes(2)))
  func catalogue() throws {
    // SQLite maps pages for which it found space for one block of four.
    let image = try LoopImage(megabytes: 14, make: ["-b", "1024"])
    let path = image.path + "/store"
    let large = [UInt8](repeating: 7, count: 300_000)
    var store = try Store.create(at: path)
    try store.put("large", large)
    try store.close()
    for kilobytes in stride(from: 0, through: 64, by: 4) {
      image.drain()
      try image.fill(leaving: kilobytes << 10)
      store = try Store.open(at: path)
      #expect(try store.get("large")?.bytes == large)
      for use in [{ _ = try store.verify() }, { try store.put("more", large) }, { _ = try store.trim() }] {
        do { try use() } catch let error as StoreError {
          #expect(error.code == .diskFull, "\(kilobytes) KiB: \(error)")
        }
      }
      try store.close()
    }
    image.drain()
    store = try Store.open(at: path)
    try store.put("more", large)
    #expect(try store.verify().isClean && store.get("more")?.bytes == large)
    try store.close()
  }
}
