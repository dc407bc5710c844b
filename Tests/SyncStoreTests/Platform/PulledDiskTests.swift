import Glibc
import Synchronization
import SyncTestSupport
import Testing

@testable import SyncStore

/// A real file system that is lost while the machine keeps running, and is mounted again: the boot is the
/// same, and unsynced data is lost.
@Suite(
  "A disk that was removed and attached again (F29)",
  .enabled(if: LoopImage.isAvailable, "needs the right to mount"))
struct PulledDiskTests {
  static let configuration = Configuration(durability: .relaxed, segmentBytes: 1 << 20)

  static func value(_ number: Int, _ bytes: Int) -> [UInt8] { pattern(bytes, seed: UInt64(number) + 1) }

  static func open(_ image: LoopImage) throws -> Store {
    try Store.open(at: image.path + "/store", configuration: configuration)
  }

  /// From now on nothing reaches the disk; the process dies, and the file system is mounted again.
  static func pull(_ image: LoopImage, _ store: inout Store?) throws {
    try image.shutDown()
    try? store?.close()
    store = nil
    try image.mountAgain()
  }

  /// Everything that a store holds according to its index, and then according to its journal alone.
  private func contents(_ image: LoopImage) throws -> (byIndex: [String], byJournal: [String]) {
    func contents() throws -> [String] {
      let store = try Self.open(image)
      defer { try? store.close() }
      #expect(try store.verify().isClean)
      return try store.list().map { item in
        "\(item.key) \(XXH3.hash64(try store.get(item.key)?.bytes ?? [], seed: 0))"
      }
    }
    let byIndex = try contents()
    let storage = DiskStorage()
    for name in ["index", "ledger"] { _ = try storage.remove(image.path + "/store/" + name) }
    return (byIndex, try contents())
  }

  @Test(
    "shows all durable writes, and nothing missing from it is trusted", arguments: [100, 30_000])
  func comesBack(bytes: Int) throws {
    let image = try LoopImage(megabytes: 32)
    var store: Store? = try Store.create(at: image.path + "/store", configuration: Self.configuration)
    for number in 0..<20 { try store?.put(Key("\(number)"), Self.value(number, bytes)) }
    // The kernel writes everything back from time to time: that data is old when the disk is lost.
    image.writeBack()
    for number in 20..<40 {
      try store?.put(Key("\(number)"), Self.value(number, bytes), durability: .full)
    }
    for number in 40..<60 { try store?.put(Key("\(number)"), Self.value(number, bytes)) }
    // Some files before others: they name content that the others do not hold.
    for name in ["index", "ledger", "control"] {
      try DiskStorage().open(image.path + "/store/" + name, .readWrite).sync()
    }
    if bytes > 20_480 {
      for (pack, _) in try store?.blobs.packs.openForTests() ?? [] {
        try pack.file.sync(0..<pack.header.tableBytes, of: pack.table)
      }
    }
    try Self.pull(image, &store)
    store = try Self.open(image)
    let found = try (0..<60).filter { try store?.contains(Key("\($0)")) ?? false }
    #expect(found == Array(0..<found.count) && found.count >= 40)
    for number in found { #expect(try store?.get(Key("\(number)"))?.bytes == Self.value(number, bytes)) }
    // A repeated put is not taken for present.
    for number in 40..<60 {
      try store?.put(Key("\(number)"), Self.value(number, bytes), durability: .full)
    }
    try Self.pull(image, &store)
    let (byIndex, byJournal) = try contents(image)
    #expect(byIndex == byJournal && byIndex.count == 60)
    store = try Self.open(image)
    for number in 0..<60 {
      #expect(try store?.get(Key("\(number)"))?.bytes == Self.value(number, bytes), "\(number)")
    }
    try store?.close()
  }

  /// Takes the disk away while `work` runs on its own thread, which ends with the first error. It must leave
  /// nothing open.
  private func lose(_ image: LoopImage, seed: UInt64, _ work: @escaping @Sendable () throws -> Void) throws {
    var random = SplitMix64(seed: seed)
    let thread = Threaded { try? work() }
    thread.start()
    usleep(2000 + UInt32(random.next() % 15_000))
    try image.shutDown()
    thread.join()
  }

  @Test(
    "may be removed during a file sync: durable data survives a replay of the file system's journal"
  )
  func withinSync() throws {
    let image = try LoopImage(megabytes: 32)
    let pages = 1024
    for round in 0..<12 as Range<UInt64> {
      let path = image.path + "/\(round)"
      let acknowledged = Atomic(0)
      try lose(image, seed: round) {
        let file = try DiskStorage().open(path, .create)
        try file.allocate(to: pages * 4096)
        try file.sync()
        try DiskStorage().syncDirectory(image.path)
        for page in 0..<pages {
          try file.write(pattern(100, seed: UInt64(page)), at: page * 4096)
          try file.sync()
          acknowledged.store(page + 1, ordering: .relaxed)
        }
      }
      try image.mountAgain()
      let durable = acknowledged.load(ordering: .relaxed)
      guard durable > 0 else { continue }
      let file = try DiskStorage().open(path, .readOnly)
      let lost = try (0..<durable).filter { page in
        try file.read(100, at: page * 4096) != pattern(100, seed: UInt64(page))
      }
      #expect(lost.isEmpty, "round \(round): pages \(lost) of \(durable)")
      _ = try DiskStorage().remove(path)
    }
  }

  @Test(
    "may be removed during a write to a store: acknowledged durable writes survive", arguments: [100, 30_000])
  func withinPut(bytes: Int) throws {
    let image = try LoopImage(megabytes: 48)
    let path = image.path + "/store"
    try Store.create(at: path, configuration: Self.configuration).close()
    image.writeBack()
    var expected: [(key: Key, number: Int)] = []
    for round in 0..<6 as Range<UInt64> {
      let acknowledged = Atomic(0)
      try lose(image, seed: round) {
        let store = try Self.open(image)
        defer { try? store.close() }
        for number in 0..<1000 {
          try store.put(Key("\(round) \(number)"), Self.value(number, bytes), durability: .full)
          acknowledged.store(number + 1, ordering: .relaxed)
        }
      }
      try image.mountAgain()
      let durable = acknowledged.load(ordering: .relaxed)
      expected += try (0..<durable).map { (try Key("\(round) \($0)"), $0) }
      let store = try Self.open(image)
      let lost = try expected.filter { key, number in
        try store.get(key)?.bytes != Self.value(number, bytes)
      }
      #expect(lost.isEmpty, "round \(round): \(lost.map(\.key)) of \(durable)")
      #expect(try store.verify().isClean)
      try store.close()
    }
  }
}
