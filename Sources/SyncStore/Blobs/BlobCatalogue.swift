/// What is known of each object, in an SQLite database beside the files (`schemas/blobs.md`).
///
/// Invariants:
/// - It is derived: the journal is the truth about references, the files about presence. Losing it costs time only.
/// - `durable` is set only after the object's file and its directory entry were synced, and the loss of power never
///   brings back a `durable` that was taken away: such changes are synced, others are not.
/// - An object leaves in two steps: its row becomes `leaving` (synced), then, in a transaction that finds it still
///   leaving, its file and the row go. A writer that counts on the object *claims* its row first and looks for the
///   file after: the transactions decide which of the two was earlier, also between processes.
package final class BlobCatalogue: Sendable {
  /// Where an object stands.
  package enum State: Int64, Sendable {
    /// Its file is complete.
    case present = 0
    /// A transfer of it has begun.
    case partial = 1
    /// It is referred to, and not here.
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
    /// Where it stands.
    package let state: State
    /// Were its file and directory entry synced?
    package let durable: Bool
    /// When the row was made, in milliseconds since 1970.
    package let created: UInt64
    /// When a reader or a writer last counted on it, in milliseconds since 1970.
    package let accessed: UInt64
  }

  /// Pages of 4 KiB in the write-ahead log after which a writer pays for a checkpoint.
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
  private let guarded = LockedField(Guarded())

  /// The catalogue of `files`. Nothing is opened before it is needed. On a storage that is not the file system it
  /// lives in memory, for this instance alone. With `readOnly` nothing is made, repaired or changed.
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

  /// Is an object of that size known?
  func knowsSize(_ size: UInt64) throws(StoreError) -> Bool {
    try perform { (database) throws(StoreError) in
      try !database.run("SELECT 1 FROM object WHERE size = ? LIMIT 1", [.integer(Int64(size))]).isEmpty
    }
  }

  /// Tells all others that a writer counts on an object from now on, and gives its row; nil if there is none.
  func retain(_ hash: BlobHash) throws(StoreError) -> Row? {
    let now = clock()
    return try perform { (database) throws(StoreError) in
      try database.run(
        "UPDATE object SET accessed = max(min(accessed, ?) + 1, ?), state = iif(state = 3, 0, state) WHERE hash = ?",
        [.integer(Int64.max - 1), .integer(Int64(now)), .bytes(hash.bytes)])
      return database.changes == 0 ? nil : try Self.row(hash, database)
    }
  }

  /// Notes where an object stands. Taking `durable` away is synced, so that it cannot come back.
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

  /// Notes when objects were last read: `times` in milliseconds since 1970.
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

  // MARK: Leaving

  /// Makes those of `objects` leave that nobody has counted on since `cutoff`. One without a row gets one, and stays:
  /// its grace begins now.
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

  /// Removes what is still leaving: `remove` takes the file away, then its row goes. At most `limit`; how many it was.
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

  // MARK: The database as a whole

  /// Moves the write-ahead log into the database and syncs it: not on the path of a put.
  func checkpoint() throws(StoreError) {
    try guarded.withLock { guarded throws(StoreError) in
      guard onDisk, let connection = guarded.connection else { return }
      try connection.run("PRAGMA wal_checkpoint(TRUNCATE)")
    }
  }

  /// Gives the database back; it is opened again when it is needed.
  func close() {
    guarded.withLock { $0.connection = nil }
  }

  /// What SQLite finds wrong with the database; empty if nothing.
  package func check() throws(StoreError) -> [String] {
    try perform { (database) throws(StoreError) in
      try database.run("PRAGMA integrity_check(10)").map { $0[0].text }.filter { $0 != "ok" }
    }
  }

  /// Throws the database away and makes it anew from the files (F43).
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
      // Somebody removed the file under us, or another process made it anew: what we hold open is nobody's.
      if onDisk, guarded.connection != nil, try files.storage.status(path)?.inode != guarded.inode {
        guarded.connection = nil
      }
      if guarded.connection == nil { try reopen(&guarded, damaged: nil) }
      do throws(StoreError) {
        return try body(try connection(guarded))
      } catch {
        // One that may not be written, though the store is open for writing, says so itself in its header; or its owner is
        // another, and it is in the way.
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
      // Another process may have made it anew already.
      if onDisk, let inode, try files.storage.status(path)?.inode == inode { try quarantineDatabase() }
      try openOrRebuild(&guarded)
    }
  }

  /// Only one process at a time makes, opens or replaces the database.
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

  /// The database for who only reads, each time anew: what is kept open may be replaced.
  private func opened() throws(StoreError) -> SQLiteConnection {
    try refuseForeignFiles()
    let (log, memory) = (files.directory + "/" + Self.fileNames[1], files.directory + "/" + Self.fileNames[2])
    let hasLog = try files.storage.status(log) != nil
    let hasMemory = try files.storage.status(memory) != nil
    // Of one that was killed there may be a log alone: SQLite would make the rest.
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
      // SQLite would make it readable to others. Only a file that is not there may be opened here: closing one would give
      // back the locks that SQLite holds on it.
      if try files.storage.status(path) == nil {
        _ = try files.storage.open("catalogue.sqlite", beneath: files.directory, .create)
      }
    }
    let database = try SQLiteConnection(path: files.storage.systemPath(path), shownAs: path)
    // The catalogue is derived: a commit waits for no disk. Checkpoints are synced, or a loss of power would damage it.
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

  /// SQLite follows links and waits on a FIFO: what it would open is looked at first (F45, F84).
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

  /// Runs `body` so that its commit is on the disk when it returns.
  static func synced(_ database: SQLiteConnection, _ body: () throws(StoreError) -> Void)
    throws(StoreError)
  {
    try database.run("PRAGMA synchronous = FULL")
    defer { _ = try? database.run("PRAGMA synchronous = NORMAL") }
    try body()
  }
}
