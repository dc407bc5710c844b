// Members last seen to hold an object: whom to ask first, and whom to name in messages. Eviction never relies
// on this.
extension BlobCatalogue {
  /// Records that members were seen to hold objects, at `time` in milliseconds since 1970.
  package func recordHolders(
    _ seen: some Sequence<(name: BlobHash, member: [UInt8])>, at time: UInt64
  ) throws(StoreError) {
    try perform { (database) throws(StoreError) in
      try database.transaction { () throws(StoreError) in
        for (name, member) in seen {
          try database.run(
            """
            INSERT INTO holder VALUES (?, ?, ?) ON CONFLICT (hash, member) DO UPDATE SET
            seen = max(seen, excluded.seen)
            """, [.bytes(name.bytes), .bytes(member), .integer(Int64(clamping: time))])
        }
      }
    }
  }

  /// Records that a member no longer holds an object.
  package func forgetHolder(_ name: BlobHash, member: [UInt8]) throws(StoreError) {
    try perform { (database) throws(StoreError) in
      _ = try database.run(
        "DELETE FROM holder WHERE hash = ? AND member = ?", [.bytes(name.bytes), .bytes(member)])
    }
  }

  /// Members seen to hold an object, most recent first.
  package func holders(of name: BlobHash) throws(StoreError) -> [[UInt8]] {
    try perform { (database) throws(StoreError) in
      try database.run(
        "SELECT member FROM holder WHERE hash = ? ORDER BY seen DESC, member", [.bytes(name.bytes)]
      ).map { $0[0].bytes }
    }
  }
}

extension BlobStore {
  /// `DeviceID`s of members seen to hold an object, most recent first. Empty if unknown.
  package func holders(of hash: BlobHash) -> [[UInt8]] {
    ignoringCatalogueErrors { (catalogue) throws(StoreError) in
      try catalogue.holders(of: descriptor(BlobReference(hash: hash, size: 0)).name)
    } ?? []
  }

  /// Records whether a member was seen to hold an object.
  package func recordHolder(_ hash: BlobHash, member: [UInt8], holds: Bool) {
    guard !readOnly else { return }
    let name = descriptor(BlobReference(hash: hash, size: 0)).name
    ignoringCatalogueErrors { (catalogue) throws(StoreError) in
      if holds {
        try catalogue.recordHolders([(name, member)], at: clock())
      } else {
        try catalogue.forgetHolder(name, member: member)
      }
    }
  }
}
