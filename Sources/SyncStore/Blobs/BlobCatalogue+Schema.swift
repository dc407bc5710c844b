// The tables of the catalogue, as `schemas/catalogue.sql` has them.
extension BlobCatalogue {
  /// The version of the schema, in `user_version`.
  static let version: Int64 = 3
  /// "SYNB", in `application_id`.
  static let applicationID: Int64 = 0x5359_4E42

  static let schema = """
    PRAGMA application_id = \(applicationID);
    PRAGMA user_version = \(version);
    CREATE TABLE object (
      hash BLOB NOT NULL PRIMARY KEY CHECK (length(hash) = 32),
      size INTEGER NOT NULL CHECK (size >= 0),
      place INTEGER NOT NULL CHECK (place IN (0, 1)),
      state INTEGER NOT NULL CHECK (state IN (0, 1, 2, 3)),
      durable INTEGER NOT NULL CHECK (durable IN (0, 1)),
      created INTEGER NOT NULL,
      accessed INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX object_by_size ON object (size);
    CREATE INDEX object_leaving ON object (hash) WHERE state = 3;
    \(holderTable)
    \(chunkTables)
    """

  /// The statements as `sqlite_schema` stores them.
  private static let objects = Set(
    schema.split(separator: ";").map { $0.drop(while: \.isWhitespace) }.filter { $0.hasPrefix("CREATE ") }
      .map { [SQLiteValue.text(String($0))] })

  /// Added by version 2 of the schema.
  private static let holderTable = """
    CREATE TABLE holder (
      hash BLOB NOT NULL CHECK (length(hash) = 32),
      member BLOB NOT NULL,
      seen INTEGER NOT NULL,
      PRIMARY KEY (hash, member)
    ) STRICT, WITHOUT ROWID;
    """

  /// Requires the exact schema: a view in place of a table might never end, and a trigger or another index
  /// would change the effect of a statement.
  static func checkSchema(_ database: SQLiteConnection, _ path: String) throws(StoreError) {
    let found = Set(try database.run("SELECT sql FROM sqlite_schema WHERE sql NOT NULL"))
    guard found == objects else {
      throw StoreError(
        .damaged, "is not the blob catalogue that was made: it is made anew from the files", path: path)
    }
  }

  /// Migrates a catalogue of an earlier version, in one transaction: after a crash it is the old or the new
  /// one.
  static func migrate(_ database: SQLiteConnection) throws(StoreError) {
    try database.transaction { () throws(StoreError) in
      // Another process may have migrated it concurrently.
      let found = try database.run("PRAGMA user_version")[0][0].integer
      guard found < version else { return }
      let added = (found < 2 ? holderTable : "") + chunkTables
      try database.execute(added + "PRAGMA user_version = \(version)")
    }
  }
}
