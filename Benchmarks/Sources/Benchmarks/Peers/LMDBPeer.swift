import CLMDB
import Foundation

/// LMDB with a writable map. Relaxed: `MDB_NOSYNC`, so that its map, like the store's, survives a process
/// crash but not a power loss. Durable: without it. Each put is a transaction; reads share one.
@safe
final class LMDBPeer: KeyValuePeer, @unchecked Sendable {
  static let title = "lmdb"
  static let share = 1
  static func name(_ key: InlineKey) -> InlineKey { key }
  static func names(of corpus: Corpus) -> Names<InlineKey> { corpus.inline }

  // Constants: variables of a class would be checked for exclusive access on each use.
  private let environment: OpaquePointer?
  private let table: MDB_dbi

  init(at folder: String, _ settings: PeerSettings) throws {
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    let flags = UInt32(MDB_WRITEMAP) | (settings.isDurable ? 0 : UInt32(MDB_NOSYNC))
    var environment: OpaquePointer?
    try unsafe lmdb(mdb_env_create(&environment))
    // Sparse: it only costs address space.
    try unsafe lmdb(mdb_env_set_mapsize(environment, max(1 << 30, settings.capacity << 10)))
    try unsafe lmdb(mdb_env_open(environment, folder, flags, 0o600))
    var (transaction, table): (OpaquePointer?, MDB_dbi) = (nil, 0)
    try unsafe lmdb(mdb_txn_begin(environment, nil, 0, &transaction))
    try unsafe lmdb(mdb_dbi_open(transaction, nil, 0, &table))
    try unsafe lmdb(mdb_txn_commit(transaction))
    unsafe self.environment = unsafe environment
    self.table = table
  }

  func put(_ name: InlineKey, _ value: [UInt8]) throws {
    try unsafe write { transaction in unsafe put(transaction, name, value) }
  }

  func put(_ names: ArraySlice<InlineKey>, _ value: [UInt8]) throws {
    try unsafe write { transaction in
      for name in names {
        let code = unsafe put(transaction, name, value)
        guard code == 0 else { return code }
      }
      return 0
    }
  }

  func delete(_ name: InlineKey) throws {
    try unsafe write { transaction in
      let code = unsafe withValue(of: name) { key in unsafe mdb_del(transaction, table, &key, nil) }
      return code == MDB_NOTFOUND ? 0 : code
    }
  }

  func makeReader() throws -> LMDBReader { try unsafe LMDBReader(environment, table) }

  func sync() throws { try unsafe lmdb(mdb_env_sync(environment, 1)) }

  func close() throws { unsafe mdb_env_close(environment) }

  @inline(__always)
  private func write(_ body: (OpaquePointer?) -> Int32) throws {
    var transaction: OpaquePointer?
    try unsafe lmdb(mdb_txn_begin(environment, nil, 0, &transaction))
    let code = unsafe body(transaction)
    guard code == 0 else {
      unsafe mdb_txn_abort(transaction)
      return try lmdb(code)
    }
    try unsafe lmdb(mdb_txn_commit(transaction))
  }

  @inline(__always)
  private func put(_ transaction: OpaquePointer?, _ name: InlineKey, _ value: [UInt8]) -> Int32 {
    unsafe withValue(of: name) { key in
      unsafe value.withUnsafeBytes { bytes in
        var data = unsafe MDB_val(
          mv_size: bytes.count, mv_data: UnsafeMutableRawPointer(mutating: bytes.baseAddress))
        return unsafe mdb_put(transaction, table, &key, &data, 0)
      }
    }
  }
}

/// One read transaction of one thread.
@safe
final class LMDBReader: KeyReader {
  static let readsInPlace = true

  private let transaction: OpaquePointer?
  private let table: MDB_dbi

  init(_ environment: OpaquePointer?, _ table: MDB_dbi) throws {
    var transaction: OpaquePointer?
    try unsafe lmdb(mdb_txn_begin(environment, nil, UInt32(MDB_RDONLY), &transaction))
    unsafe self.transaction = unsafe transaction
    self.table = table
  }

  func copy(_ name: InlineKey) throws -> [UInt8]? {
    try unsafe get(name) { data in
      unsafe copied(data.mv_data, data.mv_size)
    }
  }

  func touch(_ name: InlineKey) throws -> Int? { try unsafe get(name, lmdbTouch) }

  func scan() throws -> (count: Int, sum: Int) {
    var cursor: OpaquePointer?
    try unsafe lmdb(mdb_cursor_open(transaction, table, &cursor))
    defer { unsafe mdb_cursor_close(cursor) }
    var (key, data) = unsafe (MDB_val(), MDB_val())
    var (count, sum) = (0, 0)
    var code = unsafe mdb_cursor_get(cursor, &key, &data, MDB_FIRST)
    while code == 0 {
      (count, sum) = unsafe (count &+ 1, sum &+ lmdbTouch(key) &+ lmdbTouch(data))
      code = unsafe mdb_cursor_get(cursor, &key, &data, MDB_NEXT)
    }
    guard code == MDB_NOTFOUND else { throw LMDBReader.error(code) }
    return (count, sum)
  }

  func finish() { unsafe mdb_txn_abort(transaction) }

  @inline(__always)
  private func get<Result>(_ name: InlineKey, _ body: (MDB_val) -> Result) throws -> Result? {
    var data = unsafe MDB_val()
    let code = unsafe withValue(of: name) { key in unsafe mdb_get(transaction, table, &key, &data) }
    guard code == 0 else {
      guard code == MDB_NOTFOUND else { throw Self.error(code) }
      return nil
    }
    return unsafe body(data)
  }

  fileprivate static func error(_ code: Int32) -> BenchmarkError {
    BenchmarkError("LMDB failed: \(unsafe String(cString: mdb_strerror(code)))")
  }
}

private func lmdbTouch(_ data: MDB_val) -> Int {
  unsafe data.mv_size &+ Int(data.mv_data.load(as: UInt8.self))
}

@inline(__always)
private func withValue(of name: InlineKey, _ body: (inout MDB_val) -> Int32) -> Int32 {
  unsafe withUnsafeBytes(of: name) { bytes in
    var key = unsafe MDB_val(
      mv_size: bytes.count, mv_data: UnsafeMutableRawPointer(mutating: bytes.baseAddress))
    return unsafe body(&key)
  }
}

@inline(__always)
private func lmdb(_ code: Int32) throws {
  guard code == 0 else { throw LMDBReader.error(code) }
}
