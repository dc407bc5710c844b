/// What this copy notes for itself alone, by key: the values, and where their records lie.
///
/// Most are of large values that are not here, and of those there may be millions. They lie in parts, so that neither growing nor a change
/// beside somebody who keeps an earlier state (a compaction, a look at all) copies more than one part at once.
struct LocalMetadata: Sendable {
  private struct Item: Sendable {
    var value: [UInt8]
    var location: Location
  }

  private struct KeyedItem: Sendable {
    let key: [UInt8]
    var item: Item
  }

  /// As long as there are few, all of them, to be looked through: to have a table made is a tenth of a process's first opening.
  private var few: [KeyedItem] = []
  private static let linearSearchLimit = 16
  /// Empty as long as there are few. The first has all but those of large values, which are not many; the others have those by the last
  /// bytes of their hashes.
  private var parts: [[[UInt8]: Item]] = []

  private static func part(of key: [UInt8]) -> Int {
    guard key.starts(with: AbsentBlob.prefix), let last = key.last else { return 0 }
    return Int(last) + 1
  }

  private func item(of key: [UInt8]) -> Item? {
    parts.isEmpty ? few.first { $0.key == key }?.item : parts[Self.part(of: key)][key]
  }

  /// The value of a key; nil if nothing is noted under it.
  subscript(key: [UInt8]) -> [UInt8]? { item(of: key)?.value }

  /// Where the record of a key lies; nil if nothing is noted under it.
  func location(of key: [UInt8]) -> Location? { item(of: key)?.location }

  /// Where the record lies that this one replaces.
  mutating func set(_ key: [UInt8], _ value: [UInt8], at place: Location) -> Location? {
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

  /// Where the record lies that this ends.
  mutating func remove(_ key: [UInt8]) -> Location? {
    guard parts.isEmpty else { return parts[Self.part(of: key)].removeValue(forKey: key)?.location }
    return few.firstIndex { $0.key == key }.map { few.remove(at: $0).item.location }
  }

  /// The record of a key lies elsewhere now.
  mutating func move(_ key: [UInt8], to place: Location) {
    guard parts.isEmpty else {
      parts[Self.part(of: key)][key]?.location = place
      return
    }
    if let index = few.firstIndex(where: { $0.key == key }) { few[index].item.location = place }
  }

  /// Keys that begin with `prefix`, and their values, in any order.
  func all(beginning prefix: [UInt8] = []) -> [(key: [UInt8], value: [UInt8])] {
    let mayBeOfBlobs = prefix.starts(with: AbsentBlob.prefix) || AbsentBlob.prefix.starts(with: prefix)
    let noted = parts.prefix(mayBeOfBlobs ? parts.count : 1).flatMap { part in
      part.compactMap { $0.key.starts(with: prefix) ? ($0.key, $0.value.value) : nil }
    }
    return noted + few.compactMap { $0.key.starts(with: prefix) ? ($0.key, $0.item.value) : nil }
  }

  /// Where the records lie, in any order.
  var locations: some Sequence<Location> {
    parts.lazy.flatMap { $0.values }.map(\.location) + few.map(\.item.location)
  }
}
