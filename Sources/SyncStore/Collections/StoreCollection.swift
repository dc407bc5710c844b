/// The values of one type under one prefix: each element is stored under its identifier. Called so because `Collection`
/// is the standard library's. Made by `Store.collection`.
///
/// ```swift
/// struct Order: Codable, Identifiable { let id: Int; var customer: String }
/// let orders = try store.collection("orders", of: Order.self)
/// try orders.insert(Order(id: 7, customer: "Ann"))
/// try orders.update(7) { $0.customer = "Bo" }
/// ```
///
/// Writes either are transactions of their own or, with `in:`, part of one. The keys below the collection's name are its
/// own: what else is put there is taken for an element.
public struct StoreCollection<Element: Codable & Identifiable & Sendable>: ReadableCollection
where Element.ID: KeyComponent {
  /// The store that it is in.
  public let source: Store
  let layout: CollectionLayout<Element>

  /// Its name.
  public var name: String { layout.name }

  /// The collection as it is now: what is written afterwards does not show in it.
  ///
  /// - Throws: as `Store.snapshot`.
  public func snapshot() throws(StoreError) -> CollectionSnapshot<Element> {
    CollectionSnapshot(source: try source.snapshot(), layout: layout)
  }

  /// The collection in a snapshot of its store.
  public func reading(_ snapshot: Snapshot) -> CollectionSnapshot<Element> {
    CollectionSnapshot(source: snapshot, layout: layout)
  }

  /// The element of an identifier; nil if there is none.
  ///
  /// - Throws: as `Store.get`, and as `EncodedValue.decoded`; `.invalidKey` for an identifier that makes no
  ///   key.
  public func get(_ identifier: Element.ID) throws(StoreError) -> Element? {
    try source.get(try layout.key(identifier), as: Element.self)
  }

  /// Is there an element of that identifier?
  ///
  /// - Throws: as `Store.contains`; `.invalidKey` for an identifier that makes no key.
  public func contains(_ identifier: Element.ID) throws(StoreError) -> Bool {
    try source.contains(try layout.key(identifier))
  }

  /// The keys of its elements, without those of indexes: what `Store.changes(in:from:)` takes.
  public var keys: KeyRange { layout.range(Unbounded<Element.ID>()) }

  /// What is written to its elements; see `Changes`. Of a put `try change.value()?.decoded(as:)` is the element.
  ///
  /// - Parameter position: as `Store.changes(prefix:from:)` has it; by default what is written from now on.
  /// - Throws: `.closed`.
  public func changes(from position: ChangePosition? = nil) throws(StoreError) -> Changes {
    try source.changes(in: keys, from: position)
  }

  /// The key that an element is stored under.
  ///
  /// - Throws: `.invalidKey` if it makes no key: above `Limits.keyBytes` with the name, or beginning with the
  ///   byte 255.
  public func key(of identifier: Element.ID) throws(StoreError) -> Key { try layout.key(identifier) }

  // MARK: One element

  /// Adds an element. `.duplicateIdentifier` if there is one of its identifier.
  ///
  /// - Throws: `.duplicateIdentifier`; as `Store.put`, and as `EncodedValue`; `.invalidKey` for an
  ///   identifier, or an entry of an index, that makes no key.
  public func insert(_ element: Element, durability: Durability? = nil) throws(StoreError) {
    guard try insertOrIgnore(element, durability: durability) else { throw duplicate(element.id) }
  }

  /// Adds an element unless there is one of its identifier: false in that case.
  ///
  /// - Throws: as `Store.put`, and as `EncodedValue`; `.invalidKey` for an identifier, or an entry of an
  ///   index, that makes no key.
  @discardableResult
  public func insertOrIgnore(_ element: Element, durability: Durability? = nil) throws(StoreError) -> Bool {
    if try putWithoutIndexes(element, unlessKnown: true, durability) { return true }
    return try transaction(durability) { transaction throws(StoreError) in
      try insertOrIgnore(element, in: &transaction)
    }
  }

  /// The short way: false if a transaction has to look, and nothing was done.
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

  /// Adds an element, or puts it in the place of the one of its identifier.
  ///
  /// - Throws: as `Store.put`, and as `EncodedValue`; `.invalidKey` for an identifier, or an entry of an
  ///   index, that makes no key.
  public func insertOrReplace(_ element: Element, durability: Durability? = nil) throws(StoreError) {
    if try putWithoutIndexes(element, unlessKnown: false, durability) { return }
    try transaction(durability) { transaction throws(StoreError) in
      try insertOrReplace(element, in: &transaction)
    }
  }

  /// Puts an element in the place of the one of its identifier. False if there is none.
  ///
  /// - Throws: as `Store.put`, and as `EncodedValue`; `.invalidKey` for an identifier, or an entry of an
  ///   index, that makes no key.
  @discardableResult
  public func replace(_ element: Element, durability: Durability? = nil) throws(StoreError) -> Bool {
    try transaction(durability) { transaction throws(StoreError) in try replace(element, in: &transaction) }
  }

  /// Changes an element while nobody else can; it keeps its deadline. False if there is none of that identifier.
  ///
  /// - Throws: what `body` throws, too: nothing is changed then. `.invalidKey` if it changes the identifier.
  @discardableResult
  public func update(
    _ identifier: Element.ID, durability: Durability? = nil, _ body: (inout Element) throws -> Void
  ) throws -> Bool {
    try source.transaction(durability: durability) { try update(identifier, in: &$0, body) }
  }

  /// Takes an element away. False if there was none.
  ///
  /// - Throws: as `Store.delete`; `.invalidKey` for an identifier that makes no key.
  @discardableResult
  public func delete(_ identifier: Element.ID, durability: Durability? = nil) throws(StoreError) -> Bool {
    guard !layout.hasIndexes else {
      return try transaction(durability) { transaction throws(StoreError) in
        try delete(identifier, in: &transaction)
      }
    }
    return try source.delete(try layout.key(identifier), durability: durability)
  }

  // MARK: Many elements, all or none

  /// Adds elements, all or none. `.duplicateIdentifier` if there is one of the identifier of any of them, `.outOfBounds` if
  /// they and their index entries are more than a transaction holds (`Limits.transactionBytes`): add them some thousand at a
  /// time then.
  ///
  /// - Throws: as said, and as `insert(_:durability:)`.
  public func insert(
    contentsOf elements: some Sequence<Element>, durability: Durability? = nil
  ) throws(StoreError) {
    try transaction(durability) { transaction throws(StoreError) in
      for element in elements { try insert(element, in: &transaction) }
    }
  }

  /// Adds those elements whose identifiers are not there yet, at once. Returns how many those were.
  ///
  /// - Throws: `.outOfBounds` as the insert of many; as `insertOrIgnore(_:durability:)`.
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

  /// Adds elements or puts them in the place of those of their identifiers, all or none.
  ///
  /// - Throws: `.outOfBounds` as the insert of many; as `insertOrReplace(_:durability:)`.
  public func insertOrReplace(
    contentsOf elements: some Sequence<Element>, durability: Durability? = nil
  ) throws(StoreError) {
    try transaction(durability) { transaction throws(StoreError) in
      for element in elements { try insertOrReplace(element, in: &transaction) }
    }
  }

  /// Takes elements away, all or none. Returns how many of them were there.
  ///
  /// - Throws: `.outOfBounds` as the insert of many; as `delete(_:durability:)`.
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

  /// Takes all elements away, many to a transaction. Returns how many there were.
  ///
  /// - Throws: as `delete(_:durability:)`; those that went before it stay away.
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
  /// The elements of a type that are stored under a name.
  ///
  /// - Parameters:
  ///   - name: 1 to `Limits.collectionNameBytes` bytes without `/`, `#` and zero.
  ///   - indexes: second orders of the elements. Those that were not there the last time, or whose version is another one,
  ///     are built now, which reads all elements; those that are not named any more are removed. Name the same ones
  ///     everywhere in a program. Of those that were there, the entries of a few elements that were written last are looked
  ///     for where the store may be written, and one that lacks any is built, too.
  /// - Throws: `.invalidKey` for names that cannot be; `.readOnly` if an index is to be built and the store was opened
  ///   for reading only; `.busy` as `rebuildIndexes`; what reading all elements throws.
  public func collection<Element: Codable & Identifiable & Sendable>(
    _ name: String, of _: Element.Type, indexes: [any CollectionIndexing<Element>] = []
  ) throws(StoreError) -> StoreCollection<Element> where Element.ID: KeyComponent {
    let layout = try CollectionLayout(name: name, indexes: indexes)
    let collection = StoreCollection(source: self, layout: layout)
    try collection.prepareIndexes()
    return collection
  }
}
