/// The writes of a collection within a transaction.
///
/// Their order matters once copies merge: first the index entries of the replaced element are deleted, then
/// the element is written, then all of its entries, including those already there. So if another copy's write
/// loses against this one, its deletes of entries have stamps before these entries (decision 13).
extension StoreCollection {
  /// Adds an element. Throws `.duplicateIdentifier` if one with its identifier exists.
  ///
  /// - Throws: `.duplicateIdentifier`; as `Store.put`, and as `EncodedValue`; `.invalidKey` for an identifier
  ///   or index entry that is not a valid key; `.outOfBounds` if it does not fit into the transaction any
  ///   more.
  public func insert(
    _ element: Element, expiration: Expiration? = nil, in transaction: inout Transaction
  ) throws(StoreError) {
    guard try insertOrIgnore(element, expiration: expiration, in: &transaction) else {
      throw duplicate(element.id)
    }
  }

  /// Adds an element unless one with its identifier exists; false in that case.
  ///
  /// - Throws: as `Store.put`, and as `EncodedValue`; `.invalidKey` for an identifier or index entry that is
  ///   not a valid key; `.outOfBounds` if it does not fit into the transaction any more.
  @discardableResult
  public func insertOrIgnore(
    _ element: Element, expiration: Expiration? = nil, in transaction: inout Transaction
  ) throws(StoreError) -> Bool {
    let key = try layout.key(element.id)
    guard try !transaction.contains(key) else { return false }
    try write(element, key, replacing: nil, expiration: expiration, in: &transaction)
    return true
  }

  /// Adds an element, or replaces the one with its identifier.
  ///
  /// - Throws: as `Store.put`, and as `EncodedValue`; `.invalidKey` for an identifier or index entry that is
  ///   not a valid key; `.outOfBounds` if it does not fit into the transaction any more.
  public func insertOrReplace(
    _ element: Element, expiration: Expiration? = nil, in transaction: inout Transaction
  ) throws(StoreError) {
    let key = try layout.key(element.id)
    try write(
      element, key, replacing: try existing(key, transaction), expiration: expiration, in: &transaction)
  }

  /// Replaces the element with the same identifier. False if there is none.
  ///
  /// - Throws: as `Store.put`, and as `EncodedValue`; `.invalidKey` for an identifier or index entry that is
  ///   not a valid key; `.outOfBounds` if it does not fit into the transaction any more.
  @discardableResult
  public func replace(_ element: Element, in transaction: inout Transaction) throws(StoreError) -> Bool {
    let key = try layout.key(element.id)
    guard try transaction.contains(key) else { return false }
    try write(element, key, replacing: try existing(key, transaction), in: &transaction)
    return true
  }

  /// Changes an element, which keeps its deadline. False if none has that identifier.
  ///
  /// - Throws: what `body` throws; `.invalidKey` if it changes the identifier.
  @discardableResult
  public func update(
    _ identifier: Element.ID, in transaction: inout Transaction, _ body: (inout Element) throws -> Void
  ) throws -> Bool {
    let key = try layout.key(identifier)
    guard let value = try transaction.get(key) else { return false }
    let old = try value.decoded(Element.self, of: key)
    var element = old
    try body(&element)
    // Compare as keys: Swift's `==` treats different bytes as equal if they are canonically equivalent.
    guard element.id.keyBytes == identifier.keyBytes else {
      throw StoreError(
        .invalidKey,
        "the element \(identifier) of the collection \"\(name)\" was given another identifier: delete it and insert a new one"
      )
    }
    try write(
      element, key, replacing: old, expiration: Expiration(deadline: value.deadline), in: &transaction)
    return true
  }

  /// Deletes an element. False if none has that identifier.
  ///
  /// - Throws: as `Transaction.delete`; `.invalidKey` for an identifier that is not a valid key.
  @discardableResult
  public func delete(
    _ identifier: Element.ID, in transaction: inout Transaction
  ) throws(StoreError) -> Bool {
    try delete(at: try layout.key(identifier), in: &transaction)
  }

  func delete(at key: Key, in transaction: inout Transaction) throws(StoreError) -> Bool {
    if let old = try existing(key, transaction) {
      for entry in layout.entries(ofStored: old) { try transaction.delete(entry) }
    }
    return try transaction.delete(key)
  }

  /// The element with an identifier, including earlier writes of the transaction; nil if there is none.
  ///
  /// - Throws: as `Transaction.get(_:as:)`; `.invalidKey` for an identifier that is not a valid key.
  public func get(_ identifier: Element.ID, in transaction: borrowing Transaction) throws(StoreError)
    -> Element?
  {
    try transaction.get(try layout.key(identifier), as: Element.self)
  }

  /// Whether an element with that identifier exists, including earlier writes of the transaction.
  ///
  /// - Throws: as `Transaction.contains`; `.invalidKey` for an identifier that is not a valid key.
  public func contains(
    _ identifier: Element.ID, in transaction: borrowing Transaction
  ) throws(StoreError) -> Bool {
    try transaction.contains(try layout.key(identifier))
  }

  /// The element to be replaced if the collection has indexes, whose entries must be deleted; nil if it
  /// cannot be decoded, as it then has no entries.
  func existing(_ key: Key, _ transaction: borrowing Transaction) throws(StoreError) -> Element? {
    guard layout.hasIndexes, let value = try transaction.get(key) else { return nil }
    return try? value.decoded(as: Element.self)
  }

  /// Writes an element and its index entries, all with the same deadline. Without an expiration the store's
  /// default applies to all of them.
  func write(
    _ element: Element, _ key: Key, replacing old: Element?, expiration: Expiration? = nil,
    in transaction: inout Transaction
  ) throws(StoreError) {
    let form = try EncodedValue(element)
    try invalidateUnknownIndexes(in: &transaction)
    guard layout.hasIndexes else {
      return try transaction.put(key, form.bytes, type: form.type, expiration: expiration)
    }
    let entries = try layout.entries(of: element)
    if let old {
      for entry in layout.entries(ofStored: old) where !entries.contains(entry) {
        try transaction.delete(entry)
      }
    }
    let expiration = Expiration(deadline: source.deadline(for: expiration))
    try transaction.put(key, form.bytes, type: form.type, expiration: expiration)
    for entry in entries { try transaction.put(entry, [], expiration: expiration) }
  }
}
