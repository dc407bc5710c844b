/// What the keys that begin with one path take.
public struct KeyUsage: Hashable, Sendable {
  /// The beginning of the keys.
  public let path: [UInt8]
  /// Number of keys that have a value.
  public private(set) var keys = 0
  /// Bytes of these keys.
  public private(set) var keyBytes: UInt64 = 0
  /// Bytes of their values, each counted in full: equal large values share their space on disk.
  public private(set) var valueBytes: UInt64 = 0
  /// Large values among them, by key: shared content counts each time.
  public private(set) var blobs = 0
  /// Bytes of those values.
  public private(set) var blobBytes: UInt64 = 0

  /// Bytes of keys and values.
  public var bytes: UInt64 { keyBytes + valueBytes }

  init(path: [UInt8]) { self.path = path }

  fileprivate mutating func add(_ entry: Entry) {
    keys += 1
    keyBytes += UInt64(entry.key.bytes.count)
    valueBytes += entry.size
    guard entry.blob != nil else { return }
    blobs += 1
    blobBytes += entry.size
  }
}

extension ReadableStore {
  /// What the keys under a prefix take, and the paths below it: as `du` shows files.
  ///
  /// ```swift
  /// for usage in try store.usage(ofKeys: Array("photos/".utf8), depth: 1) {
  ///   print(String(decoding: usage.path, as: UTF8.self), usage.keys, usage.bytes)
  /// }
  /// ```
  ///
  /// Visits every key of the prefix, and no value.
  ///
  /// - Parameters:
  ///   - prefix: of the keys; an empty one is the whole store.
  ///   - depth: how many parts of a path below the prefix are told apart.
  ///   - separator: what ends a part; not empty.
  /// - Returns: the prefix and the paths below it that have keys, the most bytes first.
  /// - Throws: `.outOfBounds` if the separator is empty; as `scanEntries`.
  public func usage(
    ofKeys prefix: [UInt8] = [], depth: Int = 0, separator: [UInt8] = [UInt8(ascii: "/")]
  ) throws(StoreError) -> [KeyUsage] {
    guard !separator.isEmpty else {
      throw StoreError(.outOfBounds, "the separator is empty: give one, such as a slash")
    }
    var tree = KeyUsageTree(prefix: prefix, depth: depth, separator: separator)
    _ = try StoreError.only { try scanEntries(KeyRange(prefix: prefix)) { tree.add($0) } }
    return tree.sorted
  }
}

/// Sums for a prefix and the paths below it.
package struct KeyUsageTree {
  /// The beginning of the keys.
  package let prefix: [UInt8]
  private let depth: Int
  private let separator: [UInt8]
  private var sums: [[UInt8]: KeyUsage]

  /// Sums of nothing yet. `separator` must not be empty.
  package init(prefix: [UInt8], depth: Int, separator: [UInt8]) {
    (self.prefix, self.depth, self.separator) = (prefix, depth, separator)
    sums = [prefix: KeyUsage(path: prefix)]
  }

  /// Adds a key, which begins with the prefix.
  package mutating func add(_ entry: Entry) {
    sums[prefix, default: KeyUsage(path: prefix)].add(entry)
    let key = entry.key.bytes
    var (end, level) = (prefix.count, 0)
    while level < depth, let next = Self.end(of: separator, in: key, from: end) {
      let path = Array(key[..<next])
      sums[path, default: KeyUsage(path: path)].add(entry)
      (end, level) = (next, level + 1)
    }
  }

  /// The end of the first separator at or after `start`.
  private static func end(of separator: [UInt8], in key: [UInt8], from start: Int) -> Int? {
    guard start + separator.count <= key.count else { return nil }
    return (start...(key.count - separator.count)).first { key[$0...].starts(with: separator) }
      .map { $0 + separator.count }
  }

  /// The most bytes first, a path before those below it.
  package var sorted: [KeyUsage] {
    sums.values.sorted { first, second in
      first.bytes == second.bytes
        ? first.path.lexicographicallyPrecedes(second.path) : first.bytes > second.bytes
    }
  }
}
