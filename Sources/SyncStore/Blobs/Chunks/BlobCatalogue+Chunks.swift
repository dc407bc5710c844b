// Chunks of the objects in files: what a transfer need not bring.
extension BlobCatalogue {
  /// Where a chunk is stored.
  struct ChunkLocation: Sendable {
    var object: BlobHash
    var offset: UInt64
    var count: Int
  }

  /// Added by version 3 of the schema.
  static let chunkTables = """
    CREATE TABLE chunk (
      key BLOB NOT NULL CHECK (length(key) = 16),
      hash BLOB NOT NULL CHECK (length(hash) = 32),
      offset INTEGER NOT NULL,
      length INTEGER NOT NULL,
      PRIMARY KEY (key, hash, offset)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX chunk_of ON chunk (hash);
    CREATE TABLE cut (hash BLOB NOT NULL PRIMARY KEY CHECK (length(hash) = 32)) STRICT, WITHOUT ROWID;
    """

  /// Whether there is an object of at least `size` bytes.
  func hasObject(from size: UInt64) throws(StoreError) -> Bool {
    try perform { (database) throws(StoreError) in
      try !database.run(
        "SELECT 1 FROM object WHERE size >= ? AND state = 0 LIMIT 1", [.integer(Int64(clamping: size))]
      ).isEmpty
    }
  }

  /// Objects of at least `size` bytes that are not chunked yet, the most recently used first.
  func unchunkedObjects(from size: UInt64) throws(StoreError) -> [(BlobHash, UInt64)] {
    try perform { (database) throws(StoreError) in
      try database.run(
        """
        SELECT hash, size FROM object WHERE size >= ? AND state = 0 AND hash NOT IN (SELECT hash FROM cut)
        ORDER BY accessed DESC
        """, [.integer(Int64(clamping: size))]
      ).compactMap { row in BlobHash(bytes: row[0].bytes).map { ($0, UInt64(clamping: row[1].integer)) } }
    }
  }

  /// Records all chunks of an object.
  func recordChunks(_ chunks: [(key: [UInt8], offset: UInt64, count: Int)], of object: BlobHash)
    throws(StoreError)
  {
    try perform { (database) throws(StoreError) in
      try database.transaction { () throws(StoreError) in
        try database.run("DELETE FROM chunk WHERE hash = ?", [.bytes(object.bytes)])
        // In key order, so that inserts are sequential.
        let ordered = chunks.map { (order: $0.key.span.load(0, as: UInt64.self).byteSwapped, chunk: $0) }
          .sorted { $0.order < $1.order }
        for (key, offset, count) in ordered.lazy.map(\.chunk) {
          try database.run(
            "INSERT INTO chunk VALUES (?, ?, ?, ?)",
            [.bytes(key), .bytes(object.bytes), .integer(Int64(offset)), .integer(Int64(count))])
        }
        try database.run("INSERT INTO cut VALUES (?) ON CONFLICT DO NOTHING", [.bytes(object.bytes)])
      }
    }
  }

  /// Removes the chunks of an object.
  func forgetChunks(of object: BlobHash) throws(StoreError) {
    try perform { (database) throws(StoreError) in
      try database.transaction { () throws(StoreError) in try Self.forgetChunks(of: object, database) }
    }
  }

  /// Removes the chunks of an object, within a transaction.
  static func forgetChunks(of object: BlobHash, _ database: SQLiteConnection) throws(StoreError) {
    try database.run("DELETE FROM chunk WHERE hash = ?", [.bytes(object.bytes)])
    try database.run("DELETE FROM cut WHERE hash = ?", [.bytes(object.bytes)])
  }

  /// Locations of these chunks; nil for unknown ones.
  func locations(ofChunks keys: [[UInt8]]) throws(StoreError) -> [ChunkLocation?] {
    try perform { (database) throws(StoreError) in
      try database.reading { () throws(StoreError) in
        try keys.map { key throws(StoreError) -> ChunkLocation? in
          let row = try database.run(
            "SELECT hash, offset, length FROM chunk WHERE key = ? LIMIT 1", [.bytes(key)]
          ).first
          guard let row, let object = BlobHash(bytes: row[0].bytes) else { return nil }
          return ChunkLocation(
            object: object, offset: UInt64(clamping: row[1].integer), count: Int(clamping: row[2].integer))
        }
      }
    }
  }
}
