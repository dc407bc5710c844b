/// Deletes: appended like a put (`Store+Write`), as a record without value, if there is one to delete.
extension Store {
  /// Deletes a key. False if it had no value. True also if it may have had one that is unreadable; `get` then
  /// tells why.
  ///
  /// - Throws: as `put`.
  @discardableResult
  public func delete(_ key: Key, durability: Durability? = nil) throws(StoreError) -> Bool {
    let (deleted, tail) = try retryingAfterCompaction { () throws(StoreError) in
      try writes.append { builder throws(StoreError) in try self.delete(key, &builder) }
    }
    try awaitDurability(tail, durability: durability)
    return deleted
  }

  /// Runs deletes. If the disk and the reserve are full, compacts and retries as long as that frees space: a
  /// delete must not require the user to free space first.
  func retryingAfterCompaction<Result>(_ deletes: () throws(StoreError) -> Result) throws(StoreError)
    -> Result
  {
    while true {
      do throws(StoreError) { return try deletes() } catch {
        guard error.code == .diskFull, try compactor.makeRoom() else { throw error }
      }
    }
  }

  func delete(_ key: Key, _ builder: inout TransactionBuilder) throws(StoreError) -> Bool {
    try writes.issuePending(&builder)
    switch try deleteTarget(key.bytes, in: builder) {
    case .nothing: return false
    case .value(let held):
      try builder.issue(key: key.bytes, content: .tombstone, type: .bytes, deadline: nil, held: held)
      return true
    }
  }

  /// The target of a delete, including earlier writes of this append.
  func deleteTarget(_ key: [UInt8], in builder: borrowing TransactionBuilder) throws(StoreError)
    -> DeleteTarget
  {
    let wall = builder.wall
    if let record = builder.record(of: key) {
      return record.isLive(at: wall) ? .value(record.replaced) : .nothing
    }
    return try reading { engine throws(StoreError) in engine.deleteTarget(key, at: wall) }
  }
}

/// The record that a delete replaces, if any.
enum DeleteTarget {
  /// No value: nothing to write.
  case nothing
  /// A value, or possibly one, and the record that the delete replaces, if known.
  case value(ReplacedRecord?)
}

extension Engine {
  fileprivate mutating func deleteTarget(_ key: [UInt8], at wall: UInt64) -> DeleteTarget {
    do throws(StoreError) {
      let held = try view(of: key.span)?.replaced
      if let shown = effectiveRecord(key) {
        return shown.record.isLive(at: wall) ? .value(shown.replaced) : .nothing
      }
      guard let held, held.isLive(at: wall) else { return .nothing }
      return .value(held)
    } catch {
      // Write the tombstone all the same: the unreadable value may become readable again, or come back from a
      // peer.
      return .value(nil)
    }
  }
}
