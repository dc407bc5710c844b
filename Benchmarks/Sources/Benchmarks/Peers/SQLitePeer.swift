import CSQLitePeer
import Foundation

/// The usual way to keep keys and values: one table in WAL mode, statements prepared once. Durable:
/// synchronous=FULL; otherwise OFF, so that the kernel decides. Each reader has its own connection, within
/// one read transaction.
final class SQLitePeer: KeyValuePeer, @unchecked Sendable {
  static let title = "sqlite"
  static let share = 10
  /// Concurrent puts would need a connection each.
  static let takesManyWriters = false
  static func name(_ key: InlineKey) -> InlineKey { key }
  static func names(of corpus: Corpus) -> Names<InlineKey> { corpus.inline }

  private let connection: SQLiteConnection
  private let path: String
  private let upsert: SQLiteStatement
  private let remove: SQLiteStatement

  init(at folder: String, _ settings: PeerSettings) throws {
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    path = folder + "/records.sqlite"
    connection = try SQLiteConnection(path)
    try connection.run("PRAGMA journal_mode=WAL")
    try connection.run("PRAGMA synchronous=\(settings.isDurable ? "FULL" : "OFF")")
    try connection.run(
      "CREATE TABLE IF NOT EXISTS records (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")
    upsert = try connection.prepare(
      "INSERT INTO records VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value")
    remove = try connection.prepare("DELETE FROM records WHERE key = ?")
  }

  func put(_ name: InlineKey, _ value: [UInt8]) throws { try upsert.run(name, value) }

  func delete(_ name: InlineKey) throws { try remove.run(name, []) }

  func put(_ names: ArraySlice<InlineKey>, _ value: [UInt8]) throws {
    try connection.run("BEGIN IMMEDIATE")
    for name in names { try upsert.run(name, value) }
    try connection.run("COMMIT")
  }

  func makeReader() throws -> SQLiteReader { try SQLiteReader(path) }

  func sync() throws { try connection.run("PRAGMA wal_checkpoint(FULL)") }

  func close() throws {
    upsert.finish()
    remove.finish()
    connection.close()
  }
}

/// Reads of SQLite in one transaction.
final class SQLiteReader: KeyReader {
  static let readsInPlace = true

  private let connection: SQLiteConnection
  private let select: SQLiteStatement
  private let all: SQLiteStatement

  init(_ path: String) throws {
    connection = try SQLiteConnection(path)
    try connection.run("BEGIN")
    select = try connection.prepare("SELECT value FROM records WHERE key = ?")
    all = try connection.prepare("SELECT value, key FROM records ORDER BY key")
  }

  func copy(_ name: InlineKey) throws -> [UInt8]? {
    try unsafe select.find(name) { bytes in unsafe copied(bytes.baseAddress, bytes.count) }
  }

  func touch(_ name: InlineKey) throws -> Int? {
    try unsafe select.find(name) { bytes in unsafe bytes.count &+ Int(bytes[0]) }
  }

  func scan() throws -> (count: Int, sum: Int) { try all.scan() }

  func finish() {
    select.finish()
    all.finish()
    connection.close()
  }
}

/// An open database, used by one thread at a time.
@safe
private final class SQLiteConnection {
  private var handle: OpaquePointer?

  init(_ path: String) throws {
    let flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX
    try unsafe sqlite(sqlite3_open_v2(path, &handle, flags, nil), handle)
    try unsafe sqlite(sqlite3_busy_timeout(handle, 10_000), handle)
  }

  func run(_ sql: String) throws { try unsafe sqlite(sqlite3_exec(handle, sql, nil, nil, nil), handle) }

  func prepare(_ sql: String) throws -> SQLiteStatement {
    var statement: OpaquePointer?
    try unsafe sqlite(
      sqlite3_prepare_v3(handle, sql, -1, UInt32(SQLITE_PREPARE_PERSISTENT), &statement, nil), handle)
    return unsafe SQLiteStatement(statement)
  }

  func close() { unsafe sqlite3_close(handle) }
}

/// A prepared statement. Bound values are lent for the call (`SQLITE_STATIC`), not copied.
@safe
private final class SQLiteStatement {
  private let handle: OpaquePointer?

  init(_ handle: OpaquePointer?) { unsafe self.handle = handle }

  func run(_ name: InlineKey, _ value: [UInt8]) throws {
    let code = unsafe withUnsafeBytes(of: name) { key in
      unsafe value.withUnsafeBytes { bytes in
        unsafe sqlite3_bind_blob(handle, 1, key.baseAddress, Int32(key.count), nil)
        if unsafe !bytes.isEmpty {
          unsafe sqlite3_bind_blob(handle, 2, bytes.baseAddress, Int32(bytes.count), nil)
        }
        let code = unsafe sqlite3_step(handle)
        unsafe sqlite3_reset(handle)
        return code
      }
    }
    guard code == SQLITE_DONE else { throw unsafe sqliteError(sqlite3_db_handle(handle)) }
  }

  @inline(__always)
  func find<Result>(_ name: InlineKey, _ body: (UnsafeRawBufferPointer) -> Result) throws -> Result? {
    unsafe withUnsafeBytes(of: name) { key in
      unsafe sqlite3_bind_blob(handle, 1, key.baseAddress, Int32(key.count), nil)
      defer { unsafe sqlite3_reset(handle) }
      guard unsafe sqlite3_step(handle) == SQLITE_ROW else { return nil }
      return unsafe body(column(0))
    }
  }

  func scan() throws -> (count: Int, sum: Int) {
    var (count, sum) = (0, 0)
    defer { unsafe sqlite3_reset(handle) }
    while unsafe sqlite3_step(handle) == SQLITE_ROW {
      let (value, key) = unsafe (column(0), column(1))
      (count, sum) = unsafe (count &+ 1, sum &+ value.count &+ Int(value[0]) &+ Int(key[0]))
    }
    return (count, sum)
  }

  func finish() { unsafe sqlite3_finalize(handle) }

  private func column(_ number: Int32) -> UnsafeRawBufferPointer {
    unsafe UnsafeRawBufferPointer(
      start: sqlite3_column_blob(handle, number), count: Int(sqlite3_column_bytes(handle, number)))
  }
}

private func sqlite(_ code: Int32, _ handle: OpaquePointer?) throws {
  guard code == SQLITE_OK else { throw unsafe sqliteError(handle) }
}

private func sqliteError(_ handle: OpaquePointer?) -> BenchmarkError {
  BenchmarkError("SQLite failed: \(unsafe String(cString: sqlite3_errmsg(handle)))")
}
