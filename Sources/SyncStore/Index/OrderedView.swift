/// The places of all keys' records in the order of the keys' bytes: for scans. Built at the first one, and brought up to
/// date when the next begins.
///
/// Sorting is by eight bytes of the keys at a time (radix exchange: D. E. Knuth, The Art of Computer Programming 3, 5.2.2
/// and 5.2.5), so that keys are compared in full only where they share long prefixes.
struct OrderedView {
  /// In the order of the keys.
  private(set) var locations: [Location] = []
  /// Up to where the journal was read for it.
  private(set) var upTo: Location

  /// Runs of equal prefixes up to this length are sorted by comparing keys.
  private static let fewKeys = 48

  /// Of all these places, each of another key.
  init(_ places: [Location], upTo: Location, in journal: Journal) {
    self.upTo = upTo
    // In the order of the journal its pages are read one after the other.
    var entries = Radix.sorted(places.map { Entry(prefix: $0.packed, location: $0) })
    let skipped = Self.commonPrefix(of: entries, in: journal)
    Self.sort(&entries, entries.indices, behind: skipped, in: journal)
    locations = entries.map(\.location)
  }

  /// Takes in records that are now the current ones of their keys, in any order.
  mutating func merge(_ changes: [Location], upTo: Location, in journal: Journal) {
    self.upTo = upTo
    guard !changes.isEmpty else { return }
    let changed = OrderedView(changes, upTo: upTo, in: journal).locations
    var merged: [Location] = []
    merged.reserveCapacity(locations.count + changed.count)
    var next = 0
    for change in changed {
      let key = KeyBytes(change, in: journal)
      // What lies between two changes is copied as a whole.
      let place = lowerBound(in: next..<locations.count) { KeyBytes($0, in: journal).isLess(than: key) }
      merged.append(contentsOf: locations[next..<place])
      merged.append(change)
      next = place
      if next < locations.count, !key.isLess(than: KeyBytes(locations[next], in: journal)) { next += 1 }
    }
    merged.append(contentsOf: locations[next...])
    locations = merged
  }

  /// The first place whose key is not before `key`.
  func firstIndex(notBefore key: [UInt8], in journal: Journal) -> Int {
    lowerBound(in: 0..<locations.count) { KeyBytes($0, in: journal).isLess(than: key) }
  }

  private func lowerBound(in range: Range<Int>, _ isBefore: (Location) -> Bool) -> Int {
    var (low, high) = (range.lowerBound, range.upperBound)
    while low < high {
      let middle = (low + high) / 2
      if isBefore(locations[middle]) { low = middle + 1 } else { high = middle }
    }
    return low
  }

  // MARK: Sorting

  fileprivate struct Entry {
    var prefix: UInt64
    var location: Location
  }

  private static func commonPrefix(of entries: [Entry], in journal: Journal) -> Int {
    guard let first = entries.first.map({ KeyBytes($0.location, in: journal) }) else { return 0 }
    var common = first.count
    for entry in entries where common > 0 {
      common = first.commonPrefix(with: KeyBytes(entry.location, in: journal), limit: common)
    }
    return common
  }

  /// Sorts entries whose keys agree in the first `depth` bytes.
  private static func sort(
    _ entries: inout [Entry], _ range: Range<Int>, behind depth: Int, in journal: Journal
  ) {
    guard range.count > fewKeys else { return sortFew(&entries, range, in: journal) }
    for index in range {
      entries[index].prefix = KeyBytes(entries[index].location, in: journal).word(at: depth)
    }
    if range.count == entries.count {
      entries = Radix.sorted(entries)
    } else {
      entries.replaceSubrange(range, with: Radix.sorted(Array(entries[range])))
    }
    var start = range.lowerBound
    while start < range.upperBound {
      var end = start + 1
      while end < range.upperBound, entries[end].prefix == entries[start].prefix { end += 1 }
      if end - start > 1 {
        // A key that ends here looks like one that goes on with zeros: those are told apart by comparing.
        let ends = (start..<end).contains { KeyBytes(entries[$0].location, in: journal).count <= depth + 8 }
        if ends {
          sortFew(&entries, start..<end, in: journal)
        } else {
          sort(&entries, start..<end, behind: depth + 8, in: journal)
        }
      }
      start = end
    }
  }

  private static func sortFew(_ entries: inout [Entry], _ range: Range<Int>, in journal: Journal) {
    guard range.count > 1 else { return }
    entries[range].sort {
      KeyBytes($0.location, in: journal).isLess(than: KeyBytes($1.location, in: journal))
    }
  }

  /// Sorting by a 64-bit number, a byte at a time from the lowest; bytes that are the same everywhere are passed over.
  fileprivate enum Radix {
    static func sorted(_ entries: [Entry]) -> [Entry] {
      guard entries.count > fewKeys else { return entries.sorted { $0.prefix < $1.prefix } }
      var counts = [Int](repeating: 0, count: 8 * 256)
      for entry in entries {
        for byte in 0..<8 {
          counts[byte * 256 + Int(truncatingIfNeeded: entry.prefix >> UInt64(byte * 8)) & 0xFF] += 1
        }
      }
      var (from, to) = (entries, entries)
      for byte in 0..<8 {
        let table = byte * 256
        if counts[table..<(table + 256)].contains(entries.count) { continue }
        var sum = 0
        for value in table..<(table + 256) { (counts[value], sum) = (sum, sum + counts[value]) }
        for entry in from {
          let value = table + Int(truncatingIfNeeded: entry.prefix >> UInt64(byte * 8)) & 0xFF
          to[counts[value]] = entry
          counts[value] += 1
        }
        swap(&from, &to)
      }
      return from
    }
  }
}

/// The key of a record, in place.
struct KeyBytes {
  private let mapping: Mapping?
  private let start: Int
  let count: Int

  /// The key at a place that was absorbed; empty if nothing can be read there.
  init(_ location: Location, in journal: Journal) {
    guard let segment = journal.segment(location.segment) else {
      (mapping, start, count) = (nil, 0, 0)
      return
    }
    let view = RecordView(segment: segment, offset: location.offset)
    guard view.isReadable, let shape = view.shape else {
      (mapping, start, count) = (nil, 0, 0)
      return
    }
    (mapping, start, count) = (view.bytes, shape.key.lowerBound, shape.key.count)
  }

  /// Eight bytes from `offset` on, the first one highest; zeros behind the end.
  @inline(__always)
  func word(at offset: Int) -> UInt64 {
    let left = count - offset
    guard left > 0, let mapping else { return 0 }
    if start + offset + 8 <= mapping.count {
      let word = mapping.load(start + offset, as: UInt64.self).byteSwapped
      return left >= 8 ? word : word & ~(UInt64.max >> UInt64(left * 8))
    }
    return (0..<8).reduce(0) { word, byte in
      word << 8 | (byte < left ? UInt64(mapping.load(start + offset + byte, as: UInt8.self)) : 0)
    }
  }

  func isLess(than other: KeyBytes) -> Bool {
    var offset = 0
    while offset < count, offset < other.count {
      let (left, right) = (word(at: offset), other.word(at: offset))
      if left != right { return left < right }
      offset += 8
    }
    return count < other.count
  }

  func isLess(than other: [UInt8]) -> Bool {
    for index in 0..<min(count, other.count) {
      guard let byte = mapping?.load(start + index, as: UInt8.self) else { break }
      if byte != other[index] { return byte < other[index] }
    }
    return count < other.count
  }

  /// How many bytes from the beginning are the same, up to `limit`.
  func commonPrefix(with other: KeyBytes, limit: Int) -> Int {
    var offset = 0
    let limit = min(limit, count, other.count)
    while offset < limit {
      let difference = word(at: offset) ^ other.word(at: offset)
      if difference != 0 { return min(limit, offset + difference.leadingZeroBitCount / 8) }
      offset += 8
    }
    return limit
  }
}
