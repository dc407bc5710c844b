/// How a delete works: as a put does (`Store+Write`), of a record without a value, where there is one to be ended.
extension Store {
  /// Deletes a key. False if it had no value. True also where it may have had one that cannot be read: `get` says why.
  ///
  /// - Throws: as `put`.
  @discardableResult
  public func delete(_ key: Key, durability: Durability? = nil) throws(StoreError) -> Bool {
    let (deleted, tail) = try retryingAfterCompaction { () throws(StoreError) in
      try append { composer throws(StoreError) in try self.delete(key, &composer) }
    }
    try awaitDurability(tail, durability: durability)
    return deleted
  }

  /// Does deletes. On a full disk with the reserve used up a compaction gives space back, and they are tried again as long as that
  /// helps: what frees space must not need the user to free some first.
  func retryingAfterCompaction<Result>(_ deletes: () throws(StoreError) -> Result) throws(StoreError)
    -> Result
  {
    while true {
      do throws(StoreError) { return try deletes() } catch {
        guard error.code == .diskFull, try makeRoom() else { throw error }
      }
    }
  }

  func delete(_ key: Key, _ composer: inout TransactionBuilder) throws(StoreError) -> Bool {
    try issuePending(&composer)
    switch try deleteTarget(key.bytes, in: composer) {
    case .nothing: return false
    case .value(let held):
      try composer.issue(key: key.bytes, content: .tombstone, type: .bytes, deadline: nil, held: held)
      return true
    }
  }

  /// What a delete finds of a key, as far as this append has not replaced it.
  func deleteTarget(_ key: [UInt8], in composer: borrowing TransactionBuilder) throws(StoreError)
    -> DeleteTarget
  {
    let wall = composer.wall
    if let record = composer.record(of: key) {
      return record.isLive(at: wall) ? .value(record.replaced) : .nothing
    }
    return try reading { engine throws(StoreError) in engine.deleteTarget(key, at: wall) }
  }
}

/// What a delete finds of a key.
enum DeleteTarget {
  /// No value: nothing is to be written.
  case nothing
  /// A value, or what may be one, which the delete is to end, and what is known of the record that it replaces.
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
      // Whatever it is, the delete is to end it, should it be read again or come back from a peer.
      return .value(nil)
    }
  }
}
