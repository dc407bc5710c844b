/// Read access to a collection: a `StoreCollection` in its state at each call, or an immutable
/// `CollectionSnapshot` of it.
///
/// A call that returns several elements reads one snapshot of the store, and blocks no writer. The first such
/// call on an opened store sorts all keys: some 0.2 s for a million.
///
/// All of these throw `.damaged` and `.blobUnavailable` as `scan` does, and `.wrongType`, `.outOfBounds` or
/// `.malformedValue` for an element that cannot be decoded.
public protocol ReadableCollection<Element>: BlockingCalls {
  /// The element type.
  associatedtype Element: Codable & Identifiable & Sendable where Element.ID: KeyComponent
  /// The type of the source.
  associatedtype Source: ReadableStore
  /// The store or snapshot that is read.
  var source: Source { get }
  /// A snapshot of the collection as it is now.
  func snapshot() throws(StoreError) -> CollectionSnapshot<Element>
}

/// A snapshot of a collection; see `Snapshot`.
public struct CollectionSnapshot<Element: Codable & Identifiable & Sendable>: ReadableCollection
where Element.ID: KeyComponent {
  /// The store snapshot that is read.
  public let source: Snapshot
  let layout: CollectionLayout<Element>

  /// Itself.
  public func snapshot() -> CollectionSnapshot<Element> { self }

  /// The element with an identifier; nil if there is none.
  ///
  /// - Throws: as `Store.get`, and as `EncodedValue.decoded`; `.invalidKey` for an identifier that makes no
  ///   valid key.
  public func get(_ identifier: Element.ID) throws(StoreError) -> Element? {
    try source.get(try layout.key(identifier), as: Element.self)
  }

  /// Whether there is an element with that identifier.
  ///
  /// - Throws: as `Snapshot.contains`; `.invalidKey` for an identifier that makes no valid key.
  public func contains(_ identifier: Element.ID) throws(StoreError) -> Bool {
    try source.contains(try layout.key(identifier))
  }
}

extension ReadableCollection {
  // MARK: Identifier order

  /// All elements, in the order of their identifiers.
  ///
  /// - Parameters:
  ///   - reversed: from the last to the first.
  ///   - limit: greatest number of elements.
  ///   - after: only elements after this identifier in scan direction: pass the last one of a page to get the
  ///     next page.
  /// - Throws: `.damaged` and `.blobUnavailable` as `scan`; `.wrongType`, `.outOfBounds` or `.malformedValue`
  ///   for an element that cannot be decoded; `.closed`, `.forked`.
  public func all(
    reversed: Bool = false, limit: Int = .max, after: Element.ID? = nil
  ) throws(StoreError) -> [Element] {
    try list(Unbounded<Element.ID>(), reversed: reversed, limit: limit, after: after)
  }

  /// The elements whose identifiers are in a range, in their order; see `all`.
  ///
  /// - Throws: `.damaged` and `.blobUnavailable` as `scan`; `.wrongType`, `.outOfBounds` or `.malformedValue`
  ///   for an element that cannot be decoded; `.closed`, `.forked`.
  public func all<Bounds: KeyBounds>(
    in bounds: Bounds, reversed: Bool = false, limit: Int = .max, after: Element.ID? = nil
  ) throws(StoreError) -> [Element] where Bounds.Bound == Element.ID {
    try list(bounds, reversed: reversed, limit: limit, after: after)
  }

  private func list<Bounds: KeyBounds>(
    _ bounds: Bounds, reversed: Bool, limit: Int, after: Element.ID?
  ) throws(StoreError) -> [Element] where Bounds.Bound == Element.ID {
    var elements: [Element] = []
    let collection = try snapshot()
    try StoreError.only {
      try collection.visit(bounds, reversed: reversed, limit: limit, after: after) { element in
        elements.append(element)
        return .next
      }
    }
    return elements
  }

  /// Visits the elements in the order of their identifiers, one at a time, until `body` stops.
  ///
  /// - Throws: errors of `body`, too.
  public func forEach(
    reversed: Bool = false, after: Element.ID? = nil, _ body: (Element) throws -> ScanStep
  ) throws {
    try snapshot().visit(Unbounded<Element.ID>(), reversed: reversed, limit: .max, after: after, body)
  }

  /// Number of elements. Visits each of their keys.
  ///
  /// - Throws: `.damaged` as `scanEntries`; `.closed`, `.forked`.
  public var count: Int {
    get throws(StoreError) { try count(of: Unbounded<Element.ID>()) }
  }

  /// Number of elements with identifiers in a range. Visits each of their keys.
  ///
  /// - Throws: `.damaged` as `scanEntries`; `.closed`, `.forked`.
  public func count<Bounds: KeyBounds>(in bounds: Bounds) throws(StoreError) -> Int
  where Bounds.Bound == Element.ID {
    try count(of: bounds)
  }

  private func count<Bounds: KeyBounds>(of bounds: Bounds) throws(StoreError) -> Int
  where Bounds.Bound == Element.ID {
    let collection = try snapshot()
    var count = 0
    try StoreError.only {
      _ = try collection.source.scanEntries(collection.layout.range(bounds)) { _ in count += 1 }
    }
    return count
  }

  // MARK: Index order

  /// All elements of an index, in the order of their values there, and of their identifiers where those are
  /// equal.
  ///
  /// - Parameters:
  ///   - index: one that the collection was opened with.
  ///   - reversed: from the last to the first.
  ///   - limit: greatest number of elements.
  ///   - after: only elements after this one in scan direction: pass the last one of a page to get the next
  ///     page.
  /// - Throws: `.damaged` and `.blobUnavailable` as `scan`; `.wrongType`, `.outOfBounds` or `.malformedValue`
  ///   for an element that cannot be decoded; `.closed`, `.forked`; `.outOfBounds`, too, for an index that
  ///   the collection was opened without, or that is not complete.
  public func all<Value>(
    by index: CollectionIndex<Element, Value>, reversed: Bool = false, limit: Int = .max,
    after: Element? = nil
  ) throws(StoreError) -> [Element] {
    try list(index, bounds: Unbounded<Value>(), reversed: reversed, limit: limit, after: after)
  }

  /// The elements with index values in a range; see `all(by:)`.
  ///
  /// - Throws: `.damaged` and `.blobUnavailable` as `scan`; `.wrongType`, `.outOfBounds` or `.malformedValue`
  ///   for an element that cannot be decoded; `.closed`, `.forked`; `.outOfBounds`, too, for an index that
  ///   the collection was opened without, or that is not complete.
  public func all<Bounds: KeyBounds>(
    by index: CollectionIndex<Element, Bounds.Bound>, in bounds: Bounds, reversed: Bool = false,
    limit: Int = .max, after: Element? = nil
  ) throws(StoreError) -> [Element] {
    try list(index, bounds: bounds, reversed: reversed, limit: limit, after: after)
  }

  /// The elements with one index value, in the order of their identifiers; see `all(by:)`.
  ///
  /// - Throws: `.damaged` and `.blobUnavailable` as `scan`; `.wrongType`, `.outOfBounds` or `.malformedValue`
  ///   for an element that cannot be decoded; `.closed`, `.forked`; `.outOfBounds`, too, for an index that
  ///   the collection was opened without, or that is not complete.
  public func all<Value>(
    by index: CollectionIndex<Element, Value>, equalTo value: Value, reversed: Bool = false,
    limit: Int = .max, after: Element? = nil
  ) throws(StoreError) -> [Element] {
    try list(index, bounds: Single(value: value), reversed: reversed, limit: limit, after: after)
  }

  private func list<Bounds: KeyBounds>(
    _ index: CollectionIndex<Element, Bounds.Bound>, bounds: Bounds, reversed: Bool, limit: Int,
    after: Element?
  ) throws(StoreError) -> [Element] {
    var elements: [Element] = []
    let collection = try snapshot()
    try StoreError.only {
      try collection.visit(index, bounds: bounds, reversed: reversed, limit: limit, after: after) {
        elements.append($0)
      }
    }
    return elements
  }

  /// Number of elements with one index value. Reads each of them.
  ///
  /// - Throws: `.damaged` and `.blobUnavailable` as `scan`; `.wrongType`, `.outOfBounds` or `.malformedValue`
  ///   for an element that cannot be decoded; `.closed`, `.forked`; `.outOfBounds`, too, for an index that
  ///   the collection was opened without, or that is not complete.
  public func count<Value>(
    by index: CollectionIndex<Element, Value>, equalTo value: Value
  ) throws(StoreError) -> Int {
    var count = 0
    let collection = try snapshot()
    try StoreError.only {
      try collection.visit(index, bounds: Single(value: value), reversed: false, limit: .max, after: nil) {
        _ in count += 1
      }
    }
    return count
  }
}

/// Bounds of a single value.
private struct Single<Bound: KeyComponent>: KeyBounds {
  let value: Bound
  var lowest: Bound? { value }
  var highest: Bound? { value }
  var includesHighest: Bool { true }
}

extension CollectionSnapshot {
  func visit<Bounds: KeyBounds>(
    _ bounds: Bounds, reversed: Bool, limit: Int, after: Element.ID?,
    _ body: (Element) throws -> ScanStep
  ) throws where Bounds.Bound == Element.ID {
    let last = try after.map { try layout.key($0) }
    try source.scan(layout.range(bounds), after: last, reversed: reversed, limit: limit) {
      key, value, details throws -> ScanStep in
      let element: Element
      do throws(StoreError) {
        element = try EncodedValue.decode(Element.self, from: value, type: details.type)
      } catch {
        throw error.of(Key(unchecked: [UInt8](copying: key)))
      }
      return try body(element)
    }
  }

  fileprivate func visit<Bounds: KeyBounds>(
    _ index: CollectionIndex<Element, Bounds.Bound>, bounds: Bounds, reversed: Bool, limit: Int,
    after: Element?, _ body: (Element) -> Void
  ) throws {
    let place = try layout.place(of: index)
    try source.requireIndex(layout.indexNames[place], of: layout)
    let prefix = layout.indexPrefixes[place]
    guard limit > 0 else { return }
    var last: Key?
    if let after, let value = index.keyBytes(of: after) {
      last = try CollectionLayout<Element>.entry(prefix: prefix, value: value, identifier: after.id.keyBytes)
    }
    var left = limit
    let range = CollectionLayout<Element>.range(prefix, bounds)
    try source.scanEntries(range, after: last, reversed: reversed) { entry throws -> ScanStep in
      guard let parts = CollectionLayout<Element>.parts(of: entry.key.bytes, after: prefix) else {
        return .next
      }
      let key = Key(unchecked: layout.prefix + parts.identifier)
      // An entry may be left over from a write that lost: the element itself decides.
      guard let element = try source.get(key, as: Element.self),
        layout.holds(element, index: index, value: parts.value)
      else {
        return .next
      }
      body(element)
      left -= 1
      return left > 0 ? .next : .stop
    }
  }
}
