/// Sorts record locations by key, eight bytes at a time (radix exchange: D. E. Knuth, The Art of Computer
/// Programming 3, 5.2.2 and 5.2.5), so that keys are compared in full only where few share long prefixes.
struct KeySort<Source: KeySource> {
  private let keys: Source

  /// Up to this many items are sorted by comparing keys.
  private static var comparisonSortLimit: Int { 32 }
  /// Keys are prefetched this many items ahead, so that their cache misses overlap.
  private static var prefetchDistance: Int { 16 }
  /// End of a short key in a record without optional fields.
  private static var keyBytes: Int { RecordLayout.fixedLength + 24 }

  /// Sorts items whose keys agree in the first `depth` bytes.
  private func sort(_ items: inout [SortItem], from depth: Int) {
    guard items.count > Self.comparisonSortLimit else {
      return comparisonSort(&items, items.indices, from: depth)
    }
    let depth = load(&items, from: depth)
    items = SortItem.radix(items)
    var start = 0
    while start < items.count {
      let word = items[start].word
      var end = start + 1
      while end < items.count, items[end].word == word { end += 1 }
      if end - start > Self.comparisonSortLimit {
        sortTies(&items, start..<end, at: depth)
      } else if end - start > 1 {
        comparisonSort(&items, start..<end, from: depth)
      }
      start = end
    }
  }

  /// Sorts items whose words at `depth` are the same. A key that ends within the word looks like one that
  /// continues with zeros: it comes before those that do.
  private func sortTies(_ items: inout [SortItem], _ range: Range<Int>, at depth: Int) {
    var ended: [(count: Int, item: SortItem)] = []
    var others: [SortItem] = []
    others.reserveCapacity(range.count)
    for item in items[range] {
      let count = keys.key(at: item.location).count
      if count <= depth + 8 { ended.append((count, item)) } else { others.append(item) }
    }
    ended.sort { $0.count < $1.count }
    sort(&others, from: depth + 8)
    var next = range.lowerBound
    for entry in ended {
      items[next] = entry.item
      next += 1
    }
    for item in others {
      items[next] = item
      next += 1
    }
  }

  /// Loads into each item the first word of its key after the common prefix. Returns its offset.
  private func load(_ items: inout [SortItem], from depth: Int) -> Int {
    // A guess from a few keys is nearly always right, and then one pass is enough.
    let first = keys.key(at: items[0].location)
    var common = first.count
    for index in stride(from: 0, to: items.count, by: max(1, items.count / 32)) {
      common = keys.commonPrefix(first, keys.key(at: items[index].location), limit: common)
    }
    var guess = max(depth, common)
    while true {
      var shared = guess
      for index in items.indices {
        if index + Self.prefetchDistance < items.count {
          keys.prefetch(items[index + Self.prefetchDistance].location, Self.keyBytes)
        }
        let key = keys.key(at: items[index].location)
        if guess > depth { shared = keys.commonPrefix(first, key, limit: shared) }
        items[index].word = keys.word(key, at: guess)
      }
      if shared >= guess { return guess }
      guess = max(depth, shared)
    }
  }

  private func comparisonSort(_ items: inout [SortItem], _ range: Range<Int>, from depth: Int) {
    guard range.count > 1 else { return }
    items[range].sort {
      keys.isLess(keys.key(at: $0.location), keys.key(at: $1.location), from: depth)
    }
  }
}

extension KeySort<SegmentSnapshot> {
  /// The locations in key order; all keys are different. Locations of damaged records are returned
  /// separately.
  static func sorted(_ places: [Location], in segments: SegmentSnapshot) -> (
    places: [Location], damaged: [Location]
  ) {
    var items = SortItem.radix(
      places.map { SortItem(word: $0.packed >> SortItem.groupBits, location: $0) })
    guard !segments.isEncrypted else { return sorted(opening: items, in: segments) }
    let sort = KeySort(keys: segments)
    let damaged = sort.removeDamaged(&items)
    sort.sort(&items, from: 0)
    return (items.map(\.location), damaged)
  }

  private static func sorted(opening items: [SortItem], in segments: SegmentSnapshot) -> (
    places: [Location], damaged: [Location]
  ) {
    let keys = DecryptedKeys(items.lazy.map(\.location), in: segments)
    var items = keys.places.map { SortItem(word: 0, location: $0) }
    KeySort<DecryptedKeys>(keys: keys).sort(&items, from: 0)
    return (items.map { keys.record(at: $0.location) }, keys.damaged)
  }

  /// Removes damaged records: a damaged key would misplace others.
  private func removeDamaged(_ items: inout [SortItem]) -> [Location] {
    var damaged: [Location] = []
    let length = items.first.map { min(keys.length($0.location), 512) } ?? 0
    for index in items.indices {
      if index + Self.prefetchDistance < items.count {
        keys.prefetch(items[index + Self.prefetchDistance].location, length)
      }
      if !keys.isWhole(items[index].location) { damaged.append(items[index].location) }
    }
    if !damaged.isEmpty {
      let isDamaged = Set(damaged)
      items.removeAll { isDamaged.contains($0.location) }
    }
    return damaged
  }
}

/// A location that is being sorted.
private struct SortItem {
  var word: UInt64
  var location: Location

  /// Up to this many items are sorted by comparison.
  private static let comparisonSortLimit = 32
  /// Groups nearby pages of the journal: reads are random only within a group, so that a disk does not seek
  /// back and forth.
  static let groupBits: UInt64 = 16

  /// LSD radix sort by the words, a byte at a time; bytes that are equal in all items are skipped.
  fileprivate static func radix(_ items: [SortItem]) -> [SortItem] {
    guard items.count > comparisonSortLimit else { return items.sorted { $0.word < $1.word } }
    var counts = [Int](repeating: 0, count: 8 * 256)
    for item in items {
      for byte in 0..<8 {
        counts[byte * 256 + Int(truncatingIfNeeded: item.word >> UInt64(byte * 8)) & 0xFF] += 1
      }
    }
    var (from, to) = (items, items)
    for byte in 0..<8 {
      let table = byte * 256
      if counts[table..<(table + 256)].contains(items.count) { continue }
      var sum = 0
      for value in table..<(table + 256) { (counts[value], sum) = (sum, sum + counts[value]) }
      let shift = UInt64(byte * 8)
      for item in from {
        let value = table + Int(truncatingIfNeeded: item.word >> shift) & 0xFF
        to[counts[value]] = item
        counts[value] += 1
      }
      swap(&from, &to)
    }
    return from
  }
}
