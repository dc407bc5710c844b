/// Elements that expire. Their index entries have the same deadline.
extension StoreCollection {
  /// Adds an element that expires. Throws `.duplicateIdentifier` if one with its identifier exists.
  ///
  /// - Throws: `.duplicateIdentifier`; as `Store.put`, and as `EncodedValue`; `.invalidKey` for an identifier
  ///   or index entry that is not a valid key.
  public func insert(
    _ element: Element, expiration: Expiration, durability: Durability? = nil
  ) throws(StoreError) {
    try transaction(durability) { transaction throws(StoreError) in
      try insert(element, expiration: expiration, in: &transaction)
    }
  }

  /// Adds an element that expires. Throws `.duplicateIdentifier` if one with its identifier exists.
  ///
  /// - Throws: `.duplicateIdentifier`; as `Store.put`, and as `EncodedValue`; `.invalidKey` for an identifier
  ///   or index entry that is not a valid key; `.outOfBounds` if it does not fit into the transaction any
  ///   more.
  public func insert(
    _ element: Element, expiration: Expiration, in transaction: inout Transaction
  ) throws(StoreError) {
    guard try add(element, expiration: expiration, in: &transaction) else {
      throw duplicate(element.id)
    }
  }

  /// Adds an element that expires, or replaces the one with its identifier.
  ///
  /// - Throws: as `Store.put`, and as `EncodedValue`; `.invalidKey` for an identifier or index entry that is
  ///   not a valid key.
  public func insertOrReplace(
    _ element: Element, expiration: Expiration, durability: Durability? = nil
  ) throws(StoreError) {
    try transaction(durability) { transaction throws(StoreError) in
      try insertOrReplace(element, expiration: expiration, in: &transaction)
    }
  }

  /// Adds an element that expires, or replaces the one with its identifier.
  ///
  /// - Throws: as `Store.put`, and as `EncodedValue`; `.invalidKey` for an identifier or index entry that is
  ///   not a valid key; `.outOfBounds` if it does not fit into the transaction any more.
  public func insertOrReplace(
    _ element: Element, expiration: Expiration, in transaction: inout Transaction
  ) throws(StoreError) {
    let key = try layout.key(element.id)
    try write(
      element, key, replacing: try existing(key, transaction), expiration: expiration,
      in: &transaction)
  }

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
    let same = left.map { $0.deadline.map { .at($0) } ?? .never } ?? expiration
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
