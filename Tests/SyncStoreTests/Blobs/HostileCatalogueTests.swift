import Synchronization
import SyncTestSupport
import Testing

@testable import SyncStore

/// Valid SQLite catalogues that the product would never have written (F43). Inputs found by fuzzing are in
/// `Fuzz/Corpus/Catalogues`.
@Suite struct HostileCatalogueTests {
  private let test: BlobsUnderTest
  private let references: [BlobReference]
  private var path: String { test.directory + "/catalogue.sqlite" }

  init() throws {
    test = try BlobsUnderTest(.disk)
    let blobs = try test.open()
    references = try (0..<5).map { try blobs.put(bytes: pattern(300, seed: $0), durable: true) }
    blobs.close()
  }

  /// Every value is served, unreferenced objects are removed, and the catalogue is correct again.
  private func expectMended() throws {
    let blobs = try test.open()
    for reference in references { #expect(try blobs.read(reference).count == 300) }
    #expect(try blobs.put(bytes: pattern(300, seed: 0), durable: true) == references[0])
    test.clock.advance(10_000)
    let now = test.clock.now.load(ordering: .relaxed)
    let kept = Set(references.dropFirst().map(\.hash))
    _ = try blobs.sweepOrphans(referenced: kept, graceSeconds: 1, now: now)
    #expect(try !blobs.has(references[0]))
    for reference in references.dropFirst() { #expect(try blobs.read(reference).count == 300) }
    #expect(try blobs.verify() == [])
    #expect(Set(try blobs.catalogue.rows().map(\.hash)) == kept)
    blobs.close()
  }

  @Test(
    "A catalogue with another schema is rebuilt",
    arguments: [
      "CREATE TRIGGER t BEFORE INSERT ON object BEGIN SELECT RAISE(ABORT, 'no'); END",
      "CREATE TRIGGER t AFTER UPDATE ON object BEGIN DELETE FROM object; END",
      "CREATE UNIQUE INDEX u ON holder (member)",
      "ALTER TABLE object ADD COLUMN more INTEGER",
      "DROP INDEX object_leaving",
      "PRAGMA user_version = -1",
      // A virtual table has statements of its own.
      "DROP TABLE holder; CREATE VIRTUAL TABLE holder USING fts5 (hash, member, seen); INSERT INTO holder VALUES (1, 2, 3)",
      // Endless.
      """
      ALTER TABLE cut RENAME TO was; CREATE VIEW cut AS WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n)
      SELECT i AS hash FROM n
      """,
    ])
  func schema(script: String) throws {
    try SQLiteConnection(path: path).execute(script)
    try expectMended()
  }

  @Test("A catalogue whose header forbids writing is rebuilt")
  func unwritable() throws {
    // The format version required of writers (the database header, byte 18).
    try DiskStorage().open(path, .readWrite).write([0x82], at: 18)
    try expectMended()
  }

  @Test("A missing object does not count as durable, even if the catalogue says so")
  func absent() throws {
    let blobs = try test.open()
    try DiskStorage().open(test.objectPath(references[1]), .readWrite).resize(to: 0)
    _ = try DiskStorage().remove(test.objectPath(references[0]))
    for reference in references.prefix(2) {
      #expect(try blobs.catalogue.row(reference.hash)?.durable == true)
      let error = #expect(throws: StoreError.self) { try blobs.makeDurable([reference]) }
      #expect(error?.code == .blobUnavailable)
    }
    try blobs.makeDurable(Array(references.dropFirst(2)))
  }

  enum Left: CaseIterable { case closed, open, killed, damaged, missing }

  @Test("A read-only process learns the holders of an object, and changes nothing", arguments: Left.allCases)
  func reading(_ left: Left) throws {
    let writer = try test.open()
    try writer.catalogue.recordHolders([(references[0].hash, [1, 2])], at: 7)
    let disk = DiskStorage()
    switch left {
    case .closed: writer.close()
    case .open: break
    case .killed:
      // Its log remains, without the shared memory that belongs to it.
      let log = try disk.open(path + "-wal", .readOnly).read(1 << 20, at: 0)
      writer.close()
      try disk.open(path + "-wal", .create).write(log, at: 0)
    case .damaged:
      writer.close()
      try disk.open(path, .readWrite).write(pattern(9000), at: 0)
    case .missing:
      writer.close()
      _ = try disk.remove(path)
    }
    let before = try files()
    let reader = try test.open(readOnly: true)
    let holders = reader.holders(of: references[0].hash)
    reader.close()
    #expect(try files() == before)
    if left == .closed || left == .open { #expect(holders == [[1, 2]]) }
  }

  private func files() throws -> [String: [UInt8]] {
    let disk = DiskStorage()
    var files: [String: [UInt8]] = [:]
    // The memory that processes share is not the catalogue.
    for name in try disk.list(test.directory) where !name.hasSuffix("-shm") {
      guard try disk.status(test.directory + "/" + name)?.kind == .file else { continue }
      files[name] = try disk.open(test.directory + "/" + name, .readOnly).read(1 << 20, at: 0)
    }
    return files
  }
}
