/// Elements that expire. The entries of an element go when it goes: they have its deadline.
extension StoreCollection {
  /// Adds an element that lasts so long. `.duplicateIdentifier` if there is one of its identifier.
  ///
  /// - Throws: `.duplicateIdentifier`; as `Store.put`, and as `EncodedValue`; `.invalidKey` for an
  ///   identifier, or an entry of an index, that makes no key.
  public func insert(
    _ element: Element, expiration: Expiration, durability: Durability? = nil
  ) throws(StoreError) {
    try transaction(durability) { transaction throws(StoreError) in
      try insert(element, expiration: expiration, in: &transaction)
    }
  }

  /// Adds an element that lasts so long. `.duplicateIdentifier` if there is one of its identifier.
  ///
  /// - Throws: `.duplicateIdentifier`; as `Store.put`, and as `EncodedValue`; `.invalidKey` for an
  ///   identifier, or an entry of an index, that makes no key; `.outOfBounds` if it does not fit into the
  ///   transaction any more.
  public func insert(
    _ element: Element, expiration: Expiration, in transaction: inout Transaction
  ) throws(StoreError) {
    guard try add(element, expiration: expiration, in: &transaction) else {
      throw duplicate(element.id)
    }
  }

  /// Adds an element that lasts so long, or puts it in the place of the one of its identifier.
  ///
  /// - Throws: as `Store.put`, and as `EncodedValue`; `.invalidKey` for an identifier, or an entry of an
  ///   index, that makes no key.
  public func insertOrReplace(
    _ element: Element, expiration: Expiration, durability: Durability? = nil
  ) throws(StoreError) {
    try transaction(durability) { transaction throws(StoreError) in
      try insertOrReplace(element, expiration: expiration, in: &transaction)
    }
  }

  /// Adds an element that lasts so long, or puts it in the place of the one of its identifier.
  ///
  /// - Throws: as `Store.put`, and as `EncodedValue`; `.invalidKey` for an identifier, or an entry of an
  ///   index, that makes no key; `.outOfBounds` if it does not fit into the transaction any more.
  public func insertOrReplace(
    _ element: Element, expiration: Expiration, in transaction: inout Transaction
  ) throws(StoreError) {
    let key = try layout.key(element.id)
    try write(
      element, key, replacing: try existing(key, transaction), expiration: expiration,
      in: &transaction)
  }

  /// Changes when an element expires, and not the element. False if there is none of that identifier, or it has expired.
  ///
  /// `Store.expire` with the element's key is not the same: it leaves the entries of indexes as they are.
  ///
  /// - Throws: as `Store.expire`; `.invalidKey` for an identifier that makes no key.
  @discardableResult
  public func expire(
    _ identifier: Element.ID, _ expiration: Expiration, durability: Durability? = nil
  ) throws(StoreError) -> Bool {
    try transaction(durability) { transaction throws(StoreError) in
      try expire(identifier, expiration, in: &transaction)
    }
  }

  /// Changes when an element expires, and not the element. False if there is none of that identifier, or it has expired.
  ///
  /// - Throws: as `Transaction.expire`; `.invalidKey` for an identifier that makes no key.
  @discardableResult
  public func expire(
    _ identifier: Element.ID, _ expiration: Expiration, in transaction: inout Transaction
  ) throws(StoreError) -> Bool {
    let key = try layout.key(identifier)
    let element = try existing(key, transaction)
    try invalidateUnknownIndexes(in: &transaction)
    guard try transaction.expire(key, expiration) else { return false }
    // The very deadline that the element has now; one that has passed has ended it, and ends its entries.
    let left = try transaction.entry(key)
    let same = left.map { $0.deadline.map { .at($0) } ?? .never } ?? expiration
    for entry in element.map({ layout.entries(ofStored: $0) }) ?? [] { try transaction.expire(entry, same) }
    return true
  }

  /// When an element expires, in milliseconds since 1970; nil if there is none of that identifier, or it does not expire.
  ///
  /// - Throws: as `Store.deadline(of:)`; `.invalidKey` for an identifier that makes no key.
  public func deadline(of identifier: Element.ID) throws(StoreError) -> UInt64? {
    try source.deadline(of: try layout.key(identifier))
  }
}
