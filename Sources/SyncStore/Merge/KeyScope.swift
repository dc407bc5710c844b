/// The keys that a copy holds: those that begin with one of some prefixes. A copy without a scope holds all;
/// every copy holds the store's own records of its members.
///
/// Invariants: prefixes are sorted, and none begins with another one.
public struct KeyScope: Hashable, Sendable, CustomStringConvertible {
  /// The most prefixes.
  public static let maximumPrefixes = 256

  /// The prefixes, in order.
  public let prefixes: [[UInt8]]

  /// All keys that begin with one of `prefixes`, each of 1 to `Limits.keyBytes` bytes. A prefix that begins
  /// with another one is redundant and left out.
  ///
  /// - Throws: `.outOfBounds` if there are none, or more than `maximumPrefixes`, or one is empty (a copy of
  ///   all keys has no scope), too long, or of keys that the store reserves for itself.
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

  /// All keys that begin with one of `prefixes`, in UTF-8.
  ///
  /// - Throws: `.outOfBounds` as for prefixes of bytes.
  public init(prefixes: [String]) throws(StoreError) {
    try self.init(prefixes: prefixes.map { Array($0.utf8) })
  }

  /// True if a copy with this scope holds the key.
  public func contains(_ key: [UInt8]) -> Bool {
    if ReservedKey.isReserved(key) { return true }
    var (low, high) = (0, prefixes.count)
    while low < high {
      let middle = (low + high) / 2
      if key.lexicographicallyPrecedes(prefixes[middle]) { high = middle } else { low = middle + 1 }
    }
    // Every key between a prefix and a key that begins with it begins with it, too.
    return low > 0 && key.starts(with: prefixes[low - 1])
  }

  /// True if every key of `other` is in this scope.
  public func contains(_ other: KeyScope) -> Bool { other.prefixes.allSatisfy { contains($0) } }

  /// The keys of both scopes.
  ///
  /// - Throws: `.outOfBounds` if that takes more than `maximumPrefixes`.
  public func union(_ other: KeyScope) throws(StoreError) -> KeyScope {
    try KeyScope(prefixes: prefixes + other.prefixes)
  }

  /// The prefixes, as text if they are UTF-8, else in hex.
  public var description: String {
    prefixes.map { String(validating: $0, as: UTF8.self) ?? Hex.string(of: $0) }.joined(separator: ", ")
  }

  // MARK: Bytes

  /// Appends the number of prefixes, then each with its length before it. `schemas/wire.md`, Scopes.
  package func write(to writer: inout ByteWriter) {
    writer.writeVariable(UInt64(prefixes.count))
    for prefix in prefixes { writer.write(counted: prefix) }
  }

  /// Reads the scope that `write` wrote.
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

  /// Reads an optional scope that `write` wrote.
  package static func read(from reader: inout ByteReader) throws(DecodingFailure) -> KeyScope? {
    switch try reader.read(UInt8.self) {
    case 0: return nil
    case 1: return try KeyScope(from: &reader)
    default: throw DecodingFailure("a scope that is neither there nor not")
    }
  }
}

extension KeyScope? {
  /// True if a copy of this scope holds the key. Without a scope it holds all.
  package func holds(_ key: [UInt8]) -> Bool { self?.contains(key) ?? true }

  /// True if every key of `other` is in this scope.
  package func covers(_ other: KeyScope?) -> Bool {
    guard let self else { return true }
    return other.map { self.contains($0) } ?? false
  }
}

/// Keys that a copy will hold and does not hold yet.
package struct MissingScope: Hashable, Sendable {
  /// The scope that it will hold; nil for all keys.
  package var wanted: KeyScope?
  /// The scope that it holds.
  package var held: KeyScope

  /// Both fields.
  package init(wanted: KeyScope?, held: KeyScope) { (self.wanted, self.held) = (wanted, held) }

  /// True if the key is missing.
  package func contains(_ key: [UInt8]) -> Bool { wanted.holds(key) && !held.contains(key) }
}

/// Scope expansion: how a copy acquires more keys than it holds, and how far it has come.
package struct ScopeExpansion: Hashable, Sendable {
  /// The scope that it will hold; nil for all keys.
  package var scope: KeyScope?
  /// Sender of the missing keys.
  package var sender: ActorID?
  /// That sender's floor at the beginning: if it purges more, some of what was received may have been
  /// deleted.
  package var floor = VersionVector()
  /// How far that sender's journal was received; nil if nothing was.
  package var cursor: Cursor?

  /// A scope expansion that has received nothing yet.
  package init(to scope: KeyScope?) { self.scope = scope }

  /// The continuation with a sender that describes itself so: from the cursor, or from the beginning.
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
