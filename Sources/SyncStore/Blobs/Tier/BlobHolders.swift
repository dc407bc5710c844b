// Who else holds an object, as far as it was last heard: whom to ask first, and whom to name to people. Nothing is evicted by it.
extension BlobCatalogue {
  /// Notes that members were seen to hold objects, at `time` in milliseconds since 1970.
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

  /// Notes that a member does not hold an object any more.
  package func forgetHolder(_ name: BlobHash, member: [UInt8]) throws(StoreError) {
    try perform { (database) throws(StoreError) in
      _ = try database.run(
        "DELETE FROM holder WHERE hash = ? AND member = ?", [.bytes(name.bytes), .bytes(member)])
    }
  }

  /// Members that were seen to hold an object, those seen last first.
  package func holders(of name: BlobHash) throws(StoreError) -> [[UInt8]] {
    try perform { (database) throws(StoreError) in
      try database.run(
        "SELECT member FROM holder WHERE hash = ? ORDER BY seen DESC, member", [.bytes(name.bytes)]
      ).map { $0[0].bytes }
    }
  }
}

extension BlobStore {
  /// Members that were seen to hold an object: `DeviceID`s, those seen last first. Empty if it is not known.
  package func holders(of hash: BlobHash) -> [[UInt8]] {
    ignoringCatalogueErrors { (catalogue) throws(StoreError) in
      try catalogue.holders(of: descriptor(BlobReference(hash: hash, size: 0)).name)
    } ?? []
  }

  /// Notes that a member was seen to hold an object, or not to.
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
