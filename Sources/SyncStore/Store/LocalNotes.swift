/// What this copy notes for itself alone, by key: the values, and where their records lie.
///
/// Most are of large values that are not here, and of those there may be millions. They lie in parts, so that neither growing nor a change
/// beside somebody who keeps an earlier state (a compaction, a look at all) copies more than one part at once. All others are few, and
/// lie together.
struct LocalNotes: Sendable {
  private struct Note: Sendable {
    var value: [UInt8]
    var place: Location
  }

  private static let partCount = 256

  private var few: [[UInt8]: Note] = [:]
  private var ofBlobs = [[[UInt8]: Note]](repeating: [:], count: partCount)

  /// Where a note of a large value lies, by its hash; nil for another.
  private static func part(of key: [UInt8]) -> Int? {
    guard key.starts(with: AbsentBlob.prefix), let last = key.last else { return nil }
    return Int(last) % partCount
  }

  private func note(_ key: [UInt8]) -> Note? {
    Self.part(of: key).map { ofBlobs[$0][key] } ?? few[key]
  }

  /// The value of a key; nil if nothing is noted under it.
  subscript(key: [UInt8]) -> [UInt8]? { note(key)?.value }

  /// Where the record of a key lies; nil if nothing is noted under it.
  func place(of key: [UInt8]) -> Location? { note(key)?.place }

  /// Where the record lies that this one replaces.
  mutating func set(_ key: [UInt8], _ value: [UInt8], at place: Location) -> Location? {
    let note = Note(value: value, place: place)
    guard let part = Self.part(of: key) else { return few.updateValue(note, forKey: key)?.place }
    return ofBlobs[part].updateValue(note, forKey: key)?.place
  }

  /// Where the record lies that this ends.
  mutating func remove(_ key: [UInt8]) -> Location? {
    guard let part = Self.part(of: key) else { return few.removeValue(forKey: key)?.place }
    return ofBlobs[part].removeValue(forKey: key)?.place
  }

  /// The record of a key lies elsewhere now.
  mutating func move(_ key: [UInt8], to place: Location) {
    guard let part = Self.part(of: key) else {
      few[key]?.place = place
      return
    }
    ofBlobs[part][key]?.place = place
  }

  /// Keys that begin with `prefix`, and their values, in any order.
  func all(beginning prefix: [UInt8] = []) -> [(key: [UInt8], value: [UInt8])] {
    var found = few.compactMap { $0.key.starts(with: prefix) ? ($0.key, $0.value.value) : nil }
    guard prefix.starts(with: AbsentBlob.prefix) || AbsentBlob.prefix.starts(with: prefix) else {
      return found
    }
    for part in ofBlobs {
      for (key, note) in part where key.starts(with: prefix) { found.append((key, note.value)) }
    }
    return found
  }

  /// Where the records lie, in any order.
  var places: some Sequence<Location> {
    ([few] + ofBlobs).lazy.flatMap { $0.values }.map(\.place)
  }
}
