/// The writes of a collection within a transaction.
///
/// Their order matters once copies meet: entries of the element that is replaced are deleted first, then the
/// element is written, then all of its entries are, also those that were there already. So whatever another
/// copy has deleted in a write that loses against this one was stamped before these entries (decision 13).
extension StoreCollection {
  /// Adds an element. `.duplicateIdentifier` if there is one of its identifier.
  ///
  /// - Throws: `.duplicateIdentifier`; as `Store.put`, and as `EncodedValue`; `.invalidKey` for an
  ///   identifier, or an entry of an index, that makes no key; `.outOfBounds` if it does not fit into the
  ///   transaction any more.
  public func insert(_ element: Element, in transaction: inout Transaction) throws(StoreError) {
    guard try insertOrIgnore(element, in: &transaction) else { throw duplicate(element.id) }
  }

  /// Adds an element unless there is one of its identifier: false in that case.
  ///
  /// - Throws: as `Store.put`, and as `EncodedValue`; `.invalidKey` for an identifier, or an entry of an
  ///   index, that makes no key; `.outOfBounds` if it does not fit into the transaction any more.
  @discardableResult
  public func insertOrIgnore(
    _ element: Element, in transaction: inout Transaction
  ) throws(StoreError) -> Bool {
    try add(element, expiration: nil, in: &transaction)
  }

  /// Adds an element, or puts it in the place of the one of its identifier.
  ///
  /// - Throws: as `Store.put`, and as `EncodedValue`; `.invalidKey` for an identifier, or an entry of an
  ///   index, that makes no key; `.outOfBounds` if it does not fit into the transaction any more.
  public func insertOrReplace(_ element: Element, in transaction: inout Transaction) throws(StoreError) {
    let key = try layout.key(element.id)
    try write(element, key, replacing: try existing(key, transaction), in: &transaction)
  }

  /// Puts an element in the place of the one of its identifier. False if there is none.
  ///
  /// - Throws: as `Store.put`, and as `EncodedValue`; `.invalidKey` for an identifier, or an entry of an
  ///   index, that makes no key; `.outOfBounds` if it does not fit into the transaction any more.
  @discardableResult
  public func replace(_ element: Element, in transaction: inout Transaction) throws(StoreError) -> Bool {
    let key = try layout.key(element.id)
    guard try transaction.contains(key) else { return false }
    try write(element, key, replacing: try existing(key, transaction), in: &transaction)
    return true
  }

  /// Changes an element, which keeps its deadline. False if there is none of that identifier.
  ///
  /// - Throws: what `body` throws, too. `.invalidKey` if it changes the identifier.
  @discardableResult
  public func update(
    _ identifier: Element.ID, in transaction: inout Transaction, _ body: (inout Element) throws -> Void
  ) throws -> Bool {
    let key = try layout.key(identifier)
    guard let value = try transaction.get(key) else { return false }
    let old = try value.decoded(Element.self, of: key)
    var element = old
    try body(&element)
    // As keys, which tell apart texts that Swift takes for equal.
    guard element.id.keyBytes == identifier.keyBytes else {
      throw StoreError(
        .invalidKey,
        "the element \(identifier) of the collection \"\(name)\" was given another identifier: delete it and insert a new one"
      )
    }
    try write(
      element, key, replacing: old, expiration: value.deadline.map { .at($0) } ?? .never, in: &transaction)
    return true
  }

  /// Takes an element away. False if there was none.
  ///
  /// - Throws: as `Transaction.delete`; `.invalidKey` for an identifier that makes no key.
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

  /// The element of an identifier as the transaction leaves it so far; nil if there is none.
  ///
  /// - Throws: as `Transaction.get(_:as:)`; `.invalidKey` for an identifier that makes no key.
  public func get(_ identifier: Element.ID, in transaction: borrowing Transaction) throws(StoreError)
    -> Element?
  {
    try transaction.get(try layout.key(identifier), as: Element.self)
  }

  /// Is there an element of that identifier, as the transaction leaves it so far?
  ///
  /// - Throws: as `Transaction.contains`; `.invalidKey` for an identifier that makes no key.
  public func contains(
    _ identifier: Element.ID, in transaction: borrowing Transaction
  ) throws(StoreError) -> Bool {
    try transaction.contains(try layout.key(identifier))
  }

  /// Adds an element unless there is one of its identifier: false in that case.
  func add(
    _ element: Element, expiration: Expiration?, in transaction: inout Transaction
  ) throws(StoreError) -> Bool {
    let key = try layout.key(element.id)
    guard try !transaction.contains(key) else { return false }
    try write(element, key, replacing: nil, expiration: expiration, in: &transaction)
    return true
  }

  /// The element to be replaced, if it has index entries to delete. One that cannot be decoded has none.
  func existing(_ key: Key, _ transaction: borrowing Transaction) throws(StoreError) -> Element? {
    guard layout.hasIndexes, let value = try transaction.get(key) else { return nil }
    return try? value.decoded(as: Element.self)
  }

  /// Without a deadline the store's default holds, for the entries as well.
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
    let expiration = source.deadline(for: expiration).map { Expiration.at($0) } ?? .never
    try transaction.put(key, form.bytes, type: form.type, expiration: expiration)
    for entry in entries { try transaction.put(entry, [], expiration: expiration) }
  }
}
