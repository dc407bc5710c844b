import CSQLitePeer

/// The usual way to keep keys and values: one table in WAL mode, statements prepared once.
final class SQLitePeer {
  private var database: OpaquePointer?
  private var insert: OpaquePointer?
  private var select: OpaquePointer?

  /// `durable`: each put is on disk when it returns (synchronous=FULL); otherwise the kernel decides (OFF).
  init(path: String, durable: Bool) {
    precondition(sqlite3_open(path, &database) == SQLITE_OK)
    for statement in [
      "PRAGMA journal_mode=WAL", "PRAGMA synchronous=\(durable ? "FULL" : "OFF")",
      "CREATE TABLE records (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    ] { precondition(sqlite3_exec(database, statement, nil, nil, nil) == SQLITE_OK) }
    let upsert = "INSERT INTO records VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    precondition(sqlite3_prepare_v2(database, upsert, -1, &insert, nil) == SQLITE_OK)
    precondition(
      sqlite3_prepare_v2(database, "SELECT value FROM records WHERE key = ?", -1, &select, nil) == SQLITE_OK)
  }

  deinit {
    sqlite3_finalize(insert)
    sqlite3_finalize(select)
    sqlite3_close(database)
  }

  func put(_ key: [UInt8], _ value: [UInt8]) {
    sqlite3_bind_blob(insert, 1, key, Int32(key.count), Self.transient)
    sqlite3_bind_blob(insert, 2, value, Int32(value.count), Self.transient)
    precondition(sqlite3_step(insert) == SQLITE_DONE)
    sqlite3_reset(insert)
  }

  func get(_ key: [UInt8]) -> [UInt8]? {
    sqlite3_bind_blob(select, 1, key, Int32(key.count), Self.transient)
    defer { sqlite3_reset(select) }
    guard sqlite3_step(select) == SQLITE_ROW, let bytes = sqlite3_column_blob(select, 0) else { return nil }
    return [UInt8](UnsafeRawBufferPointer(start: bytes, count: Int(sqlite3_column_bytes(select, 0))))
  }

  private static var transient: sqlite3_destructor_type {
    unsafeBitCast(-1, to: sqlite3_destructor_type.self)
  }
}
