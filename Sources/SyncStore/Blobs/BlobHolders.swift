// Who else holds an object: what eviction needs to know.
extension BlobCatalogue {
  /// Notes that a member was seen to hold an object, at `time` in milliseconds since 1970.
  package func noteHolder(_ hash: BlobHash, member: [UInt8], at time: UInt64) throws(StoreError) {
    try perform { (database) throws(StoreError) in
      _ = try database.run(
        """
        INSERT INTO holder VALUES (?, ?, ?) ON CONFLICT (hash, member) DO UPDATE SET
        seen = max(seen, excluded.seen)
        """, [.bytes(hash.bytes), .bytes(member), .integer(Int64(clamping: time))])
    }
  }

  /// Notes that a member does not hold an object any more.
  package func forgetHolder(_ hash: BlobHash, member: [UInt8]) throws(StoreError) {
    try perform { (database) throws(StoreError) in
      _ = try database.run(
        "DELETE FROM holder WHERE hash = ? AND member = ?", [.bytes(hash.bytes), .bytes(member)])
    }
  }

  /// Members that were seen to hold an object, at `time` in milliseconds since 1970 or later.
  package func holders(of hash: BlobHash, since time: UInt64 = 0) throws(StoreError) -> [[UInt8]] {
    try perform { (database) throws(StoreError) in
      try database.run(
        "SELECT member FROM holder WHERE hash = ? AND seen >= ? ORDER BY member",
        [.bytes(hash.bytes), .integer(Int64(clamping: time))]
      ).map { $0[0].bytes }
    }
  }
}

extension BlobStore {
  /// Removes an object that at least so many members were seen to hold, at `time` in milliseconds since 1970 or later. False,
  /// and it stays, if fewer were. Reading it is `.blobUnavailable` from then on, until it is fetched again.
  ///
  /// - Throws: the error of the catalogue, which alone knows who holds what: without it nothing is evicted.
  package func evict(_ hash: BlobHash, ifHeldBy least: Int, since time: UInt64 = 0) throws(StoreError) -> Bool
  {
    try requireWritable()
    guard
      try catalogue.holders(of: form(BlobReference(hash: hash, size: 0)).name, since: time).count
        >= max(least, 1)
    else { return false }
    return try remove(hash)
  }
}
