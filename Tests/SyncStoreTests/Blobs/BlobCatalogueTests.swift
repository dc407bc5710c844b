import Foundation
import Glibc
import SyncTestSupport
import Testing

@testable import SyncStore

@Suite struct BlobCatalogueTests {
  private static let catalogue = "catalogue.sqlite"

  private static var golden: String {
    get throws {
      try String(contentsOf: Checkout.url("schemas/catalogue.sql"), encoding: .utf8)
    }
  }

  private func described(_ database: SQLiteConnection) throws -> [[SQLiteValue]] {
    try database.run("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name")
      + database.run("PRAGMA user_version") + database.run("PRAGMA application_id")
      + database.run("SELECT * FROM pragma_table_info('object')")
  }

  @Test("The catalogue has the schema that schemas/catalogue.sql gives")
  func schema() throws {
    let test = try BlobsUnderTest(.disk)
    let blobs = try test.open()
    _ = try blobs.put(bytes: [1], durable: true)
    blobs.close()
    let made = try SQLiteConnection(path: test.directory + "/" + Self.catalogue)
    let golden = try SQLiteConnection(path: nil)
    try golden.execute(Self.golden)
    #expect(try described(made) == described(golden))
    #expect(try made.run("PRAGMA journal_mode") == [[.text("wal")]])
  }

  @Test("A row holds the metadata of an object", arguments: StorageUnderTest.Kind.allCases)
  func rows(_ kind: StorageUnderTest.Kind) throws {
    let test = try BlobsUnderTest(kind)
    let blobs = try test.open()
    let reference = try blobs.put(bytes: [1, 2], durable: false)
    #expect(
      try blobs.catalogue.rows() == [
        BlobCatalogue.Row(
          hash: reference.hash, size: 2, state: .present, durable: false, created: 1_000_000,
          accessed: 1_000_000)
      ])
    test.clock.advance(5)
    _ = try blobs.put(bytes: [1, 2], durable: true)
    test.clock.advance(5)
    _ = try blobs.read(reference)
    blobs.checkpoint()
    let row = try #require(try blobs.catalogue.row(reference.hash))
    #expect(row.durable)
    #expect(row.created == 1_000_000)
    #expect(row.accessed == 1_000_010)
    try blobs.remove(reference.hash)
    #expect(try blobs.catalogue.rows() == [])
    #expect(blobs.catalogueError == nil)
  }

  enum Damage: CaseIterable {
    case missing, empty, garbage, flipped, cut, directory, fifo, link, otherDatabase, wrongTable
  }

  @Test(
    "A damaged or missing catalogue is rebuilt from the files (F43, F45)",
    arguments: Damage.allCases)
  func damaged(_ damage: Damage) throws {
    let test = try BlobsUnderTest(.disk)
    var blobs = try test.open()
    let references = try (0..<50).map { try blobs.put(bytes: pattern(300, seed: $0), durable: true) }
    blobs.close()
    let path = test.directory + "/" + Self.catalogue
    let disk = DiskStorage()
    switch damage {
    case .missing: _ = try disk.remove(path)
    case .empty: try disk.open(path, .readWrite).resize(to: 0)
    case .garbage: try disk.open(path, .readWrite).write(pattern(20_000), at: 0)
    case .flipped: for offset in [30, 100, 4100, 8200] { try test.flip(path, at: offset) }
    case .cut: try disk.open(path, .readWrite).resize(to: 5000)
    case .directory:
      _ = try disk.remove(path)
      _ = try disk.createDirectory(path)
    case .fifo:
      _ = try disk.remove(path)
      #expect(unsafe mkfifo(path, 0o600) == 0)
    case .link:
      try disk.rename(path, to: test.base.root + "/elsewhere")
      #expect(unsafe symlink("../elsewhere", path) == 0)
    case .otherDatabase:
      let database = try SQLiteConnection(path: path)
      try database.execute("PRAGMA application_id = 7")
    case .wrongTable:
      let database = try SQLiteConnection(path: path)
      try database.execute("ALTER TABLE object RENAME COLUMN durable TO other")
    }
    blobs = try test.open()
    for reference in references { #expect(try blobs.read(reference).count == 300) }
    _ = try blobs.verify()
    #expect(try blobs.put(bytes: pattern(300, seed: 0), durable: true) == references[0])
    #expect(try blobs.catalogue.rows().map(\.hash) == references.map(\.hash).sorted())
    #expect(try blobs.verify() == [])
    blobs.close()
    #expect(try test.open().catalogue.rows().count == 50)
  }

  @Test("A catalogue of a newer program is left unchanged (F100)")
  func newer() throws {
    let test = try BlobsUnderTest(.disk)
    var blobs = try test.open()
    let reference = try blobs.put(bytes: [1], durable: true)
    blobs.close()
    let database = try SQLiteConnection(path: test.directory + "/" + Self.catalogue)
    try database.execute("PRAGMA user_version = 4")
    blobs = try test.open()
    let error = #expect(throws: StoreError.self) { try blobs.catalogue.rows() }
    #expect(error?.code == .newerFormat)
    #expect(try blobs.read(reference) == [1])
    #expect(try database.run("PRAGMA user_version") == [[.integer(4)]])
  }

  @Test("Objects are served while the catalogue is deleted (F43)")
  func deletedUnderWay() throws {
    let test = try BlobsUnderTest(.disk)
    let blobs = try test.open()
    let first = try blobs.put(bytes: [1], durable: true)
    for name in try DiskStorage().list(test.directory) where name.hasPrefix(Self.catalogue) {
      _ = try DiskStorage().remove(test.directory + "/" + name)
    }
    #expect(try blobs.read(first) == [1])
    let second = try blobs.put(bytes: [2], durable: true)
    #expect(try blobs.read(second) == [2])
    #expect(try blobs.catalogue.rows().map(\.hash) == [first.hash, second.hash].sorted())
    #expect(try DiskStorage().status(test.directory + "/" + Self.catalogue) != nil)
  }

  @Test("A catalogue that cannot be opened fails neither puts nor reads", arguments: [true, false])
  func unavailable(_ early: Bool) throws {
    let test = try BlobsUnderTest(.disk)
    let storage = FaultingStorage(test.base.storage)
    let blobs = try test.open(storage)
    if !early { _ = try blobs.put(bytes: [1], durable: true) }
    storage.plan.fail(on: "catalogue", forever: true)
    let reference = try blobs.put(bytes: [1], durable: true)
    #expect(try blobs.read(reference) == [1])
    #expect(try blobs.put(bytes: [1], durable: true) == reference)
    #expect(blobs.catalogueError != nil)
    #expect(throws: StoreError.self) { try blobs.sweepOrphans(referenced: [], graceSeconds: 0, now: .max) }
    #expect(try blobs.has(reference))
  }

  @Test(
    "A put that cannot be announced to a running sweep does not rely on existing objects, but stores them")
  func claimDuringSweep() throws {
    let test = try BlobsUnderTest(.disk)
    let blobs = try test.open()
    let reference = try blobs.put(bytes: [1], durable: true)
    try blobs.catalogue.perform { (database) throws(StoreError) in
      _ = try database.run("PRAGMA busy_timeout = 10")
    }
    let sweeping = try SQLiteConnection(path: test.directory + "/" + Self.catalogue)
    try sweeping.execute("BEGIN IMMEDIATE")
    #expect(#expect(throws: StoreError.self) { try blobs.put(bytes: [1], durable: true) }?.code == .busy)
    #expect(#expect(throws: StoreError.self) { try blobs.makeDurable([reference]) }?.code == .busy)
    #expect(#expect(throws: StoreError.self) { try blobs.retain(reference.hash) }?.code == .busy)
    let other = try blobs.put(bytes: [2], durable: true)
    #expect(try blobs.read(other) == [2])
    // The sweep claims the object whose row it holds: a put of the same content is told that it is new.
    _ = try DiskStorage().remove(test.objectPath(reference))
    try sweeping.execute("DELETE FROM object; COMMIT")
    #expect(try blobs.put(bytes: [1], durable: true) == reference)
    #expect(try blobs.read(reference) == [1])
  }

  @Test("A put does not rely on the catalogue of a failing disk, but stores the objects")
  func claimOnFailingDisk() throws {
    let test = try BlobsUnderTest(.disk)
    let blobs = try test.open()
    let reference = try blobs.put(bytes: [1], durable: true)
    try blobs.catalogue.perform { (database) throws(StoreError) in
      // A statement that fails with an error other than a full, locked or damaged catalogue.
      try database.execute(
        "CREATE TRIGGER failing BEFORE UPDATE ON object BEGIN SELECT hex(zeroblob(1000000000)); END")
    }
    #expect(
      #expect(throws: StoreError.self) { try blobs.put(bytes: [1], durable: true) }?.code == .inputOutput)
    #expect(#expect(throws: StoreError.self) { try blobs.retain(reference.hash) }?.code == .inputOutput)
    let other = try blobs.put(bytes: [2], durable: true)
    #expect(try blobs.read(other) == [2])
  }

  @Test("A copy whose catalogue another process has locked reports no holdings, and ends no session")
  func holdingsDuringSweep() throws {
    let directory = TemporaryDirectory()
    let store = try Store.create(at: directory.path + "/store")
    try store.put("large", pattern(5 << 20, seed: 1))
    let blob = try #require(try store.entry("large")?.blob)
    #expect(try store.holdings(of: [blob])?.held == [true])
    try store.blobs.catalogue.perform { (database) throws(StoreError) in
      _ = try database.run("PRAGMA busy_timeout = 10")
    }
    let sweeping = try SQLiteConnection(path: store.path + "/blobs/" + Self.catalogue)
    try sweeping.execute("BEGIN IMMEDIATE")
    #expect(try store.holdings(of: [blob]) == nil)
    try sweeping.execute("COMMIT")
    #expect(try store.holdings(of: [blob])?.held == [true])
  }

  @Test("The write-ahead log is bounded, and empty after a checkpoint")
  func bounded() throws {
    let test = try BlobsUnderTest(.disk)
    let blobs = try test.open()
    for number in 0..<300 as Range<UInt64> {
      _ = try blobs.put(bytes: pattern(8, seed: number), durable: false)
    }
    let log = test.directory + "/catalogue.sqlite-wal"
    #expect(try DiskStorage().status(log)?.size ?? 0 > 0)
    blobs.checkpoint()
    #expect(try DiskStorage().status(log)?.size == 0)
    #expect(blobs.catalogueError == nil)
  }

  @Test(
    "Two stores and four threads put the same content concurrently, and it is stored once",
    arguments: [true, false])
  func together(_ durable: Bool) async throws {
    let test = try BlobsUnderTest(.disk)
    let stores = [try test.open(), try test.open()]
    let failures = Failures()
    await withTaskGroup(of: Void.self) { group in
      for thread in 0..<4 {
        group.addTask {
          for number in 0..<30 as Range<UInt64> {
            failures.collect {
              let bytes = pattern(5000, seed: number)
              let reference = try stores[thread % 2].put(bytes: bytes, durable: durable)
              if try stores[(thread + 1) % 2].read(reference) != bytes {
                throw StoreError(.damaged, "differs")
              }
            }
          }
        }
      }
    }
    #expect(failures.all == [])
    #expect(try test.names().count == 30)
    #expect(try stores[0].verify() == [])
    #expect(try stores[1].catalogue.rows().filter { $0.durable == durable }.count == 30)
    #expect(stores.allSatisfy { $0.catalogueError == nil })
  }
}
