/// What this copy notes for itself alone, by key: the values, and where their records lie.
///
/// Most are of large values that are not here, and of those there may be millions. They lie in parts, so that neither growing nor a change
/// beside somebody who keeps an earlier state (a compaction, a look at all) copies more than one part at once.
struct LocalNotes: Sendable {
  private struct Note: Sendable {
    var value: [UInt8]
    var place: Location
  }

  /// The first has all but those of large values, which are few; the others have those by the last bytes of their hashes.
  private var parts = [[[UInt8]: Note]](repeating: [:], count: 257)

  private static func part(of key: [UInt8]) -> Int {
    guard key.starts(with: AbsentBlob.prefix), let last = key.last else { return 0 }
    return Int(last) + 1
  }

  /// The value of a key; nil if nothing is noted under it.
  subscript(key: [UInt8]) -> [UInt8]? { parts[Self.part(of: key)][key]?.value }

  /// Where the record of a key lies; nil if nothing is noted under it.
  func place(of key: [UInt8]) -> Location? { parts[Self.part(of: key)][key]?.place }

  /// Where the record lies that this one replaces.
  mutating func set(_ key: [UInt8], _ value: [UInt8], at place: Location) -> Location? {
    parts[Self.part(of: key)].updateValue(Note(value: value, place: place), forKey: key)?.place
  }

  /// Where the record lies that this ends.
  mutating func remove(_ key: [UInt8]) -> Location? {
    parts[Self.part(of: key)].removeValue(forKey: key)?.place
  }

  /// The record of a key lies elsewhere now.
  mutating func move(_ key: [UInt8], to place: Location) { parts[Self.part(of: key)][key]?.place = place }

  /// Keys that begin with `prefix`, and their values, in any order.
  func all(beginning prefix: [UInt8] = []) -> [(key: [UInt8], value: [UInt8])] {
    let mayBeOfBlobs = prefix.starts(with: AbsentBlob.prefix) || AbsentBlob.prefix.starts(with: prefix)
    return parts.prefix(mayBeOfBlobs ? parts.count : 1).flatMap { part in
      part.compactMap { $0.key.starts(with: prefix) ? ($0.key, $0.value.value) : nil }
    }
  }

  /// Where the records lie, in any order.
  var places: some Sequence<Location> { parts.lazy.flatMap { $0.values }.map(\.place) }
}
