/// Metadata of this copy alone, which does not replicate: values and record locations by key.
///
/// Most entries mark large values that are absent here, possibly millions. The table is partitioned, so that
/// growing it, or changing it while a compaction or a pass holds an earlier state, copies one part at a time.
struct LocalMetadata: Sendable {
  private struct Item: Sendable {
    var value: [UInt8]
    var location: Location
  }

  private struct KeyedItem: Sendable {
    let key: [UInt8]
    var item: Item
  }

  /// All entries while there are few, searched linearly: allocating a table costs a tenth of a process's
  /// first opening.
  private var few: [KeyedItem] = []
  private static let linearSearchLimit = 16
  /// Empty while there are few entries. Part 0 has the few that are not of large values; the others are
  /// divided by the last byte of their hash.
  private var parts: [[[UInt8]: Item]] = []

  /// Those entries that tell which collection indexes are complete. Few, and copied into snapshots.
  private(set) var indexNotes: [[UInt8]: [UInt8]] = [:]

  private static func part(of key: [UInt8]) -> Int {
    guard key.starts(with: StateKey.absentBlobPrefix), let last = key.last else { return 0 }
    return Int(last) + 1
  }

  private func item(of key: [UInt8]) -> Item? {
    parts.isEmpty ? few.first { $0.key == key }?.item : parts[Self.part(of: key)][key]
  }

  /// The value of a key; nil if it has none.
  subscript(key: [UInt8]) -> [UInt8]? { item(of: key)?.value }

  /// Location of a key's record; nil if it has none.
  func location(of key: [UInt8]) -> Location? { item(of: key)?.location }

  /// Sets a value and returns the location of the record that it replaces.
  mutating func set(_ key: [UInt8], _ value: [UInt8], at place: Location) -> Location? {
    if key.starts(with: StateKey.collectionPrefix) { indexNotes[key] = value }
    let note = Item(value: value, location: place)
    if parts.isEmpty {
      if let index = few.firstIndex(where: { $0.key == key }) {
        defer { few[index].item = note }
        return few[index].item.location
      }
      if few.count < Self.linearSearchLimit {
        few.append(KeyedItem(key: key, item: note))
        return nil
      }
      parts = Array(repeating: [:], count: 257)
      for noted in few { parts[Self.part(of: noted.key)][noted.key] = noted.item }
      few = []
    }
    return parts[Self.part(of: key)].updateValue(note, forKey: key)?.location
  }

  /// Removes a key and returns the location of its record.
  mutating func remove(_ key: [UInt8]) -> Location? {
    indexNotes[key] = nil
    guard parts.isEmpty else { return parts[Self.part(of: key)].removeValue(forKey: key)?.location }
    return few.firstIndex { $0.key == key }.map { few.remove(at: $0).item.location }
  }

  /// Changes the location of a key's record.
  mutating func move(_ key: [UInt8], to place: Location) {
    guard parts.isEmpty else {
      parts[Self.part(of: key)][key]?.location = place
      return
    }
    if let index = few.firstIndex(where: { $0.key == key }) { few[index].item.location = place }
  }

  /// Keys with `prefix` and their values, in any order.
  func all(beginning prefix: [UInt8] = []) -> [(key: [UInt8], value: [UInt8])] {
    let mayBeOfBlobs =
      prefix.starts(with: StateKey.absentBlobPrefix) || StateKey.absentBlobPrefix.starts(with: prefix)
    let noted = parts.prefix(mayBeOfBlobs ? parts.count : 1).flatMap { part in
      part.compactMap { $0.key.starts(with: prefix) ? ($0.key, $0.value.value) : nil }
    }
    return noted + few.compactMap { $0.key.starts(with: prefix) ? ($0.key, $0.item.value) : nil }
  }

  /// Locations of the records, in any order.
  var locations: some Sequence<Location> {
    parts.lazy.flatMap { $0.values }.map(\.location) + few.map(\.item.location)
  }
}
