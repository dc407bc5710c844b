import Glibc
import SyncTestSupport
import Testing

@testable import SyncStore

@Suite struct SimulatedStorageTests {
  private func make(_ path: String, _ bytes: [UInt8], in storage: SimulatedStorage) throws {
    let file = try storage.open(path, .create)
    try file.write(bytes, at: 0)
    try file.sync()
    try storage.syncDirectory("/")
  }

  @Test("Synced data survives, unsynced data is decided page by page (F15)")
  func pages() throws {
    let storage = SimulatedStorage()
    try make("/f", [UInt8](repeating: 1, count: 3 * 4096), in: storage)
    let file = try storage.open("/f", .readWrite)
    try file.write([UInt8](repeating: 2, count: 3 * 4096), at: 0)
    storage.crash(keeping: { path, page in
      #expect(path == "/f")
      return page == 0 ? .survives : page == 1 ? .lost : .torn(sectors: 0b1000_0001)
    })
    let bytes = try #require(try storage.contents(of: "/f", limit: 1 << 20))
    #expect(bytes[..<4096].allSatisfy { $0 == 2 })
    #expect(bytes[4096..<8192].allSatisfy { $0 == 1 })
    #expect(bytes[8192..<8704].allSatisfy { $0 == 2 })
    #expect(bytes[8704..<(12288 - 512)].allSatisfy { $0 == 1 })
    #expect(bytes[(12288 - 512)...].allSatisfy { $0 == 2 })
  }

  @Test("Stores through a mapping are lost and kept like writes (F15, F18)")
  func mapped() throws {
    let storage = SimulatedStorage()
    try make("/f", [UInt8](repeating: 0, count: 8192), in: storage)
    let mapping = try storage.open("/f", .readWrite).map(8192, writable: true)
    mapping.store([1], at: 10)
    mapping.store([2], at: 5000)
    storage.crash(keeping: { _, page in page == 0 ? .lost : .survives })
    mapping.store([9], at: 20)
    let bytes = try #require(try storage.contents(of: "/f", limit: 1 << 20))
    #expect(bytes[10] == 0)
    #expect(bytes[5000] == 2)
    #expect(bytes[20] == 0, "a mapping of the old life reaches nothing")
  }

  @Test("An unsynced size can be lost, and size kept without pages reads as zeros (F19)")
  func sizes() throws {
    for keeping in [true, false] {
      let storage = SimulatedStorage()
      try make("/f", [1], in: storage)
      try storage.open("/f", .readWrite).write([UInt8](repeating: 2, count: 5000), at: 1)
      storage.crash(keeping: { _, _ in .lost }, sizes: { _ in keeping })
      let bytes = try storage.contents(of: "/f", limit: 1 << 20)
      #expect(bytes == (keeping ? [1] + [UInt8](repeating: 0, count: 5000) : [1]))
    }
  }

  @Test("Entries are durable once their directory is synced (F5, F22)")
  func entries() throws {
    let storage = SimulatedStorage()
    try make("/old", [1], in: storage)
    try storage.rename("/old", to: "/new")
    _ = try storage.open("/made", .create)
    storage.crash(keeping: { _, _ in .survives }, entries: { _ in false })
    #expect(try storage.list("/") == ["old"])
    try storage.rename("/old", to: "/new")
    storage.crash(keeping: { _, _ in .survives }, entries: { _ in true })
    #expect(try storage.list("/") == ["new"])
    _ = try storage.remove("/new")
    try storage.syncDirectory("/")
    storage.crash(keeping: { _, _ in .survives }, entries: { _ in false })
    #expect(try storage.list("/") == [])
  }

  @Test("A rename between directories never loses or duplicates the file (F5)", arguments: 0..<50)
  func renames(_ seed: UInt64) throws {
    let storage = SimulatedStorage()
    for directory in ["/a", "/b", "/c"] { _ = try storage.createDirectory(directory) }
    try storage.syncDirectory("/")
    try storage.open("/a/f", .create).sync()
    try storage.syncDirectory("/a")
    try storage.rename("/a/f", to: "/b/f")
    try storage.rename("/b/f", to: "/c/f")
    if seed.isMultiple(of: 2) { try storage.syncDirectory("/c") }
    storage.crash(seed: seed)
    let places = try ["/a/f", "/b/f", "/c/f"].filter { try storage.status($0) != nil }
    #expect(places.count == 1, "seed \(seed)")
    if seed.isMultiple(of: 2) { #expect(places == ["/c/f"]) }
    #expect(try storage.status(places[0])?.links == 1)
  }

  @Test("A lost directory takes its contents along")
  func lostDirectory() throws {
    let storage = SimulatedStorage()
    _ = try storage.createDirectory("/d")
    try storage.open("/d/f", .create).sync()
    try storage.syncDirectory("/d")
    storage.crash(keeping: { _, _ in .survives }, entries: { _ in false })
    #expect(try storage.list("/") == [])
  }

  @Test("The same seed gives the same loss")
  func seeds() throws {
    func run(_ seed: UInt64) throws -> [UInt8] {
      let storage = SimulatedStorage()
      try make("/f", [UInt8](repeating: 1, count: 1 << 16), in: storage)
      var random = SplitMix64(seed: 7)
      try storage.open("/f", .readWrite).write(random.bytes(1 << 16), at: 0)
      storage.crash(seed: seed)
      return try storage.contents(of: "/f", limit: 1 << 20) ?? []
    }
    for seed in 0..<20 as Range<UInt64> { #expect(try run(seed) == run(seed)) }
    #expect(try Set((0..<20 as Range<UInt64>).map(run)).count > 5)
  }

  @Test("A file opened before a loss of power or a kill throws")
  func staleFile() throws {
    let storage = SimulatedStorage()
    try make("/f", [1], in: storage)
    for end in [{ storage.crash(seed: 1) }, { storage.killProcesses() }] {
      let file = try storage.open("/f", .readWrite)
      end()
      #expect(throws: StoreError.self) { try file.read(1, at: 0) }
      #expect(throws: StoreError.self) { try file.write([2], at: 0) }
      #expect(throws: StoreError.self) { try file.sync() }
    }
  }

  @Test("A kill keeps what was written and releases the locks")
  func kill() throws {
    let storage = SimulatedStorage()
    try make("/f", [UInt8](repeating: 0, count: 4096), in: storage)
    let file = try storage.open("/f", .readWrite)
    #expect(try file.lock(byte: 0, .exclusive, wait: false))
    let mapping = try file.map(4096, writable: true)
    mapping.store([1], at: 5)
    try file.write([2], at: 6)
    storage.killProcesses()
    mapping.store([9], at: 7)
    let next = try storage.open("/f", .readWrite)
    #expect(try next.read(3, at: 5) == [1, 2, 0])
    #expect(try next.lock(byte: 0, .exclusive, wait: true))
    storage.crash(keeping: { _, _ in .lost })
    #expect(try storage.contents(of: "/f", limit: 4096)?[5] == 0, "still not durable")
  }

  @Test("A failed sync loses its pages though later ones succeed (rule R4)")
  func failedSync() throws {
    let storage = SimulatedStorage()
    try make("/f", [UInt8](repeating: 1, count: 8192), in: storage)
    let file = try storage.open("/f", .readWrite)
    try file.write([2], at: 0)
    storage.failSync(of: "/f")
    let error = #expect(throws: StoreError.self) { try file.sync() }
    #expect(error?.errno == EIO)
    try file.write([3], at: 4096)
    try file.sync()
    storage.crash(keeping: { _, _ in .lost })
    let bytes = try #require(try storage.contents(of: "/f", limit: 8192))
    #expect(bytes[0] == 1)
    #expect(bytes[4096] == 3)
    storage.failSync(of: "/f", forever: true)
    let again = try storage.open("/f", .readWrite)
    for _ in 0..<3 { #expect(throws: StoreError.self) { try again.sync() } }
  }

  @Test("A full disk is a typed error, and removing a file frees space (F25)")
  func full() throws {
    let storage = SimulatedStorage()
    storage.free = 8192
    let file = try storage.open("/f", .create)
    let error = #expect(throws: StoreError.self) { try file.allocate(to: 3 * 4096) }
    #expect(error?.code == .diskFull)
    #expect(error?.errno == ENOSPC)
    #expect(try file.status().size == 0)
    #expect(storage.free == 8192)
    #expect(throws: StoreError.self) { try file.write([UInt8](repeating: 1, count: 9000), at: 0) }
    #expect(try file.status().size == 8192, "what fitted was written")
    #expect(try storage.freeBytes("/") == 0)
    try file.resize(to: 100)
    #expect(storage.free == 4096)
    _ = try storage.remove("/f")
    #expect(storage.free == 8192)
  }

  @Test("A copied tree has the same bytes with other inodes")
  func copy() throws {
    let storage = SimulatedStorage()
    _ = try storage.createDirectory("/a")
    try storage.open("/a/f", .create).write([1, 2], at: 0)
    try storage.copyTree(from: "/a", to: "/b")
    #expect(try storage.contents(of: "/b/f", limit: 9) == [1, 2])
    #expect(try storage.status("/a/f")?.inode != storage.status("/b/f")?.inode)
    try storage.open("/b/f", .readWrite).write([9], at: 0)
    #expect(try storage.contents(of: "/a/f", limit: 9) == [1, 2])
    storage.crash(keeping: { _, _ in .lost }, entries: { _ in false })
    #expect(try storage.contents(of: "/b/f", limit: 9) == [1, 2])
  }

  @Test("A flipped bit changes exactly one bit")
  func flip() throws {
    let storage = SimulatedStorage()
    try make("/f", [1, 2], in: storage)
    try storage.flipBit(of: "/f", at: 1, bit: 7)
    storage.crash(keeping: { _, _ in .lost })
    #expect(try storage.contents(of: "/f", limit: 9) == [1, 130])
  }

  @Test("A plan fails the named call, once or for ever")
  func plan() throws {
    let storage = FaultingStorage(SimulatedStorage())
    let file = try storage.open("/f", .create)
    storage.plan.fail(.write, number: 2, on: "/f", errno: ENOSPC)
    try file.write([1], at: 0)
    let error = #expect(throws: StoreError.self) { try file.write([1], at: 1) }
    #expect(error?.code == .diskFull)
    try file.write([1], at: 2)
    storage.plan.fail(.sync, forever: true)
    for _ in 0..<2 { #expect(throws: StoreError.self) { try file.sync() } }
    storage.plan.clear()
    try file.sync()
    let calls = storage.plan.calls
    _ = try storage.status("/f")
    #expect(storage.plan.calls == calls + 1)
  }

  @Test("Writeback before a sync covers only a part of the changes; the sync alone makes them durable")
  func writtenBackBefore() throws {
    let storage = SimulatedStorage()
    let file = try storage.open("/file", .create)
    try storage.syncDirectory("/")
    try file.allocate(to: 64 * 4096)
    try file.sync()
    try file.write([UInt8](repeating: 7, count: 64 * 4096), at: 0)
    file.startWriteback()
    storage.crash(keeping: { _, _ in .lost })
    let bytes = try storage.open("/file", .readOnly).read(64 * 4096, at: 0)
    let whole = (0..<64).filter { bytes[$0 * 4096] == 7 }.count
    #expect(whole > 5 && whole < 59, "\(whole) pages of 64")
  }

  @Test("A sync reports a writeback that failed before it, once, and the pages stay lost")
  func failedBefore() throws {
    let storage = SimulatedStorage()
    let file = try storage.open("/file", .create)
    try storage.syncDirectory("/")
    try file.write([UInt8](repeating: 7, count: 8192), at: 0)
    storage.failSync(of: "/file")
    file.startWriteback()
    #expect(code { try file.sync() } == .inputOutput)
    try file.sync()
    storage.crash(keeping: { _, _ in .lost })
    #expect(try storage.open("/file", .readOnly).read(8192, at: 0).allSatisfy { $0 == 0 })
  }

  @Test("The status of an open file is that of its opening, whatever happened since")
  func statusAtOpening() throws {
    let storage = SimulatedStorage()
    let file = try storage.open("/file", .create)
    try file.allocate(to: 4096)
    #expect(try file.sizeAtOpening == 0 && file.statusAtOpening.size == 0 && file.status().size == 4096)
  }
}
