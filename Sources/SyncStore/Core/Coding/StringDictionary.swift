/// A string whose identity is its UTF-8 bytes.
package struct ByteString: Hashable, Sendable {
  /// The string.
  package let text: String

  /// Wraps a string.
  package init(_ text: String) { self.text = text }

  /// Whether both have the same bytes.
  package static func == (first: ByteString, second: ByteString) -> Bool {
    first.text.hasSameBytes(as: second.text)
  }

  /// Feeds the bytes to the hasher.
  package func hash(into hasher: inout Hasher) { text.hashBytes(into: &hasher) }
}

/// A dictionary whose string keys are compared by their UTF-8 bytes, as keys of a store, paths and names are.
///
/// "é" as one scalar and as a letter with a combining accent are two keys here, and one in a `Dictionary`.
/// Unordered, like a `Dictionary`.
///
/// ```swift
/// let found = try cache.get(["a", "b"])
/// print(found["a"] ?? [], found.count)
/// for (key, value) in found { print(key, value.count) }
/// ```
public struct StringDictionary<Value>: ExpressibleByDictionaryLiteral {
  private var table: [ByteString: Value] = [:]

  /// An empty dictionary.
  public init() {}

  /// A dictionary of these keys. For a duplicate key the last value counts.
  public init(dictionaryLiteral elements: (String, Value)...) {
    for (key, value) in elements { self[key] = value }
  }

  /// A dictionary of these pairs. For a duplicate key the first value counts.
  package init(first pairs: some Sequence<(String, Value)>) {
    table = [ByteString: Value](
      pairs.lazy.map { (ByteString($0.0), $0.1) }, uniquingKeysWith: { first, _ in first })
  }

  /// Number of keys.
  public var count: Int { table.count }
  /// Whether there is no key.
  public var isEmpty: Bool { table.isEmpty }
  /// All keys, in no order.
  public var keys: [String] { table.keys.map(\.text) }
  /// All values, in the order of `keys`.
  public var values: [Value] { Array(table.values) }

  /// The value of a key; nil if it has none. Setting nil removes the key.
  public subscript(key: String) -> Value? {
    get { table[ByteString(key)] }
    _modify { yield &table[ByteString(key)] }
  }

  /// The value of a key, or `value` if it has none.
  public subscript(key: String, default value: @autoclosure () -> Value) -> Value {
    get { table[ByteString(key)] ?? value() }
    _modify { yield &table[ByteString(key), default: value()] }
  }

  /// Removes a key. Returns the value that it had.
  @discardableResult
  public mutating func removeValue(forKey key: String) -> Value? {
    table.removeValue(forKey: ByteString(key))
  }

  /// The pairs for which the predicate is true.
  public func filter(_ isIncluded: ((key: String, value: Value)) -> Bool) -> StringDictionary {
    var kept = self
    kept.table = table.filter { isIncluded((key: $0.key.text, value: $0.value)) }
    return kept
  }
}

extension StringDictionary: Sequence {
  /// Iterates over the pairs.
  public func makeIterator() -> some IteratorProtocol<(key: String, value: Value)> {
    table.lazy.map { (key: $0.key.text, value: $0.value) }.makeIterator()
  }
}

extension StringDictionary: Sendable where Value: Sendable {}
extension StringDictionary: Equatable where Value: Equatable {}
extension StringDictionary: Hashable where Value: Hashable {}

extension StringDictionary: CustomStringConvertible {
  /// The pairs in the form of a dictionary, sorted by key.
  public var description: String {
    let pairs = sorted { $0.key < $1.key }.map { "\($0.key.debugDescription): \($0.value)" }
    return "[" + (pairs.isEmpty ? ":" : pairs.joined(separator: ", ")) + "]"
  }
}

/// A set of strings that are compared by their UTF-8 bytes, as names of peers are: see `StringDictionary`.
///
/// ```swift
/// node.keepInStep(KeepPolicy(peers: ["laptop", "office"]))
/// ```
public struct StringSet: Hashable, Sendable, ExpressibleByArrayLiteral {
  private var table: Set<ByteString> = []

  /// An empty set.
  public init() {}

  /// A set of these strings.
  public init(_ strings: some Sequence<String>) { table = Set(strings.lazy.map { ByteString($0) }) }

  /// A set of these strings.
  public init(arrayLiteral elements: String...) { self.init(elements) }

  /// Number of strings.
  public var count: Int { table.count }
  /// Whether there is none.
  public var isEmpty: Bool { table.isEmpty }

  /// Whether a string with these bytes is in the set.
  public func contains(_ string: String) -> Bool { table.contains(ByteString(string)) }

  /// Whether each of its strings is in `other`, too.
  public func isSubset(of other: StringSet) -> Bool { table.isSubset(of: other.table) }

  /// Inserts a string. Returns false if it was there already.
  @discardableResult
  public mutating func insert(_ string: String) -> Bool { table.insert(ByteString(string)).inserted }

  /// Removes a string. Returns false if it was not there.
  @discardableResult
  public mutating func remove(_ string: String) -> Bool { table.remove(ByteString(string)) != nil }
}

extension StringSet: Sequence {
  /// Iterates over the strings, in no order.
  public func makeIterator() -> some IteratorProtocol<String> {
    table.lazy.map(\.text).makeIterator()
  }
}
