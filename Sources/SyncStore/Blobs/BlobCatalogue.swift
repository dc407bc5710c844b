/// Metadata of each object, in an SQLite database next to the files (`schemas/blobs.md`).
///
/// Invariants:
/// - It is derived data: the journal is authoritative for references, the files for presence. Losing it costs
///   only time.
/// - `durable` is set only after the object's file and its directory entry were synced, and a power failure
///   never restores a cleared `durable`: clearing is synced, other changes are not.
/// - An object is removed in two steps: its row becomes `deleting` (synced); then, in a transaction that
///   still finds it `deleting`, its file and the row are removed. A writer that needs the object *retains*
///   its row first and checks for the file afterwards: the transactions decide which of the two came first,
///   also between processes.
package final class BlobCatalogue: Sendable {
  /// State of an object.
  package enum State: Int64, Sendable {
    /// Its file is complete.
    case present = 0
    /// A transfer of it has begun.
    case partial = 1
    /// It is referred to, but missing here.
    case wanted = 2
    /// It is about to be removed.
    case deleting = 3
  }

  /// One row.
  package struct Row: Sendable, Equatable {
    /// The object.
    package let hash: BlobHash
    /// Its bytes; 0 while they are not known.
    package let size: UInt64
    /// State of the object.
    package let state: State
    /// Whether its file and directory entry were synced.
    package let durable: Bool
    /// When the row was made, in milliseconds since 1970.
    package let created: UInt64
    /// When a reader or writer last used it, in milliseconds since 1970.
    package let accessed: UInt64
  }

  /// Pages of 4 KiB in SQLite's write-ahead log after which a commit runs a checkpoint.
  static let logPages = 4096

  private struct Guarded: ~Copyable {
    var connection: SQLiteConnection?
    var inode: UInt64 = 0
  }

  private let files: BlobFiles
  private let path: String
  private let onDisk: Bool
  private let readOnly: Bool
  private let clock: @Sendable () -> UInt64
  private let guarded = LockedField(Guarded(), rank: .catalogue)

  /// The catalogue of `files`; the database is opened at first use.
  ///
  /// On a storage that is not the file system it is in memory, for this instance alone. With `readOnly`
  /// nothing is created, repaired or changed.
  init(_ files: BlobFiles, readOnly: Bool, clock: @escaping @Sendable () -> UInt64) {
    (self.files, self.readOnly) = (files, readOnly)
    path = files.directory + "/catalogue.sqlite"
    onDisk = files.storage.isFileSystem
    self.clock = clock
  }

  // MARK: Rows

  /// The row of an object; nil if there is none.
  package func row(_ hash: BlobHash) throws(StoreError) -> Row? {
    try perform { (database) throws(StoreError) in try Self.row(hash, database) }
  }

  /// All rows, in the order of hashes.
  package func rows() throws(StoreError) -> [Row] {
    try perform { (database) throws(StoreError) in
      try database.run("SELECT \(Self.columns) FROM object ORDER BY hash").compactMap(Self.row)
    }
  }

  /// Whether an object of that size is known.
  func knowsSize(_ size: UInt64) throws(StoreError) -> Bool {
    try perform { (database) throws(StoreError) in
      try !database.run("SELECT 1 FROM object WHERE size = ? LIMIT 1", [.integer(Int64(size))]).isEmpty
    }
  }

  /// Retains an object against removal by any process, and returns its row; nil if there is none.
  func retain(_ hash: BlobHash) throws(StoreError) -> Row? {
    let now = clock()
    return try perform { (database) throws(StoreError) in
      try database.run(
        "UPDATE object SET accessed = max(min(accessed, ?) + 1, ?), state = iif(state = 3, 0, state) WHERE hash = ?",
        [.integer(Int64.max - 1), .integer(Int64(now)), .bytes(hash.bytes)])
      return database.changes == 0 ? nil : try Self.row(hash, database)
    }
  }

  /// Records the state of an object. Clearing `durable` is synced, so that it cannot come back.
  func record(_ hash: BlobHash, size: UInt64, _ state: State, durable: Bool) throws(StoreError) {
    let now = Int64(clock())
    try perform { (database) throws(StoreError) in
      let sql = """
        INSERT INTO object VALUES (?, ?, 0, ?, ?, ?, ?) ON CONFLICT (hash) DO UPDATE SET
        size = excluded.size, state = excluded.state, durable = excluded.durable,
        accessed = max(accessed, excluded.accessed)
        """
      let values: [SQLiteValue] = [
        .bytes(hash.bytes), .integer(Int64(size)), .integer(state.rawValue), .integer(durable ? 1 : 0),
        .integer(now), .integer(now),
      ]
      if !durable, try Self.row(hash, database)?.durable == true {
        try Self.synced(database) { () throws(StoreError) in _ = try database.run(sql, values) }
      } else {
        try database.run(sql, values)
      }
    }
  }

  /// Records when objects were last read: `times` in milliseconds since 1970.
  func touch(_ times: [BlobHash: UInt64]) throws(StoreError) {
    try perform { (database) throws(StoreError) in
      try database.transaction { () throws(StoreError) in
        for (hash, time) in times {
          try database.run(
            "UPDATE object SET accessed = max(accessed, ?) WHERE hash = ?",
            [.integer(Int64(time)), .bytes(hash.bytes)])
        }
      }
    }
  }

  // MARK: Removal

  /// Marks as deleting those of `objects` that have not been used since `cutoff`.
  ///
  /// An object without a row gets one, and stays: its grace period begins now.
  func markDeleting(_ objects: [(hash: BlobHash, size: UInt64)], before cutoff: UInt64) throws(StoreError) {
    let now = Int64(clock())
    try perform { (database) throws(StoreError) in
      try Self.synced(database) { () throws(StoreError) in
        try database.transaction { () throws(StoreError) in
          for (hash, size) in objects {
            try database.run(
              "INSERT INTO object VALUES (?, ?, 0, 0, 0, ?, ?) ON CONFLICT DO NOTHING",
              [.bytes(hash.bytes), .integer(Int64(size)), .integer(now), .integer(now)])
            try database.run(
              "UPDATE object SET state = 3, durable = 0 WHERE hash = ? AND accessed < ?",
              [.bytes(hash.bytes), .integer(Int64(clamping: cutoff))])
          }
        }
      }
    }
  }

  /// Removes objects that are still marked as deleting: `remove` deletes the file, then the row is deleted.
  /// At most `limit`; returns the count.
  func removeDeleting(limit: Int, _ remove: (BlobHash) throws(StoreError) -> Void) throws(StoreError) -> Int {
    try perform { (database) throws(StoreError) in
      try database.transaction { () throws(StoreError) in
        let leaving = try database.run(
          "SELECT hash FROM object WHERE state = 3 LIMIT ?", [.integer(Int64(limit))])
        for row in leaving {
          guard let hash = BlobHash(bytes: row[0].bytes) else { continue }
          try remove(hash)
          try database.run("DELETE FROM object WHERE hash = ?", [row[0]])
          try Self.forgetChunks(of: hash, database)
        }
        return leaving.count
      }
    }
  }

  /// Forgets an object whose file is gone.
  func forget(_ hash: BlobHash) throws(StoreError) {
    try perform { (database) throws(StoreError) in
      try Self.synced(database) { () throws(StoreError) in
        try database.run("DELETE FROM object WHERE hash = ?", [.bytes(hash.bytes)])
        try Self.forgetChunks(of: hash, database)
      }
    }
  }

  // MARK: Database maintenance

  /// Moves SQLite's write-ahead log into the database and syncs it; keeps this work off the path of a put.
  func checkpoint() throws(StoreError) {
    try guarded.withLock { guarded throws(StoreError) in
      guard onDisk, let connection = guarded.connection else { return }
      try connection.run("PRAGMA wal_checkpoint(TRUNCATE)")
    }
  }

  /// Closes the database; it is reopened at the next use.
  func close() {
    guarded.withLock { $0.connection = nil }
  }

  /// Problems that SQLite finds in the database; empty if none.
  package func check() throws(StoreError) -> [String] {
    try perform { (database) throws(StoreError) in
      try database.run("PRAGMA integrity_check(10)").map { $0[0].text }.filter { $0 != "ok" }
    }
  }

  /// Discards the database and rebuilds it from the files (F43).
  func rebuild() throws(StoreError) {
    try guarded.withLock { guarded throws(StoreError) in
      guarded.connection = nil
      try withOpeningLock { () throws(StoreError) in
        if onDisk { try quarantineDatabase() }
        try open(&guarded)
      }
    }
  }

  func perform<Result: Sendable>(_ body: (SQLiteConnection) throws(StoreError) -> Result)
    throws(StoreError) -> Result
  {
    if readOnly, onDisk { return try body(try opened()) }
    return try guarded.withLock { guarded throws(StoreError) in
      // The file was removed, or another process rebuilt it: our connection refers to an unlinked file.
      if onDisk, guarded.connection != nil, try files.storage.status(path)?.inode != guarded.inode {
        guarded.connection = nil
      }
      if guarded.connection == nil { try reopen(&guarded, damaged: nil) }
      do throws(StoreError) {
        return try body(try connection(guarded))
      } catch {
        // A database that cannot be written although the store is open for writing: its header is marked
        // read-only, or another user owns the file. It has to be replaced.
        guard error.code == .damaged || error.code == .readOnly else { throw error }
      }
      let damaged = guarded.inode
      guarded.connection = nil
      try reopen(&guarded, damaged: damaged)
      return try body(try connection(guarded))
    }
  }

  private func connection(_ guarded: borrowing Guarded) throws(StoreError) -> SQLiteConnection {
    if let connection = guarded.connection { return connection }
    throw StoreError(.closed, "the catalogue is closed: open the store again", path: path)
  }

  private func reopen(_ guarded: inout Guarded, damaged inode: UInt64?) throws(StoreError) {
    try withOpeningLock { () throws(StoreError) in
      // Another process may have rebuilt it already.
      if onDisk, let inode, try files.storage.status(path)?.inode == inode { try quarantineDatabase() }
      try openOrRebuild(&guarded)
    }
  }

  /// Serializes creating, opening and replacing the database between processes.
  private func withOpeningLock(_ body: () throws(StoreError) -> Void) throws(StoreError) {
    guard onDisk else { return try body() }
    let file = try files.storage.open("catalogue.lock", beneath: files.directory, .openOrCreate)
    _ = try file.lock(byte: 0, .exclusive, wait: true)
    try body()
    _ = try file.lock(byte: 0, .none, wait: false)
  }

  private func openOrRebuild(_ guarded: inout Guarded) throws(StoreError) {
    do throws(StoreError) {
      try open(&guarded)
    } catch  where [.damaged, .foreignFile, .readOnly].contains(error.code) {
      guarded.connection = nil
      try quarantineDatabase()
      try open(&guarded)
    }
  }

  /// Opens the database for a read-only store, anew for each use: a connection kept open may refer to a
  /// replaced file.
  private func opened() throws(StoreError) -> SQLiteConnection {
    try refuseForeignFiles()
    let (log, memory) = (files.directory + "/" + Self.fileNames[1], files.directory + "/" + Self.fileNames[2])
    let hasLog = try files.storage.status(log) != nil
    let hasMemory = try files.storage.status(memory) != nil
    // After a writer was killed there may be a log without shared memory: SQLite would create the rest.
    guard hasMemory || !hasLog else {
      throw StoreError(.busy, "was not closed: open the store for writing", path: path)
    }
    let found = try files.storage.systemPath(path) ?? path
    let database = try SQLiteConnection(reading: found, isAtRest: !hasLog, shownAs: path)
    try Self.checkSchema(database, path)
    return database
  }

  private func open(_ guarded: inout Guarded) throws(StoreError) {
    if onDisk {
      try refuseForeignFiles()
      // SQLite would make it readable to others. Open the file here only if it does not exist: closing a
      // descriptor of an existing file would release the locks that SQLite holds on it.
      if try files.storage.status(path) == nil {
        _ = try files.storage.open("catalogue.sqlite", beneath: files.directory, .create)
      }
    }
    let database = try SQLiteConnection(path: files.storage.systemPath(path), shownAs: path)
    // The catalogue is derived: commits are not synced. Checkpoints are, otherwise a power failure would
    // corrupt the database.
    try database.execute(
      """
      PRAGMA synchronous = NORMAL;
      PRAGMA wal_autocheckpoint = \(Self.logPages);
      PRAGMA journal_size_limit = \(Self.logPages * 4096);
      """)
    let found = try database.run("PRAGMA user_version")[0][0].integer
    guard found <= Self.version else {
      throw StoreError(
        .newerFormat,
        "the blob catalogue has version \(found), this program knows \(Self.version): update it",
        path: path)
    }
    if found == 0 {
      if onDisk { try database.run("PRAGMA journal_mode = WAL") }
      try create(database)
    }
    let application = try database.run("PRAGMA application_id")[0][0].integer
    guard found >= 0, application == Self.applicationID else {
      throw StoreError(.damaged, "is not a blob catalogue: it is made anew from the files", path: path)
    }
    if found > 0, found < Self.version { try Self.migrate(database) }
    try Self.checkSchema(database, path)
    guarded.inode = onDisk ? try files.storage.status(path)?.inode ?? 0 : 0
    guarded.connection = database
  }

  private func create(_ database: SQLiteConnection) throws(StoreError) {
    let now = Int64(clock())
    try database.transaction { () throws(StoreError) in
      try database.execute(Self.schema)
      try files.eachObject { (hash, size) throws(StoreError) in
        try database.run(
          "INSERT INTO object VALUES (?, ?, 0, 0, 0, ?, ?)",
          [.bytes(hash.bytes), .integer(Int64(size)), .integer(now), .integer(now)])
      }
    }
  }

  /// Checks the files before SQLite opens them: SQLite follows links and blocks on a FIFO (F45, F84).
  private func refuseForeignFiles() throws(StoreError) {
    for name in Self.fileNames {
      let file = files.directory + "/" + name
      if let status = try files.storage.status(file), status.kind != .file || status.links != 1 {
        throw StoreError(.foreignFile, "is not a file of its own: it is set aside", path: file)
      }
    }
  }

  private func quarantineDatabase() throws(StoreError) {
    for name in Self.fileNames { _ = try files.quarantine(name) }
  }

  static let fileNames = ["catalogue.sqlite", "catalogue.sqlite-wal", "catalogue.sqlite-shm"]
  private static let columns = "hash, size, state, durable, created, accessed"

  private static func row(_ hash: BlobHash, _ database: SQLiteConnection) throws(StoreError) -> Row? {
    try database.run("SELECT \(columns) FROM object WHERE hash = ?", [.bytes(hash.bytes)]).first.flatMap(row)
  }

  private static func row(_ values: [SQLiteValue]) -> Row? {
    guard let hash = BlobHash(bytes: values[0].bytes), let state = State(rawValue: values[2].integer) else {
      return nil
    }
    return Row(
      hash: hash, size: UInt64(clamping: values[1].integer), state: state, durable: values[3].integer == 1,
      created: UInt64(clamping: values[4].integer), accessed: UInt64(clamping: values[5].integer))
  }

  /// Runs `body` with its commit synced before this returns.
  static func synced(_ database: SQLiteConnection, _ body: () throws(StoreError) -> Void)
    throws(StoreError)
  {
    try database.run("PRAGMA synchronous = FULL")
    defer { _ = try? database.run("PRAGMA synchronous = NORMAL") }
    try body()
  }
}
