import SyncStore

// Ways to damage a catalogue: arbitrary bytes, changed bytes, or a valid SQLite database that the product
// would never have written.
extension CatalogueTemplate {
  /// Installs a damaged catalogue. The lowest two bits of the first byte choose how: the remaining bytes are
  /// the file; they change bytes of a clean catalogue; they change bytes of a killed process's catalogue and
  /// its log; or they change rows.
  func damage(_ bytes: [UInt8]) throws {
    let foreign = Array(bytes[2...])
    switch bytes[0] & 3 {
    case 0: try install(foreign)
    case 1: try install(Self.edited(catalogue, foreign))
    case 2:
      let half = foreign.count / 2
      try install(
        Self.edited(live.main, Array(foreign[..<half])), log: Self.edited(live.log, Array(foreign[half...])))
    default:
      try install(catalogue)
      try rewrite(foreign, isLoose: bytes[0] & 4 != 0, staysLoose: bytes[0] & 8 != 0)
    }
  }

  /// Every three bytes change one byte: two give its offset. A single leftover byte truncates the file.
  private static func edited(_ file: [UInt8], _ edits: [UInt8]) -> [UInt8] {
    var file = file
    for edit in stride(from: 0, to: edits.count - 2, by: 3) {
      file[(Int(edits[edit]) << 8 | Int(edits[edit + 1])) % file.count] ^= edits[edit + 2]
    }
    if edits.count % 3 == 1, let last = edits.last { file.removeLast(file.count * Int(last) / 256) }
    return file
  }

  // MARK: Rows

  /// The tables of the schema without its constraints.
  private static let loose = [
    "object": "(hash, size, place, state, durable, created, accessed, PRIMARY KEY (hash)) WITHOUT ROWID",
    "holder": "(hash, member, seen, PRIMARY KEY (hash, member)) WITHOUT ROWID",
    "chunk": "(key, hash, offset, length, PRIMARY KEY (key, hash, offset)) WITHOUT ROWID",
    "cut": "(hash, PRIMARY KEY (hash)) WITHOUT ROWID",
  ]
  private static let columns = ["size", "place", "state", "durable", "created", "accessed", "hash"]

  private func rewrite(_ program: [UInt8], isLoose: Bool, staysLoose: Bool) throws {
    let database = try SQLiteConnection(path: cataloguePath)
    try database.execute("PRAGMA synchronous = OFF; PRAGMA ignore_check_constraints = ON")
    var schema: [[SQLiteValue]] = []
    if isLoose {
      schema = try database.run("SELECT sql, name FROM sqlite_schema WHERE type = 'table'")
      for (name, columns) in Self.loose {
        try describe(name, .text("CREATE TABLE \(name) \(columns)"), database)
      }
    }
    var reader = DamageReader(program)
    // Statements that SQLite rejects are skipped.
    while let operation = reader.next() { try? apply(operation, &reader, database) }
    if isLoose, !staysLoose {
      for row in schema { if case .text(let name) = row[1] { try? describe(name, row[0], database) } }
    }
  }

  private func describe(_ name: String, _ sql: SQLiteValue, _ database: SQLiteConnection) throws {
    try database.execute("PRAGMA writable_schema = ON")
    try database.run("UPDATE sqlite_schema SET sql = ? WHERE name = ?", [sql, .text(name)])
    try database.execute("PRAGMA writable_schema = RESET")
  }

  private func apply(
    _ operation: UInt8, _ reader: inout DamageReader, _ database: SQLiteConnection
  ) throws {
    switch operation % 16 {
    case 0, 1, 2:
      let column = Self.columns[Int(reader.byte()) % Self.columns.count]
      try database.run(
        "UPDATE object SET \(column) = ? WHERE hash = ?", [reader.value(objects), reader.object(objects)])
    case 3: try database.run("DELETE FROM object WHERE hash = ?", [reader.object(objects)])
    case 4:
      var row = [reader.value(objects)]
      while row.count < 7 { row.append(reader.value(objects)) }
      try database.run("INSERT OR REPLACE INTO object VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    case 5:
      try database.run(
        "INSERT OR REPLACE INTO holder VALUES (?, ?, ?)",
        [reader.value(objects), reader.value(objects), reader.value(objects)])
    case 6:
      try database.run(
        "UPDATE chunk SET hash = ?, offset = ?, length = ? WHERE rowid IS NULL OR hash = ?",
        [reader.value(objects), reader.value(objects), reader.value(objects), reader.object(objects)])
    case 7:
      // A wrong location of a chunk.
      let column = ["offset", "length", "hash"][Int(reader.byte()) % 3]
      try database.run("UPDATE OR REPLACE chunk SET \(column) = ?", [reader.value(objects)])
    case 8: try database.run("INSERT OR REPLACE INTO cut VALUES (?)", [reader.value(objects)])
    case 9: try database.execute("PRAGMA user_version = \(reader.integer())")
    case 10: try database.execute("PRAGMA application_id = \(Int32(truncatingIfNeeded: reader.integer()))")
    case 11: try database.execute(Self.scripts[Int(reader.byte()) % Self.scripts.count])
    case 12:
      // An index that disagrees with its table.
      try database.execute("PRAGMA writable_schema = ON")
      let kept = try database.run("SELECT * FROM sqlite_schema WHERE name = 'object_leaving'")
      try database.execute(
        "DELETE FROM sqlite_schema WHERE name = 'object_leaving'; PRAGMA writable_schema = RESET")
      try database.run(
        "UPDATE object SET state = iif(state = 3, 0, 3) WHERE hash = ?", [reader.object(objects)])
      try database.execute("PRAGMA writable_schema = ON")
      for row in kept { try database.run("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", row) }
      try database.execute("PRAGMA writable_schema = RESET")
    case 13:
      let name = ["object", "holder", "chunk", "cut", "object_by_size"][Int(reader.byte()) % 5]
      let pages = "(SELECT rootpage FROM sqlite_schema WHERE name = ?)"
      try database.execute("PRAGMA writable_schema = ON")
      try database.run(
        "UPDATE sqlite_schema SET rootpage = iif(?, ?, \(pages)) WHERE name = ?",
        [.integer(Int64(reader.byte() & 1)), .integer(reader.integer()), .text("chunk"), .text(name)])
    case 14: try database.execute("UPDATE object SET state = 3")
    default: try database.run("UPDATE object SET accessed = ?", [reader.value(objects)])
    }
  }

  /// Schemas that differ from the expected one.
  private static let scripts = [
    "DROP TABLE object", "DROP TABLE holder", "DROP TABLE chunk", "DROP TABLE cut",
    "DROP INDEX object_by_size",
    "DROP INDEX object_leaving", "DROP INDEX chunk_of", "ALTER TABLE object RENAME COLUMN size TO bytes",
    "ALTER TABLE object ADD COLUMN more INTEGER",
    "ALTER TABLE holder ADD COLUMN more INTEGER NOT NULL DEFAULT 1",
    "ALTER TABLE cut ADD COLUMN more INTEGER", "DELETE FROM object", "DELETE FROM chunk",
    "CREATE TRIGGER t AFTER UPDATE ON object BEGIN DELETE FROM object; END",
    "CREATE TRIGGER t BEFORE INSERT ON object BEGIN SELECT RAISE(IGNORE); END",
    "CREATE TRIGGER t BEFORE UPDATE ON object BEGIN SELECT RAISE(ABORT, 'no'); END",
    "CREATE TRIGGER t BEFORE DELETE ON object BEGIN SELECT RAISE(ROLLBACK, 'no'); END",
    "CREATE TRIGGER t AFTER DELETE ON chunk BEGIN INSERT INTO chunk SELECT * FROM chunk; END",
    "CREATE TRIGGER t AFTER UPDATE ON object BEGIN UPDATE object SET durable = 1, state = 3; END",
    "CREATE UNIQUE INDEX u ON object (state)", "CREATE UNIQUE INDEX u ON holder (member)",
    "CREATE INDEX u ON object (abs(size))", "PRAGMA journal_mode = DELETE", "PRAGMA journal_mode = PERSIST",
    "PRAGMA journal_mode = TRUNCATE", "PRAGMA journal_mode = DELETE; PRAGMA auto_vacuum = FULL; VACUUM",
    "PRAGMA journal_mode = DELETE; PRAGMA page_size = 512; VACUUM",
    "PRAGMA journal_mode = DELETE; PRAGMA page_size = 65536; VACUUM",
    "ALTER TABLE object RENAME TO was; CREATE VIEW object AS SELECT * FROM was",
    "ALTER TABLE object RENAME TO was; CREATE VIEW object AS SELECT * FROM was UNION ALL SELECT * FROM object",
    """
    ALTER TABLE object RENAME TO was; CREATE VIEW object AS WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n)
    SELECT hash, size, place, state, durable, created, accessed + i AS accessed FROM was, n
    """,
    """
    DROP TABLE cut; CREATE VIEW cut AS WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n)
    SELECT i AS hash FROM n
    """,
    "DROP TABLE cut; CREATE TABLE cut (hash GENERATED ALWAYS AS (randomblob(32)), x)",
    "CREATE TABLE more AS SELECT * FROM object", "PRAGMA encoding = 'UTF-16'", "REINDEX", "ANALYZE",
    "DROP TABLE holder; CREATE VIRTUAL TABLE holder USING fts5(hash, member, seen)",
  ]
}

/// A program of changes, read from bytes; zeros after their end.
private struct DamageReader {
  private var bytes: ArraySlice<UInt8>

  init(_ bytes: [UInt8]) { self.bytes = bytes[...] }

  /// The next operation; nil at the end.
  mutating func next() -> UInt8? { bytes.popFirst() }

  mutating func byte() -> UInt8 { bytes.popFirst() ?? 0 }

  /// A number, possibly out of any sensible range.
  mutating func integer() -> Int64 {
    let edges: [Int64] = [
      0, 1, -1, .max, .min, .max - 1, 1 << 47, 1 << 48, 0x7FFF_FFFF, 0x8000_0000, 5 << 20, 1 << 43,
      1_700_000_000_000,
    ]
    let choice = Int(byte())
    if choice < edges.count { return edges[choice] }
    if choice < 128 { return Int64(choice) }
    return (0..<8).reduce(0) { number, _ in number << 8 | Int64(byte()) }
  }

  /// The hash of an existing object, or of none.
  mutating func object(_ objects: [BlobHash]) -> SQLiteValue {
    let choice = Int(byte())
    return .bytes(
      choice < 128 ? objects[choice % objects.count].bytes : [UInt8](repeating: byte(), count: 32))
  }

  /// A value of any type.
  mutating func value(_ objects: [BlobHash]) -> SQLiteValue {
    switch byte() % 8 {
    case 0: return .null
    case 1, 2: return .integer(integer())
    case 3: return .text(String(repeating: "7", count: Int(byte())))
    case 4: return .bytes([UInt8](repeating: byte(), count: Int(byte())))
    case 5: return .bytes([UInt8](repeating: byte(), count: Int(byte()) << 12))
    default: return object(objects)
    }
  }
}
