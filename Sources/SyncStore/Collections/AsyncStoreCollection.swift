/// A collection for asynchronous code. Calls that read several elements, write, or wait for other writers do
/// so on a thread that may block, never on one of the cooperative pool. Made by `AsyncStore.collection`.
///
/// ```swift
/// let orders = try await store.collection("orders", of: Order.self)
/// try await orders.insert(Order(id: 7, customer: "Ann"))
/// try await orders.update(7) { $0.customer = "Bo" }
/// ```
///
/// Calls that are missing here either never wait (`key(of:)`, `changes`) or belong to a transaction (`in:`,
/// within `AsyncStore.transaction`): make them on `collection`.
///
/// *Cancellation*: a task that is cancelled before its work began gets `.cancelled`, and nothing was done.
public struct AsyncStoreCollection<Element: Codable & Identifiable & Sendable>: Sendable
where Element.ID: KeyComponent & Sendable {
  /// The synchronous collection.
  public let collection: StoreCollection<Element>

  /// Wraps a collection.
  public init(_ collection: StoreCollection<Element>) { self.collection = collection }

  private func perform<Result: Sendable>(
    _ work: @escaping @Sendable (StoreCollection<Element>) throws(StoreError) -> Result
  ) async throws(StoreError) -> Result {
    let collection = collection
    return try await AsyncStore.perform { () throws(StoreError) in try work(collection) }
  }

  // MARK: Reading

  /// `StoreCollection.get`.
  public func get(_ identifier: Element.ID) async throws(StoreError) -> Element? {
    try await perform { collection throws(StoreError) in try collection.get(identifier) }
  }

  /// `StoreCollection.snapshot`.
  public func snapshot() async throws(StoreError) -> CollectionSnapshot<Element> {
    try await perform { collection throws(StoreError) in try collection.snapshot() }
  }

  /// Reads from a snapshot of the collection, on a thread that may block, as `AsyncStore.withSnapshot` does.
  public func withSnapshot<Result: Sendable>(
    _ body: @escaping @Sendable (CollectionSnapshot<Element>) throws -> Result
  ) async throws -> Result {
    let collection = collection
    return try await AsyncStore(collection.source).withSnapshot { try body(collection.reading($0)) }
  }

  /// All elements, in the order of their identifiers. As `ReadableCollection.all`.
  public func all(
    reversed: Bool = false, limit: Int = .max, after: Element.ID? = nil
  ) async throws(StoreError) -> [Element] {
    try await perform { collection throws(StoreError) in
      try collection.all(reversed: reversed, limit: limit, after: after)
    }
  }

  /// The elements whose identifiers are in a range, in their order. As `ReadableCollection.all(in:)`.
  public func all<Bounds: KeyBounds & Sendable>(
    in bounds: Bounds, reversed: Bool = false, limit: Int = .max, after: Element.ID? = nil
  ) async throws(StoreError) -> [Element] where Bounds.Bound == Element.ID {
    try await perform { collection throws(StoreError) in
      try collection.all(in: bounds, reversed: reversed, limit: limit, after: after)
    }
  }

  /// All elements of an index, in the order of their values there. As `ReadableCollection.all(by:)`.
  public func all<Value>(
    by index: CollectionIndex<Element, Value>, reversed: Bool = false, limit: Int = .max,
    after: Element? = nil
  ) async throws(StoreError) -> [Element] {
    try await perform { collection throws(StoreError) in
      try collection.all(by: index, reversed: reversed, limit: limit, after: after)
    }
  }

  /// The elements whose values in an index are in a range. As `ReadableCollection.all(by:in:)`.
  public func all<Bounds: KeyBounds & Sendable>(
    by index: CollectionIndex<Element, Bounds.Bound>, in bounds: Bounds, reversed: Bool = false,
    limit: Int = .max, after: Element? = nil
  ) async throws(StoreError) -> [Element] {
    try await perform { collection throws(StoreError) in
      try collection.all(by: index, in: bounds, reversed: reversed, limit: limit, after: after)
    }
  }

  /// The elements with one value in an index. As `ReadableCollection.all(by:equalTo:)`.
  public func all<Value: Sendable>(
    by index: CollectionIndex<Element, Value>, equalTo value: Value, reversed: Bool = false,
    limit: Int = .max, after: Element? = nil
  ) async throws(StoreError) -> [Element] {
    try await perform { collection throws(StoreError) in
      try collection.all(by: index, equalTo: value, reversed: reversed, limit: limit, after: after)
    }
  }

  /// Visits the elements in the order of their identifiers until `body` stops; `body` runs on one thread. As
  /// `ReadableCollection.forEach`.
  public func forEach(
    reversed: Bool = false, after: Element.ID? = nil,
    _ body: @escaping @Sendable (Element) throws -> ScanStep
  ) async throws {
    let collection = collection
    try await AsyncStore(collection.source).withStore { _ in
      try collection.forEach(reversed: reversed, after: after, body)
    }
  }

  /// The number of elements. As `ReadableCollection.count`.
  public var count: Int {
    get async throws(StoreError) {
      try await perform { collection throws(StoreError) in try collection.count }
    }
  }

  /// The number of elements whose identifiers are in a range. As `ReadableCollection.count(in:)`.
  public func count<Bounds: KeyBounds & Sendable>(in bounds: Bounds) async throws(StoreError) -> Int
  where Bounds.Bound == Element.ID {
    try await perform { collection throws(StoreError) in try collection.count(in: bounds) }
  }

  /// The number of elements with one value in an index. As `ReadableCollection.count(by:equalTo:)`.
  public func count<Value: Sendable>(
    by index: CollectionIndex<Element, Value>, equalTo value: Value
  ) async throws(StoreError) -> Int {
    try await perform { collection throws(StoreError) in try collection.count(by: index, equalTo: value) }
  }

  // MARK: Single elements

  /// `StoreCollection.insert`.
  public func insert(
    _ element: Element, expiration: Expiration? = nil, durability: Durability? = nil
  ) async throws(StoreError) {
    try await perform { collection throws(StoreError) in
      try collection.insert(element, expiration: expiration, durability: durability)
    }
  }

  /// `StoreCollection.insertOrIgnore`.
  @discardableResult
  public func insertOrIgnore(
    _ element: Element, expiration: Expiration? = nil, durability: Durability? = nil
  ) async throws(StoreError) -> Bool {
    try await perform { collection throws(StoreError) in
      try collection.insertOrIgnore(element, expiration: expiration, durability: durability)
    }
  }

  /// `StoreCollection.insertOrReplace`.
  public func insertOrReplace(
    _ element: Element, expiration: Expiration? = nil, durability: Durability? = nil
  ) async throws(StoreError) {
    try await perform { collection throws(StoreError) in
      try collection.insertOrReplace(element, expiration: expiration, durability: durability)
    }
  }

  /// `StoreCollection.replace`.
  @discardableResult
  public func replace(_ element: Element, durability: Durability? = nil) async throws(StoreError) -> Bool {
    try await perform { collection throws(StoreError) in
      try collection.replace(element, durability: durability)
    }
  }

  /// `StoreCollection.update`. `body` runs on a thread that may block, while all other writers wait.
  @discardableResult
  public func update(
    _ identifier: Element.ID, durability: Durability? = nil,
    _ body: @escaping @Sendable (inout Element) throws -> Void
  ) async throws -> Bool {
    let collection = collection
    return try await AsyncStore(collection.source).withStore { _ in
      try collection.update(identifier, durability: durability, body)
    }
  }

  /// `StoreCollection.expire`.
  @discardableResult
  public func expire(
    _ identifier: Element.ID, _ expiration: Expiration, durability: Durability? = nil
  ) async throws(StoreError) -> Bool {
    try await perform { collection throws(StoreError) in
      try collection.expire(identifier, expiration, durability: durability)
    }
  }

  /// `StoreCollection.delete`.
  @discardableResult
  public func delete(_ identifier: Element.ID, durability: Durability? = nil) async throws(StoreError) -> Bool
  {
    try await perform { collection throws(StoreError) in
      try collection.delete(identifier, durability: durability)
    }
  }

  // MARK: Atomic batches

  /// `StoreCollection.insert(contentsOf:)`.
  public func insert(
    contentsOf elements: some Sequence<Element>, durability: Durability? = nil
  ) async throws(StoreError) {
    let elements = Array(elements)
    try await perform { collection throws(StoreError) in
      try collection.insert(contentsOf: elements, durability: durability)
    }
  }

  /// `StoreCollection.insertOrIgnore(contentsOf:)`.
  @discardableResult
  public func insertOrIgnore(
    contentsOf elements: some Sequence<Element>, durability: Durability? = nil
  ) async throws(StoreError) -> Int {
    let elements = Array(elements)
    return try await perform { collection throws(StoreError) in
      try collection.insertOrIgnore(contentsOf: elements, durability: durability)
    }
  }

  /// `StoreCollection.insertOrReplace(contentsOf:)`.
  public func insertOrReplace(
    contentsOf elements: some Sequence<Element>, durability: Durability? = nil
  ) async throws(StoreError) {
    let elements = Array(elements)
    try await perform { collection throws(StoreError) in
      try collection.insertOrReplace(contentsOf: elements, durability: durability)
    }
  }

  /// `StoreCollection.delete(contentsOf:)`.
  @discardableResult
  public func delete(
    contentsOf identifiers: some Sequence<Element.ID>, durability: Durability? = nil
  ) async throws(StoreError) -> Int {
    let identifiers = Array(identifiers)
    return try await perform { collection throws(StoreError) in
      try collection.delete(contentsOf: identifiers, durability: durability)
    }
  }

  /// `StoreCollection.deleteAll`.
  @discardableResult
  public func deleteAll(durability: Durability? = nil) async throws(StoreError) -> Int {
    try await perform { collection throws(StoreError) in try collection.deleteAll(durability: durability) }
  }

  /// `StoreCollection.rebuildIndexes`.
  public func rebuildIndexes() async throws(StoreError) {
    try await perform { collection throws(StoreError) in try collection.rebuildIndexes() }
  }
}

extension AsyncStore {
  /// The elements of a type that are stored under a name. As `Store.collection`, which may have to build
  /// indexes.
  public func collection<Element: Codable & Identifiable & Sendable>(
    _ name: String, of type: Element.Type, indexes: [any CollectionIndexing<Element>] = []
  ) async throws(StoreError) -> AsyncStoreCollection<Element> where Element.ID: KeyComponent & Sendable {
    let store = store
    return try await Self.perform { () throws(StoreError) in
      AsyncStoreCollection(try store.collection(name, of: type, indexes: indexes))
    }
  }
}
