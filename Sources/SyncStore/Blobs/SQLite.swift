private import CSQLite
private import Glibc

/// A value bound to a statement, or found in a row of its result.
package enum SQLiteValue: Hashable, Sendable {
  /// NULL.
  case null
  /// INTEGER.
  case integer(Int64)
  /// BLOB.
  case bytes([UInt8])
  /// TEXT.
  case text(String)

  /// The integer; 0 for anything else.
  var integer: Int64 { if case .integer(let value) = self { value } else { 0 } }
  /// The bytes; none for anything else.
  var bytes: [UInt8] { if case .bytes(let value) = self { value } else { [] } }
  /// The text; empty for anything else.
  var text: String { if case .text(let value) = self { value } else { "" } }
}

/// One connection to one SQLite database. Prepared statements are cached. Not thread-safe: one owner at a
/// time.
///
/// This is one of the few files that use `unsafe`: the C library takes pointers; none leaves this file.
@safe package final class SQLiteConnection {
  /// Milliseconds that a statement waits for another process before it fails as `.busy`.
  static let busyMilliseconds: Int32 = 10_000

  private let path: String?
  private let handle: OpaquePointer
  private var statements: [String: OpaquePointer] = unsafe [:]

  /// Opens or creates the database at `path`; without a path it is in memory and ends with the connection.
  ///
  /// Errors name the path `shown`, if given.
  package convenience init(path: String?, shownAs shown: String? = nil) throws(StoreError) {
    try self.init(
      path ?? ":memory:", path, shownAs: shown,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX)
  }

  /// Opens the database at `path` for reading: nothing is created or changed.
  ///
  /// `isAtRest`: no process has it open, and there is no write-ahead log; without that flag SQLite would
  /// create one.
  convenience init(reading path: String, isAtRest: Bool, shownAs shown: String) throws(StoreError) {
    var name = "file:"
    for byte in path.utf8 {
      let isPlain = byte > 0x20 && byte < 0x7F && !"?#%".utf8.contains(byte)
      name += isPlain ? String(UnicodeScalar(byte)) : "%" + Hex.string(of: [byte])
    }
    name += isAtRest ? "?immutable=1" : ""
    try self.init(
      name, path, shownAs: shown, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX)
  }

  private init(
    _ name: String, _ file: String?, shownAs shown: String?, _ flags: Int32
  ) throws(StoreError) {
    let path = shown ?? file
    var opened: OpaquePointer?
    let isHeld = file?.utf8.starts(with: "/proc/self/fd/".utf8) ?? false
    let code = SystemCall.uncancelled {
      if isHeld, let fileSystem = Self.verbatimPaths {
        unsafe sqlite3_open_v2(name, &opened, flags, fileSystem)
      } else {
        unsafe sqlite3_open_v2(name, &opened, flags, nil)
      }
    }
    guard code == SQLITE_OK, let handle = unsafe opened else {
      let extended = unsafe opened == nil ? code : sqlite3_extended_errcode(opened)
      unsafe sqlite3_close_v2(opened)
      throw Self.error(extended, what: "cannot open the catalogue", path: path)
    }
    self.path = path
    unsafe self.handle = handle
    unsafe sqlite3_extended_result_codes(handle, 1)
    unsafe sqlite3_busy_timeout(handle, Self.busyMilliseconds)
  }

  /// The name of an SQLite VFS that differs from SQLite's default in two respects; nil if it cannot be
  /// registered.
  ///
  /// It takes paths verbatim. The default VFS resolves links first, and would continue with the path that the
  /// link of a held directory has at that moment: once the directory is renamed, the write-ahead log, which
  /// SQLite opens and removes by that path, would belong to another directory.
  ///
  /// And each page of the index of that log, which SQLite maps into memory, gets all of its blocks before it
  /// is used (`SharedMemoryPages`).
  private static let verbatimPaths: String? = {
    let name = "syncstore-verbatim-paths"
    guard let own = unsafe SharedMemoryPages.fileSystem, let kept = unsafe strdup(name) else { return nil }
    // SQLite keeps both for the life of the process.
    let verbatim = UnsafeMutablePointer<sqlite3_vfs>.allocate(capacity: 1)
    unsafe verbatim.initialize(to: own.pointee)
    unsafe verbatim.pointee.pNext = nil
    unsafe verbatim.pointee.zName = UnsafePointer(kept)
    unsafe verbatim.pointee.xFullPathname = { _, path, room, output in
      guard let path = unsafe path, let output = unsafe output, unsafe strlen(path) < room else {
        return SQLITE_CANTOPEN
      }
      unsafe strcpy(output, path)
      return SQLITE_OK
    }
    unsafe verbatim.pointee.xOpen = { fileSystem, path, file, flags, granted in
      guard let own = unsafe SharedMemoryPages.fileSystem?.pointee.xOpen else { return SQLITE_CANTOPEN }
      let code = unsafe own(fileSystem, path, file, flags, granted)
      if code == SQLITE_OK, flags & SQLITE_OPEN_MAIN_DB != 0, let file = unsafe file {
        unsafe SharedMemoryPages.watch(file)
      }
      return code
    }
    return unsafe sqlite3_vfs_register(verbatim, 0) == SQLITE_OK ? name : nil
  }()

  deinit {
    // Do not iterate with `sqlite3_next_stmt`: a virtual table has statements of its own, which closing
    // frees.
    unsafe statements.values.forEach { unsafe _ = sqlite3_finalize($0) }
    SystemCall.uncancelled { _ = unsafe sqlite3_close_v2(handle) }
  }

  /// Runs a script and discards its rows.
  package func execute(_ script: String) throws(StoreError) {
    let code = SystemCall.uncancelled { unsafe sqlite3_exec(handle, script, nil, nil, nil) }
    guard code == SQLITE_OK else { throw failure("cannot run a script") }
  }

  /// Runs a statement with `values` bound to its parameters, and returns all rows.
  @discardableResult
  package func run(_ sql: String, _ values: [SQLiteValue] = []) throws(StoreError) -> [[SQLiteValue]] {
    let statement = try unsafe prepared(sql)
    defer { unsafe sqlite3_reset(statement) }
    for (index, value) in values.enumerated() {
      guard unsafe bind(value, at: Int32(index + 1), in: statement) == SQLITE_OK else {
        throw failure("cannot bind a value")
      }
    }
    var rows: [[SQLiteValue]] = []
    while true {
      switch SystemCall.uncancelled({ unsafe sqlite3_step(statement) }) {
      case SQLITE_DONE: return rows
      case SQLITE_ROW:
        let count = unsafe sqlite3_column_count(statement)
        rows.append((0..<count).map { unsafe column($0, statement) })
      default: throw failure("cannot run a statement")
      }
    }
  }

  /// Rows that the last statement changed.
  var changes: Int { Int(unsafe sqlite3_changes64(handle)) }

  /// Runs `body` in one transaction that holds the write lock from its start.
  func transaction<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError) -> Result {
    try transaction("BEGIN IMMEDIATE", body)
  }

  /// Runs the read-only `body` in one transaction: many statements take the file locks once.
  func reading<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError) -> Result {
    try transaction("BEGIN", body)
  }

  private func transaction<Result>(
    _ begin: String, _ body: () throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    try run(begin)
    do throws(StoreError) {
      let result = try body()
      try run("COMMIT")
      return result
    } catch {
      // Fails if SQLite has already rolled back; the first error is the relevant one.
      _ = try? run("ROLLBACK")
      throw error
    }
  }

  private func prepared(_ sql: String) throws(StoreError) -> OpaquePointer {
    if let kept = unsafe statements[sql] { return unsafe kept }
    var made: OpaquePointer?
    guard
      unsafe sqlite3_prepare_v3(handle, sql, -1, UInt32(SQLITE_PREPARE_PERSISTENT), &made, nil) == SQLITE_OK,
      let statement = unsafe made
    else { throw failure("cannot prepare a statement") }
    unsafe statements[sql] = statement
    return unsafe statement
  }

  private func bind(_ value: SQLiteValue, at index: Int32, in statement: OpaquePointer) -> Int32 {
    switch value {
    case .null: unsafe sqlite3_bind_null(statement, index)
    case .integer(let integer): unsafe sqlite3_bind_int64(statement, index, integer)
    case .bytes(let bytes):
      unsafe bytes.withUnsafeBytes {
        unsafe sync_bind_bytes(statement, index, $0.baseAddress, UInt64($0.count))
      }
    case .text(let text):
      unsafe text.utf8CString.withUnsafeBufferPointer {
        unsafe sync_bind_text(statement, index, $0.baseAddress, UInt64($0.count - 1))
      }
    }
  }

  private func column(_ index: Int32, _ statement: OpaquePointer) -> SQLiteValue {
    switch unsafe sqlite3_column_type(statement, index) {
    case SQLITE_INTEGER: return .integer(unsafe sqlite3_column_int64(statement, index))
    case SQLITE_BLOB:
      let count = Int(unsafe sqlite3_column_bytes(statement, index))
      return .bytes(
        unsafe Array(
          UnsafeRawBufferPointer(start: sqlite3_column_blob(statement, index), count: count)))
    case SQLITE_TEXT:
      return .text(unsafe sqlite3_column_text(statement, index).map { unsafe String(cString: $0) } ?? "")
    default: return .null
    }
  }

  private func failure(_ what: String) -> StoreError {
    let extended = unsafe sqlite3_extended_errcode(handle)
    // SQLite does not always report a full disk as such: for its shared memory it reports a failed read or
    // write.
    let cause = unsafe sqlite3_system_errno(handle)
    let isFull = extended & 0xFF == SQLITE_IOERR && (cause == ENOSPC || cause == EDQUOT)
    return Self.error(isFull ? SQLITE_FULL : extended, what: what, path: path)
  }

  private static func error(_ extended: Int32, what: String, path: String?) -> StoreError {
    let text = unsafe String(cString: sqlite3_errstr(extended))
    let (code, advice): (StoreError.Code, String) =
      switch extended & 0xFF {
      case SQLITE_FULL: (.diskFull, "make room")
      case SQLITE_BUSY, SQLITE_LOCKED: (.busy, "try again when the other process is done")
      // All statements are fixed: one that fails, or whose values do, shows a foreign schema, or table
      // contents that violate it.
      case SQLITE_CORRUPT, SQLITE_NOTADB, SQLITE_ERROR, SQLITE_CONSTRAINT, SQLITE_MISMATCH:
        (.damaged, "it is made anew from the files")
      case SQLITE_READONLY, SQLITE_PERM: (.readOnly, "check owner and permissions")
      default: (.inputOutput, "check the disk and the permissions of the directory")
      }
    return StoreError(code, "\(what): \(text): \(advice)", path: path)
  }
}
