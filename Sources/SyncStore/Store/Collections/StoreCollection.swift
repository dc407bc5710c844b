/// The values of one type under one prefix: each element is stored under its identifier. Made by
/// `Store.collection`.
///
/// ```swift
/// struct Order: Codable, Identifiable { let id: Int; var customer: String }
/// let orders = try store.collection("orders", of: Order.self)
/// try orders.insert(Order(id: 7, customer: "Ann"))
/// try orders.update(7) { $0.customer = "Bo" }
/// ```
///
/// Each write is a transaction of its own or, with `in:`, part of one. The keys below the collection's name
/// belong to it: any other value put there is read as an element. `Collection` is the standard library's
/// name.
public struct StoreCollection<Element: Codable & Identifiable & Sendable>: ReadableCollection
where Element.ID: KeyComponent {
  /// The store that contains the collection.
  public let source: Store
  let layout: CollectionLayout<Element>

  /// The collection's name.
  public var name: String { layout.name }

  /// A snapshot of the collection as it is now: later writes do not show in it.
  ///
  /// - Throws: as `Store.snapshot`.
  public func snapshot() throws(StoreError) -> CollectionSnapshot<Element> {
    CollectionSnapshot(source: try source.snapshot(), layout: layout)
  }

  /// The collection in a snapshot of its store.
  public func reading(_ snapshot: Snapshot) -> CollectionSnapshot<Element> {
    CollectionSnapshot(source: snapshot, layout: layout)
  }

  /// The element with an identifier; nil if there is none.
  ///
  /// - Throws: as `Store.get`, and as `EncodedValue.decoded`; `.invalidKey` for an identifier that makes no
  ///   valid key.
  public func get(_ identifier: Element.ID) throws(StoreError) -> Element? {
    try source.get(try layout.key(identifier), as: Element.self)
  }

  /// Whether there is an element with that identifier.
  ///
  /// - Throws: as `Store.contains`; `.invalidKey` for an identifier that makes no valid key.
  public func contains(_ identifier: Element.ID) throws(StoreError) -> Bool {
    try source.contains(try layout.key(identifier))
  }

  /// The keys of its elements, without index entries, for `Store.changes(in:from:)`.
  public var keys: KeyRange { layout.range(Unbounded<Element.ID>()) }

  /// The changes of its elements; see `Changes`. For a put, `try change.value()?.decoded(as:)` is the
  /// element.
  ///
  /// - Parameter position: as in `Store.changes(prefix:from:)`; by default the end of the journal.
  /// - Throws: `.closed`.
  public func changes(from position: ChangePosition? = nil) throws(StoreError) -> Changes {
    try source.changes(in: keys, from: position)
  }

  /// The key of an element.
  ///
  /// - Throws: `.invalidKey` if the identifier makes no valid key: above `Limits.keyBytes` with the name, or
  ///   beginning with the byte 255.
  public func key(of identifier: Element.ID) throws(StoreError) -> Key { try layout.key(identifier) }

  // MARK: Single elements

  /// Adds an element. Throws `.duplicateIdentifier` if there already is one with its identifier.
  ///
  /// - Throws: `.duplicateIdentifier`; as `Store.put`, and as `EncodedValue`; `.invalidKey` for an
  ///   identifier, or an entry of an index, that makes no valid key.
  public func insert(
    _ element: Element, expiration: Expiration? = nil, durability: Durability? = nil
  ) throws(StoreError) {
    guard try insertOrIgnore(element, expiration: expiration, durability: durability) else {
      throw duplicate(element.id)
    }
  }

  /// Adds an element unless there already is one with its identifier: false in that case.
  ///
  /// - Throws: as `Store.put`, and as `EncodedValue`; `.invalidKey` for an identifier, or an entry of an
  ///   index, that makes no valid key.
  @discardableResult
  public func insertOrIgnore(
    _ element: Element, expiration: Expiration? = nil, durability: Durability? = nil
  ) throws(StoreError) -> Bool {
    if expiration == nil, try putWithoutIndexes(element, unlessKnown: true, durability) { return true }
    return try transaction(durability) { transaction throws(StoreError) in
      try insertOrIgnore(element, expiration: expiration, in: &transaction)
    }
  }

  /// The fast path without a transaction: false, and nothing done, if a transaction is needed.
  private func putWithoutIndexes(
    _ element: Element, unlessKnown: Bool, _ durability: Durability?
  ) throws(StoreError) -> Bool {
    guard !layout.hasIndexes else { return false }
    let key = try layout.key(element.id)
    return try EncodedValue.with(element) { bytes, type throws(StoreError) in
      try source.putInline(
        key, bytes, type: type, unlessKnown: unlessKnown, unlessNoted: layout.metadataKey,
        durability: durability)
    }
  }

  /// Adds an element, replacing the one with its identifier if there is one.
  ///
  /// - Throws: as `Store.put`, and as `EncodedValue`; `.invalidKey` for an identifier, or an entry of an
  ///   index, that makes no valid key.
  public func insertOrReplace(
    _ element: Element, expiration: Expiration? = nil, durability: Durability? = nil
  ) throws(StoreError) {
    if expiration == nil, try putWithoutIndexes(element, unlessKnown: false, durability) { return }
    try transaction(durability) { transaction throws(StoreError) in
      try insertOrReplace(element, expiration: expiration, in: &transaction)
    }
  }

  /// Replaces the element with the same identifier. False if there is none.
  ///
  /// - Throws: as `Store.put`, and as `EncodedValue`; `.invalidKey` for an identifier, or an entry of an
  ///   index, that makes no valid key.
  @discardableResult
  public func replace(_ element: Element, durability: Durability? = nil) throws(StoreError) -> Bool {
    try transaction(durability) { transaction throws(StoreError) in try replace(element, in: &transaction) }
  }

  /// Atomically changes an element; it keeps its deadline. False if there is none with that identifier.
  ///
  /// - Throws: errors of `body`, too: nothing is changed then. `.invalidKey` if it changes the identifier.
  @discardableResult
  public func update(
    _ identifier: Element.ID, durability: Durability? = nil, _ body: (inout Element) throws -> Void
  ) throws -> Bool {
    try source.transaction(durability: durability) { try update(identifier, in: &$0, body) }
  }

  /// Deletes an element. False if there was none.
  ///
  /// - Throws: as `Store.delete`; `.invalidKey` for an identifier that makes no valid key.
  @discardableResult
  public func delete(_ identifier: Element.ID, durability: Durability? = nil) throws(StoreError) -> Bool {
    guard !layout.hasIndexes else {
      return try transaction(durability) { transaction throws(StoreError) in
        try delete(identifier, in: &transaction)
      }
    }
    return try source.delete(try layout.key(identifier), durability: durability)
  }

  // MARK: Atomic batches

  /// Adds elements, all or none.
  ///
  /// - Throws: `.duplicateIdentifier` if there already is one with any of their identifiers; `.outOfBounds`
  ///   if they and their index entries exceed a transaction (`Limits.transactionBytes`): then add them in
  ///   batches of some thousand; as `insert(_:expiration:durability:)`.
  public func insert(
    contentsOf elements: some Sequence<Element>, durability: Durability? = nil
  ) throws(StoreError) {
    try transaction(durability) { transaction throws(StoreError) in
      for element in elements { try insert(element, in: &transaction) }
    }
  }

  /// Atomically adds those elements whose identifiers are not there yet, and returns their number.
  ///
  /// - Throws: `.outOfBounds` as `insert(contentsOf:durability:)`; as
  ///   `insertOrIgnore(_:expiration:durability:)`.
  @discardableResult
  public func insertOrIgnore(
    contentsOf elements: some Sequence<Element>, durability: Durability? = nil
  ) throws(StoreError) -> Int {
    try transaction(durability) { transaction throws(StoreError) in
      var count = 0
      for element in elements where try insertOrIgnore(element, in: &transaction) { count += 1 }
      return count
    }
  }

  /// Adds elements, replacing those with their identifiers, all or none.
  ///
  /// - Throws: `.outOfBounds` as `insert(contentsOf:durability:)`; as
  ///   `insertOrReplace(_:expiration:durability:)`.
  public func insertOrReplace(
    contentsOf elements: some Sequence<Element>, durability: Durability? = nil
  ) throws(StoreError) {
    try transaction(durability) { transaction throws(StoreError) in
      for element in elements { try insertOrReplace(element, in: &transaction) }
    }
  }

  /// Deletes elements, all or none. Returns how many of them existed.
  ///
  /// - Throws: `.outOfBounds` as `insert(contentsOf:durability:)`; as `delete(_:durability:)`.
  @discardableResult
  public func delete(
    contentsOf identifiers: some Sequence<Element.ID>, durability: Durability? = nil
  ) throws(StoreError) -> Int {
    try transaction(durability) { transaction throws(StoreError) in
      var count = 0
      for identifier in identifiers where try delete(identifier, in: &transaction) { count += 1 }
      return count
    }
  }

  /// Deletes all elements, many per transaction. Returns how many there were.
  ///
  /// - Throws: as `delete(_:durability:)`; earlier transactions stay committed.
  @discardableResult
  public func deleteAll(durability: Durability? = nil) throws(StoreError) -> Int {
    var count = 0
    let range = layout.range(Unbounded<Element.ID>())
    while case let page = try source.list(range, limit: Self.pageSize), !page.isEmpty {
      try transaction(durability) { transaction throws(StoreError) in
        for entry in page where try delete(at: entry.key, in: &transaction) { count += 1 }
      }
    }
    return count
  }

  static var pageSize: Int { 500 }

  func transaction<Result>(
    _ durability: Durability?, _ body: (inout Transaction) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    try StoreError.only { try source.transaction(durability: durability) { try body(&$0) } }
  }

  func duplicate(_ identifier: Element.ID) -> StoreError {
    StoreError(
      .duplicateIdentifier,
      "the collection \"\(name)\" has an element \(identifier) already: replace it, or choose another identifier"
    )
  }
}

extension Store {
  /// The collection of a type under a name.
  ///
  /// - Parameters:
  ///   - name: 1 to `Limits.collectionNameBytes` bytes without `/`, `#` and zero.
  ///   - indexes: secondary orders of the elements. An index that is new, or has another version, is built
  ///     now, which reads all elements; indexes no longer named are removed. Name the same ones everywhere in
  ///     a program. For existing indexes of a writable store, the entries of a few recently written elements
  ///     are checked, and an index that lacks one is rebuilt, too.
  /// - Throws: `.invalidKey` for invalid names; `.readOnly` if an index must be built and the store was
  ///   opened read-only; `.busy` as `rebuildIndexes`; errors of reading all elements.
  public func collection<Element: Codable & Identifiable & Sendable>(
    _ name: String, of _: Element.Type, indexes: [any CollectionIndexing<Element>] = []
  ) throws(StoreError) -> StoreCollection<Element> where Element.ID: KeyComponent {
    let layout = try CollectionLayout(name: name, indexes: indexes)
    let collection = StoreCollection(source: self, layout: layout)
    try collection.prepareIndexes()
    return collection
  }
}
