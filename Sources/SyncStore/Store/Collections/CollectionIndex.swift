/// A secondary order of a collection's elements, by one of their properties. Declared once and given to the
/// collection:
///
/// ```swift
/// extension Order {
///   static let byCustomer = CollectionIndex("customer", \Order.customer)
/// }
/// ```
///
/// Its entries are written in the transaction that writes the element. Several elements may have the same
/// value. An element whose value is too long for a key (`Limits.keyBytes`) is refused; one stored by a
/// program without the index is not in it.
public struct CollectionIndex<Element, Value: KeyComponent>: CollectionIndexing {
  /// 1 to `Limits.collectionNameBytes` bytes without `/`, different from the collection's other indexes.
  public let name: String
  /// Raise it whenever `value` gives another result for an element: the index is then rebuilt. Opening a
  /// collection samples a few elements to detect a forgotten change, which cannot find every one.
  public let version: Int
  let value: @Sendable (Element) -> Value?

  /// An index by a property.
  ///
  /// - Parameters:
  ///   - name: the index's name in the store; keep it when the property is renamed.
  ///   - version: raise it when the name is to mean another property, or the property something else.
  public init(_ name: String, version: Int = 1, _ property: any KeyPath<Element, Value> & Sendable) {
    self.init(name, version: version) { $0[keyPath: property] }
  }

  /// An index by an optional property: elements without a value are not in the index.
  public init(_ name: String, version: Int = 1, _ property: any KeyPath<Element, Value?> & Sendable) {
    self.init(name, version: version) { $0[keyPath: property] }
  }

  /// An index by a function of the element; elements for which it returns nil are not in the index.
  public init(_ name: String, version: Int = 1, _ value: @escaping @Sendable (Element) -> Value?) {
    (self.name, self.version, self.value) = (name, version, value)
  }

  /// The key bytes of an element's value; nil if it is not in the index.
  public func keyBytes(of element: Element) -> [UInt8]? { value(element)?.keyBytes }
}

/// An index with any type of value.
public protocol CollectionIndexing<Element>: Sendable {
  /// The element type.
  associatedtype Element
  /// The index's name in the store.
  var name: String { get }
  /// Version of the indexed property.
  var version: Int { get }
  /// The key bytes of an element's value; nil if it is not in the index.
  func keyBytes(of element: Element) -> [UInt8]?
}

/// The keys of a collection's elements and index entries:
///
/// ```
/// name "/" identifier                           an element
/// name "#" index "#" version "/" value 0 identifier
///                                               an entry of an index; zeros in the value are followed by 255
/// ```
///
/// Invariant: for each element the entries of the write that made it exist. There may be further entries,
/// left by a write that lost against one of another copy: an entry counts only if the element has its value.
struct CollectionLayout<Element: Codable & Identifiable & Sendable>: Sendable where Element.ID: KeyComponent {
  let name: String
  /// Prefix of all elements.
  let prefix: [UInt8]
  let indexes: [any CollectionIndexing<Element>]
  /// Prefix of all entries, for each index.
  let indexPrefixes: [[UInt8]]
  /// The local key that records which indexes are complete, and its value if exactly these are; see
  /// `IndexMetadata`.
  let metadataKey: [UInt8]
  let metadataBytes: [UInt8]?
  /// Names of the indexes in that record.
  let indexNames: [IndexMetadata.Name]
  /// Computed from a property that is not generic: finding the metadata of the type of `indexes` takes half
  /// as long as a put.
  var hasIndexes: Bool { !indexPrefixes.isEmpty }

  /// Capacity sufficient for most identifiers.
  private static var identifierBytes: Int { 40 }
  private static var slash: UInt8 { 0x2F }
  private static var number: UInt8 { 0x23 }

  init(name: String, indexes: [any CollectionIndexing<Element>]) throws(StoreError) {
    for name in [name] + indexes.map(\.name) {
      guard !name.isEmpty, name.utf8.count <= Limits.collectionNameBytes,
        !name.utf8.contains(where: { $0 == Self.slash || $0 == Self.number || $0 == 0 })
      else {
        throw StoreError(
          .invalidKey,
          "\"\(name)\" cannot name a collection or an index: it takes 1 to \(Limits.collectionNameBytes) bytes without / # and zero"
        )
      }
    }
    guard StringSet(indexes.map(\.name)).count == indexes.count else {
      throw StoreError(
        .invalidKey, "two indexes of the collection \"\(name)\" have the same name: rename one")
    }
    self.name = name
    self.indexes = indexes
    prefix = Array(name.utf8) + [Self.slash]
    indexPrefixes = indexes.map { Self.entryPrefix(name, index: $0.name, version: $0.version) }
    metadataKey = IndexMetadata.key(of: name)
    indexNames = indexes.map { IndexMetadata.Name(name: $0.name, version: $0.version) }
    metadataBytes = try IndexMetadata(complete: Set(indexNames)).bytes()
  }

  /// Prefix of all entries of an index.
  static func entryPrefix(_ name: String, index: String, version: Int) -> [UInt8] {
    Array(name.utf8) + [number] + Array(index.utf8) + [number] + Array("\(version)".utf8) + [slash]
  }

  // MARK: Elements

  func key(_ identifier: Element.ID) throws(StoreError) -> Key {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(prefix.count + Self.identifierBytes)
    bytes.append(contentsOf: prefix)
    identifier.appendKeyBytes(to: &bytes)
    guard bytes.count == prefix.count || bytes[prefix.count] != 0xFF else {
      throw StoreError(
        .invalidKey, "an identifier of the collection \"\(name)\" begins with the byte 255: choose another")
    }
    return try Key(bytes: bytes)
  }

  func range(_ bounds: some KeyBounds<Element.ID>) -> KeyRange {
    let end = KeyRange(prefix: prefix).upper
    return KeyRange(
      lower: prefix + (bounds.lowest?.keyBytes ?? []),
      upper: bounds.highest.map { prefix + $0.keyBytes + (bounds.includesHighest ? [0] : []) } ?? end)
  }

  // MARK: Entries

  /// Position of the index in `indexes`.
  func place(of index: some CollectionIndexing<Element>) throws(StoreError) -> Int {
    guard let place = indexes.firstIndex(where: { $0.name == index.name && $0.version == index.version })
    else {
      throw StoreError(
        .outOfBounds,
        "the collection \"\(name)\" was opened without the index \"\(index.name)\" (version \(index.version)): name it there"
      )
    }
    return place
  }

  /// The entries of an element, one for each index that contains it.
  func entries(of element: Element) throws(StoreError) -> [Key] {
    var keys: [Key] = []
    let identifier = element.id.keyBytes
    for (index, prefix) in zip(indexes, indexPrefixes) {
      if let value = index.keyBytes(of: element) {
        keys.append(try Self.entry(prefix: prefix, value: value, identifier: identifier))
      }
    }
    return keys
  }

  /// The entries of an element that is already stored.
  func entries(ofStored element: Element) -> [Key] {
    indexes.indices.compactMap { entry(ofStored: element, in: $0) }
  }

  /// The entry of a stored element in one of the indexes; nil if it has none.
  ///
  /// A program that does not know the index may have stored an element whose value there is too long for a
  /// key: that has no entry.
  func entry(ofStored element: Element, in place: Int) -> Key? {
    indexes[place].keyBytes(of: element).flatMap {
      try? Self.entry(prefix: indexPrefixes[place], value: $0, identifier: element.id.keyBytes)
    }
  }

  static func entry(prefix: [UInt8], value: [UInt8], identifier: [UInt8]) throws(StoreError) -> Key {
    try Key(bytes: prefix + escaped(value) + [0] + identifier)
  }

  private static func escaped(_ value: [UInt8]) -> [UInt8] {
    value.contains(0) ? value.flatMap { $0 == 0 ? [0, 0xFF] : [$0] } : value
  }

  /// Splits an entry into the value, still escaped, and the identifier. Nil if it is malformed.
  static func parts(of entry: [UInt8], after prefix: [UInt8]) -> (
    value: ArraySlice<UInt8>, identifier: ArraySlice<UInt8>
  )? {
    var at = prefix.count
    while at < entry.count {
      if entry[at] == 0 {
        guard at + 1 < entry.count, entry[at + 1] == 0xFF else {
          return (entry[prefix.count..<at], entry[(at + 1)...])
        }
        at += 1
      }
      at += 1
    }
    return nil
  }

  /// The entries with values in a range.
  static func range(_ prefix: [UInt8], _ bounds: some KeyBounds) -> KeyRange {
    // No identifier begins with 255: after the 0, 255 would belong to a longer value.
    KeyRange(
      lower: bounds.lowest.map { prefix + escaped($0.keyBytes) + [0] } ?? prefix,
      upper: bounds.highest.map {
        prefix + escaped($0.keyBytes) + (bounds.includesHighest ? [0, 0xFF] : [0])
      }
        ?? KeyRange(prefix: prefix).upper)
  }

  /// Whether the element has the value of the entry.
  func holds(_ element: Element, index: any CollectionIndexing<Element>, value: ArraySlice<UInt8>) -> Bool {
    index.keyBytes(of: element).map { Self.escaped($0)[...] == value } ?? false
  }
}

/// No bounds: all values.
struct Unbounded<Bound: KeyComponent>: KeyBounds {
  var lowest: Bound? { nil }
  var highest: Bound? { nil }
  var includesHighest: Bool { false }
}
