/// Which keys a copy holds: those that begin with one of some prefixes. A copy without a scope holds all; what the store keeps
/// about its members every copy holds.
///
/// Invariants: prefixes are sorted, and none begins with another one.
public struct KeyScope: Hashable, Sendable, CustomStringConvertible {
  /// The most prefixes.
  public static let maximumPrefixes = 256

  /// The prefixes, in order.
  public let prefixes: [[UInt8]]

  /// All keys that begin with one of `prefixes`, each of 1 to `Limits.keyBytes` bytes. One that begins with another says nothing more, and is left out.
  ///
  /// - Throws: `.outOfBounds` if there are none, or more than `maximumPrefixes`, or one is empty (a copy of all keys has no
  ///   scope), too long, or of keys that the store keeps for itself.
  public init(prefixes: [[UInt8]]) throws(StoreError) {
    var least: [[UInt8]] = []
    for prefix in prefixes.sorted(by: { $0.lexicographicallyPrecedes($1) }) {
      guard !prefix.isEmpty, prefix.count <= Limits.keyBytes, !ReservedKey.isReserved(prefix) else {
        throw StoreError(
          .outOfBounds,
          "a prefix has 1 to \(Limits.keyBytes) bytes, of which the first is not zero: name another")
      }
      if let last = least.last, prefix.starts(with: last) { continue }
      least.append(prefix)
    }
    guard !least.isEmpty, least.count <= Self.maximumPrefixes else {
      throw StoreError(
        .outOfBounds,
        "\(CountText.of(least.count, noun: "prefix", plural: "prefixes")): a copy of some of the keys has 1 to \(Self.maximumPrefixes)"
      )
    }
    self.prefixes = least
  }

  /// The same for text, in UTF-8.
  ///
  /// - Throws: `.outOfBounds` as the same for bytes.
  public init(prefixes: [String]) throws(StoreError) {
    try self.init(prefixes: prefixes.map { Array($0.utf8) })
  }

  /// Is it the key of something that the copy holds?
  public func contains(_ key: [UInt8]) -> Bool {
    if ReservedKey.isReserved(key) { return true }
    var (low, high) = (0, prefixes.count)
    while low < high {
      let middle = (low + high) / 2
      if key.lexicographicallyPrecedes(prefixes[middle]) { high = middle } else { low = middle + 1 }
    }
    // What lies between a prefix and a key that begins with it begins with it, too.
    return low > 0 && key.starts(with: prefixes[low - 1])
  }

  /// Does it contain all that `other` does?
  public func contains(_ other: KeyScope) -> Bool { other.prefixes.allSatisfy { contains($0) } }

  /// The keys of both.
  ///
  /// - Throws: `.outOfBounds` if that takes more than `maximumPrefixes`.
  public func union(_ other: KeyScope) throws(StoreError) -> KeyScope {
    try KeyScope(prefixes: prefixes + other.prefixes)
  }

  /// The prefixes, as text where they are text.
  public var description: String {
    prefixes.map { String(validating: $0, as: UTF8.self) ?? Hex.string(of: $0) }.joined(separator: ", ")
  }

  // MARK: Bytes

  /// The number of prefixes, then each with its length before it. `schemas/wire.md`, Scopes.
  package func write(to writer: inout ByteWriter) {
    writer.writeVariable(UInt64(prefixes.count))
    for prefix in prefixes { writer.write(counted: prefix) }
  }

  /// The scope that `write` wrote.
  package init(from reader: inout ByteReader) throws(DecodingFailure) {
    var prefixes: [[UInt8]] = []
    for _ in 0..<(try reader.readCount(limit: Self.maximumPrefixes)) {
      prefixes.append(try reader.readCounted(limit: Limits.keyBytes))
    }
    guard let scope = try? KeyScope(prefixes: prefixes), scope.prefixes == prefixes else {
      throw DecodingFailure("prefixes empty, out of order, or one within another")
    }
    self = scope
  }

  /// Appends 0, or 1 and the scope.
  package static func write(_ scope: KeyScope?, to writer: inout ByteWriter) {
    writer.write(UInt8(scope == nil ? 0 : 1))
    scope?.write(to: &writer)
  }

  /// What the other `write` wrote.
  package static func read(from reader: inout ByteReader) throws(DecodingFailure) -> KeyScope? {
    switch try reader.read(UInt8.self) {
    case 0: return nil
    case 1: return try KeyScope(from: &reader)
    default: throw DecodingFailure("a scope that is neither there nor not")
    }
  }
}

extension KeyScope? {
  /// Does a copy of this scope hold the key? Without one it holds all.
  package func holds(_ key: [UInt8]) -> Bool { self?.contains(key) ?? true }

  /// Is this all that `other` is, or more?
  package func covers(_ other: KeyScope?) -> Bool {
    guard let self else { return true }
    return other.map { self.contains($0) } ?? false
  }
}

/// Keys that a copy is to hold, and does not hold yet.
package struct MissingScope: Hashable, Sendable {
  /// What it will hold; nil for all keys.
  package var wanted: KeyScope?
  /// What it holds.
  package var held: KeyScope

  /// Both fields.
  package init(wanted: KeyScope?, held: KeyScope) { (self.wanted, self.held) = (wanted, held) }

  /// Is it one of them?
  package func contains(_ key: [UInt8]) -> Bool { wanted.holds(key) && !held.contains(key) }
}

/// How a copy gets at more keys than it holds: what it will hold, and how far it has got.
package struct ScopeExpansion: Hashable, Sendable {
  /// What it will hold; nil for all keys.
  package var scope: KeyScope?
  /// From whom what is lacking comes.
  package var sender: ActorID?
  /// That sender's floor when it began to come: should it purge more, some of what has come may be deleted.
  package var floor = VersionVector()
  /// Up to where of that sender's journal it has come; nil if nothing has.
  package var cursor: Cursor?

  /// Nothing has come yet.
  package init(to scope: KeyScope?) { self.scope = scope }

  /// How it goes on with a sender who describes itself so: where it was left, or from the beginning.
  package func next(from sender: ReplicaSummary) -> ScopeExpansion {
    if self.sender == sender.actor, floor == sender.floor { return self }
    var next = ScopeExpansion(to: scope)
    (next.sender, next.floor) = (sender.actor, sender.floor)
    return next
  }

  var bytes: [UInt8] {
    var writer = ByteWriter()
    KeyScope.write(scope, to: &writer)
    if let sender, let cursor {
      writer.write(raw: sender.bytes)
      writer.write(floor)
      writer.write(raw: ReplicaState.encode(cursor))
    }
    return writer.bytes
  }

  init(bytes: [UInt8]) throws(DecodingFailure) {
    var reader = ByteReader(bytes)
    scope = try KeyScope.read(from: &reader)
    if reader.remaining > 0 {
      sender = try reader.readActor()
      floor = try reader.readVector()
      cursor = try ReplicaState.cursor(try reader.read(raw: reader.remaining))
    }
  }
}
