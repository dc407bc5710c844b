/// Elements that expire. Their index entries have the same deadline.
extension StoreCollection {
  /// Changes the deadline of an element and its index entries. False if none has that identifier, or it has
  /// expired.
  ///
  /// **Do not use `Store.expire` with the element's key:** it leaves the index entries unchanged.
  ///
  /// - Throws: as `Store.expire`; `.invalidKey` for an identifier that is not a valid key.
  @discardableResult
  public func expire(
    _ identifier: Element.ID, _ expiration: Expiration, durability: Durability? = nil
  ) throws(StoreError) -> Bool {
    try transaction(durability) { transaction throws(StoreError) in
      try expire(identifier, expiration, in: &transaction)
    }
  }

  /// Changes the deadline of an element and its index entries. False if none has that identifier, or it has
  /// expired.
  ///
  /// - Throws: as `Transaction.expire`; `.invalidKey` for an identifier that is not a valid key.
  @discardableResult
  public func expire(
    _ identifier: Element.ID, _ expiration: Expiration, in transaction: inout Transaction
  ) throws(StoreError) -> Bool {
    let key = try layout.key(identifier)
    let element = try existing(key, transaction)
    try invalidateUnknownIndexes(in: &transaction)
    guard try transaction.expire(key, expiration) else { return false }
    // Give the entries exactly the element's new deadline. A deadline in the past has expired the element,
    // and must expire its entries, too.
    let left = try transaction.entry(key)
    let same = left.map { Expiration(deadline: $0.deadline) } ?? expiration
    for entry in element.map({ layout.entries(ofStored: $0) }) ?? [] { try transaction.expire(entry, same) }
    return true
  }

  /// The deadline of an element in milliseconds since 1970; nil if none has that identifier, or it does not
  /// expire.
  ///
  /// - Throws: as `Store.deadline(of:)`; `.invalidKey` for an identifier that is not a valid key.
  public func deadline(of identifier: Element.ID) throws(StoreError) -> UInt64? {
    try source.deadline(of: try layout.key(identifier))
  }
}
